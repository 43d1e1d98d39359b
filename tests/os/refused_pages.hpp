#pragma once
// Memory of which the system refuses a part.
#include <cstddef>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

#include "os/files.hpp"

namespace ebb::os::testing {

enum class Refusal : std::uint8_t { truncated, none, read_only };

/// Pages of a mapped file; those from `good` on are refused: the file was truncated there, or they are protected.
class RefusedPages {
 public:
  RefusedPages(int pages, int good, Refusal how) : bytes_(static_cast<std::size_t>(pages) * kBlock) {
    const std::size_t kept = static_cast<std::size_t>(good) * kBlock;
    const int fd = ::memfd_create("ebb-test", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(bytes_)) != 0) throw std::bad_alloc();
    void* const mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(mapped);
    const bool done = how == Refusal::truncated
                          ? ::ftruncate(fd, static_cast<off_t>(kept)) == 0
                          : ::mprotect(data_ + kept, bytes_ - kept, how == Refusal::none ? PROT_NONE : PROT_READ) == 0;
    ::close(fd);
    if (!done) throw std::bad_alloc();
  }
  RefusedPages(const RefusedPages&) = delete;
  ~RefusedPages() { ::munmap(data_, bytes_); }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

}  // namespace ebb::os::testing
