#pragma once
// A digest of memory that a processor and a GPU compute alike.
#include <cstddef>
#include <cstdint>

namespace ebb::platform {

/// 128 bits that tell whether memory has been written to since. No cryptography: made for accidents, not for attackers.
///
/// Each 16 bytes are two numbers; a key that depends on their place is added to each, and they are multiplied to 128
/// bits (the hash family NH of UMAC: Black, Halevi, Krawczyk, Krovetz, Rogaway, CRYPTO '99). All products are added,
/// low and high half each modulo 2^64: so the order in which they are computed does not matter, and that of the memory
/// does. One altered word is always found, any other alteration but for one in some 2^64. What is missing of the last
/// 16 bytes counts as zero.
struct Digest {
  std::uint64_t low = 0, high = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};

/// A device computes a digest as so many sums, those that it has no use for zero.
inline constexpr std::size_t kDigestParts = 1024;

/// By the calling thread.
Digest digest_of(const void* memory, std::size_t bytes) noexcept;
/// Of kDigestParts parts.
Digest sum_of(const Digest* parts) noexcept;
/// All parts as of a digest computed at once.
void put_parts(Digest* parts, const Digest& whole) noexcept;

}  // namespace ebb::platform
