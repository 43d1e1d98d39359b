#pragma once
// Collects a storage's reports of its objects, so that a test can wait for them.
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>

#include "storage/persistent_storage.hpp"

namespace ebb::storage {

/// Collects a storage's reports of its objects. Thread safety: every method may be called from any thread.
class PersistedObjects {
 public:
  Persisted callback() {
    return [this](ObjectId id, const Result<void>& how) {
      std::lock_guard lock(mutex_);
      ++reports_;
      results_.emplace(id, how);
      changed_.notify_all();
    };
  }
  Result<void> of(ObjectId id) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return results_.contains(id); });
    return results_.at(id);
  }
  bool has(ObjectId id) {
    std::lock_guard lock(mutex_);
    return results_.contains(id);
  }
  std::size_t reports() {
    std::lock_guard lock(mutex_);
    return reports_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ObjectId, Result<void>> results_;
  std::size_t reports_ = 0;
};

}  // namespace ebb::storage
