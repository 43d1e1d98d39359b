#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/staging_ring.hpp"
#include "cache/tier_memory.hpp"
#include "device/device.hpp"
#include "ebbtide/stats.hpp"
#include "options/defaults.hpp"
#include "planner/commands.hpp"

namespace ebb::runtime {

/// The memory of every tier. Shared: what was lent out (reservations, loans) keeps the first tier's after the store has
/// closed.
/// The pointers that it gives never change; a forked child never destroys it.
///
/// Thread safety: every method may be called from any thread.
class Tiers {
 public:
  /// Told by threads of its own, with no lock held: more can be used, or less ever will be.
  using Changed = std::function<void()>;
  /// Error out_of_memory naming the tier.
  static Result<std::shared_ptr<Tiers>> create(const Seams& seams, const EngineSetup& setup, Changed changed);
  /// No memory comes any more, and `changed` is not called.
  void stop();
  /// After stop(), when nothing moves any more: what is never lent out goes, all but the first tier's.
  void keep_what_is_lent();

  /// Where a place of memory lies; for a file tier or the application a std::logic_error.
  std::byte* at(const policy::Place& place) const;
  platform::Device& device() const { return *device_; }

  /// Whether so many bytes of a place can be used: now, or later, or never, for there is less memory than was thought.
  /// Places that are not memory of ours: now.
  enum class Use : std::uint8_t { now, later, never };
  Use use_of(const policy::Place& place, std::uint64_t bytes) const;
  /// They will be used.
  void want(const policy::Place& place, std::uint64_t bytes);
  /// What lies there is not needed any more. What cannot be used yet is left alone: it is still being made present.
  void discard(const policy::Place& place, std::uint64_t bytes);
  /// The program wrote a checkpoint.
  void produced(std::uint64_t bytes);
  /// How much memory a tier will ever have.
  std::uint64_t limit(policy::TierIndex tier) const;
  ArenaStats stats(policy::TierIndex tier) const;

  /// Calls `f(offset, bytes)` for the parts of a copy from one place to another that a device makes each as one. A
  /// place of the application's is not asked. Between begin_copy() and end_copy(), so that nothing there is registered
  /// meanwhile.
  template <class F>
  void for_each_part(const policy::Place& from, const policy::Place& to, std::uint64_t bytes, F&& f) const {
    std::uint64_t begin = 0;
    for (const std::uint64_t end : part_ends(from, to, bytes)) {
      f(begin, end - begin);
      begin = end;
    }
  }
  /// Between them such a copy is under way.
  void begin_copy(const policy::Command& command);
  void end_copy(const policy::Command& command);

 private:
  friend struct InOwnProcess;
  Tiers() = default;
  ~Tiers() = default;
  Result<void> make_ring(const EngineSetup& setup, memory::MemoryOptions options);
  static bool in_ring(const policy::Place& place) { return place.at.kind == policy::Endpoint::ring; }
  memory::TierMemory* arena(const policy::Place& place) const;  // of a tier; null: a place elsewhere
  // Of a tier or the ring, and where `bytes` lie in it; null: a place elsewhere.
  std::pair<memory::TierMemory*, std::uint64_t> memory_of(const policy::Place& place, std::uint64_t bytes) const;
  std::vector<std::uint64_t> part_ends(const policy::Place& from, const policy::Place& to, std::uint64_t bytes) const;

  std::shared_ptr<platform::Device> device_;                 // outlives its arenas
  std::vector<std::unique_ptr<memory::TierMemory>> arenas_;  // by tier; none: a file
  memory::StagingRing ring_;                                 // with a tier of files
};

}  // namespace ebb::runtime
