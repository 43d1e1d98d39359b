#pragma once
#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "ebbtide/options.hpp"

namespace ebb::runtime {

/// Where a store's log goes. Each line has a severity, which becomes text only here, because Options::log takes text.
/// Empty: the log goes nowhere.
///
/// Thread safety: constant; lines are delivered on the calling thread.
class Log {
 public:
  using Lines = std::function<void(std::string_view)>;

  Log() = default;
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, Log> && std::convertible_to<F, Lines>)
  Log(F&& lines) : lines_(std::forward<F>(lines)) {}

  explicit operator bool() const noexcept { return static_cast<bool>(lines_); }
  void info(std::string_view text) const {
    if (lines_) lines_(text);
  }
  /// Something is damaged or was lost: a person must know.
  void warning(std::string_view text) const {
    if (lines_) lines_(std::string(kWarning).append(text));
  }

 private:
  Lines lines_;
};

}  // namespace ebb::runtime
