#include "store/digests.hpp"

namespace ebb::store {

DigestPlaces::Shared::~Shared() {
  for (device::Digest* const place : idle) device->free_host(reinterpret_cast<std::byte*>(place), kBytes);
}

Result<DigestPlace> DigestPlaces::take() {
  device::Digest* found = nullptr;
  {
    std::lock_guard lock(shared_->mutex);
    if (!shared_->idle.empty()) {
      found = shared_->idle.back();
      shared_->idle.pop_back();
    }
  }
  if (found == nullptr) {
    const Result<std::byte*> made = shared_->device->allocate_host(kBytes);
    if (!made) return made.error();
    found = reinterpret_cast<device::Digest*>(*made);
  }
  return DigestPlace(found, [shared = shared_](device::Digest* place) {
    std::lock_guard lock(shared->mutex);
    shared->idle.push_back(place);
  });
}

void Check::settle() {
  taken = device::sum_of(place.get());
  place.reset();
}

}  // namespace ebb::store
