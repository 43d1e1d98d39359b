#pragma once
// Takes memory that other processes lend, for a tier, and returns it when it is asked for.
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "cache/leased_memory.hpp"
#include "device/device.hpp"
#include "share/lease_source.hpp"
#include "store/leases.hpp"

namespace ebb::store {

/// Each lease is a segment of the tier. A segment that was returned serves a later lease, of its size at most.
///
/// Thread safety: start() and stop() are called by one thread; everything else happens on a thread of its own, which
/// alone maps, registers, unregisters and unmaps leases.
/// 1. A lease is returned after the planner has nothing there any more: no copy or transfer of it is under way.
/// 2. `news_` outlives this object, since the source may still be telling.
class Borrower {
 public:
  /// `pinned`: of LeasedMemory. `what` is said where a lease cannot be used.
  Borrower(share::LeaseSource& source, Leases& leases, device::Device& device, planner::TierIndex tier, bool pinned,
           std::string what, ebb::base::Log log)
      : source_(source),
        leases_(leases),
        device_(device),
        tier_(tier),
        pinned_(pinned),
        what_(std::move(what)),
        log_(std::move(log)) {}
  ~Borrower() { stop(); }

  void start();
  /// What is on lease then stays until the store's memory is freed.
  void stop();

 private:
  struct News {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<std::uint32_t, bool>> told;  // the lease, and whether it is lent
    bool stopping = false;
  };
  struct LeasedSegment {
    planner::SegmentId number = 0;
    cache::LeasedMemory* memory = nullptr;  // the tier's
    std::optional<std::uint32_t> lease;
    bool recalled = false;
  };

  void run();
  void take(std::uint32_t lease);
  Result<void> use(std::uint32_t lease);
  share::LeaseSource::Terms keep_terms(std::uint32_t lease);
  void add_owner(share::LeaseSource::Terms& terms);
  void recall(std::uint32_t lease);
  bool return_what_can_be();

  share::LeaseSource& source_;
  Leases& leases_;
  device::Device& device_;
  const planner::TierIndex tier_;
  const bool pinned_;
  const std::string what_;
  const ebb::base::Log log_;
  const std::shared_ptr<News> news_ = std::make_shared<News>();
  std::vector<LeasedSegment> segments_;
  std::map<planner::PartyId, std::uint32_t> limits_;  // as the planner knows them
  bool told_why_ = false;
  std::set<std::string> told_;  // why copies to and from the host take this device's link
  std::thread thread_;
};

}  // namespace ebb::store
