#pragma once
// Writes noticed by mprotect() and a handler of SIGSEGV, where there is no userfaultfd.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <sys/types.h>
#include <vector>

#include "os/own_descriptors.hpp"
#include "os/write_watch.hpp"

namespace ebb::os {

/// Each disarmed run of pages in an armed range costs two mappings of the process. The protection of watched memory is
/// the watch's: the program must not change it. The handler of SIGSEGV stays once it is there, since later ones may
/// pass signals on to it; signals that are not for it go to the one before.
///
/// Thread safety: as WriteWatch. No locks: the ranges of all watches are in one table, which the handler reads.
/// 1. A page's state is `armed` before it is protected, and `open` after that is lifted. So a fault at an open page is
///    an old one, and its thread tries again.
/// 2. A range is used only between `++users` and `--users`, and only if it is still there after `++users`; forget()
///    takes it away, wakes its writers and waits for its users.
/// 3. A forked child has copies of the table and of the protections: its handler lifts them.
class MprotectWatch final : public WriteWatch {
 public:
  static Result<std::unique_ptr<WriteWatch>> open();
  MprotectWatch(OwnDescriptor bell, OwnDescriptor told, OwnDescriptor telling);
  ~MprotectWatch() override;

  WatchForm form() const noexcept override { return WatchForm::mprotect; }
  bool user_faults_only() const noexcept override { return true; }
  /// Error no_space: the table is full.
  Result<void> watch(PageRange range) override;
  void forget(PageRange range) override;
  /// Error unsupported: another handler of SIGSEGV was installed meanwhile.
  WatchResult arm(PageRange range) override;
  WatchResult disarm(PageRange range) override;
  Result<WatchEvent> next(std::chrono::milliseconds limit) override;
  void ring() noexcept override;
  Result<void> take_written(PageRange range, std::vector<PageRange>& out) override;

 private:
  const pid_t process_;
  const OwnDescriptor bell_, told_, telling_;  // the handler writes the addresses of pages to telling_
  std::atomic<bool> rung_{false};
};

}  // namespace ebb::os
