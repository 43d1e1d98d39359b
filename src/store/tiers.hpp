#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/own_process.hpp"
#include "cache/memory_segments.hpp"
#include "cache/staging_ring.hpp"
#include "device/device.hpp"
#include "ebbtide/stats.hpp"
#include "options/defaults.hpp"
#include "planner/commands.hpp"
#include "trace/provision_text.hpp"

namespace ebb::store {

/// The memory of every tier, and the staging rings. Shared: what was lent out (reservations, loans) keeps the first
/// tier's after the store has closed.
/// The pointers that it gives never change; a forked child never destroys it.
///
/// Thread safety: add() is called by one thread at a time, stop() and keep_what_is_lent() by the one that closes; every
/// other method by any.
class Tiers {
 public:
  /// Called by the tiers' own threads, with no lock held: more memory can be used, or less will ever be.
  using Changed = std::function<void()>;
  /// What is provisioned is recorded in `log`, if there is one. Error out_of_memory naming the tier.
  static Result<std::shared_ptr<Tiers>> create(const options::Seams& seams, const options::EngineSetup& setup,
                                               Changed changed, std::shared_ptr<trace::ProvisionLog> log = nullptr);
  /// No memory comes any more, and `changed` is not called.
  void stop();
  /// Frees the memory that is never lent out, all but the first tier's. Called after stop(), when nothing moves.
  void keep_what_is_lent();

  /// The address of a place; for a file tier or the application a std::logic_error.
  std::byte* at(const planner::Place& place) const;
  /// The application's device.
  device::Device& device() const { return *device_; }

  /// A new segment of a tier: memory that is all ready, and no larger than `extent`. False: the tier has as many as it
  /// may have.
  bool add(planner::TierIndex tier, std::unique_ptr<cache::TierMemory> memory, std::uint64_t extent) {
    return rows_.at(static_cast<std::size_t>(tier)).add(std::move(memory), extent);
  }
  /// The contents of a segment are gone. Its addresses stay valid for copies that are under way.
  void lose(planner::TierIndex tier, planner::SegmentId segment);
  /// Whether a place in a memory tier is in a segment that was lost.
  bool lost(const planner::Place& place) const;
  /// Whether a place is in memory of the program (event::Adopt).
  static bool adopted(const planner::Place& place) {
    return place.at.kind == planner::Endpoint::tier && place.offset >= planner::kAdopted;
  }
  /// None that is adopted.
  std::size_t segment_of(const planner::Place& place) const {
    return rows_.at(static_cast<std::size_t>(place.at.index)).number_of(place.offset);
  }
  std::size_t segments(planner::TierIndex tier) const { return rows_.at(static_cast<std::size_t>(tier)).count(); }

  /// Whether so many bytes of a place can be used: now, or later, or never, for there is less memory than was thought.
  /// Places that are not memory of ours: now.
  enum class Usable : std::uint8_t { now, later, never };
  Usable use_of(const planner::Place& place, std::uint64_t bytes) const;
  /// These bytes will be used soon.
  void want(const planner::Place& place, std::uint64_t bytes);
  /// The bytes of a place are not needed any more. Memory that cannot be used yet is left alone: it is still being
  /// touched.
  void discard(const planner::Place& place, std::uint64_t bytes);
  /// The program wrote a checkpoint.
  void produced(std::uint64_t bytes);
  /// So many bytes may have to come to a tier's own memory at once.
  void expect(planner::TierIndex tier, std::uint64_t bytes) {
    rows_.at(static_cast<std::size_t>(tier))[0].memory->expect(bytes);
  }
  /// The most memory that a segment will ever have.
  std::uint64_t limit(planner::TierIndex tier, planner::SegmentId segment) const;
  ArenaStats stats(planner::TierIndex tier) const;

  /// Calls `f(offset, bytes)` for the parts of a copy from one place to another that a device makes each as one. A
  /// place of the application's is not asked. Between begin_copy() and end_copy(), so that nothing there is registered
  /// meanwhile.
  template <class F>
  void for_each_part(const planner::Place& from, const planner::Place& to, std::uint64_t bytes, F&& f) const {
    std::uint64_t begin = 0;
    for (const std::uint64_t end : borders_in(from, to, bytes)) {
      f(begin, end - begin);
      begin = end;
    }
    f(begin, bytes - begin);
  }
  /// A copy is under way between these two calls.
  void begin_copy(const planner::Command& command);
  void end_copy(const planner::Command& command);

 private:
  friend struct base::InOwnProcess;
  Tiers() = default;
  ~Tiers() = default;
  // The memory of a tier or a ring, and where a place is in it; null: the place is elsewhere.
  struct Where {
    cache::TierMemory* memory = nullptr;
    std::uint64_t offset = 0;
    bool in_ring = false;
  };
  Where where(const planner::Place& place, std::uint64_t bytes) const;
  Result<void> make_rings(const options::EngineSetup& setup,
                          const std::function<cache::MemoryOptions(planner::NodeIndex)>& options);
  // Where such a part ends before the last of `bytes`, ascending.
  std::vector<std::uint64_t> borders_in(const planner::Place& from, const planner::Place& to,
                                        std::uint64_t bytes) const;

  std::shared_ptr<device::Device> device_;                                // outlives its memory
  std::vector<std::shared_ptr<device::Device>> devices_;                  // by tier
  std::deque<cache::MemorySegments> rows_;                                // by tier; empty: a file
  std::vector<std::pair<planner::NodeIndex, cache::StagingRing>> rings_;  // of the nodes that something passes through
};

}  // namespace ebb::store
