#include "store/neighbours.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <unistd.h>

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

}  // namespace

Neighbours::Neighbours(Lending& lending, const options::Seams& seams, const options::EngineSetup& setup)
    : lending_(lending), seams_(seams), setup_(setup), number_(next_number()) {}

Result<void> Neighbours::start() {
  if (setup_.lend > 0) {
    const std::lock_guard lock(mutex_);
    if (auto started = start_lending(setup_.lend); !started) return started;
  }
  if (setup_.borrow == 0) return {};
  if (auto started = start_borrowing(); !started) {
    setup_.log.warning("memory of other processes cannot be borrowed: " + started.error().message);
  }
  return {};
}

Result<std::shared_ptr<device::PeerFabric>> Neighbours::fabric() {
  if (!fabric_) {
    auto made = device::make_peer_fabric(*seams_.device);
    if (!made) return made.error();
    fabric_ = std::move(*made);
  }
  return fabric_;
}

Result<void> Neighbours::start_lending(std::uint64_t bytes) {
  auto fabric = this->fabric();
  if (!fabric) return fabric.error();
  share::LenderOptions options{.group = setup_.lending_group,
                               .number = number_,
                               .bytes = bytes,
                               .link = link_of(setup_.lend_share),
                               .gpu = seams_.device->gpu(),
                               .recall_within = {}};
  options.warn = [log = setup_.log](const std::string& text) { log.warning(text); };
  auto lender = share::Lender::open(node_seams(seams_), *seams_.files, *seams_.clock, **fabric, std::move(options));
  if (!lender) return lender.error();
  lender_ = std::move(*lender);
  return {};
}

Result<void> Neighbours::start_borrowing() {
  auto fabric = this->fabric();
  if (!fabric) return fabric.error();
  share::BorrowOptions options{.group = setup_.lending_group, .bytes = setup_.borrow, .number = number_};
  auto lenders =
      share::Lenders::open(node_seams(seams_), seams_.files, seams_.clock, seams_.device, *fabric, std::move(options));
  if (!lenders) return lenders.error();
  {
    const std::lock_guard lock(mutex_);
    lenders_ = std::move(*lenders);
  }
  const auto& tiers = setup_.machine.tiers;
  const auto peer = std::ranges::find(tiers, options::kPeerTier, &planner::TierSpec::name);
  borrower_ = std::make_unique<Borrower>(*lenders_, lending_, *seams_.device,
                                         static_cast<planner::TierIndex>(peer - tiers.begin()), /*pinned=*/false,
                                         "memory that another process lends", setup_.log);
  borrower_->start();
  return {};
}

Result<void> Neighbours::lend(std::uint64_t bytes, std::chrono::nanoseconds within, const Interrupt& interrupted) {
  std::shared_ptr<share::Lender> lender;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Error{Errc::closed, "the store is closed"};
    if (!lender_) return bytes == 0 ? Result<void>() : start_lending(bytes);
    lender = lender_;
  }
  return lender->offer(bytes, within, interrupted);
}

std::optional<LeaseStats> Neighbours::stats() const {
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

void Neighbours::stop_borrowing() {
  if (borrower_) borrower_->stop();
  if (lenders_) lenders_->stop();
}

void Neighbours::forget_lenders() {
  std::shared_ptr<share::Lenders> last;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  borrower_.reset();
  last.swap(lenders_);
}

Result<void> Neighbours::stop_lending(std::chrono::nanoseconds within, const Interrupt& interrupted) {
  std::shared_ptr<share::Lender> lender;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    lender.swap(lender_);
  }
  return lender ? lender->offer(0, within, interrupted) : Result<void>();
}

}  // namespace ebb::store
