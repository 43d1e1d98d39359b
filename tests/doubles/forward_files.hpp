#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "os/files.hpp"

namespace ebb::doubles {

enum class FileCall : std::uint8_t {
  open,   // open_unlinked and open; open_read and open_write pass unseen
  close,  // unlock too, which closes
  read,
  write,
  truncate,
  preallocate,
  punch,
  describe,
  open_ring,
  sync,
  sync_directory,
  make_directory,
  rename,
  remove,
  list,
  status,
  lock,
  drop_cached,
  next_data,
};
inline constexpr std::size_t kFileCalls = 19;

/// One call and its result. Transfers through a ring are recorded as reads and writes, when they are prepared
/// (`result` is then that of the fault: the whole length, a shortened one or an errno).
struct FileRecord {
  FileCall call = FileCall::open;
  int fd = -1;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  os::SysResult result{};
  std::filesystem::path path{};  // as given, or as the descriptor was opened; of an unlinked file, its directory
  std::filesystem::path to{};    // of a rename
};

/// Hands every call to other files through `Double::around(const FileRecord&, whole)`, which may make the whole of it,
/// a part or none. Rings are the double's own.
/// Thread safety: as of the double.
template <class Double>
class ForwardFiles : public os::Files {
 public:
  using Path = std::filesystem::path;
  explicit ForwardFiles(os::Files& inner) : inner_(inner) {}

  os::SysResult open_unlinked(const Path& directory, bool direct) noexcept override {
    return on(FileCall::open, directory, [&] { return inner_.open_unlinked(directory, direct); });
  }
  os::SysResult open_read(const Path& path) noexcept override { return inner_.open_read(path); }
  os::SysResult read_link(const Path& path, Path& out) noexcept override { return inner_.read_link(path, out); }
  os::SysResult open_write(const Path& path) noexcept override { return inner_.open_write(path); }
  os::SysResult open(const Path& path, os::Open how, bool direct) noexcept override {
    return on(FileCall::open, path, [&] { return inner_.open(path, how, direct); });
  }
  os::SysResult close(int fd) noexcept override {
    return of({FileCall::close, fd}, [&] { return inner_.close(fd); });
  }
  os::SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    return of({FileCall::read, fd, offset, bytes}, [&] { return inner_.read(fd, memory, bytes, offset); });
  }
  os::SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    return of({FileCall::write, fd, offset, bytes}, [&] { return inner_.write(fd, memory, bytes, offset); });
  }
  os::SysResult truncate(int fd, std::uint64_t bytes) noexcept override {
    return of({FileCall::truncate, fd, 0, bytes}, [&] { return inner_.truncate(fd, bytes); });
  }
  os::SysResult preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override {
    return of({FileCall::preallocate, fd, offset, bytes}, [&] { return inner_.preallocate(fd, offset, bytes); });
  }
  os::SysResult punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override {
    return of({FileCall::punch, fd, offset, bytes}, [&] { return inner_.punch(fd, offset, bytes); });
  }
  os::SysResult sync(int fd) noexcept override {
    return of({FileCall::sync, fd}, [&] { return inner_.sync(fd); });
  }
  os::SysResult drop_cached(int fd) noexcept override {
    return of({FileCall::drop_cached, fd}, [&] { return inner_.drop_cached(fd); });
  }
  os::SysResult next_data(int fd, std::uint64_t from) noexcept override {
    return of({FileCall::next_data, fd, from}, [&] { return inner_.next_data(fd, from); });
  }
  os::SysResult sync_directory(const Path& directory) noexcept override {
    return on(FileCall::sync_directory, directory, [&] { return inner_.sync_directory(directory); });
  }
  os::SysResult make_directory(const Path& path) noexcept override {
    return on(FileCall::make_directory, path, [&] { return inner_.make_directory(path); });
  }
  os::SysResult rename(const Path& from, const Path& to) noexcept override {
    return of({FileCall::rename, -1, 0, 0, {}, from, to}, [&] { return inner_.rename(from, to); });
  }
  os::SysResult remove(const Path& path) noexcept override {
    return on(FileCall::remove, path, [&] { return inner_.remove(path); });
  }
  os::SysResult list(const Path& directory, std::vector<std::string>& out) noexcept override {
    return on(FileCall::list, directory, [&] { return inner_.list(directory, out); });
  }
  os::SysResult status(const Path& path, os::FileStatus& out) noexcept override {
    return on(FileCall::status, path, [&] { return inner_.status(path, out); });
  }
  os::SysResult status(int fd, os::FileStatus& out) noexcept override {
    return of({FileCall::status, fd}, [&] { return inner_.status(fd, out); });
  }
  os::SysResult lock(const Path& path, os::Open how) noexcept override {
    return on(FileCall::lock, path, [&] { return inner_.lock(path, how); });
  }
  os::SysResult unlock(int fd) noexcept override {
    return of({FileCall::close, fd}, [&] { return inner_.unlock(fd); });
  }
  os::SysResult describe(const Path& directory, os::FileSystem& out) noexcept override {
    return on(FileCall::describe, directory, [&] { return inner_.describe(directory, out); });
  }

 protected:
  os::Files& inner_;

 private:
  template <class Whole>
  os::SysResult of(const FileRecord& call, Whole&& whole) noexcept {
    return static_cast<Double*>(this)->around(call, whole);
  }
  template <class Whole>
  os::SysResult on(FileCall call, const Path& path, Whole&& whole) noexcept {
    return of({call, -1, 0, 0, {}, path}, whole);
  }
};

}  // namespace ebb::doubles
