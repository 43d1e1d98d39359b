#pragma once
// Enters whole objects in a process's list, with their descriptions in its first slab.
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "share/member/pool_member.hpp"

namespace ebb::share {

/// Thread safety: none of its own.
/// 1. A description's bytes, and an entry's place, are used again only when the agent has finished them.
class Handover {
 public:
  /// A range of an object, and where it is in the slabs of the pool.
  struct SlabRange {
    std::uint64_t offset = 0, at = 0, bytes = 0;
  };

  explicit Handover(PoolMember& member) : member_(member) { gaps_[0] = member.slab_bytes(); }

  /// Where the process's memory begins in the slabs of the pool.
  std::uint64_t begin() const { return member_.first_slab() * member_.slab_bytes(); }
  /// All of its parts, or none. Error no_space: the list or the slab is full until the agent has finished some; if
  /// empty(), it never will be enough.
  Result<void> add(storage::ObjectId object, const storage::Description& description, std::vector<SlabRange> parts);
  /// Whether the agent, which is gone, had begun to mark the object's entries: it is complete in the store then, or has
  /// failed. Marks the rest, which no agent does.
  bool finish_marked(storage::ObjectId object);
  void finish(storage::ObjectId object);
  /// Marks the object's entries finished, so that no later agent writes it. Only where no agent can be started.
  void withdraw(storage::ObjectId object);
  bool empty() const { return entered_.empty(); }

  /// Objects that cannot be handed over, and why.
  void refuse(storage::ObjectId object, Error error) { refused_[object] = std::move(error); }
  const std::map<storage::ObjectId, Error>& refused() const { return refused_; }
  std::map<storage::ObjectId, Error> take_refused() { return std::exchange(refused_, {}); }

 private:
  struct Entered {
    std::uint64_t at = 0, bytes = 0;       // of the description
    std::vector<std::uint64_t> sequences;  // of its entries
  };
  SlabBytes place(std::uint64_t at, std::uint64_t bytes) const;

  PoolMember& member_;
  std::map<std::uint64_t, std::uint64_t> gaps_;  // in the slab of descriptions: offset to length
  std::map<storage::ObjectId, Entered> entered_;
  std::uint64_t added_ = 0;  // entries, ever
  std::map<storage::ObjectId, Error> refused_;
};

}  // namespace ebb::share
