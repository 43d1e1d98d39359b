#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/device.hpp"
#include "device/zones.hpp"

namespace ebb::device {

/// Finds which zones of one piece of device memory changed, by their digests, packs those, and puts packed zones back.
/// No page of a GPU can be protected against writes: reading everything, at the memory's bandwidth, is how writes show.
///
/// Owns the tables in device memory (ZoneTables, some 21 bytes a zone), not the memory whose zones it tracks.
///
/// Every method enqueues on `stream` and returns; what it reads and writes is as of the stream's point, and nothing may
/// write to the tracked memory meanwhile.
///
/// Thread safety: none.
/// 1. Calls come from one thread at a time, and the streams that they name are ordered among each other.
/// 2. All work on it is done when it is destroyed. Moved from, it may only be destroyed or assigned.
class ZoneTracker {
 public:
  /// `memory` is aligned to kZoneAlignment, `zone` a power of two from kLeastZone to kMostZone: anything else, and 0
  /// bytes, throws std::logic_error. Error out_of_memory.
  static Result<ZoneTracker> make(std::shared_ptr<Device> device, std::byte* memory, std::size_t bytes,
                                  std::size_t zone);
  ZoneTracker(ZoneTracker&&) noexcept = default;
  ZoneTracker& operator=(ZoneTracker&&) noexcept = default;

  /// Lists the zones that changed since the last find() or settle(); the first time all of them. The list and its
  /// length are in tables(), in device memory.
  Result<void> find(StreamId stream);
  /// Packs what find() listed, from its entry `from` on: into `to`, aligned to kZoneAlignment, of `room` bytes.
  /// `after`: the counts of another tracker, which gathered into the same buffer just before (GatherZones).
  Result<void> gather(StreamId stream, std::byte* to, std::size_t room, std::uint64_t from = 0,
                      const ZoneCounts* after = nullptr);
  /// Puts packed zones in their places (ScatterZones); settle() them before the next find().
  Result<void> scatter(StreamId stream, const PlacedZone* list, std::uint32_t n, const std::byte* packed);
  /// The memory as it is now is clean: all of it, or `n` zones of a list in device memory.
  Result<void> settle(StreamId stream);
  Result<void> settle(StreamId stream, const PlacedZone* list, std::uint32_t n);
  /// The next find() lists every zone: what the last one listed was lost.
  void forget() noexcept { first_ = true; }

  const Zones& zones() const noexcept { return zones_; }
  const ZoneTables& tables() const noexcept { return tables_; }

 private:
  struct Free {
    std::shared_ptr<Device> device;
    std::size_t bytes = 0;
    void operator()(std::byte* memory) const noexcept { device->free(memory, bytes); }
  };
  ZoneTracker(std::unique_ptr<std::byte[], Free> owned, const Zones& zones);
  Result<void> run(StreamId stream, const ZoneJob& job) { return owned_.get_deleter().device->zones(stream, job); }

  std::unique_ptr<std::byte[], Free> owned_;
  Zones zones_;
  ZoneTables tables_;
  bool first_ = true;
};

}  // namespace ebb::device
