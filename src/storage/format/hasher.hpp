#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "storage/format/record.hpp"

namespace ebb::storage {

/// Computes one checksum for each block of `block_bytes`, the last of which may be short.
void checksums_of(std::span<const std::byte> bytes, std::uint32_t block_bytes, std::span<Checksum> out);
/// The first block that does not match its checksum, if any.
std::optional<std::size_t> first_mismatch(std::span<const std::byte> bytes, std::uint32_t block_bytes,
                                          std::span<const Checksum> expected);

/// checksum_of() for bytes that arrive in pieces. Move-only; moved-from may only be destroyed.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  ~Hasher();
  void add(std::span<const std::byte> bytes);
  Checksum result() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> state_;
};

}  // namespace ebb::storage
