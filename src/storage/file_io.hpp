#pragma once
// Complete reads and writes on the calling thread (interrupted and short calls are continued), and memory for O_DIRECT.
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include "ebbtide/error.hpp"
#include "os/files.hpp"

namespace ebb::storage {

/// 4096-aligned memory of whole blocks, as O_DIRECT requires. Move-only; moved-from is empty.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t bytes)
      : bytes_(os::round_up(bytes)),
        data_(static_cast<std::byte*>(::operator new(bytes_, std::align_val_t{os::kBlock}))) {}
  /// None: there is no memory for it.
  static std::optional<AlignedBytes> make(std::size_t bytes) {
    try {
      return AlignedBytes(bytes);
    } catch (const std::bad_alloc&) {
      return {};
    }
  }
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }
  std::span<std::byte> first(std::size_t bytes) const { return {data(), bytes}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{os::kBlock}); }
  };
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

/// Calls `call(from, count)` until `bytes` are moved or the file ends. On a direct file each call begins at a whole
/// block, so part of a block is moved again.
template <class Call>
os::SysResult move_whole(std::size_t bytes, bool direct, Call&& call) {
  constexpr int kMostStandstills = 1000;
  std::size_t done = 0;
  for (int standstills = 0; done < bytes;) {
    const os::SysResult moved = call(done, bytes - done);
    if (!moved && moved.error != EINTR && moved.error != EAGAIN) return moved;
    if (moved && moved.value == 0) break;
    std::size_t now = done + (moved ? static_cast<std::size_t>(moved.value) : 0);
    if (now < bytes && direct) now = now / os::kBlock * os::kBlock;
    if (now == done && ++standstills == kMostStandstills)
      return moved ? os::SysResult::of(static_cast<std::int64_t>(done)) : moved;
    done = now;
  }
  return os::SysResult::of(static_cast<std::int64_t>(done));
}

/// The number of bytes read: fewer than asked for at the end of the file. A direct file is read in whole blocks.
inline os::SysResult read_whole(os::Files& files, int fd, std::span<std::byte> into, std::uint64_t offset,
                                bool direct = false) {
  return move_whole(into.size(), direct, [&](std::size_t at, std::size_t bytes) {
    return files.read(fd, into.data() + at, bytes, offset + at);
  });
}

inline os::SysResult write_whole(os::Files& files, int fd, std::span<const std::byte> from, std::uint64_t offset,
                                 bool direct = false) {
  const auto put = move_whole(from.size(), direct, [&](std::size_t at, std::size_t bytes) {
    return files.write(fd, from.data() + at, bytes, offset + at);
  });
  if (put && static_cast<std::size_t>(put.value) < from.size()) return os::SysResult::failed(ENOSPC);
  return put;
}

/// "/scratch/store/segment-00000001.ebb: reading it failed with EIO (...)", by the name that the errno has among ours.
inline Error file_error(const std::filesystem::path& path, const std::string& what, int error) {
  Errc code = Errc::io_error;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) code = Errc::no_space;
  if (error == EACCES || error == EPERM) code = Errc::not_permitted;
  if (error == ELOOP) {
    return {Errc::not_permitted, path.string() + ": it is a symbolic link, and links are not followed"};
  }
  return {code, path.string() + ": " + what + " failed with " + os::describe_errno(error)};
}

}  // namespace ebb::storage
