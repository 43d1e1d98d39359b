#include "device/digest.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "device/digest_mix.hpp"

namespace ebb::device {

static_assert(std::endian::native == std::endian::little);

Digest digest_of(const void* memory, std::size_t bytes) noexcept {
  const auto* const at = static_cast<const std::byte*>(memory);
  Digest digest;
  std::uint64_t words[2], place = digest_place(0);
  const std::size_t whole = bytes / 16 * 16;
  for (std::size_t i = 0; i < whole; i += 16, place += kDigestStep) {
    std::memcpy(words, at + i, 16);
    digest_add(digest.low, digest.high, place, words[0], words[1]);
  }
  if (whole < bytes) {
    words[0] = words[1] = 0;
    std::memcpy(words, at + whole, bytes - whole);
    digest_add(digest.low, digest.high, place, words[0], words[1]);
  }
  return digest;
}

Digest sum_of(const Digest* parts) noexcept {
  Digest sum;
  for (std::size_t i = 0; i < kDigestParts; ++i) {
    sum.low += parts[i].low;
    sum.high += parts[i].high;
  }
  return sum;
}

void put_parts(Digest* parts, const Digest& whole) noexcept {
  parts[0] = whole;
  std::fill_n(parts + 1, kDigestParts - 1, Digest());
}

}  // namespace ebb::device
