#pragma once
// Keeps a reservation's or a loan's memory for as long as any Python object may refer to it.
#include <memory>

#include "state.hpp"

namespace ebb::python {

/// Thread safety: used under the GIL.
/// 1. On a GPU every array that another library made over the memory shares the grip, so that the handle, and with it
///    the memory, outlives the reservation or the loan, and the store.
/// 2. A forked child destroys nothing of it.
struct Grip {
  Grip(std::shared_ptr<StoreState> of, Version number) : state(std::move(of)), version(number) {}
  virtual ~Grip() = default;
  Grip(const Grip&) = delete;
  /// Records that a library, or a call of the store's own, took the memory to work on it on `stream` (0 and 1: the
  /// legacy default stream).
  void taken_on(StreamHandle stream);
  /// The same for a consumer that does not name its stream: it may be any library's current stream here.
  void taken_by_anyone();
  /// The stream on which the consumers compute; nothing if there are none. Raises invalid_argument when there are
  /// several.
  std::optional<StreamHandle> stream() const;

  std::shared_ptr<StoreState> state;
  Version version;
  bool ended = false;  ///< committed, abandoned or released
  std::vector<StreamHandle> streams;
};

template <class Handle>
struct GripOf : Grip {
  GripOf(std::shared_ptr<StoreState> of, Version number, Handle held, std::shared_ptr<const void> mapped)
      : Grip(std::move(of), number), mapping(std::move(mapped)), handle(std::move(held)) {}
  ~GripOf() override {
    leak_if_foreign(*state, handle);
    leak_if_foreign(*state, mapping);
    if (state->gpu() < 0 || state->foreign()) return;
    nb::gil_scoped_release unlocked;  // it may wait for the GPU
    const Handle ends = std::move(handle);
  }
  std::shared_ptr<const void> mapping;
  Handle handle;
};

}  // namespace ebb::python
