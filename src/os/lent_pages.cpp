#include "ebbtide/lent_pages.hpp"

#include <cstdint>
#include <cstring>
#include <sys/mman.h>

#include "os/files.hpp"
#include "os/pages.hpp"

namespace ebb {
namespace {

using os::kHugePage;
using os::map_pages;
using os::populate;
using os::round_up;
using os::unmap_pages;

#ifndef MREMAP_DONTUNMAP
constexpr int MREMAP_DONTUNMAP = 4;
#endif

// Null: the kernel does not move these pages. Ranges of 2 MiB and more go to an address with the same alignment, so
// that huge pages, and whole page tables, move as they are.
std::byte* move_out(std::byte* memory, std::size_t bytes) {
  constexpr int kMove = MREMAP_MAYMOVE | MREMAP_DONTUNMAP;
  if (bytes < kHugePage) {
    void* const moved = ::mremap(memory, bytes, bytes, kMove, nullptr);
    return moved == MAP_FAILED ? nullptr : static_cast<std::byte*>(moved);
  }
  const std::size_t room = bytes + kHugePage;
  void* const found = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(found);
  const std::size_t before =
      (reinterpret_cast<std::uintptr_t>(memory) - reinterpret_cast<std::uintptr_t>(begin)) % kHugePage;
  if (::mremap(memory, bytes, bytes, kMove | MREMAP_FIXED, begin + before) == MAP_FAILED) {
    ::munmap(begin, room);
    return nullptr;
  }
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + bytes, room - before - bytes);
  return begin + before;
}

}  // namespace

LentPages::~LentPages() {
  if (data_) unmap_pages(data_, round_up(bytes_));
}

void LentPages::swap(LentPages& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

Result<LentPages> LentPages::lend(std::byte* memory, std::size_t bytes) {
  LentPages lent;
  lent.memory_ = memory;
  lent.bytes_ = bytes;
  lent.data_ = move_out(memory, round_up(bytes));
  if (lent.data_) return lent;
  const Result<std::byte*> own = map_pages(bytes);
  if (!own) return own.error();
  lent.data_ = *own;
  std::memcpy(lent.data_, memory, bytes);
  return lent;
}

// Moves the pages back; the addresses of `data_` are gone.
bool LentPages::move_back() {
  const std::size_t whole = round_up(bytes_);
  if (::mremap(data_, whole, whole, MREMAP_MAYMOVE | MREMAP_FIXED, memory_) == MAP_FAILED) return false;
  data_ = nullptr;
  return true;
}

// A file's pages were not moved, but mapped a second time: what the program keeps becomes a copy. Without memory for
// one, it can only be read.
void LentPages::part() {
  void* const again = ::mremap(memory_, 0, os::kBlock, MREMAP_MAYMOVE);  // refused where memory is private
  if (again == MAP_FAILED) return;
  ::munmap(again, os::kBlock);
  const std::size_t whole = round_up(bytes_);
  constexpr int kOwn = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (::mmap(data_, whole, PROT_READ | PROT_WRITE, kOwn, -1, 0) != MAP_FAILED)
    std::memcpy(data_, memory_, bytes_);
  else
    ::mprotect(data_, whole, PROT_READ);
}

void LentPages::give_back(bool kept) {
  if (!data_ || (!kept && move_back())) return;
  if (kept) part();
  // Making all pages present at once is faster than one fault each, except for huge pages, whose zeroes are still in
  // the CPU's cache when they are copied to.
  if (bytes_ < kHugePage) static_cast<void>(static_cast<bool>(populate(memory_, bytes_)));
  std::memcpy(memory_, data_, bytes_);
  if (!kept) LentPages().swap(*this);
}

void LentPages::forget(bool kept) {
  if (data_ && kept) part();
  if (!data_ || kept || move_back()) return;
  LentPages().swap(*this);
}

}  // namespace ebb
