#pragma once
// Small text helpers.
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ebbtide/error.hpp"

namespace ebb::base {

inline std::string_view trimmed(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && space(text.front())) text.remove_prefix(1);
  while (!text.empty() && space(text.back())) text.remove_suffix(1);
  return text;
}

inline std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// The whole number at the start of a text, after white space; nothing if there is none ("max").
inline std::optional<std::uint64_t> leading_number(std::string_view text) {
  text = trimmed(text);
  std::uint64_t number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{}) return {};
  return number;
}

// The error for a wrong option: the key, the value, and what is expected.
inline Error wrong_value(std::string_view key, std::string_view value, std::string_view right) {
  return {Errc::invalid_argument,
          std::string(key) + "=\"" + std::string(value) + "\" is not valid: expected " + std::string(right)};
}

}  // namespace ebb::base
