#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/start_thread.hpp"
#include "transfer/file_engines.hpp"
#include "transfer/file_request.hpp"

namespace ebb::transfer {
namespace {

/// pread and pwrite on a few threads, one request at a time on each.
///
/// Thread safety: as FileEngine.
/// 1. mutex_ guards the queue, counters, and every transfer's open_requests and error; no system call or `done` is made
///    with it held.
/// 2. A request belongs to the one thread that took it from the queue.
/// 3. pending_ decreases after `done`; threads end when stopping and pending_ is 0, so what `done` submits is carried
///    out.
class ThreadFileEngine final : public FileEngine {
 public:
  ThreadFileEngine(os::Files& files, unsigned threads, std::size_t request_bytes, Done done)
      : files_(files), request_bytes_(request_bytes), done_(std::move(done)) {
    try {
      for (unsigned i = 0; i < threads; ++i) threads_.push_back(base::thread([this] { work(); }));
    } catch (...) {  // the threads that were started end before the engine does
      ThreadFileEngine::stop();
      throw;
    }
  }
  ~ThreadFileEngine() override { ThreadFileEngine::stop(); }

  std::string_view name() const noexcept override { return "threads"; }

  void submit(Token token, Direction direction, const os::File& file, std::span<const Piece> pieces) override {
    auto transfer = std::make_shared<FileTransfer>(FileTransfer{token, direction, &file, 0, {}});
    std::deque<FileRequest> requests;
    cut(transfer, pieces, request_bytes_, requests);
    if (requests.empty()) {  // an empty transfer, so that a thread reports it
      requests.push_back({transfer, nullptr, 0, 0, 0});
      transfer->open_requests = 1;
    }
    std::lock_guard lock(mutex_);
    if (stopping_ && pending_ == 0) throw std::logic_error("a transfer was submitted to a stopped engine");
    append(queue_, requests);
    ++pending_;
    changed_.notify_all();
  }

  std::size_t pending() const override {
    std::lock_guard lock(mutex_);
    return pending_;
  }

  void stop() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !queue_.empty() || (stopping_ && pending_ == 0); });
      if (queue_.empty()) return;
      FileRequest request = std::move(queue_.front());
      queue_.pop_front();
      if (!request.transfer->error) carry_out(request, lock);
      const std::shared_ptr<FileTransfer> transfer = std::move(request.transfer);
      if (--transfer->open_requests > 0) continue;
      lock.unlock();
      done_(transfer->token, outcome(*transfer));
      lock.lock();
      if (--pending_ == 0) changed_.notify_all();
    }
  }

  void carry_out(FileRequest& request, std::unique_lock<std::mutex>& lock) {
    if (request.length == 0) return;
    const int fd = request.transfer->file->fd();
    const bool reading = request.transfer->direction == Direction::read;
    Next next = Next::again;
    while (next == Next::again) {
      lock.unlock();
      std::byte* memory = request.memory + request.moved;
      const std::size_t bytes = request.length - request.moved;
      const std::uint64_t offset = request.offset + request.moved;
      const os::SysResult answer =
          reading ? files_.read(fd, memory, bytes, offset) : files_.write(fd, memory, bytes, offset);
      lock.lock();
      next = account(request, answer);
    }
  }

  os::Files& files_;
  const std::size_t request_bytes_;
  const Done done_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<FileRequest> queue_;
  std::size_t pending_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<FileEngine> make_thread_file_engine(os::Files& files, unsigned threads, std::size_t request_bytes,
                                                    Done done) {
  return std::make_unique<ThreadFileEngine>(files, threads, request_bytes, std::move(done));
}

}  // namespace ebb::transfer
