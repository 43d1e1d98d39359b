#include "storage/segments/checksum_workers.hpp"

#include <algorithm>

#include "base/start_thread.hpp"
#include "os/processors.hpp"

namespace ebb::storage {

unsigned ChecksumWorkers::usual_threads() { return std::clamp(os::usable_processors() / 4, 1u, 4u); }

void ChecksumWorkers::start(unsigned threads) {
  try {
    for (unsigned i = 0; i < threads; ++i) threads_.push_back(base::thread([this] { work(); }));
  } catch (...) {  // those that were started end before this does
    stop();
    throw;
  }
}

void ChecksumWorkers::post(std::function<void()> job) {
  std::lock_guard lock(mutex_);
  queue_.push_back(std::move(job));
  changed_.notify_one();
}

void ChecksumWorkers::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ChecksumWorkers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !queue_.empty() || stopping_; });
    if (queue_.empty()) return;
    const std::function<void()> job = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace ebb::storage
