#pragma once
#include <cstddef>
#include <memory>
#include <span>

#include "storage/format/record.hpp"

namespace ebb::storage {

/// checksum_of() of bytes that come piece by piece. Move-only; moved-from may only be destroyed.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  ~Hasher();
  void add(std::span<const std::byte> bytes);
  Checksum result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ebb::storage
