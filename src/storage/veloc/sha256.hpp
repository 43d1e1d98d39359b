#pragma once
// SHA-256, by the system's libcrypto.
#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "ebbtide/error.hpp"

namespace ebb::storage {

using Sha256Sum = std::array<std::byte, 32>;

/// libcrypto is loaded when the first sum is begun: only VELOC's checksum files need it, and no build or package does.
/// Move-only.
class Sha256 {
 public:
  /// Error unsupported: there is no libcrypto.
  static Result<Sha256> begin();
  void add(std::span<const std::byte> bytes);
  /// Of all that was added; to be called once.
  Sha256Sum sum();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  explicit Sha256(void* context) : context_(context) {}
  std::unique_ptr<void, Free> context_;
};

}  // namespace ebb::storage
