#pragma once
// Memory that is provisioned in the background: the threads and calls that carry out what planner/provisioner.hpp
// decides.
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "cache/tier_memory.hpp"

namespace ebb::cache {

/// Thread safety: every method may be called from any thread.
/// 1. mutex_ guards the provisioner, what it has commanded and what is reported. It is not held while pages are
///    touched, registered or mapped, in the pin queue, or in a callback (but for `record`).
/// 2. ready_, limit_ and finished_ are written with mutex_ held and read without.
/// 3. The threads end with stop(); nothing is freed before. What the device or `touch` throws is a failure of that
///    range; what `trouble` throws is ignored; anything else that is thrown on a thread ends the provisioning.
class ProvisionedMemory final : public TierMemory {
 public:
  /// Sets the capacity of `spec`.
  static MadeMemory make(device::Device& device, std::size_t bytes, std::string strategy, planner::ProvisionSpec spec,
                         MemoryOptions options);
  ~ProvisionedMemory() override;

  void want(std::size_t end) override;
  void produced(std::size_t bytes) override;
  void expect(std::size_t bytes) override;
  void copy_begun(std::size_t offset, std::size_t bytes) override;
  void copy_ended(std::size_t offset, std::size_t bytes) override;
  void stop() override;
  MemoryReport report() const override;

 private:
  ProvisionedMemory(device::Device& device, std::size_t size, std::string strategy, planner::UsedWhen used_when,
                    MemoryOptions options);
  Result<void> start(planner::ProvisionSpec spec);
  Result<void> reserve_addresses();
  Result<void> start_thread(void (ProvisionedMemory::*work)());
  void run(void (ProvisionedMemory::*work)()) noexcept;
  void touch_pieces();
  void pin_pieces();
  Result<void> touch(planner::ByteRange range);
  bool mapped() const { return used_when_ == planner::UsedWhen::touched && !options_.addresses; }
  std::size_t untouched(std::size_t end) const;
  void from_caller(planner::ProvisionEvent event, const Result<void>& left = {});
  // With mutex_ held.
  void submit(planner::ProvisionEvent event);
  void report_troubles();
  void add_trouble(bool now, std::uint8_t kind, const auto& text);
  void publish(std::size_t ready, std::size_t limit);
  bool notify(std::unique_lock<std::mutex>& lock);
  void wait(std::condition_variable& work, std::unique_lock<std::mutex>& lock);
  std::string limit_text(std::size_t bytes) const;
  planner::Time now() const { return options_.clock->now(); }

  device::Device& device_;
  const planner::UsedWhen used_when_;
  const MemoryOptions options_;
  std::size_t addresses_ = 0;  // behind data_
  std::atomic<std::size_t> wanted_{0};
  std::atomic<bool> finished_{true};  // nothing more is provisioned

  mutable std::mutex mutex_;
  std::condition_variable touch_work_, pin_work_;
  std::optional<planner::Provisioner> provisioner_;
  planner::ProvisionCommands todo_;
  std::string touch_error_, pin_error_;
  std::uint8_t reported_ = 0;              // kinds of trouble that were reported, one bit each
  std::string troubles_;                   // all of them
  std::vector<std::string> new_troubles_;  // to be reported when the lock is released ...
  bool changed_ = false;                   // ... as is a change
  bool ended_ = false;                     // by an exception

  std::mutex stop_mutex_;  // held while threads are joined
  std::stop_source stop_;
  std::vector<std::thread> threads_;
};

}  // namespace ebb::cache
