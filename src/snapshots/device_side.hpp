#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "snapshots/device_arrays.hpp"
#include "snapshots/device_copies.hpp"

namespace ebb::snapshots {

/// The arrays on the GPU of one store's snapshots: what the snapshotter does with those, beside the driver of cuts,
/// which has the arrays in host memory.
///
/// Thread safety: one call at a time; bytes_gathered() at any time. add(), remove(), begin() and adopt() come while no
/// cut is in flight.
class DeviceSide {
 public:
  DeviceSide(const std::shared_ptr<store::Engine>& engine, std::uint32_t zone_bytes, std::uint32_t piece_zones);

  /// Errors: those of DeviceArrays::add.
  Result<void> add(const Protection& made);
  void remove(std::span<const std::uint32_t> regions) { arrays_.remove(regions); }
  void begin(std::shared_ptr<const ProtectedMemory> memory) { arrays_.begin(std::move(memory)); }
  void stop(const Error& why);

  bool empty() const { return arrays_.empty(); }
  bool untracked() const { return arrays_.untracked(); }
  std::optional<Error> lost() const { return arrays_.lost(); }
  void touch(ProtectedMemory::Zones zones) { arrays_.touch(zones); }
  void forget() { arrays_.forget(); }
  /// As forget(), and the cut that is being taken, or the last one, is given up.
  void lose(const Error& why);

  /// Gathers what is still owed to the last cut. Error timed_out: interrupted, and the rest is owed to it as before.
  Result<void> finish_last(const Interrupt& interrupted);
  /// The host waits for what the caller's stream holds.
  Result<void> wait(const SnapshotOptions& options);
  /// As DeviceArrays::find, after finish_last().
  Result<void> find(const storage::SnapshotId& id, const SnapshotOptions& options, std::span<std::uint8_t> dirty);
  /// Makes the first pieces of the cut of what was found, and gathers them; with `fenced` they are gathered later.
  /// After an error nothing is under way.
  Result<void> cut(const std::shared_ptr<Cut>& cut, bool full, std::span<const ProtectedMemory::Zones> also,
                   const SnapshotOptions& options);
  /// The cut was not taken after all.
  void abandon(const std::shared_ptr<Cut>& cut, const Error& why);
  /// These zones, in the map's numbers, were restored from a snapshot, and `lean` lets the next cut name its bytes.
  /// False: they are not known to be clean.
  bool adopt(const Body& body, std::span<const storage::ZoneRange> zones, const std::function<bool()>& lean);
  std::uint64_t bytes_gathered() const;

 private:
  void give_back(std::size_t from);

  const std::weak_ptr<store::Engine> engine_;
  const std::uint32_t zone_bytes_, piece_zones_;
  DeviceArrays arrays_;
  std::shared_ptr<DeviceCopier> copier_;  // from the first array on
  std::shared_ptr<Cut> last_;
  storage::SnapshotId ahead_of_ = {};
  std::vector<Reservation> ahead_;  // for the cut that is being taken, which may store what the last one did
  std::uint32_t whole_pieces_ = 0;  // of the last cut
  device::StreamId stream_ = 0;     // of the cut that is being taken
  std::atomic<const DeviceCopier*> counted_{nullptr};
};

}  // namespace ebb::snapshots
