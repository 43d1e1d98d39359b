#include <algorithm>
#include <cstring>
#include <xxhash.h>  // compiled into this file (ebb_xxhash): there is nothing to link

#include "storage/format/hasher.hpp"

namespace ebb::storage {
namespace {

Checksum canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Checksum out;
  static_assert(sizeof(bytes) == sizeof(out));
  std::memcpy(out.data(), &bytes, sizeof(out));
  return out;
}

}  // namespace

Checksum checksum_of(std::span<const std::byte> bytes) { return canonical(XXH3_128bits(bytes.data(), bytes.size())); }

Checksum checksum_from(std::uint64_t low, std::uint64_t high) { return canonical({low, high}); }

void checksums_of(std::span<const std::byte> bytes, std::uint32_t block_bytes, std::span<Checksum> out) {
  for (Checksum& sum : out) {
    const auto block = bytes.first(std::min<std::size_t>(block_bytes, bytes.size()));
    sum = checksum_of(block);
    bytes = bytes.subspan(block.size());
  }
}

std::optional<std::size_t> first_mismatch(std::span<const std::byte> bytes, std::uint32_t block_bytes,
                                          std::span<const Checksum> expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto block = bytes.first(std::min<std::size_t>(block_bytes, bytes.size()));
    if (checksum_of(block) != expected[i]) return i;
    bytes = bytes.subspan(block.size());
  }
  return {};
}

struct Hasher::Impl {
  XXH3_state_t of;
};

Hasher::Hasher() : state_(std::make_unique<Impl>()) {
  XXH3_INITSTATE(&state_->of);
  XXH3_128bits_reset(&state_->of);
}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;
void Hasher::add(std::span<const std::byte> bytes) { XXH3_128bits_update(&state_->of, bytes.data(), bytes.size()); }
Checksum Hasher::result() const { return canonical(XXH3_128bits_digest(&state_->of)); }

}  // namespace ebb::storage
