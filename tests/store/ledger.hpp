#pragma once
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <sys/mman.h>

#include "tests/doubles/forward_device.hpp"
#include "tests/doubles/no_files.hpp"

namespace ebb::store::testing_support {

/// Which bytes are where, without any of them: every byte that was ever written has a number, and a copy moves numbers.
/// Thread safety: every method may be called from any thread.
class Ledger {
 public:
  /// From here on the bytes at `at` are numbers `first`, `first + 1`, and so on.
  void write(std::uint64_t at, std::uint64_t bytes, std::uint64_t first) {
    std::lock_guard lock(mutex_);
    forget_locked(at, bytes);
    if (bytes > 0) runs_[at] = {bytes, first};
  }
  void move(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    std::map<std::uint64_t, Run> moved;
    split_locked(from);
    split_locked(from + bytes);
    for (auto run = runs_.lower_bound(from); run != runs_.end() && run->first < from + bytes; ++run) {
      moved.emplace(to + (run->first - from), run->second);
    }
    forget_locked(to, bytes);
    runs_.merge(moved);
  }
  void forget(std::uint64_t at, std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    forget_locked(at, bytes);
  }
  /// How many bytes from `at` on are numbers `first`, `first + 1`, and so on.
  std::uint64_t run_of(std::uint64_t at, std::uint64_t first) const {
    std::lock_guard lock(mutex_);
    auto run = runs_.upper_bound(at);
    if (run == runs_.begin()) return 0;
    --run;
    std::uint64_t end = at;
    for (; run != runs_.end() && run->first <= end; ++run) {
      const auto& [begin, held] = *run;
      if (held.first - begin != first - at || begin + held.bytes <= end) break;
      end = begin + held.bytes;
    }
    return end - at;
  }

 private:
  struct Run {
    std::uint64_t bytes = 0, first = 0;
  };
  void split_locked(std::uint64_t at) {
    auto run = runs_.lower_bound(at);
    if (run == runs_.begin()) return;
    auto& [begin, held] = *--run;
    if (begin + held.bytes <= at) return;
    runs_[at] = {begin + held.bytes - at, held.first + (at - begin)};
    held.bytes = at - begin;
  }
  void forget_locked(std::uint64_t at, std::uint64_t bytes) {
    split_locked(at);
    split_locked(at + bytes);
    runs_.erase(runs_.lower_bound(at), runs_.lower_bound(at + bytes));
  }

  mutable std::mutex mutex_;
  std::map<std::uint64_t, Run> runs_;
};

inline std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uint64_t>(memory); }

/// Addresses without memory: whoever reads or writes there ends the process.
class Nowhere {
 public:
  explicit Nowhere(std::size_t bytes) : bytes_(bytes), data_(reserve(bytes)) {}
  Nowhere(const Nowhere&) = delete;
  ~Nowhere() { ::munmap(data_, bytes_); }
  std::byte* data() const { return data_; }
  static std::byte* reserve(std::size_t bytes) {
    void* const memory = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
  }

 private:
  const std::size_t bytes_;
  std::byte* const data_;
};

/// A GPU whose copies move numbers in a ledger, at once. Its memory is addresses alone, so that it may be of any size.
class LedgerDevice final : public doubles::ForwardDevice {
 public:
  explicit LedgerDevice(std::shared_ptr<Ledger> ledger)
      : doubles::ForwardDevice(device::make_host_device()), ledger_(std::move(ledger)) {}
  std::string_view name() const noexcept override { return "ledger"; }
  bool host_memory() const noexcept override { return false; }
  Result<std::byte*> allocate(std::size_t bytes) override {
    std::byte* const memory = Nowhere::reserve(bytes);
    if (memory == nullptr) return Error{Errc::out_of_memory, "no such range of addresses"};
    return memory;
  }
  void free(std::byte* memory, std::size_t bytes) noexcept override { ::munmap(memory, bytes); }
  Result<std::byte*> allocate_host(std::size_t bytes) override { return allocate(bytes); }
  void free_host(std::byte* memory, std::size_t bytes) noexcept override { free(memory, bytes); }
  Result<std::byte*> reserve(std::size_t bytes) override { return allocate(bytes); }
  Result<void> map(std::byte*, std::size_t, std::size_t) override { return {}; }
  std::size_t map_granule() const noexcept override { return std::size_t{2} << 20; }
  void unreserve(std::byte* range, std::size_t bytes) noexcept override { free(range, bytes); }
  Result<void> pin(std::byte*, std::size_t) override { return {}; }
  void unpin(std::byte*, std::size_t) noexcept override {}
  Result<void> copy(device::StreamId, void* to, const void* from, std::size_t bytes) override {
    ledger_->move(address_of(to), address_of(from), bytes);
    return {};
  }
  Result<void> record(device::EventId, device::StreamId) override { return {}; }
  Result<void> stream_wait(device::StreamId, device::EventId) override { return {}; }
  void discard(void* memory, std::size_t bytes) noexcept override { ledger_->forget(address_of(memory), bytes); }

 private:
  const std::shared_ptr<Ledger> ledger_;
};

/// One file of any size, in the same ledger, far above all memory.
class LedgerFiles final : public doubles::NoFiles {
 public:
  explicit LedgerFiles(std::shared_ptr<Ledger> ledger) : ledger_(std::move(ledger)) {}
  using SysResult = os::SysResult;
  SysResult open_unlinked(const std::filesystem::path& directory, bool) noexcept override {
    return posix_.open_unlinked(directory, false);
  }
  SysResult open_read(const std::filesystem::path&) noexcept override { return SysResult::failed(ENOENT); }
  SysResult open_write(const std::filesystem::path& path) noexcept override { return posix_.open_write(path); }
  SysResult close(int fd) noexcept override { return posix_.close(fd); }
  SysResult read(int, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    ledger_->move(address_of(memory), kFile + offset, bytes);
    return SysResult::of(static_cast<std::int64_t>(bytes));
  }
  SysResult write(int, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept override {
    ledger_->move(kFile + offset, address_of(memory), bytes);
    return SysResult::of(static_cast<std::int64_t>(bytes));
  }
  SysResult truncate(int, std::uint64_t) noexcept override { return SysResult::of(0); }
  SysResult preallocate(int, std::uint64_t, std::uint64_t) noexcept override { return SysResult::of(0); }
  SysResult punch(int, std::uint64_t, std::uint64_t) noexcept override { return SysResult::of(0); }
  SysResult describe(const std::filesystem::path&, os::FileSystem& out) noexcept override {
    out = {.kind = "ledger", .in_memory = false, .free_bytes = kFile, .total_bytes = kFile};
    return SysResult::of(0);
  }

 private:
  static constexpr std::uint64_t kFile = std::uint64_t{1} << 62;
  const std::shared_ptr<Ledger> ledger_;
  os::PosixFiles posix_;
};

}  // namespace ebb::store::testing_support
