#pragma once
// Lends a reservation's memory at addresses that the cache never uses again: for bindings of other languages, whose
// views of it may outlive the commit.
//
//   auto lent = ebb::LentPages::lend(reservation.data(), reservation.bytes()).value();
//   compute_into(lent.data());
//   lent.give_back(viewed);              // true: an object of the program still refers to lent.data()
//   reservation.commit().value();
#include <cstddef>
#include <optional>
#include <utility>

#include "ebbtide/error.hpp"

namespace ebb {

/// Pages of the cache that a program writes to, moved to a separate address, so that a pointer that the program keeps
/// can never reach the cache. When the bytes are given back, the pages move back (no byte is copied) or, if the
/// program still refers to them, the bytes are copied and the program keeps the pages.
///
/// mremap(MREMAP_DONTUNMAP), Linux 5.7, moves pages in a few microseconds whatever their size. Where the kernel
/// refuses, this is separate ordinary memory, and the bytes are always copied.
///
/// Move-only; moved-from is empty. Thread safety: none of its own.
class LentPages {
 public:
  LentPages() = default;
  LentPages(LentPages&& other) noexcept { swap(other); }
  LentPages& operator=(LentPages&& other) noexcept {
    LentPages(std::move(other)).swap(*this);
    return *this;
  }
  /// Unmaps data(); does not touch the cache's memory.
  ~LentPages();

  /// `memory` is anonymous memory or a memory file's (what a store lends to others), aligned to 4096; the pages of its
  /// `bytes` are the caller's alone. They are empty, and must not be touched, until they are given back. Error
  /// out_of_memory.
  static Result<LentPages> lend(std::byte* memory, std::size_t bytes);
  /// The program's address of the bytes; null: nothing is lent.
  std::byte* data() const { return data_; }
  /// Puts the bytes back at `memory`. `kept`: data() stays valid, as a copy that the program may still write to.
  /// Otherwise nothing may refer to data() any more, and it becomes null.
  void give_back(bool kept);
  /// As give_back(), but the bytes are not needed: the contents of `memory` are undefined then.
  void forget(bool kept);

 private:
  bool move_back();
  void part();
  void swap(LentPages& other) noexcept;

  std::byte* memory_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ebb
