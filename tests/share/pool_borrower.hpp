#pragma once
// A process that uses all of its share, and what others lend it.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "tests/share/rank.hpp"

namespace ebb::share::test {

/// Thread safety: the source tells on threads of its own; everything else is called by one.
class PoolBorrower {
 public:
  using Leases = std::set<std::uint32_t>;

  /// `share`: slabs.
  void borrow_all(Rank& rank, std::uint64_t share) {
    rank.storage().memory().borrow([this](std::uint32_t lease, bool is_lent) {
      const std::lock_guard lock(mutex_);
      (is_lent ? lent_ : recalled_).insert(lease);
    });
    rank.storage().memory().claim((share - 1) * kMiB).value();
    produce(rank);
  }
  /// Who has nothing to be written is lent nothing.
  void produce(Rank& rank) { rank.await_outcome(rank.write("produced", ++last_, kMiB)); }
  void await_borrowed(Rank& rank, std::uint64_t bytes) {
    while (rank.storage().counters().bytes_borrowed < bytes) produce(rank);
    EXPECT_EQ(rank.storage().counters().bytes_borrowed, bytes);
  }
  Leases lent() {
    const std::lock_guard lock(mutex_);
    return lent_;
  }
  Leases recalled() {
    const std::lock_guard lock(mutex_);
    return recalled_;
  }
  /// A version of 1 MiB, at the beginning of a lease.
  ObjectId write_from(Rank& rank, std::uint32_t lease, const std::string& history, Version version) {
    Used& used = used_[lease];
    if (!used.memory) used.memory = rank.storage().memory().use_lease(lease).value();
    used.object = rank.write_from(used.memory.get(), history, version, kMiB);
    return used.object;
  }
  /// Once what was written there last has ended.
  void return_recalled(Rank& rank) {
    Leases now;
    {
      const std::lock_guard lock(mutex_);
      now.swap(recalled_);
      for (const std::uint32_t lease : now) lent_.erase(lease);
    }
    for (const std::uint32_t lease : now) {
      if (const auto used = used_.find(lease); used != used_.end()) {
        rank.await_outcome(used->second.object);
        used_.erase(used);
      }
      rank.storage().memory().return_lease(lease);
    }
  }

 private:
  struct Used {
    std::shared_ptr<std::byte> memory;
    ObjectId object = 0;
  };
  std::mutex mutex_;
  Leases lent_, recalled_;
  std::map<std::uint32_t, Used> used_;
  Version last_ = 0;
};

}  // namespace ebb::share::test
