#include <array>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_thread.hpp"
#include "transfer/file_engines.hpp"
#include "transfer/file_request.hpp"

namespace ebb::transfer {
namespace {

/// One thread owns a ring and keeps it as full as it can.
///
/// Thread safety: as FileEngine.
/// 1. mutex_ guards the inbox, pending_, stopping_ and waiting_; everything else belongs to the thread. No `done` is
///    called with it held.
/// 2. A request is in exactly one of inbox_, ready_ and a slot; those in slots belong to the kernel.
/// 3. waiting_ is set by the thread before it waits and cleared by the thread that wakes it: a submit() after that
///    wakes it, an earlier one was seen.
/// 4. pending_ decreases after `done`; the thread ends when stopping and pending_ is 0, so what `done` submits is
///    carried out.
class RingFileEngine final : public FileEngine {
 public:
  RingFileEngine(std::unique_ptr<os::Ring> ring, std::size_t request_bytes, Done done)
      : ring_(std::move(ring)), request_bytes_(request_bytes), done_(std::move(done)), slots_(ring_->entries()) {
    for (std::size_t slot = slots_.size(); slot-- > 0;) free_slots_.push_back(slot);
    thread_ = base::thread([this] { work(); });
  }
  ~RingFileEngine() override { RingFileEngine::stop(); }

  std::string_view name() const noexcept override { return "io_uring"; }

  void submit(Token token, Direction direction, const os::File& file, std::span<const Piece> pieces) override {
    auto transfer = std::make_shared<FileTransfer>(FileTransfer{token, direction, &file, 0, {}});
    std::deque<FileRequest> requests;
    cut(transfer, pieces, request_bytes_, requests);
    bool wake = false;
    {
      std::lock_guard lock(mutex_);
      if (stopping_ && pending_ == 0) throw std::logic_error("a transfer was submitted to a stopped engine");
      if (requests.empty()) empty_.push_back(std::move(transfer));
      append(inbox_, requests);
      ++pending_;
      wake = std::exchange(waiting_, false);
    }
    if (wake) ring_->wake();
  }

  std::size_t pending() const override {
    std::lock_guard lock(mutex_);
    return pending_;
  }

  void stop() override {
    if (!thread_.joinable()) return;
    bool wake = false;
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      wake = std::exchange(waiting_, false);
    }
    if (wake) ring_->wake();
    thread_.join();
  }

 private:
  void work() {
    std::array<os::RingDone, 64> ended;
    for (;;) {
      std::vector<std::shared_ptr<FileTransfer>> empty;
      {
        std::lock_guard lock(mutex_);
        if (stopping_ && pending_ == 0) return;
        for (FileRequest& request : inbox_) ready_.push_back(std::move(request));
        inbox_.clear();
        empty.swap(empty_);
        waiting_ = empty.empty();
      }
      for (const auto& transfer : empty) report(*transfer);
      if (!empty.empty()) continue;
      if (fill()) {
        stop_waiting();
        continue;  // some were reported without the ring
      }
      const os::SysResult count = ring_->wait(ended);
      stop_waiting();
      if (!count) continue;
      for (std::int64_t i = 0; i < count.value; ++i) take(ended[static_cast<std::size_t>(i)]);
    }
  }

  void stop_waiting() {
    std::lock_guard lock(mutex_);
    waiting_ = false;
  }

  // Submits ready requests to the ring; those of a transfer that has failed end here. True if one was reported.
  bool fill() {
    bool reported = false;
    while (!ready_.empty() && !free_slots_.empty()) {
      FileRequest request = std::move(ready_.front());
      ready_.pop_front();
      if (request.transfer->error) {
        reported |= finish(request);
        continue;
      }
      const std::size_t slot = free_slots_.back();
      os::RingOp op;
      op.write = request.transfer->direction == Direction::write;
      op.fd = request.transfer->file->fd();
      op.memory = request.memory + request.moved;
      op.length = static_cast<std::uint32_t>(request.length - request.moved);
      op.offset = request.offset + request.moved;
      op.tag = slot;
      if (!ring_->prepare(op)) {
        ready_.push_front(std::move(request));
        break;
      }
      free_slots_.pop_back();
      slots_[slot] = std::move(request);
    }
    return reported;
  }

  void take(const os::RingDone& ended) {
    FileRequest request = std::move(slots_.at(ended.tag));
    free_slots_.push_back(ended.tag);
    const os::SysResult answer =
        ended.result < 0 ? os::SysResult::failed(-ended.result) : os::SysResult::of(ended.result);
    if (account(request, answer) == Next::again) {
      ready_.push_front(std::move(request));
    } else {
      finish(request);
    }
  }

  bool finish(FileRequest& request) {
    const std::shared_ptr<FileTransfer> transfer = std::move(request.transfer);
    if (--transfer->open_requests > 0) return false;
    report(*transfer);
    return true;
  }

  void report(const FileTransfer& transfer) {
    done_(transfer.token, outcome(transfer));
    std::lock_guard lock(mutex_);
    --pending_;
  }

  const std::unique_ptr<os::Ring> ring_;
  const std::size_t request_bytes_;
  const Done done_;
  mutable std::mutex mutex_;
  std::deque<FileRequest> inbox_;
  std::vector<std::shared_ptr<FileTransfer>> empty_;  // submitted without bytes
  std::size_t pending_ = 0;
  bool stopping_ = false, waiting_ = false;
  std::deque<FileRequest> ready_;
  std::vector<FileRequest> slots_;
  std::vector<std::size_t> free_slots_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<FileEngine> make_ring_file_engine(std::unique_ptr<os::Ring> ring, std::size_t request_bytes,
                                                  Done done) {
  return std::make_unique<RingFileEngine>(std::move(ring), request_bytes, std::move(done));
}

}  // namespace ebb::transfer
