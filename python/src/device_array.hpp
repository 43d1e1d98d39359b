#pragma once
// An array in a GPU store's own memory, which other libraries can take without a copy.
#include <memory>

#include "grip.hpp"

namespace ebb::python {

struct DeviceMemory {
  void* data = nullptr;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
  bool writable = false;
  RunOrder order = {};
};

/// Thread safety: used under the GIL, except what it exported, which any thread may release.
/// 1. It does not keep the memory alive: once the reservation or loan has ended, nothing new can be made of it.
/// 2. Each capsule keeps the memory until its deleter runs; and so does the array once its `__cuda_array_interface__`
///    was read, because its reader keeps the array.
class DeviceArray {
 public:
  DeviceArray(nb::object lent, const std::shared_ptr<Grip>& grip, DeviceMemory memory)
      : lent_(std::move(lent)), state_(grip->state), grip_(grip), memory_(std::move(memory)) {}

  nb::object dlpack(nb::handle stream, nb::handle max_version, nb::handle dl_device, nb::handle copy);
  nb::tuple dlpack_device() const { return nb::make_tuple(2, state_->gpu()); }
  nb::dict interface();
  nb::object dtype() const;
  nb::tuple shape() const;
  const DeviceMemory& memory() const { return memory_; }
  int gpu() const { return state_->gpu(); }
  std::string text() const;
  /// Raises closed once the memory was given back.
  std::shared_ptr<Grip> require_open() const;

 private:
  nb::object lent_;  // the Reservation or the Loan
  std::shared_ptr<StoreState> state_;
  std::weak_ptr<Grip> grip_;
  std::shared_ptr<Grip> kept_;
  DeviceMemory memory_;
};

/// The array of library `like` (None: the DeviceArray itself) over it.
nb::object as_like(nb::object array, nb::handle like);

}  // namespace ebb::python
