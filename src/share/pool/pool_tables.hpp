#pragma once
// The tables of a pool's file: the agent, the processes, and who has which slab.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "ebbtide/error.hpp"
#include "os/process_id.hpp"
#include "share/pool/pool_header.hpp"
#include "share/pool/shared_words.hpp"

namespace ebb::share {

/// A process of a pool: a place in the table, and which of the processes that had this place it is.
struct Member {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // odd
  bool operator==(const Member&) const = default;
};

struct PoolProcess {
  Member member;
  os::ProcessId process;
  std::uint64_t share = 0;  // bytes that it is sure of
  std::uint64_t rank = 0;
  bool operator==(const PoolProcess&) const = default;
};

enum class SlabState : std::uint8_t {
  free,      // of the pool
  lent,      // a process may write to it
  recalled,  // still the process's, which is asked to return it
};

struct Slab {
  SlabState state = SlabState::free;
  Member owner{};       // unless free
  bool begins = false;  // a lease: of the slabs of another share, the first
  bool operator==(const Slab&) const = default;
};

/// What the agent has written. Objects are counted in the order in which they were written.
struct PoolProgress {
  std::uint64_t written = 0;  // so many are in the store's files, and a kill loses none
  std::uint64_t settled = 0;  // so many, the first ones, are durable, or failed
  std::uint64_t beside = 0;   // bytes in the page cache that no sync has put on the disk yet
  std::uint64_t lost = 0;     // so many that were handed over failed, and are in no list any more
  bool operator==(const PoolProgress&) const = default;
};

/// A view of the tables, which do not belong to it.
///
/// Thread and process safety: the methods that change something are called by one thread of one process, the agent; all
/// others may be called from any thread of any process, at the same time. No method trusts the memory: whatever it
/// holds, a method returns a value that an agent could have written, or none.
/// 1. All accesses are of words (SharedWords).
/// 2. A slab's word has its state and owner, so that both change together.
/// 3. A slot's generation is odd while a process has it, and grows by one with each change. Its other words change
///    only while it is even, but for the start of a process that has left, which becomes 0; they are stored with
///    release and loaded with acquire, so that a reader who finds the same odd generation before and after them has
///    read words of one process.
/// 4. A member is dismissed after its slabs are free: a slab whose owner is no member is damaged, and not lent again.
/// 5. The agent's generation grows by one whenever a process becomes the agent.
class PoolTables {
 public:
  /// `file`: the beginning of the mapped file, of shape.tables() bytes, aligned to 8.
  PoolTables(std::byte* file, const PoolShape& shape) : word_(file), shape_(shape) {}

  /// Which agent it is; 0: there was none yet.
  std::uint64_t agent() const noexcept;
  /// The calling process becomes the agent; returns which.
  std::uint64_t take_over() noexcept;

  PoolProgress progress() const noexcept;
  void set_progress(const PoolProgress& progress) noexcept;

  /// Nothing: the slot is free, or damaged, or changes at this moment.
  std::optional<PoolProcess> process(std::uint32_t slot) const noexcept;
  /// The free slot with the lowest number, as a member that admit() would make. Error no_space: there is none.
  Result<Member> next_member() const;
  void admit(const PoolProcess& process) noexcept;
  /// The process goes on, and uses the pool no more: from now on the member is one of a process that does not run.
  void leave(Member member) noexcept;
  bool has_left(Member member) const noexcept;
  /// False: it is no member.
  bool dismiss(Member member) noexcept;

  /// Nothing: the word is damaged. `index` is below slabs().
  std::optional<Slab> slab(std::uint32_t index) const noexcept;
  /// free -> lent. Like the next two, false if the slab is in another state, or another member's: nothing changes.
  bool lend(std::uint32_t index, Member to, bool begins = false) noexcept;
  /// lent -> recalled.
  bool recall(std::uint32_t index, Member from) noexcept;
  /// lent or recalled -> free: the member has returned it, or is gone.
  bool take_back(std::uint32_t index, Member from) noexcept;

 private:
  bool change(std::uint32_t index, const Slab& from, const Slab& to) noexcept;
  SharedWords word_;
  PoolShape shape_;
};

}  // namespace ebb::share
