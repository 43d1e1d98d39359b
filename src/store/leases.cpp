#include "store/leases.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <unistd.h>

#include "device/peer_memory.hpp"
#include "share/leases/lender.hpp"
#include "share/leases/lenders.hpp"
#include "store/borrower.hpp"

namespace ebb::store {
namespace {

share::NodeSeams node_seams(const options::Seams& seams) {
  return seams.node ? *seams.node : share::NodeSeams::usual();
}

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

// In millionths, at least one.
std::uint32_t link_of(double share) {
  return std::max(1u, static_cast<std::uint32_t>(std::lround(share * planner::kWholeLink)));
}

LentBy lent_by(const Leases::Terms& terms) { return {terms.lender, terms.owner ? terms.owner->get() : nullptr}; }

}  // namespace

Leases::Leases(Machinery& parts) : parts_(parts), number_(next_number()) {}

Leases::~Leases() = default;

Result<void> Leases::start() {
  if (share::NodeMemory* const pool = parts_.files.pool().memory(); pool != nullptr) {
    const auto& tiers = parts_.setup.machine.tiers;
    const auto host = std::ranges::find(tiers, planner::Medium::host, &planner::TierSpec::medium);
    borrow(*pool, *parts_.seams.device_of(host->node), static_cast<planner::TierIndex>(host - tiers.begin()),
           /*pinned=*/true, "memory of the node's pool");
  }
  if (parts_.setup.lend > 0) {
    const std::lock_guard lock(mutex_);
    if (auto started = start_lending(parts_.setup.lend); !started) return started;
  }
  if (parts_.setup.borrow == 0) return {};
  if (auto started = start_borrowing(); !started) {
    parts_.setup.log.warning("memory of other processes cannot be borrowed: " + started.error().message);
  }
  return {};
}

void Leases::borrow(share::LeaseSource& source, device::Device& device, planner::TierIndex tier, bool pinned,
                    std::string what) {
  borrowers_.push_back(
      std::make_unique<Borrower>(source, *this, device, tier, pinned, std::move(what), parts_.setup.log));
  borrowers_.back()->start();
}

Result<std::shared_ptr<device::PeerFabric>> Leases::fabric() {
  if (!fabric_) {
    auto made = device::make_peer_fabric(*parts_.seams.device);
    if (!made) return made.error();
    fabric_ = std::move(*made);
  }
  return fabric_;
}

Result<void> Leases::start_lending(std::uint64_t bytes) {
  auto fabric = this->fabric();
  if (!fabric) return fabric.error();
  share::LenderOptions options{.group = parts_.setup.lending_group,
                               .number = number_,
                               .bytes = bytes,
                               .link = link_of(parts_.setup.lend_share),
                               .gpu = parts_.seams.device->gpu(),
                               .recall_within = {}};
  options.warn = [log = parts_.setup.log](const std::string& text) { log.warning(text); };
  auto lender = share::Lender::open(node_seams(parts_.seams), *parts_.seams.files, *parts_.seams.clock, **fabric,
                                    std::move(options));
  if (!lender) return lender.error();
  lender_ = std::move(*lender);
  return {};
}

Result<void> Leases::start_borrowing() {
  auto fabric = this->fabric();
  if (!fabric) return fabric.error();
  share::BorrowOptions options{.group = parts_.setup.lending_group, .bytes = parts_.setup.borrow, .number = number_};
  auto lenders = share::Lenders::open(node_seams(parts_.seams), parts_.seams.files, parts_.seams.clock,
                                      parts_.seams.device, *fabric, std::move(options));
  if (!lenders) return lenders.error();
  {
    const std::lock_guard lock(mutex_);
    lenders_ = std::move(*lenders);
  }
  const auto& tiers = parts_.setup.machine.tiers;
  const auto peer = std::ranges::find(tiers, options::kPeerTier, &planner::TierSpec::name);
  borrow(*lenders_, *parts_.seams.device, static_cast<planner::TierIndex>(peer - tiers.begin()), /*pinned=*/false,
         "memory that another process lends");
  return {};
}

Result<void> Leases::offer(std::uint64_t bytes, std::chrono::nanoseconds within, const Interrupt& interrupted) {
  std::shared_ptr<share::Lender> lender;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Error{Errc::closed, "the store is closed"};
    if (!lender_) return bytes == 0 ? Result<void>() : start_lending(bytes);
    lender = lender_;
  }
  return lender->offer(bytes, within, interrupted);
}

