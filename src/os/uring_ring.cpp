#include "os/uring_ring.hpp"

#if EBB_HAVE_URING
#include <algorithm>
#include <cerrno>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <vector>
#endif

namespace ebb::os {

#if EBB_HAVE_URING
namespace {

// The tag of our own read of the event descriptor through which wake() ends a wait.
constexpr std::uint64_t kWakeTag = UINT64_MAX;

class UringRing final : public Ring {
 public:
  static Result<std::unique_ptr<Ring>> open(unsigned entries) {
    auto ring = std::make_unique<UringRing>();
    io_uring_params parameters{};
    parameters.flags = IORING_SETUP_CLAMP | IORING_SETUP_COOP_TASKRUN;
    int refused = ::io_uring_queue_init_params(entries + 1, &ring->ring_, &parameters);  // one more, for the wake
    if (refused == -EINVAL) {                                                            // a kernel without that flag
      parameters = {};
      parameters.flags = IORING_SETUP_CLAMP;
      refused = ::io_uring_queue_init_params(entries + 1, &ring->ring_, &parameters);
    }
    if (refused < 0) return unsupported("io_uring is refused: " + describe_errno(-refused));
    ring->open_ = true;
    ring->entries_ = std::min(entries, parameters.sq_entries - 1);
    if (!ring->can_read_and_write()) return unsupported("this kernel's io_uring has no plain reads and writes");
    ring->event_ = ::eventfd(0, EFD_CLOEXEC);
    if (ring->event_ < 0) return unsupported("no event descriptor for io_uring: " + describe_errno(errno));
    ring->failed_.reserve(ring->entries_ + 1);
    if (const int error = ring->try_one()) return unsupported("io_uring_enter is refused: " + describe_errno(error));
    ring->arm_wake();
    return std::unique_ptr<Ring>(std::move(ring));
  }

  UringRing() = default;
  UringRing(const UringRing&) = delete;
  ~UringRing() override {
    if (open_) ::io_uring_queue_exit(&ring_);
    if (event_ >= 0) ::close(event_);
  }

  unsigned entries() const noexcept override { return entries_; }

  bool prepare(const RingOp& op) noexcept override {
    if (refused_ != 0) {
      if (failed_.size() == failed_.capacity()) return false;
      failed_.push_back(op.tag);
      return true;
    }
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (!entry) return false;
    if (op.write) {
      ::io_uring_prep_write(entry, op.fd, op.memory, op.length, op.offset);
    } else {
      ::io_uring_prep_read(entry, op.fd, op.memory, op.length, op.offset);
    }
    ::io_uring_sqe_set_data64(entry, op.tag);
    return true;
  }

  SysResult wait(std::span<RingDone> out) noexcept override {
    const int waited = refused_ != 0 ? 0 : ::io_uring_submit_and_wait(&ring_, 1);
    if (waited < 0 && waited != -EINTR && waited != -EAGAIN && waited != -EBUSY && waited != -ENOMEM) refuse(-waited);
    std::int64_t count = 0;
    for (; !failed_.empty() && count < static_cast<std::int64_t>(out.size()); failed_.pop_back())
      out[count++] = {failed_.back(), -refused_};
    unsigned head = 0, seen = 0;
    bool woken = false;
    io_uring_cqe* entry = nullptr;
    io_uring_for_each_cqe(&ring_, head, entry) {
      if (count == static_cast<std::int64_t>(out.size())) break;
      ++seen;
      if (::io_uring_cqe_get_data64(entry) == kWakeTag) {
        woken = true;
      } else {
        out[count++] = {::io_uring_cqe_get_data64(entry), entry->res};
      }
    }
    ::io_uring_cq_advance(&ring_, seen);
    if (refused_ != 0) {
      if (count == 0) look_again();
      return SysResult::of(count);
    }
    if (woken) arm_wake();
    return waited < 0 && seen == 0 ? SysResult::failed(-waited) : SysResult::of(count);
  }

  void wake() noexcept override {
    const std::uint64_t one = 1;
    while (::write(event_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

 private:
  static Error unsupported(std::string message) { return {Errc::unsupported, std::move(message)}; }

  bool can_read_and_write() {
    io_uring_probe* probe = ::io_uring_get_probe_ring(&ring_);
    const bool can = probe && ::io_uring_opcode_supported(probe, IORING_OP_READ) &&
                     ::io_uring_opcode_supported(probe, IORING_OP_WRITE);
    if (probe) ::io_uring_free_probe(probe);
    return can;
  }

  // A filter of system calls may let a ring be made, and refuse every use of it.
  int try_one() noexcept {
    ::io_uring_prep_nop(::io_uring_get_sqe(&ring_));
    int done = -EINTR;
    while (done == -EINTR || done == -EAGAIN) done = ::io_uring_submit_and_wait(&ring_, 1);
    if (done < 0) return -done;
    ::io_uring_cq_advance(&ring_, 1);
    return 0;
  }

  // What the kernel has not taken it never will, since nothing is submitted any more.
  void refuse(int error) noexcept {
    refused_ = error;
    const unsigned taken = *ring_.sq.khead, queued = ring_.sq.sqe_tail;
    for (unsigned at = taken; at != queued; ++at) {
      const std::uint64_t tag = ring_.sq.sqes[at & ring_.sq.ring_mask].user_data;
      if (tag != kWakeTag) failed_.push_back(tag);
    }
  }

  // What the kernel has taken ends without a call, at the latest when this thread makes another one.
  void look_again() noexcept {
    pollfd rung{event_, POLLIN, 0};
    std::uint64_t ignored = 0;
    if (::poll(&rung, 1, 10) > 0) static_cast<void>(::read(event_, &ignored, sizeof ignored));
  }

  // Only queued: the next wait() submits it. There is always an entry for it: ops use at most entries_, and the ring
  // has one more.
  void arm_wake() noexcept {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (!entry) return;
    ::io_uring_prep_read(entry, event_, &woken_by_, sizeof woken_by_, 0);
    ::io_uring_sqe_set_data64(entry, kWakeTag);
  }

  io_uring ring_{};
  bool open_ = false;
  unsigned entries_ = 0;
  int event_ = -1;
  std::uint64_t woken_by_ = 0;
  int refused_ = 0;                    // why nothing can be submitted any more
  std::vector<std::uint64_t> failed_;  // the tags of ops that were not, and wait to be reported
};

}  // namespace

Result<std::unique_ptr<Ring>> open_uring(unsigned entries) { return UringRing::open(entries); }
#else
Result<std::unique_ptr<Ring>> open_uring(unsigned) {
  return Error{Errc::unsupported, "built without liburing: there is no io_uring"};
}
#endif

}  // namespace ebb::os
