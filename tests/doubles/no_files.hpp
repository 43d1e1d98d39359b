#pragma once
#include <cerrno>

#include "os/files.hpp"

namespace ebb::platform::testing {

/// Files that answer ENOSYS: for a double of a few calls to start from.
/// Thread safety: nothing is kept.
class NoFiles : public Files {
 public:
  using Path = std::filesystem::path;
  SysResult open_unlinked(const Path&, bool) noexcept override { return none(); }
  SysResult open_read(const Path&) noexcept override { return none(); }
  SysResult open_write(const Path&) noexcept override { return none(); }
  SysResult open(const Path&, Open, bool) noexcept override { return none(); }
  SysResult close(int) noexcept override { return none(); }
  SysResult read(int, void*, std::size_t, std::uint64_t) noexcept override { return none(); }
  SysResult write(int, const void*, std::size_t, std::uint64_t) noexcept override { return none(); }
  SysResult truncate(int, std::uint64_t) noexcept override { return none(); }
  SysResult preallocate(int, std::uint64_t, std::uint64_t) noexcept override { return none(); }
  SysResult punch(int, std::uint64_t, std::uint64_t) noexcept override { return none(); }
  SysResult sync(int) noexcept override { return none(); }
  SysResult drop_cached(int) noexcept override { return none(); }
  SysResult next_data(int, std::uint64_t) noexcept override { return none(); }
  SysResult sync_directory(const Path&) noexcept override { return none(); }
  SysResult make_directory(const Path&) noexcept override { return none(); }
  SysResult rename(const Path&, const Path&) noexcept override { return none(); }
  SysResult remove(const Path&) noexcept override { return none(); }
  SysResult list(const Path&, std::vector<std::string>&) noexcept override { return none(); }
  SysResult status(const Path&, FileStatus&) noexcept override { return none(); }
  SysResult status(int, FileStatus&) noexcept override { return none(); }
  SysResult lock(const Path&, Open) noexcept override { return none(); }
  SysResult unlock(int) noexcept override { return none(); }
  SysResult describe(const Path&, FileSystem&) noexcept override { return none(); }
  Result<std::unique_ptr<Ring>> open_ring(unsigned) override { return Error{Errc::unsupported, "no ring here"}; }

 private:
  static SysResult none() noexcept { return SysResult::failed(ENOSYS); }
};

}  // namespace ebb::platform::testing
