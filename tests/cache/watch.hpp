#pragma once
// Records a memory's callbacks and waits for them without sleeping; the device that most tests use.
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "cache/tier_memory.hpp"
#include "tests/doubles/fake_device.hpp"

namespace ebb::cache {

inline constexpr std::size_t kMiB = 1 << 20;

/// Of a double of a GPU with separate memory.
inline doubles::FakeDevice::Options discrete() {
  doubles::FakeDevice::Options options;
  options.discrete = true;
  return options;
}

class Watch {
 public:
  MemoryOptions options() {
    MemoryOptions options;
    options.changed = [this] {
      std::lock_guard lock(mutex_);
      ++changes_;
      changed_.notify_all();
    };
    options.trouble = [this](const std::string& text) {
      std::lock_guard lock(mutex_);
      troubles_.push_back(text);
      changed_.notify_all();
    };
    return options;
  }
  // Looks again each time the memory says that something has changed.
  template <typename Condition>
  void until(Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, condition);
  }
  void until_ready(const TierMemory& memory, std::size_t bytes) {
    until([&] { return memory.ready() >= bytes; });
  }
  // ready() or limit() may change before the trouble that caused it is reported.
  void until_trouble() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !troubles_.empty(); });
  }
  std::vector<std::string> troubles() {
    std::lock_guard lock(mutex_);
    return troubles_;
  }
  int changes() {
    std::lock_guard lock(mutex_);
    return changes_;
  }
  // Called with no lock held.
  void poke() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int changes_ = 0;
  std::vector<std::string> troubles_;
};

/// A pin queue that a test opens.
class ManualQueue final : public os::PinQueue {
 public:
  struct Shared {
    std::mutex mutex;
    std::condition_variable_any changed;
    bool open = true, taken = false;
    int takes = 0, waiting = 0;
    void set_open(bool now_open) {
      std::lock_guard lock(mutex);
      open = now_open;
      changed.notify_all();
    }
    void until_waiting() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return waiting > 0; });
    }
    void until_taken(int times) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return takes >= times; });
    }
  };
  explicit ManualQueue(Shared& shared) : shared_(shared) {}
  bool wait(std::stop_token stop) override {
    std::unique_lock lock(shared_.mutex);
    ++shared_.waiting;
    shared_.changed.notify_all();
    const bool mine = shared_.changed.wait(lock, stop, [&] { return shared_.open && !shared_.taken; });
    --shared_.waiting;
    if (!mine) return false;
    shared_.taken = true;
    ++shared_.takes;
    return true;
  }
  void leave() noexcept override {
    std::lock_guard lock(shared_.mutex);
    shared_.taken = false;
    shared_.changed.notify_all();
  }

 private:
  Shared& shared_;
};

}  // namespace ebb::cache
