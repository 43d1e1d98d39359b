#include <xxhash.h>  // compiled into this file (ebb_xxhash): there is nothing to link

#include <cstring>

#include "storage/record.hpp"

namespace ebb::storage {

Checksum checksum_of(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  Checksum out;
  static_assert(sizeof(canonical) == sizeof(out));
  std::memcpy(out.data(), &canonical, sizeof(out));
  return out;
}

}  // namespace ebb::storage
