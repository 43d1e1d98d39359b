#pragma once
// How a lender learns that nothing uses what it lent any more.
#include <utility>

#include "ebbtide/error.hpp"
#include "os/own_descriptors.hpp"

namespace ebb::share {

/// The borrower's end of a pipe. A forked child has it too: it keeps the borrower's memory of a GPU alive, as the
/// borrower itself did. exec() closes it.
///
/// Thread safety: none of its own.
class Lifeline {
 public:
  /// With the other end, which is for the lender: there the pipe ends once all that had this one are gone.
  static Result<std::pair<Lifeline, os::OwnDescriptor>> make();
  Lifeline() = default;
  Lifeline(Lifeline&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Lifeline& operator=(Lifeline&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Lifeline();

 private:
  int fd_ = -1;
};

/// Of the lender's end: all that had the other one are gone. A descriptor that is no pipe's has ended.
bool has_ended(const os::OwnDescriptor& lifeline);

}  // namespace ebb::share
