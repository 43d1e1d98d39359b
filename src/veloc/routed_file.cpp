#include "veloc/routed_file.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace ebb::veloc {

namespace {

Error cannot(const std::filesystem::path& path, const char* what, int code) {
  return {Errc::io_error, path.string() + " cannot be " + what + ": " + std::generic_category().message(code)};
}

}  // namespace

RoutedFile::RoutedFile(RoutedFile&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

RoutedFile::~RoutedFile() {
  unmap();
  std::error_code ignored;  // what is left is overwritten by the next of its name
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

void RoutedFile::unmap() noexcept {
  if (data_) ::munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

Result<void> RoutedFile::prepare() {
  std::error_code failed;
  std::filesystem::create_directories(path_.parent_path(), failed);
  if (!failed) std::filesystem::remove(path_, failed);
  if (failed) return cannot(path_, "made", failed.value());
  return {};
}

Result<void> RoutedFile::open(int flags, std::size_t bytes) {
  unmap();
  const int file = ::open(path_.c_str(), flags | O_CLOEXEC, 0600);
  if (file < 0) return cannot(path_, flags & O_CREAT ? "made" : "read", errno);
  struct stat found = {};
  int code = 0;
  // With its room on the disk: a write to mapped memory without would end the process.
  if (flags & O_CREAT && bytes > 0) code = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  if (code == 0 && ::fstat(file, &found) != 0) code = errno;
  if (code == 0 && found.st_size > 0) {
    const int access = flags & O_CREAT ? PROT_READ | PROT_WRITE : PROT_READ;
    void* const memory = ::mmap(nullptr, static_cast<std::size_t>(found.st_size), access, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
      code = errno;
    } else {
      data_ = memory;
      bytes_ = static_cast<std::size_t>(found.st_size);
    }
  }
  ::close(file);
  if (code != 0) return cannot(path_, "mapped", code);
  return {};
}

Result<void> RoutedFile::map() { return open(O_RDONLY, 0); }

Result<void> RoutedFile::create(std::size_t bytes) {
  if (auto made = prepare(); !made) return made;
  return open(O_RDWR | O_CREAT | O_TRUNC, bytes);
}

Result<void> RoutedFile::write_to(const std::filesystem::path& to, const std::filesystem::path& part) const {
  const int file = ::open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) return cannot(part, "made", errno);
  int code = 0;
  for (std::size_t at = 0; code == 0 && at < bytes_;) {
    const ssize_t written = ::write(file, static_cast<const char*>(data_) + at, bytes_ - at);
    if (written >= 0)
      at += static_cast<std::size_t>(written);
    else if (errno != EINTR)
      code = errno;
  }
  if (code == 0 && ::fsync(file) != 0) code = errno;
  if (::close(file) != 0 && code == 0) code = errno;
  if (code == 0 && ::rename(part.c_str(), to.c_str()) != 0) code = errno;
  if (code == 0) return {};
  ::unlink(part.c_str());
  return cannot(to, "written", code);
}

}  // namespace ebb::veloc
