#pragma once
#include <sys/types.h>

namespace ebb::os {

/// Says whether this process is a forked child of the one that made it, without a system call: by a page that the
/// kernel clears in children (Linux 4.14), else by the process's number.
///
/// Thread safety: constant.
class ForkMark {
 public:
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;
  bool forked() const noexcept { return page_ != nullptr ? *page_ == 0 : other_process(); }
  /// The process that made the mark.
  pid_t process() const noexcept { return process_; }

 private:
  bool other_process() const noexcept;

  const pid_t process_;
  volatile char* page_ = nullptr;
};

}  // namespace ebb::os
