#pragma once
// Memory of a reservation handed out at addresses that the cache never uses again: for bindings of other languages,
// whose views of it outlive the commit.
//
//   auto lent = ebb::LentPages::lend(reservation.data(), reservation.bytes()).value();
//   compute_into(lent.data());
//   lent.give_back(viewed);              // true: some object of the program still looks at lent.data()
//   reservation.commit().value();
#include <cstddef>
#include <optional>
#include <utility>

#include "ebbtide/error.hpp"

namespace ebb {

/// Pages of the cache that a program writes to. They are moved to an address of their own, so that a pointer the
/// program keeps can never reach the cache: when the bytes are given back, the pages move back (no byte is copied) or,
/// if the program still looks at them, the bytes are copied and the program keeps the pages.
///
/// Pages are moved by mremap(MREMAP_DONTUNMAP), Linux 5.7, for a few microseconds whatever their size. Where the kernel
/// refuses, this is ordinary memory of its own, and the bytes are always copied.
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
  /// Unmaps data(). The cache's memory is not touched.
  ~LentPages();

  /// `memory` is private anonymous memory, aligned to 4096; all pages that hold its `bytes` are the caller's alone, and
  /// nobody touches them before they are given back: they are empty until then. Error out_of_memory.
  static Result<LentPages> lend(std::byte* memory, std::size_t bytes);
  /// Where the program finds the bytes; null: nothing is lent.
  std::byte* data() const { return data_; }
  /// The bytes are at `memory` again. `kept`: data() stays as it is, a copy that the program may go on writing to.
  /// Otherwise nobody looks at data() any more, and it is null.
  void give_back(bool kept);
  /// As give_back(), but the bytes are not needed: `memory` then holds anything.
  void forget(bool kept);

 private:
  bool move_back();
  void swap(LentPages& other) noexcept;

  std::byte* memory_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ebb
