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
  /// False: it is known already.
  bool hear(std::uint32_t lease) { return leases_.try_emplace(lease, nullptr).second; }
  bool has(std::uint32_t lease) const { return leases_.contains(lease); }
  void use(std::uint32_t lease, const std::byte* memory) { leases_.at(lease) = memory; }
  /// False: there is no such lease.
  bool end(std::uint32_t lease) { return leases_.erase(lease) > 0; }
  std::size_t count() const { return leases_.size(); }

  /// The slab that these bytes begin in, and where in it; nothing: they are not in a lease of `lease_bytes`.
  struct Where {
    std::uint32_t lease = 0;
    std::uint64_t at = 0;
  };
  std::optional<Where> find(const std::byte* memory, std::size_t bytes, std::uint64_t lease_bytes) const {
    for (const auto& [lease, begin] : leases_) {
      if (begin != nullptr && memory >= begin && memory + bytes <= begin + lease_bytes) {
        return Where{lease, static_cast<std::uint64_t>(memory - begin)};
      }
    }
    return {};
  }

 private:
  std::map<std::uint32_t, const std::byte*> leases_;  // by the first slab; null: not mapped
};

}  // namespace ebb::share
