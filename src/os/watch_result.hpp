#pragma once
#include <cstddef>

#include "ebbtide/error.hpp"

namespace ebb::os {

/// Whole pages. Both are multiples of kBlock.
struct PageRange {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::byte* end() const noexcept { return begin + bytes; }
  bool operator==(const PageRange&) const = default;
};
std::string describe(PageRange range);

/// A Result<void> that allocates only when its error is asked for, so that a thread that writers wait for may fail.
class [[nodiscard]] WatchResult {
 public:
  WatchResult() = default;
  /// `text` is a constant, said after the range if there is one; `error` an errno, 0: none.
  WatchResult(Errc code, const char* text, PageRange range = {}, int error = 0) noexcept
      : code_(code), error_(error), text_(text), range_(range) {}
  explicit operator bool() const noexcept { return code_ == Errc::ok; }
  Errc code() const noexcept { return code_; }
  Error error() const;
  operator Result<void>() const { return *this ? Result<void>() : error(); }
  void value() const { Result<void>(*this).value(); }

 private:
  Errc code_ = Errc::ok;
  int error_ = 0;
  const char* text_ = "";
  PageRange range_{};
};

}  // namespace ebb::os
