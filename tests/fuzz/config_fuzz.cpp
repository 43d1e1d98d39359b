#include <cmath>
#include <stdexcept>
#include <string_view>

#include "ebbtide/options.hpp"
#include "tests/fuzz/targets.hpp"

namespace ebb::fuzz {

void config(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const auto zero = all.find('\0');
  const std::string_view key = all.substr(0, zero), text = zero == all.npos ? all : all.substr(zero + 1);
  const auto expect_named = [&](const auto& result) {
    if (!result && (result.error().code == Errc::ok || result.error().message.empty())) {
      throw std::logic_error("a refusal without a reason");
    }
  };
  Options options;
  expect_named(set_option(options, key, text));
  const auto bytes = parse_bytes(key, text);
  expect_named(bytes);
  if (bytes) static_cast<void>(format_bytes(*bytes));
  const auto seconds = parse_seconds(key, text);
  expect_named(seconds);
  if (seconds && !(std::isfinite((*seconds).count()) && (*seconds).count() >= 0)) {
    throw std::logic_error("a time that is none");
  }
}

}  // namespace ebb::fuzz
