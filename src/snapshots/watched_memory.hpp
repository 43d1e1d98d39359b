#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planner/snapshot_plan.hpp"
#include "snapshots/protected_memory.hpp"
#include "snapshots/watch_thread.hpp"

namespace ebb::snapshots {

/// A protected body whose memory is lost: a cut cannot read it, or writes to it are not seen.
struct LostBody {
  enum class How : std::uint8_t { removed, unmapped, moved, unreadable, unwatched } how{};
  std::uint32_t region = 0;  // the user's
  Error error() const;
};

/// Protected memory and its watches: which of it is armed, and what of it is lost.
///
/// Thread safety: the board's mutex guards it. Nothing is allocated or freed but where it is made and destroyed.
/// 1. A body that is lost stays lost for as long as it is protected.
class WatchedMemory {
 public:
  using How = LostBody::How;
  using Watches = std::array<std::shared_ptr<WatchThread>, 2>;  // of faults, of the kernel's notes; null: none
  using Tickets = std::array<std::uint64_t, 2>;

  WatchedMemory() = default;
  WatchedMemory(std::shared_ptr<const ProtectedMemory> memory, Watches watches);
  const std::shared_ptr<const ProtectedMemory>& memory() const { return memory_; }
  const Watches& watches() const { return watches_; }
  /// Watches end their threads where they are destroyed, which must not be with the mutex held.
  Watches take_watches() { return std::exchange(watches_, {}); }

  /// Writes to what a cut of everything, or of what is dirty, is owed are seen from now on, in the bodies that `armed`
  /// names. After an error some of it may be armed.
  os::WatchResult arm(const planner::SnapshotPlan& plan, bool full, std::span<const std::uint8_t> armed);
  /// Of one body. False: they are not armed.
  bool arm(ProtectedMemory::Zones zones);
  /// All of the range that is mapped: writers to the rest go on by themselves.
  void disarm(os::PageRange range);
  void disarm_all();
  /// Writers to the range go on. False: the kernel allows no more mappings, which disarm_all() does not need.
  bool answer(os::PageRange range);

  /// Arms a few zones of a body that is not armed.
  void sample(const Body& body);
  void written(std::uint32_t zone);
  /// The share of the sampled zones that were written, and disarms the body. 1 if there are none.
  double sampled(const Body& body);

  std::optional<LostBody> lost() const;
  void lose(const Body& body, How how);
  /// False: no body has any of this range.
  bool lose(os::PageRange range, How how);
  /// The watches see no more of it.
  void lose_watches();
  /// Of the memory that was protected before, and by watches that have failed.
  void take_over_lost(const WatchedMemory& before);

  /// Once the tickets are confirmed, the watches have told what happened before.
  Tickets ask();
  bool confirmed(const Tickets& tickets) const;

 private:
  enum class Sample : std::uint8_t { no, unwritten, written };

  std::shared_ptr<const ProtectedMemory> memory_ = std::make_shared<ProtectedMemory>();
  Watches watches_{};
  std::vector<std::optional<How>> lost_;  // bodies
  bool any_lost_ = false;
  std::vector<Sample> sample_;         // zones
  std::vector<std::uint32_t> to_arm_;  // has room for all zones
};

}  // namespace ebb::snapshots
