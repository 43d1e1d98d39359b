#include "cache/tier_memory.hpp"

#include <utility>

#include "os/files.hpp"
#include "os/pages.hpp"

namespace ebb::cache {
namespace {

/// Memory that is allocated completely at the start.
class DirectMemory final : public TierMemory {
 public:
  DirectMemory(device::Device& device, std::byte* memory, std::size_t bytes, bool host)
      : TierMemory("direct", bytes), device_(device), host_(host) {
    data_ = memory;
    ready_ = limit_ = bytes;
  }
  ~DirectMemory() override {
    if (data_) host_ ? device_.free_host(data_, size_) : device_.free(data_, size_);
  }
  MemoryReport report() const override {
    MemoryReport report = TierMemory::report();
    if (host_) report.touched = size_;
    if (host_ && !device_.host_memory()) report.pinned = size_;
    if (!host_) report.mapped = size_;
    return report;
  }

 private:
  device::Device& device_;
  const bool host_;
};

class UntouchedMemory final : public TierMemory {
 public:
  UntouchedMemory(std::byte* memory, std::size_t bytes) : TierMemory("direct", bytes) {
    data_ = memory;
    ready_ = limit_ = bytes;
  }
  ~UntouchedMemory() override { os::unmap_pages(data_, size_); }
};

MadeMemory direct(device::Device& device, std::size_t bytes, bool host) {
  if (bytes > SIZE_MAX - os::kBlock) {
    return Error{Errc::out_of_memory, std::to_string(bytes) + " bytes exceed the address space"};
  }
  bytes = os::round_up(bytes);
  std::byte* memory = nullptr;
  if (bytes > 0) {
    const Result<std::byte*> had = host ? device.allocate_host(bytes) : device.allocate(bytes);
    if (!had) return had.error();
    memory = *had;
  }
  return std::unique_ptr<TierMemory>(std::make_unique<DirectMemory>(device, memory, bytes, host));
}

}  // namespace

MadeMemory direct_host_memory(device::Device& device, std::size_t bytes) { return direct(device, bytes, true); }
MadeMemory direct_device_memory(device::Device& device, std::size_t bytes) { return direct(device, bytes, false); }

MadeMemory untouched_host_memory(std::size_t bytes) {
  bytes = os::round_up(bytes);
  const Result<std::byte*> had = os::map_pages(bytes);
  if (!had) return had.error();
  return std::unique_ptr<TierMemory>(std::make_unique<UntouchedMemory>(*had, bytes));
}

MemoryReport TierMemory::report() const {
  MemoryReport report;
  report.strategy = strategy_;
  report.bytes = size_;
  report.limit = limit();
  report.ready = ready();
  return report;
}

}  // namespace ebb::cache
