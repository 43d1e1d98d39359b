#pragma once
// Sizes and times, and their text forms.
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "ebbtide/error.hpp"

namespace ebb {

using Seconds = std::chrono::duration<double>;

/// `"4GiB"`, `"512 MiB"`, `"1.5GB"`, `"4096"` to bytes. The error names `key`, the text and what is expected.
Result<std::uint64_t> parse_bytes(std::string_view key, std::string_view text);
/// `"10ms"`, `"2s"`, `"1.5"` (seconds) to seconds.
Result<Seconds> parse_seconds(std::string_view key, std::string_view text);
/// 4294967296 to `"4 GiB"`.
std::string format_bytes(std::uint64_t bytes);

}  // namespace ebb
