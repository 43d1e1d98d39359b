#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace ebb::doubles {

/// The calls of a double that fail on command, by the kind of the call.
/// Thread safety: every method may be called from any thread; mutex_ guards the fields.
template <class Call>
class CallFaults {
 public:
  /// The n-th call of this kind from now on (1 is the next) fails with `error`.
  void fail_nth(Call call, std::uint64_t n, int error) {
    std::lock_guard lock(mutex_);
    Kind& kind = kinds_[call];
    kind.faults[kind.count + n] = error;
  }
  /// Counts a call; the errno that it fails with, 0: none.
  int next(Call call) {
    std::lock_guard lock(mutex_);
    Kind& kind = kinds_[call];
    const auto found = kind.faults.find(++kind.count);
    return found == kind.faults.end() ? 0 : found->second;
  }
  std::uint64_t count(Call call) {
    std::lock_guard lock(mutex_);
    return kinds_[call].count;
  }

 private:
  struct Kind {
    std::uint64_t count = 0;
    std::map<std::uint64_t, int> faults;  // by the number of the call
  };
  std::mutex mutex_;
  std::map<Call, Kind> kinds_;
};

}  // namespace ebb::doubles