std::optional<LeaseStats> Leases::stats() const {
  const std::lock_guard lock(mutex_);
  if (!lender_ && !lenders_) return {};
  LeaseStats stats;
  const auto add = [&](pid_t lender, pid_t borrower, std::uint64_t bytes, planner::LeaseState state) {
    stats.leases.push_back({lender, borrower, bytes, planner::name_of(state)});
  };
  if (lender_) {
    const share::LenderState now = lender_->state();
    stats.offered = now.offered;
    stats.share = planner::share_of(now.link);
    for (const share::LeaseRow& lease : now.leases) {
      stats.lent += lease.bytes;
      if (lease.state == planner::LeaseState::overdue) stats.overdue += lease.bytes;
      add(::getpid(), lease.borrower, lease.bytes, lease.state);
    }
  }
  if (lenders_) {
    for (const share::Lenders::Lease& lease : lenders_->leases()) {
      stats.borrowed += lease.bytes;
      add(lease.lender, ::getpid(), lease.bytes, lease.state);
    }
  }
  return stats;
}

void Leases::stop_borrowing() {
  for (const auto& borrower : borrowers_) borrower->stop();
  if (lenders_) lenders_->stop();
}

void Leases::forget_lenders() {
  std::shared_ptr<share::Lenders> last;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  borrowers_.clear();
  last.swap(lenders_);
}

Result<void> Leases::stop_lending(std::chrono::nanoseconds within, const Interrupt& interrupted) {
  std::shared_ptr<share::Lender> lender;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    lender.swap(lender_);
  }
  return lender ? lender->offer(0, within, interrupted) : Result<void>();
}

Result<void> Leases::add_owner(const std::shared_ptr<device::Device>& owner) {
  if (auto error = parts_.lifetime.forked()) return *error;
  return parts_.queues.add_owner(owner);
}

Result<planner::SegmentId> Leases::lend(planner::TierIndex tier, std::unique_ptr<cache::TierMemory> memory,
                                        const Terms& terms) {
  if (auto error = parts_.lifetime.forked()) return *error;
  const Locked locked = parts_.port.lock();
  return parts_.memory.lend(locked, tier, std::move(memory), lent_by(terms));
}

bool Leases::extend(planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes, const Terms& terms) {
  if (parts_.lifetime.forked()) return false;
  const Locked locked = parts_.port.lock();
  return parts_.memory.extend(locked, tier, segment, bytes, lent_by(terms));
}

void Leases::limit(planner::PartyId lender, std::uint32_t link) {
  if (parts_.lifetime.forked()) return;
  Locked locked = parts_.port.lock();
  if (!parts_.lifetime.running(locked)) return;
  parts_.port.submit(locked, 0, planner::event::Limit{lender, link});
  parts_.queues.drain(locked);  // what may go sooner now
}

bool Leases::recall(planner::TierIndex tier, planner::SegmentId segment, std::uint64_t bytes,
                    std::optional<Seconds> within) {
  if (parts_.lifetime.forked()) return false;
  Locked locked = parts_.port.lock();
  const planner::Time deadline = within ? later(parts_.port.now(), *within) : planner::kNever;
  const bool recalled = parts_.memory.recall(locked, tier, segment, bytes, deadline);
  parts_.queues.drain(locked);  // what it moves away
  return recalled;
}

bool Leases::await_returned(planner::TierIndex tier, planner::SegmentId segment, Seconds timeout) {
  if (parts_.lifetime.forked()) return false;
  Locked locked = parts_.port.lock();
  // Added to a time, no timeout may be beyond all times.
  const std::chrono::nanoseconds wait(std::min(nanoseconds(timeout), planner::kNever / 2));
  return parts_.memory.await_returned(locked, tier, segment, wait);
}

void Leases::lose(planner::TierIndex tier, planner::SegmentId segment) {
  if (parts_.lifetime.forked()) return;
  Locked locked = parts_.port.lock();
  parts_.memory.lose(locked, tier, segment);
  parts_.calls.wake_requests(locked);
  parts_.queues.drain(locked);
}

}  // namespace ebb::store
