#pragma once
// What one process has handed over and the agent has not finished, in the pool's file: whoever becomes the agent can
// finish it, when both have been killed.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ebbtide/error.hpp"
#include "share/pool/pool_tables.hpp"
#include "storage/format/record.hpp"

namespace ebb::share {

/// Bytes within one slab.
struct SlabBytes {
  std::uint32_t slab = 0;
  std::uint64_t offset = 0;  // in the slab
  std::uint64_t bytes = 0;
  bool operator==(const SlabBytes&) const = default;
};

/// A part of an object, and where it is in the pool. An object is handed over in parts, in any order, and is whole when
/// the last entry has come: the one with its description.
struct HandedOver {
  std::uint64_t object = 0;  // a number of the process's choice
  std::uint64_t at = 0;      // of the part, in the object
  SlabBytes part{};          // may have no bytes
  SlabBytes description{};   // without bytes: more parts follow
  storage::Checksum description_sum{};
  std::uint64_t sequence = 0;  // of the entry: 1, 2, ...
  bool operator==(const HandedOver&) const = default;
};

/// A view of a list, which does not belong to it.
///
/// Thread and process safety: add() is called by one thread of the process that the list belongs to, finish() by one
/// thread of the agent, unfinished() by any thread of any process, at the same time. No method trusts the memory.
/// 1. All accesses are atomic, of 64 bits. Entries are written by the process alone, marks by the agent alone, and no
///    cache line has both.
/// 2. Entry n is in place (n - 1) % entries, and is written only when the one before it there has its mark.
/// 3. An entry's first word, the sequence, is stored last, with release: who reads it sees the entry and the bytes that
///    it names. An entry counts if its checksum matches, and its sequence belongs in its place: one that was being
///    written when its process was killed does not.
/// 4. A mark is the sequence of a finished entry: its object is complete in the store, or will never be. Its bytes in
///    the pool are not read afterwards.
/// 5. An entry counts only while its bytes are in slabs of its process.
/// 6. The list is zeroed before its process becomes a member.
/// 7. Of entries that are added meanwhile, unfinished() has one only if it has all unfinished ones before it.
class HandoverList {
 public:
  /// `list`: shape.list_bytes() bytes, aligned to 8.
  HandoverList(std::byte* list, const PoolShape& shape, const PoolTables& tables, Member of)
      : word_(list), shape_(shape), tables_(tables), of_(of) {}

  /// Hands a part over, and returns its sequence. One view of a list adds, and no other ever. `entry.sequence` is
  /// ignored. Error no_space: the list is full until the agent has finished its oldest entry.
  Result<std::uint64_t> add(const HandedOver& entry);
  /// The number of entries that it has room for.
  std::uint64_t places() const noexcept { return shape_.list_entries; }
  /// Called in any order.
  void finish(std::uint64_t sequence) noexcept;
  bool is_finished(std::uint64_t sequence) const noexcept;
  /// What counts and has no mark, in the order of sequences.
  std::vector<HandedOver> unfinished() const;

 private:
  SharedWords::Word mark(std::uint64_t sequence) const noexcept;
  std::optional<HandedOver> entry(std::uint64_t place) const;
  bool belongs(const SlabBytes& bytes) const;

  SharedWords word_;
  PoolShape shape_;
  PoolTables tables_;
  Member of_;
  std::uint64_t next_ = 1;  // of the process that adds
};

/// An object of a list, all of whose parts are there.
struct WholeObject {
  std::vector<HandedOver> parts;   // by their places in it: contiguous, from 0
  const HandedOver& last() const;  // which has the description
};

/// The objects that `unfinished` has whole, in the order in which they became so. The others never were complete, or
/// are finished in part already.
std::vector<WholeObject> whole_objects(std::span<const HandedOver> unfinished);
/// Copies a description out of its slab, and checks the copy. `slab`: the whole slab. Error damaged.
Result<std::vector<std::byte>> read_description(const HandedOver& last, std::span<const std::byte> slab);

}  // namespace ebb::share
