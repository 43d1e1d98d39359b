#pragma once
// Reads and writes of a store's small files, whole: interrupted and short calls are continued.
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <span>

#include "ebbtide/error.hpp"
#include "os/files.hpp"

namespace ebb::storage {

/// The bytes that were read: fewer than asked for at the end of the file.
inline platform::SysResult read_whole(platform::Files& files, int fd, std::span<std::byte> into, std::uint64_t offset) {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto got = files.read(fd, into.data() + done, into.size() - done, offset + done);
    if (!got && (got.error == EINTR || got.error == EAGAIN)) continue;
    if (!got) return got;
    if (got.value == 0) break;
    done += static_cast<std::size_t>(got.value);
  }
  return platform::SysResult::of(static_cast<std::int64_t>(done));
}

inline platform::SysResult write_whole(platform::Files& files, int fd, std::span<const std::byte> from,
                                       std::uint64_t offset) {
  std::size_t done = 0;
  while (done < from.size()) {
    const auto put = files.write(fd, from.data() + done, from.size() - done, offset + done);
    if (!put && (put.error == EINTR || put.error == EAGAIN)) continue;
    if (!put) return put;
    if (put.value == 0) return platform::SysResult::failed(ENOSPC);
    done += static_cast<std::size_t>(put.value);
  }
  return platform::SysResult::of(static_cast<std::int64_t>(done));
}

/// "/scratch/store/segment-00000001.ebb: reading it failed with EIO (...)", by the name that the errno has among ours.
inline Error file_error(const std::filesystem::path& path, const std::string& what, int error) {
  Errc code = Errc::io_error;
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) code = Errc::no_space;
  if (error == EACCES || error == EPERM) code = Errc::not_permitted;
  if (error == ELOOP) {
    return {Errc::not_permitted, path.string() + ": it is a symbolic link, and links are not followed"};
  }
  return {code, path.string() + ": " + what + " failed with " + platform::describe_errno(error)};
}

}  // namespace ebb::storage
