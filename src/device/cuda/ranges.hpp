#pragma once
// Address ranges that GPU memory is mapped to, at once or piece by piece.
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/cuda/driver.hpp"

namespace ebb::device::cuda {

/// Another GPU in use by this process: whether each can reach the other's memory.
struct PeerGpu {
  int ordinal;
  bool reached, reaches;
};
std::vector<PeerGpu> peers_in_use(const Context& context);

/// One range; unmapped and freed at its end, unless it was taken. Sizes are multiples of kGranularity.
/// Thread safety: none of its own; the context must be current (Current).
class MappedRange {
 public:
  explicit MappedRange(const Context& context) : context_(context) {}
  ~MappedRange();
  MappedRange(const MappedRange&) = delete;
  MappedRange& operator=(const MappedRange&) = delete;

  /// Reserves addresses only. From now on the range's peers are the GPUs that the process uses now.
  CUresult reserve(std::size_t bytes);
  /// Maps memory after the mapped part. After an error nothing of the piece is mapped.
  CUresult append(std::size_t bytes);
  std::size_t mapped() const { return mapped_; }
  std::byte* address() const { return reinterpret_cast<std::byte*>(address_); }
  /// Transfers the range to the caller, with all that is mapped. This object then holds nothing.
  std::byte* take();

 private:
  CUresult allow(CUdeviceptr piece, std::size_t bytes, int ordinal) const;

  const Context context_;
  CUdeviceptr address_ = 0;
  std::size_t reserved_ = 0, mapped_ = 0;
  std::vector<PeerGpu> peers_;
};

/// The ranges of Device::reserve().
/// Thread safety: every method may be called from any thread with the context current; pieces of one range come from
/// one thread at a time, and none while it is freed.
/// 1. mutex_ guards the map; a range in it is used without the lock.
class Ranges {
 public:
  /// `plain`: one cudaMalloc for all of it, and map() does nothing.
  Ranges(const Context& context, bool plain) : context_(context), plain_(plain) {}
  Result<std::byte*> reserve(std::size_t bytes);
  Result<void> map(std::byte* range, std::size_t at, std::size_t bytes);
  void unreserve(std::byte* range) noexcept;

 private:
  struct Range {
    explicit Range(const Context& context) : memory(context) {}
    MappedRange memory;
    std::size_t bytes = 0, mapped = 0;  // as requested
  };
  const Context context_;
  const bool plain_;
  std::mutex mutex_;
  std::map<std::byte*, std::unique_ptr<Range>> ranges_;
};

}  // namespace ebb::device::cuda
