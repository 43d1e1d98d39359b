#pragma once
// What commit(check) remembers of memory, and where devices put digests.
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.hpp"

namespace ebb::store {

using DigestPlace = std::shared_ptr<device::Digest>;

/// Places for a device to put a digest, used again and again: host memory that it reaches is dear to make.
///
/// Thread safety: every method may be called from any thread. A place goes back to the pool when its last owner lets go
/// of it, which must be when no digest is on its way there. Places may outlive the pool, but not the device.
class DigestPlaces {
 public:
  explicit DigestPlaces(std::shared_ptr<device::Device> device)
      : shared_(std::make_shared<Shared>(std::move(device))) {}
  /// kDigestParts. Error out_of_memory.
  Result<DigestPlace> take();

 private:
  static constexpr std::size_t kBytes = device::kDigestParts * sizeof(device::Digest);
  struct Shared {
    explicit Shared(std::shared_ptr<device::Device> on) : device(std::move(on)) {}
    ~Shared();
    std::shared_ptr<device::Device> device;
    std::mutex mutex;
    std::vector<device::Digest*> idle;
  };
  std::shared_ptr<Shared> shared_;
};

/// Memory that was committed to be checked: as long as the checkpoint is there, it holds these bytes.
struct Check {
  const std::byte* data = nullptr;
  std::size_t bytes = 0;
  device::Digest taken;  ///< at commit; known once `place` is empty
  DigestPlace place;     ///< where it comes to, until the commit's stream has got there

  /// The stream has got there: reads `taken` from its place.
  void settle();
};

/// The digest of a copy's source, behind the copy.
struct Comparison {
  std::shared_ptr<const Check> check;
  DigestPlace place;  ///< empty: no digest was asked for yet
};

}  // namespace ebb::store
