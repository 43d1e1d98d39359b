#pragma once
// What a process has borrowed of other processes' shares of the pool.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

namespace ebb::node {

/// Thread safety: none of its own.
class Borrowed {
 public:
  /// False: it is known already.
  bool hear(std::uint32_t loan) { return loans_.try_emplace(loan, nullptr).second; }
  bool has(std::uint32_t loan) const { return loans_.contains(loan); }
  void use(std::uint32_t loan, const std::byte* memory) { loans_.at(loan) = memory; }
  /// False: there is no such loan.
  bool end(std::uint32_t loan) { return loans_.erase(loan) > 0; }
  std::size_t count() const { return loans_.size(); }

  /// The slab that these bytes begin in, and where in it; nothing: they are not in a loan of `loan_bytes`.
  struct Where {
    std::uint32_t loan = 0;
    std::uint64_t at = 0;
  };
  std::optional<Where> find(const std::byte* memory, std::size_t bytes, std::uint64_t loan_bytes) const {
    for (const auto& [loan, begin] : loans_) {
      if (begin != nullptr && memory >= begin && memory + bytes <= begin + loan_bytes) {
        return Where{loan, static_cast<std::uint64_t>(memory - begin)};
      }
    }
    return {};
  }

 private:
  std::map<std::uint32_t, const std::byte*> loans_;  // by the first slab; null: not mapped
};

}  // namespace ebb::node
