#pragma once
// Writes noticed by userfaultfd's write protection, in both of its forms.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "os/own_descriptors.hpp"
#include "os/userfaultfd.hpp"
#include "os/write_watch.hpp"

namespace ebb::os {

/// Thread safety: as WriteWatch.
/// 1. mutex_ guards inbox_, first_, count_ and lost_. Nothing watched is touched while it is held.
/// 2. While memory is being unmapped the kernel protects and unprotects nothing until its message has been read. So
///    whoever arms or disarms reads messages, into inbox_, and wakes next() for them.
/// 3. A fault that finds inbox_ full is woken without an answer: its thread faults again.
class UffdWatch final : public WriteWatch {
 public:
  static Result<std::unique_ptr<WriteWatch>> open(WatchForm form);
  UffdWatch(WatchForm form, uffd::Opened opened, OwnDescriptor bell, OwnDescriptor pagemap);

  WatchForm form() const noexcept override { return form_; }
  bool user_faults_only() const noexcept override { return user_faults_only_; }
  Result<void> watch(PageRange range) override { return watch_all({&range, 1}); }
  /// Small gaps are registered too: each range alone would take two of the mappings that a process may have.
  Result<void> watch_all(std::span<const PageRange> ranges) override;
  void forget(PageRange range) override;
  WatchResult arm(PageRange range) override;
  WatchResult disarm(PageRange range) override { return protect(range, false); }
  Result<WatchEvent> next(std::chrono::milliseconds limit) override;
  void ring() noexcept override;
  Result<void> take_written(PageRange range, std::vector<PageRange>& out) override;

 private:
  static constexpr std::size_t kInbox = 1024;

  WatchResult protect(PageRange range, bool on);
  void read_messages();
  void wake_next() noexcept;
  bool take_message(uffd_msg& into);
  std::optional<WatchEvent> event_of(const uffd_msg& message);
  void unregister(std::uint64_t begin, std::uint64_t bytes) noexcept;
  void wake(std::uint64_t begin, std::uint64_t bytes) noexcept;

  const WatchForm form_;
  const bool user_faults_only_;
  const OwnDescriptor faults_, bell_, pagemap_;
  std::atomic<bool> rung_{false};
  std::mutex mutex_;
  std::array<uffd_msg, kInbox> inbox_{};  // a ring
  std::size_t first_ = 0, count_ = 0;
  bool lost_ = false;  // a message other than a fault found inbox_ full
};

}  // namespace ebb::os
