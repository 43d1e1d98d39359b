#include "store/borrower.hpp"

#include <algorithm>

#include "base/start_thread.hpp"
#include "planner/lease_ledger.hpp"

namespace ebb::store {
void Borrower::start() {
  thread_ = base::thread([this] { run(); });
  source_.borrow([news = news_](std::uint32_t lease, bool lent) {
    const std::lock_guard lock(news->mutex);
    news->told.emplace_back(lease, lent);
    news->changed.notify_one();
  });
}

void Borrower::stop() {
  if (!thread_.joinable()) return;
  source_.borrow({});
  {
    const std::lock_guard lock(news_->mutex);
    news_->stopping = true;
    news_->changed.notify_one();
  }
  thread_.join();
}

void Borrower::run() {
  for (bool waits = false;;) {
    std::optional<std::pair<std::uint32_t, bool>> next;
    {
      std::unique_lock lock(news_->mutex);
      const auto told = [this] { return !news_->told.empty() || news_->stopping; };
      if (waits) {
        news_->changed.wait_for(lock, std::chrono::nanoseconds(planner::kReturnLook), told);
      } else {
        news_->changed.wait(lock, told);
      }
      if (news_->stopping) return;
      if (!news_->told.empty()) {
        next = news_->told.front();
        news_->told.pop_front();
      }
    }
    if (next) next->second ? take(next->first) : recall(next->first);
    waits = return_what_can_be();
  }
}

void Borrower::take(std::uint32_t lease) {
  const bool has = std::ranges::any_of(segments_, [&](const LeasedSegment& one) { return one.lease == lease; });
  if (has) return static_cast<void>(keep_terms(lease));
  const auto used = use(lease);
  if (used) return;
  const bool news = used.error().code != Errc::closed && !std::exchange(told_why_, true);
  if (news) log_.warning(what_ + " cannot be used: " + used.error().message);
  source_.refuse_lease(lease);
}

Result<void> Borrower::use(std::uint32_t lease) {
  auto memory = source_.use_lease(lease);
  if (!memory) return memory.error();
  const std::uint64_t bytes = source_.lease_bytes(lease);
  share::LeaseSource::Terms terms = keep_terms(lease);
  add_owner(terms);
  LeasedSegment* free = nullptr;
  for (LeasedSegment& one : segments_) {
    if (one.lease || one.memory->size() < bytes) continue;
    if (free == nullptr || one.memory->size() < free->memory->size()) free = &one;
  }
  if (free != nullptr) {
    if (auto begun = free->memory->begin(std::move(*memory), bytes); !begun) return begun;
    if (!leases_.extend(tier_, free->number, bytes, terms)) {
      free->memory->end();
      return Error{Errc::closed, "the store is closed"};
    }
    free->lease = lease;
    return {};
  }
  auto made = std::make_unique<cache::LeasedMemory>(device_, bytes, pinned_);
  if (auto begun = made->begin(std::move(*memory), bytes); !begun) return begun;
  LeasedSegment segment{.number = 0, .memory = made.get(), .lease = lease};
  const auto lent = leases_.lend(tier_, std::move(made), terms);
  if (!lent) return lent.error();
  segment.number = *lent;
  segments_.push_back(segment);
  return {};
}

// The planner hears what the lease's lender allows before it uses the lease.
share::LeaseSource::Terms Borrower::keep_terms(std::uint32_t lease) {
  share::LeaseSource::Terms terms = source_.terms(lease);
  const auto known = limits_.try_emplace(terms.lender, planner::kWholeLink).first;
  if (std::exchange(known->second, terms.link) != terms.link) leases_.limit(terms.lender, terms.link);
  return terms;
}

// Without the owner's device, the memory is used all the same.
void Borrower::add_owner(share::LeaseSource::Terms& terms) {
  if (terms.owner && !*terms.owner) return;
  const Result<void> added = terms.owner ? leases_.add_owner(*terms.owner) : terms.owner.error();
  if (added) return;
  terms.owner = std::shared_ptr<device::Device>();
  if (added.error().code == Errc::closed || !told_.insert(added.error().message).second) return;
  log_.warning(what_ +
               " is on a GPU that this process cannot use: copies between it and the host go over this GPU's "
               "own link, and nothing is relayed: " +
               added.error().message);
}

void Borrower::recall(std::uint32_t lease) {
  for (LeasedSegment& segment : segments_) {
    if (segment.lease != lease || segment.recalled) continue;
    segment.recalled =
        leases_.recall(tier_, segment.number, 0, Seconds(std::chrono::nanoseconds(planner::kReturnWithin)));
  }
}

// Whether there is more to be returned.
bool Borrower::return_what_can_be() {
  bool more = false;
  for (LeasedSegment& segment : segments_) {
    if (!segment.recalled) continue;
    if (!leases_.await_returned(tier_, segment.number, Seconds{0})) {
      more = true;
      continue;
    }
    segment.memory->end();
    segment.recalled = false;
    const std::uint32_t lease = *std::exchange(segment.lease, {});
    source_.return_lease(lease);
  }
  return more;
}

}  // namespace ebb::store
