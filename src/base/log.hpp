#pragma once
#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "ebbtide/options.hpp"

namespace ebb::base {

/// Where a store's log goes. Empty: nowhere. The severity becomes text only for those who take text (Options::log).
///
/// Thread safety: constant; lines are delivered on the calling thread.
class Log {
 public:
  using Lines = std::function<void(Severity, std::string_view)>;
  using TextLines = std::function<void(std::string_view)>;

  Log() = default;
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, Log> && std::convertible_to<F, Lines>)
  Log(F&& lines) : lines_(std::forward<F>(lines)) {}
  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, Log> && std::convertible_to<F, TextLines>)
  Log(F&& lines) {
    TextLines texts(std::forward<F>(lines));
    if (!texts) return;
    lines_ = [texts = std::move(texts)](Severity severity, std::string_view text) {
      if (severity == Severity::warning) return texts(std::string(kWarning).append(text));
      texts(text);
    };
  }

  explicit operator bool() const noexcept { return static_cast<bool>(lines_); }
  void info(std::string_view text) const {
    if (lines_) lines_(Severity::info, text);
  }
  /// Something is damaged or was lost: a person must know.
  void warning(std::string_view text) const {
    if (lines_) lines_(Severity::warning, text);
  }

 private:
  Lines lines_;
};

}  // namespace ebb::base
