#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device_buffer.hpp"
#include "device/zone_tracker.hpp"
#include "snapshots/protected_memory.hpp"

namespace ebb::snapshots {

/// Zones of one array, one behind the other in a piece and in the list of what its cut stores.
struct DeviceRun {
  std::uint32_t region = 0;
  std::uint64_t from = 0;              // in the list
  std::uint32_t count = 0, place = 0;  // zones; the first one's place in the piece
  std::uint64_t bytes = 0;             // of these zones: only the last can be short
};

struct DevicePiece {
  std::vector<DeviceRun> runs;
  std::vector<std::uint32_t> zones;  // in the plan's numbers
};

/// Protected arrays in the memory of the store's GPU: which of their zones a cut stores.
///
/// Writes are not seen there as they happen, so a cut reads everything on the caller's stream and compares digests, or
/// believes what touch() said. What is listed is known on the host when find() returns.
///
/// Thread safety: one call at a time, but gather() may come from other threads meanwhile: it reads nothing that the
/// others change, except add(), remove() and begin(), which come while no cut is in flight. All work on an array has
/// ended when it is removed.
class DeviceArrays {
 public:
  explicit DeviceArrays(std::shared_ptr<device::Device> device);
  DeviceArrays(const DeviceArrays&) = delete;
  ~DeviceArrays();

  /// Errors: unsupported (a way of tracking that needs page protection, memory that is not aligned), invalid_argument
  /// (a zone that is too large), out_of_memory.
  Result<void> add(const Protection& made, std::uint32_t zone_bytes);
  /// Regions, ascending; those that are not here are left out.
  void remove(std::span<const std::uint32_t> regions);
  /// Other memory from now on: nothing is known of any array.
  void begin(std::shared_ptr<const ProtectedMemory> memory);
  /// The next cut stores everything: something that was listed may be lost.
  void forget();
  void clear();

  bool empty() const { return arrays_.empty(); }
  bool tracks(std::uint32_t region) const;
  /// Whether no array is tracked.
  bool untracked() const;
  /// Names an array whose memory was freed, as far as the driver knows; none: all are there.
  std::optional<Error> lost() const;
  void touch(ProtectedMemory::Zones zones);

  /// Finds the zones that were written and sets their values in `dirty`, one for each zone of the memory, to 1.
  /// Enqueues the work, calls `meanwhile`, and waits until the stream has done it. Call forget() after an error.
  Result<void> find(device::StreamId stream, std::span<std::uint8_t> dirty, const std::function<void()>& meanwhile);
  /// The pieces, of so many zones, that the cut stores: everything, or what was found and `also`.
  Result<std::vector<DevicePiece>> list(device::StreamId stream, bool full,
                                        std::span<const ProtectedMemory::Zones> also, std::uint32_t piece_zones);
  Result<void> gather(device::StreamId stream, const DeviceRun& run, std::byte* piece);
  /// The host waits for what the stream holds.
  Result<void> wait(device::StreamId stream);
  /// These zones, which are all that were written of one array, are clean as they are now. False: some of the array was
  /// not known, or the device failed.
  bool settle(device::StreamId stream, std::uint32_t region, std::span<const ProtectedMemory::Zones> zones);

 private:
  struct Array;
  Array* find_array(std::uint32_t region) const;

  const std::shared_ptr<device::Device> device_;
  std::shared_ptr<const ProtectedMemory> memory_ = std::make_shared<ProtectedMemory>();
  std::vector<std::unique_ptr<Array>> arrays_;  // ascending by region
  std::optional<device::EventId> event_;
};

}  // namespace ebb::snapshots
