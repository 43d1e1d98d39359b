#pragma once
// An open store's leases: memory that it lends to other processes, and that it borrows of them.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/tier_memory.hpp"
#include "ebbtide/stats.hpp"
#include "ebbtide/store.hpp"
#include "share/lease_source.hpp"
#include "store/machinery.hpp"

namespace ebb::device {
class PeerFabric;
}  // namespace ebb::device

namespace ebb::share {
class Lender;
class Lenders;
}  // namespace ebb::share

namespace ebb::store {

class Borrower;

/// Thread safety: offer(), stats() and the calls of segments may be called from any thread; start() and the rest by the
/// one that opens or closes the store. mutex_ guards what is not constant, and is not held while memory is waited for.
class Leases {
 public:
  explicit Leases(Machinery& parts);
  ~Leases();
  /// Called once the store is open: takes the leases of the node's pool, offers memory and borrows of neighbours, as
  /// the options say. Errors of lending: unsupported (this device's memory cannot be lent), those of share::Lender. A
  /// store that cannot borrow here goes on without, and says so.
  Result<void> start();
  /// Lends so much from now on: see share::Lender::offer().
  Result<void> offer(std::uint64_t bytes, std::chrono::nanoseconds within, const Interrupt& interrupted);
  std::optional<LeaseStats> stats() const;
  /// Borrows nothing more. Called when nothing moves. Memory that is mapped is returned when it is freed.
  void stop_borrowing();
  /// The borrowed memory was freed, except for what the application holds.
  void forget_lenders();
  /// Lends nothing more, and takes back all that was lent. The error says who has not returned what.
  Result<void> stop_lending(std::chrono::nanoseconds within, const Interrupt& interrupted);

  // Segments of a tier whose memory is borrowed (CacheMemory). A forked child is refused.
  using Terms = share::LeaseSource::Terms;
  /// Before its memory is lent: LinkQueues::add_owner().
  Result<void> add_owner(const std::shared_ptr<device::Device>& owner);
  Result<planner::SegmentId> lend(planner::TierIndex tier, std::unique_ptr<cache::TierMemory> memory,
                                  const Terms& terms = {});
  bool extend(planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes, const Terms& terms = {});
  /// What this store may use of a lender's bandwidth from now on, in millionths.
  void limit(planner::PartyId lender, std::uint32_t link);
  bool recall(planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes,
              std::optional<Seconds> within = {});
  bool await_returned(planner::TierIndex tier, planner::SegmentId segment, Seconds timeout);
  void lose(planner::TierIndex tier, planner::SegmentId segment);

 private:
  Result<std::shared_ptr<device::PeerFabric>> fabric();
  Result<void> start_lending(std::uint64_t bytes);
  Result<void> start_borrowing();
  void borrow(share::LeaseSource& source, device::Device& device, planner::TierIndex tier, bool pinned,
              std::string what);

  Machinery& parts_;
  const std::uint32_t number_;  // of the store in its process
  std::shared_ptr<device::PeerFabric> fabric_;
  mutable std::mutex mutex_;
  bool closed_ = false;
  std::shared_ptr<share::Lender> lender_;
  std::shared_ptr<share::Lenders> lenders_;
  std::vector<std::unique_ptr<Borrower>> borrowers_;  // of the node's pool, and of lenders_
};

}  // namespace ebb::store
