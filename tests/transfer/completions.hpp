#pragma once
// Collects an engine's reports, so that a test can wait for them.
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "transfer/token.hpp"

namespace ebb::test {

/// Thread safety: every method may be called from any thread.
class Completions {
 public:
  transfer::Done done() {
    return [this](transfer::Token token, Result<void> how) {
      std::lock_guard lock(mutex_);
      order_.push_back(token);
      results_.emplace(token, std::move(how));
      last_thread_ = std::this_thread::get_id();
      changed_.notify_all();
    };
  }
  /// Waits for `token` and returns its result.
  Result<void> of(transfer::Token token) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return results_.contains(token); });
    return results_.at(token);
  }
  void await(std::size_t n) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return order_.size() >= n; });
  }
  /// In the order reported; a token reported twice appears twice.
  std::vector<transfer::Token> order() const {
    std::lock_guard lock(mutex_);
    return order_;
  }
  std::thread::id last_thread() const {
    std::lock_guard lock(mutex_);
    return last_thread_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<transfer::Token> order_;
  std::map<transfer::Token, Result<void>> results_;
  std::thread::id last_thread_;
};

}  // namespace ebb::test
