#pragma once
// Members of a group as threads of one process.
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "ebbtide/group.hpp"

namespace ebb::testing_support {

/// Thread safety: its mutex guards all of it.
class Ranks {
 public:
  explicit Ranks(int count) : count_(count) {}

  std::unique_ptr<Collective> member(int rank) {
    class Member final : public Collective {
     public:
      Member(Ranks& all, int rank) : all_(all), rank_(rank) {}
      int rank() const override { return rank_; }
      int count() const override { return all_.count_; }
      Result<void> begin_least(std::span<std::int64_t> values) override {
        const std::lock_guard lock(all_.mutex_);
        mine_ = values;
        Round& round = all_.rounds_[round_];
        if (round.values.empty()) round.values.assign(values.begin(), values.end());
        for (std::size_t i = 0; i < values.size(); ++i) round.values.at(i) = std::min(round.values[i], values[i]);
        if (++round.members == all_.count_) all_.changed_.notify_all();
        return {};
      }
      Result<bool> test(bool wait) override {
        std::unique_lock lock(all_.mutex_);
        const Round& round = all_.rounds_[round_];
        const auto whole = [&] { return round.members == all_.count_; };
        if (wait) all_.changed_.wait(lock, whole);
        if (!whole()) return false;
        std::ranges::copy(round.values, mine_.begin());
        ++round_;
        return true;
      }

     private:
      Ranks& all_;
      const int rank_;
      std::size_t round_ = 0;
      std::span<std::int64_t> mine_;
    };
    return std::make_unique<Member>(*this, rank);
  }

  /// `body(rank, collective)` in a thread each.
  template <class Body>
  static void run(int count, const Body& body) {
    Ranks ranks(count);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < count; ++rank)
      threads.emplace_back([&ranks, &body, rank] { body(rank, ranks.member(rank)); });
  }

 private:
  struct Round {
    std::vector<std::int64_t> values;
    int members = 0;
  };
  const int count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::size_t, Round> rounds_;
};

}  // namespace ebb::testing_support
