#pragma once
// One write to the pool: its bytes, and the disk space that the file will need for them.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "capture/region.hpp"

namespace ebb::capture {

/// Walks over the pieces of a call.
class Pieces {
 public:
  Pieces(const iovec* pieces) : piece_(pieces) {}
  template <class Copy>
  void take(std::size_t bytes, Copy copy) {
    while (bytes) {
      while (done_ == piece_->iov_len) {
        ++piece_;
        done_ = 0;
      }
      const std::size_t now = std::min(bytes, piece_->iov_len - done_);
      copy(static_cast<char*>(piece_->iov_base) + done_, now);
      done_ += now;
      bytes -= now;
    }
  }

 private:
  const iovec* piece_;
  std::size_t done_ = 0;
};

enum class Stored { yes, wait_for_pool, wait_for_file, no_space };

/// [from, to) goes to the pool: all of it or nothing. The caller has the file's lock.
Stored store(Region* region, std::uint32_t at, int fd, const struct stat& found, const iovec* pieces, off_t from,
             off_t to);

}  // namespace ebb::capture
