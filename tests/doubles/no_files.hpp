#pragma once
#include <cerrno>

#include "os/files.hpp"

namespace ebb::doubles {

/// Files that answer ENOSYS: for a double of a few calls to start from.
/// Thread safety: nothing is kept.
class NoFiles : public os::Files {
 public:
  using Path = std::filesystem::path;
  os::SysResult open_unlinked(const Path&, bool) noexcept override { return none(); }
  os::SysResult open_read(const Path&) noexcept override { return none(); }
  os::SysResult open_write(const Path&) noexcept override { return none(); }
  os::SysResult open(const Path&, os::Open, bool) noexcept override { return none(); }
  os::SysResult close(int) noexcept override { return none(); }
  os::SysResult read(int, void*, std::size_t, std::uint64_t) noexcept override { return none(); }
  os::SysResult write(int, const void*, std::size_t, std::uint64_t) noexcept override { return none(); }
  os::SysResult truncate(int, std::uint64_t) noexcept override { return none(); }
  os::SysResult preallocate(int, std::uint64_t, std::uint64_t) noexcept override { return none(); }
  os::SysResult punch(int, std::uint64_t, std::uint64_t) noexcept override { return none(); }
  os::SysResult sync(int) noexcept override { return none(); }
  os::SysResult drop_cached(int) noexcept override { return none(); }
  os::SysResult next_data(int, std::uint64_t) noexcept override { return none(); }
  os::SysResult sync_directory(const Path&) noexcept override { return none(); }
  os::SysResult make_directory(const Path&) noexcept override { return none(); }
  os::SysResult rename(const Path&, const Path&) noexcept override { return none(); }
  os::SysResult remove(const Path&) noexcept override { return none(); }
  os::SysResult list(const Path&, std::vector<std::string>&) noexcept override { return none(); }
  os::SysResult status(const Path&, os::FileStatus&) noexcept override { return none(); }
  os::SysResult status(int, os::FileStatus&) noexcept override { return none(); }
  os::SysResult read_link(const Path&, Path&) noexcept override { return none(); }
  os::SysResult lock(const Path&, os::Open) noexcept override { return none(); }
  os::SysResult unlock(int) noexcept override { return none(); }
  os::SysResult describe(const Path&, os::FileSystem&) noexcept override { return none(); }
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned) override { return Error{Errc::unsupported, "no ring here"}; }

 private:
  static os::SysResult none() noexcept { return os::SysResult::failed(ENOSYS); }
};

}  // namespace ebb::doubles
