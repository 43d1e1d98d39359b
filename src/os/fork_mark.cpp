#include "os/fork_mark.hpp"

#include <sys/mman.h>
#include <unistd.h>

namespace ebb::os {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

ForkMark::ForkMark() : process_(::getpid()) {
  void* const page = ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return;
  if (::madvise(page, kPage, MADV_WIPEONFORK) != 0) {
    ::munmap(page, kPage);
    return;
  }
  page_ = static_cast<char*>(page);
  *page_ = 1;
}

ForkMark::~ForkMark() {
  if (page_ != nullptr) ::munmap(const_cast<char*>(page_), kPage);
}

bool ForkMark::other_process() const noexcept { return ::getpid() != process_; }

}  // namespace ebb::os
