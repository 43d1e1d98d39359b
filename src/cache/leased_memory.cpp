#include "cache/leased_memory.hpp"

#include <algorithm>

#include "os/pages.hpp"

namespace ebb::cache {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 20;  // of a registration, which holds up the device's other calls

}  // namespace

Result<void> LeasedMemory::begin(std::shared_ptr<std::byte> memory, std::size_t bytes) {
  memory_ = std::move(memory);
  data_ = memory_.get();
  Result<void> done = pinned_ ? os::populate(data_, bytes) : Result<void>();
  for (std::size_t at = 0; done && pinned_ && !device_.host_memory() && at < bytes; at += kPiece) {
    const auto pinned = ranges_.pin(device_, data_, {at, std::min(kPiece, bytes - at)}, /*in_use=*/false);
    if (!pinned) done = pinned.error();
  }
  if (!done) {
    end();
    return done;
  }
  limit_ = bytes;
  ready_ = bytes;
  return {};
}

void LeasedMemory::end() noexcept {
  ready_ = 0;
  limit_ = 0;
  if (memory_) ranges_.unpin_all(device_, data_);
  memory_.reset();
}

MemoryReport LeasedMemory::report() const {
  MemoryReport report = TierMemory::report();
  if (pinned_) report.touched = report.ready;
  if (pinned_ && !device_.host_memory()) report.pinned = report.ready;
  if (!pinned_) report.mapped = report.ready;
  return report;
}

}  // namespace ebb::cache
