#pragma once
// The forms of hipc22 sec. IV-A, which the library's own is compared with.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/tier_memory.hpp"
#include "os/files.hpp"
#include "os/pages.hpp"

namespace bench {

/// Host memory of which everything is touched in the background and then registered as a whole, when its turn in the
/// pin queue comes.
///
/// Thread safety: as TierMemory's. mutex_ guards everything of its own; it is not held while memory is touched or
/// registered. Copies that begin while it is registered wait in for_each_part().
class PaperMemory final : public ebb::cache::TierMemory {
 public:
  enum class Form {
    touch_then_register,  // not used before it is registered
    concurrent,           // used as soon as it is touched
    sequential,           // the same; and touching pauses beside a copy, unless its memory is waited for
  };
  PaperMemory(ebb::device::Device& device, std::size_t bytes, std::string name, Form form,
              ebb::cache::MemoryOptions&& options)
      : TierMemory(std::move(name), ebb::os::round_up(bytes)),
        device_(device),
        form_(form),
        options_(std::move(options)),
        there_(size_ / kPiece + 1) {
    data_ = ebb::os::map_pages(size_).value();
    limit_ = size_;
    if (device_.host_memory()) ready_ = size_;
    const unsigned threads = std::clamp(std::thread::hardware_concurrency() / 2, 1u, 6u);  // as the library's
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { touch(); });
  }
  ~PaperMemory() override {
    stop();
    ranges_.unpin_all(device_, data_);
    ebb::os::unmap_pages(data_, size_);
  }
  void want(std::size_t end) override {
    std::lock_guard lock(mutex_);
    wanted_ = std::max(wanted_, end);
    changed_.notify_all();
  }
  void copy_begun(std::size_t, std::size_t) override {
    std::lock_guard lock(mutex_);
    ++copies_;
  }
  void copy_ended(std::size_t, std::size_t) override {
    std::lock_guard lock(mutex_);
    --copies_;
    changed_.notify_all();
  }
  void stop() override {
    {
      std::lock_guard lock(mutex_);
      stop_.request_stop();
      changed_.notify_all();
    }
    threads_.clear();  // joins them
  }
  ebb::cache::MemoryReport report() const override {
    std::lock_guard lock(mutex_);
    ebb::cache::MemoryReport report = TierMemory::report();
    report.touched = touched_;
    report.pinned = pinned_ ? size_ : 0;
    report.pieces = pinned_;
    report.trouble = trouble_;
    return report;
  }

 private:
  static constexpr std::size_t kPiece = 4 << 20;

  void touch() {
    std::unique_lock lock(mutex_);
    while (!stop_.stop_requested() && touched_ < limit_) {
      const bool pauses = form_ == Form::sequential && copies_ > 0 && next_ >= wanted_;
      if (pauses || next_ >= limit_) {
        changed_.wait(lock);
        continue;
      }
      const std::size_t at = std::exchange(next_, std::min(next_ + kPiece, size_));
      lock.unlock();
      const auto touched = options_.touch(data_ + at, std::min(kPiece, size_ - at));
      lock.lock();
      if (touched) there_[at / kPiece] = true;
      while (touched_ < size_ && there_[touched_ / kPiece]) touched_ = std::min(touched_ + kPiece, size_);
      if (!touched) limit_ = std::min(limit_.load(), at), trouble_ = touched.error().message;
      if (form_ != Form::touch_then_register || !touched) publish(std::min(touched_, limit()), lock);
      if (touched_ == size_ && !std::exchange(whole_, true) && !device_.host_memory()) pin(lock);
      changed_.notify_all();
    }
  }
  // A copy that has begun is waited for, though not for ever: where one always follows another the device itself puts
  // them in order.
  void pin(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    const bool called = !options_.queue || options_.queue->wait(stop_.get_token());
    lock.lock();
    if (!called) return;
    changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return copies_ == 0; });
    lock.unlock();
    const auto pinned = ranges_.pin(device_, data_, {0, size_}, true);
    if (options_.queue) options_.queue->leave();
    lock.lock();
    pinned ? void(pinned_ = true) : void(trouble_ = pinned.error().message);
    publish(size_, lock);
  }
  void publish(std::size_t ready, std::unique_lock<std::mutex>& lock) {
    ready_ = std::max(ready_.load(), ready);
    if (!options_.changed) return;
    lock.unlock();
    options_.changed();
    lock.lock();
  }

  ebb::device::Device& device_;
  const Form form_;
  const ebb::cache::MemoryOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> there_;
  std::size_t next_ = 0, touched_ = 0, wanted_ = 0;
  int copies_ = 0;
  bool whole_ = false, pinned_ = false;
  std::string trouble_;
  std::stop_source stop_;
  std::vector<std::jthread> threads_;
};

}  // namespace bench
