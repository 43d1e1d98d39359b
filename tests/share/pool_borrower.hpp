#pragma once
// A process that uses all of its share, and what others lend it.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "tests/share/rank.hpp"

namespace ebb::share::test {

/// Of a rank that outlives it, since what it uses is of that rank's memory.
/// Thread safety: one thread calls its methods; the source tells on threads of its own, also once it is gone.
class PoolBorrower {
 public:
  using Leases = std::set<std::uint32_t>;

  /// `share`: slabs.
  void borrow_all(Rank& rank, std::uint64_t share) {
    rank.storage().memory().borrow([news = news_](std::uint32_t lease, bool is_lent) {
      const std::lock_guard lock(news->mutex);
      (is_lent ? news->lent : news->recalled).insert(lease);
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
    const std::lock_guard lock(news_->mutex);
    return news_->lent;
  }
  Leases recalled() {
    const std::lock_guard lock(news_->mutex);
    return news_->recalled;
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
      const std::lock_guard lock(news_->mutex);
      now.swap(news_->recalled);
      std::erase_if(now,
                    [&](std::uint32_t lease) { return news_->lent.erase(lease) == 0; });  // the next agent says it anew
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
  struct News {
    std::mutex mutex;
    Leases lent, recalled;
  };
  const std::shared_ptr<News> news_ = std::make_shared<News>();
  std::map<std::uint32_t, Used> used_;
  Version last_ = 0;
};

}  // namespace ebb::share::test
