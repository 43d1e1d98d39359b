#pragma once
// Streams of the device, as calls use them: the application's, and the store's own.
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/log.hpp"
#include "device/device.hpp"
#include "ebbtide/store.hpp"
#include "store/planner_port.hpp"

namespace ebb::store {

/// A stream of the store's own, for a call that waits for its copies.
struct CallStream {
  struct Made {
    device::StreamId stream = 0;
    device::EventId event = 0;
  };
  std::optional<Made> made;
  bool after_legacy = false;  // it comes after what the legacy default stream held
};

/// Checks the streams that calls give, and keeps a pool of the store's own.
///
/// Thread safety: every method may be called from any thread, those on one CallStream by one at a time. Those that take
/// a Locked need the mutex; the others call the driver, and are called without it.
/// 1. A stream that was made is a call's or in the pool until destroy().
class Streams {
 public:
  Streams(std::shared_ptr<device::Device> device, base::Log log) : device_(std::move(device)), log_(std::move(log)) {}

  device::Device& device() const { return *device_; }
  bool host_memory() const { return device_->host_memory(); }
  /// The stream to order a call on; none: the call waits for its copies. Errors name what is wrong with the one given.
  Result<std::optional<device::StreamId>> resolve(const std::optional<StreamHandle>& given) const;
  /// The error of a stream that resolve() refuses, for calls that order nothing on it.
  Result<void> check(const std::optional<StreamHandle>& given) const;
  /// As resolve(), for memory that is handed back: without a stream, after what the legacy default stream holds.
  Result<std::optional<device::StreamId>> resolve_hand_back(const std::optional<StreamHandle>& given) const;

  /// Gives `own` a stream that an earlier call has left, if it has none and one is there.
  void take(const Locked& locked, CallStream& own);
  void put(const Locked& locked, CallStream& own);
  Result<void> make(CallStream& own);
  Result<void> come_after_legacy(CallStream& own);

  /// Waits until what `stream` holds has ended; where the device cannot tell, until everything on the GPU has.
  void finish(device::StreamId stream);
  /// Waits for all work on the GPU, for work that no event follows. The device keeps an error for later calls.
  void finish_everything() { static_cast<void>(static_cast<bool>(device_->synchronize())); }
  /// Waits for everything that may use memory that is released without a stream. False: the device cannot tell (it has
  /// failed, or a stream is being captured into a graph); then the memory, and its name, are not used again.
  bool finish_unordered();
  /// Destroys the streams of calls that have ended. Finishes everything if finish_unordered() could not.
  void destroy(Locked& locked);

 private:
  const std::shared_ptr<device::Device> device_;
  const base::Log log_;
  std::vector<CallStream::Made> idle_;   // by the port's mutex
  std::atomic<bool> unfinished_{false};  // work on memory that was released may still be under way
};

}  // namespace ebb::store
