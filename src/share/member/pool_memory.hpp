#pragma once
// The memory of a pool that one process uses: its share, as far as it has claimed it, and what it has borrowed.
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "share/member/borrowed.hpp"
#include "share/member/pool_member.hpp"
#include "share/node_storage.hpp"

namespace ebb::share {

/// Thread safety: every method may be called from any thread. mutex_ guards what is not constant; `news` is not called
/// with it held.
class PoolMemory : public NodeMemory {
 public:
  explicit PoolMemory(std::shared_ptr<PoolMember> member) : member_(std::move(member)) {}

  std::shared_ptr<std::byte> cache_memory() const override { return {member_, member_->memory() + first_bytes()}; }
  Result<void> claim(std::uint64_t end) override;
  NodeCounters counters() const override;
  std::optional<std::string> stopped_agent() const override { return member_->stopped_agent(); }
  std::string describe() const override { return member_->describe(); }
  void borrow(LeaseNews news) override;
  std::uint64_t lease_bytes(std::uint32_t lease) const override;
  Result<std::shared_ptr<std::byte>> use_lease(std::uint32_t lease) override;
  void return_lease(std::uint32_t lease) override;

  /// What the cache leaves free at the beginning of the share, for descriptions: a slab.
  std::uint64_t first_bytes() const { return member_->slab_bytes(); }
  /// Where in the slabs of the pool these bytes are; nothing: they are not in this memory.
  std::optional<std::uint64_t> place_of(const std::byte* memory, std::size_t bytes) const;

  /// False: it is of something else.
  bool hear(const message::Any& message);
  /// The next agent hears what the one before may not have done.
  void ask_again();
  /// No claim is answered any more.
  void close(const Error& why);

 private:
  void on(const message::Claimed& claimed);
  static message::Borrow request() { return {.bytes = UINT64_MAX, .piece = UINT64_MAX}; }
  void ask_for_leases();
  void on(const message::Granted& granted);
  void on(const message::Recall& recall);

  const std::shared_ptr<PoolMember> member_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t claimed_ = 1, wanted_ = 1;  // slabs
  Error claim_error_;
  std::optional<Error> closed_;
  Borrowed borrowed_;
  LeaseNews lease_news_;
  bool borrows_ = false;  // the agent was told so
};

}  // namespace ebb::share
