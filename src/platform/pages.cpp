#include "platform/pages.hpp"

#include <cerrno>
#include <cstdint>
#include <sys/mman.h>

#include "platform/files.hpp"
#include "platform/sys_result.hpp"

namespace ebb::platform {
namespace {

constexpr std::size_t kHugePage = 2 << 20;

Error refused(std::size_t bytes, int error) {
  return {Errc::out_of_memory, "cannot map " + std::to_string(bytes) + " bytes of memory: " + describe_errno(error)};
}

}  // namespace

Result<std::byte*> map_pages(std::size_t bytes) {
  const std::size_t slack = bytes >= kHugePage ? kHugePage : 0;
  if (bytes == 0 || bytes > SIZE_MAX - slack - kBlock) return refused(bytes, EINVAL);
  bytes = round_up(bytes);
  void* mapped = ::mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return refused(bytes, errno);
  auto* memory = static_cast<std::byte*>(mapped);
  if (slack) {
    // Given back at both ends, so that what stays begins where a huge page does.
    const auto address = reinterpret_cast<std::uintptr_t>(mapped);
    const std::size_t before = round_up(address, kHugePage) - address;
    if (before) ::munmap(memory, before);
    if (slack - before) ::munmap(memory + before + bytes, slack - before);
    memory += before;
    ::madvise(memory, bytes, MADV_HUGEPAGE);  // only a wish: without huge pages everything still works
  }
  return memory;
}

void unmap_pages(std::byte* memory, std::size_t bytes) noexcept {
  if (memory) ::munmap(memory, round_up(bytes));
}

}  // namespace ebb::platform
