#pragma once
// What a process has borrowed of other processes' shares of the pool.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace ebb::share {

/// Thread safety: none of its own.
class Borrowed {
 public:
  /// `granted`: the number of the message. False: the lease is known already.
  bool hear(std::uint32_t lease, std::uint64_t bytes, std::uint64_t granted) {
    const auto [at, fresh] = leases_.try_emplace(lease, Lease{.bytes = bytes});
    at->second.granted = granted;
    return fresh;
  }
  bool has(std::uint32_t lease) const { return leases_.contains(lease); }
  void use(std::uint32_t lease, const std::byte* memory) { leases_.at(lease).memory = memory; }
  /// The number of the message that it was heard of with last; nothing: there is no such lease.
  std::optional<std::uint64_t> end(std::uint32_t lease) {
    const auto found = leases_.find(lease);
    if (found == leases_.end()) return {};
    const std::uint64_t granted = found->second.granted;
    leases_.erase(found);
    return granted;
  }
  std::uint64_t bytes_of(std::uint32_t lease) const { return leases_.at(lease).bytes; }
  std::uint64_t bytes() const {
    std::uint64_t all = 0;
    for (const auto& [number, lease] : leases_) all += lease.bytes;
    return all;
  }

  /// The slab that these bytes begin in, and where in it; nothing: they are in no lease.
  struct Where {
    std::uint32_t lease = 0;
    std::uint64_t at = 0;
  };
  std::optional<Where> find(const std::byte* memory, std::size_t bytes) const {
    for (const auto& [number, lease] : leases_) {
      const std::byte* const begin = lease.memory;
      if (begin != nullptr && memory >= begin && memory + bytes <= begin + lease.bytes) {
        return Where{number, static_cast<std::uint64_t>(memory - begin)};
      }
    }
    return {};
  }

 private:
  struct Lease {
    std::uint64_t bytes = 0;
    std::uint64_t granted = 0;
    const std::byte* memory = nullptr;  // null: not mapped
  };
  std::map<std::uint32_t, Lease> leases_;  // by the first slab
};

}  // namespace ebb::share
