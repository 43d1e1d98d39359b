#include "os/pages.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <fstream>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "os/files.hpp"
#include "os/processors.hpp"
#include "os/sys_result.hpp"

namespace ebb::os {
namespace {

Error refused(std::size_t bytes, int error) {
  return {Errc::out_of_memory, "cannot map " + std::to_string(bytes) + " bytes of memory: " + describe_errno(error)};
}

// The errno of the refusal; 0: every page is present.
int make_present(std::byte* memory, std::size_t bytes) {
  if (bytes == 0) return 0;
  bytes = round_up(bytes);
  while (::madvise(memory, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    // Kernels before 5.14 lack this advice: a write to each page that changes nothing does the same.
    auto* const pages = static_cast<volatile std::byte*>(memory);
    for (std::size_t page = 0; page < bytes; page += kBlock) pages[page] = pages[page];
    return 0;
  }
  return 0;
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
    // Unmaps both ends, so that the rest begins on a huge page boundary.
    const auto address = reinterpret_cast<std::uintptr_t>(mapped);
    const std::size_t before = round_up(address, kHugePage) - address;
    if (before) ::munmap(memory, before);
    if (slack - before) ::munmap(memory + before + bytes, slack - before);
    memory += before;
    ::madvise(memory, bytes, MADV_HUGEPAGE);  // a hint: without huge pages everything still works
  }
  return memory;
}

std::uint64_t free_host_memory() noexcept {
  return static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void touch_pages(std::byte* memory, std::size_t bytes) {
  constexpr std::size_t kPiece = 32 << 20;
  bytes = std::min<std::size_t>(bytes, free_host_memory() / 2);
  std::atomic<std::size_t> next{0};
  auto touch = [&] {
    for (std::size_t at; (at = next.fetch_add(kPiece)) < bytes;) {
      static_cast<void>(make_present(memory + at, std::min(kPiece, bytes - at)));
    }
  };
  const std::size_t pieces = (bytes + kPiece - 1) / kPiece;
  const std::size_t threads = std::min<std::size_t>({pieces, usable_processors(), 4});
  std::vector<std::jthread> helpers;
  try {
    for (std::size_t i = 1; i < threads; ++i) helpers.emplace_back(touch);
  } catch (const std::exception&) {  // no more threads: those that started do the work
  }
  touch();
}

Result<void> populate(std::byte* memory, std::size_t bytes) {
  const int error = make_present(memory, bytes);
  if (error == 0) return {};
  return Error{Errc::out_of_memory,
               "the system has no memory for " + std::to_string(bytes) + " bytes: " + describe_errno(error)};
}

HugePages huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  // "always [madvise] never"
  for (std::string word; file >> word;) {
    if (word.size() < 2 || word.front() != '[' || word.back() != ']') continue;
    word = word.substr(1, word.size() - 2);
    return {word != "never", word};
  }
  return {false, "unknown"};
}

void keep_from_children(std::byte* memory, std::size_t bytes) noexcept {
  ::madvise(memory, round_up(bytes), MADV_DONTFORK);  // cannot fail on pages of map_pages()
}

void unmap_pages(std::byte* memory, std::size_t bytes) noexcept {
  if (memory) ::munmap(memory, round_up(bytes));
}

}  // namespace ebb::os
