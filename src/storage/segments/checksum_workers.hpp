#pragma once
// The threads that compute and compare checksums, so that neither a caller nor the file engine waits for them.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ebb::storage {

/// Runs jobs on its threads: started in order, several at a time.
///
/// Thread safety: post() from any thread, jobs included; stop() from a thread that is not one of its own.
/// 1. mutex_ guards the queue and stopping_; no job runs with it held.
/// 2. Every job posted before stop() returns is run.
class ChecksumWorkers {
 public:
  /// Both may throw base::ThreadRefused.
  explicit ChecksumWorkers(unsigned threads = 0) { start(threads); }
  void start(unsigned threads);
  /// One thread hashes 10 GB/s; with few cores, a second would only slow the transfers down.
  static unsigned usual_threads();
  ~ChecksumWorkers() { stop(); }
  void post(std::function<void()> job);
  /// May be called twice.
  void stop();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ebb::storage
