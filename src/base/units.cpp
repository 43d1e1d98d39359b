// Sizes and times as people write them.
#include "ebbtide/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "base/text.hpp"

namespace ebb {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// A bare letter is binary, as in `dd` and `ulimit`.
constexpr std::array kByteUnits = {
    Unit{"", 1},       Unit{"b", 1},        Unit{"k", 0x1p10},   Unit{"m", 0x1p20},   Unit{"g", 0x1p30},
    Unit{"t", 0x1p40}, Unit{"kib", 0x1p10}, Unit{"mib", 0x1p20}, Unit{"gib", 0x1p30}, Unit{"tib", 0x1p40},
    Unit{"kb", 1e3},   Unit{"mb", 1e6},     Unit{"gb", 1e9},     Unit{"tb", 1e12},
};
constexpr std::array kTimeUnits = {
    Unit{"", 1}, Unit{"s", 1}, Unit{"ms", 1e-3}, Unit{"us", 1e-6}, Unit{"ns", 1e-9}, Unit{"min", 60}, Unit{"h", 3600},
};

// The number and the factor of its unit; nothing if the text is not `number [unit]`.
template <class Units>
std::optional<std::pair<double, double>> split(std::string_view text, const Units& units) {
  text = base::trimmed(text);
  double number = 0;
  const auto [rest, failed] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (failed != std::errc{} || !std::isfinite(number) || number < 0 || text.front() == '-') return {};
  const std::string unit = base::lower(base::trimmed(text.substr(static_cast<std::size_t>(rest - text.data()))));
  for (const Unit& known : units) {
    if (known.name == unit) return std::pair{number, known.factor};
  }
  return {};
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view key, std::string_view text) {
  constexpr std::string_view right = "a size such as \"4GiB\", \"512 MiB\", \"1.5GB\" or \"4096\"";
  // Digits alone are read as an integer, so that every count of bytes is exact.
  const std::string_view bare = base::trimmed(text);
  std::uint64_t exact = 0;
  const auto [rest, failed] = std::from_chars(bare.data(), bare.data() + bare.size(), exact);
  constexpr std::string_view too_large = "a size below 8 EiB";
  if (failed == std::errc{} && rest == bare.data() + bare.size()) {
    if (exact > INT64_MAX) return base::wrong_value(key, text, too_large);
    return exact;
  }
  const auto parts = split(text, kByteUnits);
  if (!parts) return base::wrong_value(key, text, right);
  const double bytes = parts->first * parts->second;
  if (bytes >= 0x1p63) return base::wrong_value(key, text, too_large);
  return static_cast<std::uint64_t>(std::llround(bytes));
}

Result<Seconds> parse_seconds(std::string_view key, std::string_view text) {
  const auto parts = split(text, kTimeUnits);
  if (!parts) return base::wrong_value(key, text, "a time such as \"10ms\", \"2s\" or \"1.5\" (seconds)");
  return Seconds(parts->first * parts->second);
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < units.size()) value /= 1024, ++unit;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", value);
  std::string number = text.data();
  while (number.back() == '0') number.pop_back();
  if (number.back() == '.') number.pop_back();
  return number + " " + units[unit];
}

}  // namespace ebb
