#include "share/member/pool_memory.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::share {

using Lock = std::unique_lock<std::mutex>;

Result<void> PoolMemory::claim(std::uint64_t end) {
  const std::uint64_t slab = member_->slab_bytes();
  const auto slabs = static_cast<std::uint32_t>((end + first_bytes() + slab - 1) / slab);
  if (slabs > member_->slabs()) throw std::logic_error("a claim beyond the share of the pool");
  Lock lock(mutex_);
  if (slabs > wanted_ || (slabs > claimed_ && claim_error_.code != Errc::ok)) {
    claim_error_ = {};
    wanted_ = std::max(wanted_, slabs);
    lock.unlock();
    member_->send(message::Claim{slabs});
    ask_for_leases();
    lock.lock();
  }
  changed_.wait(lock, [&] { return claimed_ >= slabs || claim_error_.code != Errc::ok || closed_; });
  if (claimed_ >= slabs) return {};
  return closed_ ? *closed_ : claim_error_;
}

bool PoolMemory::hear(const message::Any& message) {
  if (const auto* claimed = std::get_if<message::Claimed>(&message)) {
    on(*claimed);
  } else if (const auto* granted = std::get_if<message::Granted>(&message)) {
    on(*granted);
  } else if (const auto* recall = std::get_if<message::Recall>(&message)) {
    on(*recall);
  } else {
    return false;
  }
  return true;
}

void PoolMemory::on(const message::Claimed& claimed) {
  const Lock lock(mutex_);
  claimed_ = std::max(claimed_, claimed.slabs);
  claim_error_ = claimed.error;
  if (claimed_ < wanted_ && claim_error_.code != Errc::ok) wanted_ = claimed_;
  changed_.notify_all();
}

void PoolMemory::ask_again() {
  std::optional<message::Claim> claim;
  bool borrow = false;
  {
    const Lock lock(mutex_);
    if (wanted_ > claimed_) claim = message::Claim{wanted_};
    borrow = borrows_;
  }
  if (claim) member_->send(*claim);
  if (borrow) member_->send(request());
}

void PoolMemory::close(const Error& why) {
  const Lock lock(mutex_);
  closed_ = why;
  changed_.notify_all();
}

std::optional<std::uint64_t> PoolMemory::place_of(const std::byte* memory, std::size_t bytes) const {
  const std::byte* const begin = member_->memory();
  if (memory >= begin && memory + bytes <= begin + member_->slabs() * member_->slab_bytes()) {
    return member_->first_slab() * member_->slab_bytes() + static_cast<std::uint64_t>(memory - begin);
  }
  const Lock lock(mutex_);
  const auto found = borrowed_.find(memory, bytes);
  if (!found) return {};
  return found->lease * member_->slab_bytes() + found->at;
}

// --- leases: slabs of other processes' shares ------------------------------------------------------------------------

void PoolMemory::borrow(LeaseNews news) {
  {
    const Lock lock(mutex_);
    lease_news_ = std::move(news);
  }
  ask_for_leases();
}

// Asks once, when it begins to use the last quarter of its own share.
void PoolMemory::ask_for_leases() {
  {
    const Lock lock(mutex_);
    const bool needs = 4 * std::uint64_t{wanted_} > 3 * std::uint64_t{member_->slabs()};
    if (!lease_news_ || !needs || borrows_) return;
    borrows_ = true;
  }
  member_->send(request());
}

// An agent says again what one before it may have said.
void PoolMemory::on(const message::Granted& granted) {
  LeaseNews news;
  {
    const Lock lock(mutex_);
    if (!borrowed_.hear(granted.lease, granted.bytes, granted.number)) return;
    news = lease_news_;
  }
  if (news) return news(granted.lease, true);
  return_lease(granted.lease);
}

// What is not known here was returned after all that the agent had said of it. What is not told any more stays with who
// has it until that is returned, or the process leaves.
void PoolMemory::on(const message::Recall& recall) {
  LeaseNews news;
  {
    const Lock lock(mutex_);
    if (borrowed_.has(recall.lease)) news = lease_news_;
  }
  if (news) news(recall.lease, false);
}

Result<std::shared_ptr<std::byte>> PoolMemory::use_lease(std::uint32_t lease) {
  struct MappedLease {
    std::shared_ptr<PoolMember> member;  // which leaves the pool after this is unmapped
    os::SharedMapping memory;
  };
  auto mapped = member_->map(lease, static_cast<std::uint32_t>(lease_bytes(lease) / member_->slab_bytes()));
  if (!mapped) return mapped.error();
  const auto use = std::make_shared<MappedLease>(member_, std::move(*mapped));
  const Lock lock(mutex_);
  borrowed_.use(lease, use->memory.data());
  return std::shared_ptr<std::byte>(use, use->memory.data());
}

void PoolMemory::return_lease(std::uint32_t lease) {
  std::optional<std::uint64_t> granted;
  {
    const Lock lock(mutex_);
    granted = borrowed_.end(lease);
  }
  if (!granted) throw std::logic_error("a lease was returned that this process does not have");
  member_->send(message::Return{.lease = lease, .granted = *granted});
}

std::uint64_t PoolMemory::lease_bytes(std::uint32_t lease) const {
  const Lock lock(mutex_);
  return borrowed_.bytes_of(lease);
}

NodeCounters PoolMemory::counters() const {
  const Lock lock(mutex_);
  NodeCounters now;
  now.agents = member_->agents();
  now.program = member_->program();
  now.bytes_borrowed = borrowed_.bytes();
  now.bytes_beside = member_->bytes_beside();
  return now;
}

}  // namespace ebb::share
