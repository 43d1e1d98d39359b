#pragma once
// A digest of memory that processors and GPUs compute alike.
#include <cstddef>
#include <cstdint>

namespace ebb::device {

/// 128 bits that show whether memory was written to since. Not cryptographic: it detects accidents, not attackers.
///
/// Each 16 bytes are two numbers; a key that depends on their position is added to each, and they are multiplied to 128
/// bits (the hash family NH of UMAC: Black, Halevi, Krawczyk, Krovetz, Rogaway, CRYPTO '99). All products are added,
/// low and high half each modulo 2^64, so the order of computation does not matter and the order in memory does. One
/// altered word is always detected; of all other alterations, one in some 2^64 is missed. Bytes missing from the last
/// 16 count as zero.
struct Digest {
  std::uint64_t low = 0, high = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};

/// A device computes a digest as this many partial sums; unused ones are zero.
inline constexpr std::size_t kDigestParts = 1024;

/// On the calling thread.
Digest digest_of(const void* memory, std::size_t bytes) noexcept;
/// Of kDigestParts parts.
Digest sum_of(const Digest* parts) noexcept;
/// All parts of a digest that was computed at once.
void put_parts(Digest* parts, const Digest& whole) noexcept;

}  // namespace ebb::device
