#pragma once
// A checkpoint, its replicas on the tiers, and the history that it belongs to.
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "planner/checkpoint_state.hpp"
#include "planner/ids.hpp"
#include "planner/lifecycle.hpp"
#include "planner/recycled.hpp"
#include "planner/restore_order.hpp"
#include "planner/version_set.hpp"

namespace ebb::planner {

inline constexpr int kMaxTiers = 5;
using Slot = std::uint32_t;  // of a checkpoint
using MoveIndex = std::int32_t;
inline constexpr MoveIndex kNoMove = -1;
inline constexpr Slot kNoSlot = UINT32_MAX;
inline constexpr Time kRetryAfter = 1'000'000'000;  // before a flush whose retries are spent is tried again

template <class T>
struct PerTier : std::array<T, kMaxTiers> {
  T& operator[](TierIndex t) { return this->begin()[t]; }
  const T& operator[](TierIndex t) const { return this->begin()[t]; }
};

// Where else there is a complete copy of what a replica holds.
enum class Spare : std::uint8_t { no, memory_below, file_below, wanted_above };

// Every checkpoint has one for each tier, so its facts are in few bytes.
struct Replica {
  Bytes offset = 0;            // in its tier; from kAdopted on it is in memory of the program
  Bytes watermark = 0;         // bytes valid from the first on
  MoveIndex filler = kNoMove;  // the move that writes it
  std::uint16_t uses = 0;      // moves out of it, borrows, a reservation
  ReplicaState state = ReplicaState::gone;
  Spare spare : 2 = Spare::no;  // counted in spare_bytes if it is
  bool wanted : 1 = false;      // pinned by the prefetch plan
  bool failed : 1 = false;      // in a file that could not be read: as good as gone, and goes with its last reader
  bool leaving : 1 = false;     // another file tier has it or will have it: it goes with its last reader
};
static_assert(sizeof(Replica) == 24);

inline bool adopted(const Replica& r) { return r.offset >= kAdopted; }
// Whether all bytes of the replica can be read.
inline bool good(const Replica& r) { return complete(r.state) && !r.failed; }

// What is known of a checkpoint in the file of one tier (durability.hpp), of a store with retention.
struct Filed {
  // How retention counts it: each is also what stands before it.
  enum class Standing : std::uint8_t { none, owed, lined, safe };  // exempt; in the file's line; durable
  // Where it is on its way into the file.
  enum class Stage : std::uint8_t {
    none,
    unfiled,
    filling,
    syncing
  };  // it waits its turn; on its way; not durable yet
  FileState state : 3 = FileState::pending;
  Standing standing : 2 = Standing::none;
  Stage stage : 2 = Stage::none;
  bool passing : 1 = false;  // it is owed, and goes on down
  bool waived : 1 = false;   // (below another file tier) it does not come here: newer ones made up for it
  bool asked : 1 = false;    // (likewise) event::Goes, or a wait for it there
  bool exempt : 1 = false;   // a multiple of keep_every that newer ones made up for: it stays, and counts no more
  void become(FileState to) { state = transition(state, to); }
  void note_read() {  // all of it
    if (state == FileState::recovered) become(FileState::intact);
  }
};
static_assert(sizeof(Filed) == 2);

// Flushes leave in eviction order: what no hint names first, oldest first; then what is needed latest.
struct FlushKey {
  std::int64_t nearness = 0;  // -position of the first hint; INT64_MIN: none
  std::uint64_t written = 0;
  Slot slot = 0;
  auto operator<=>(const FlushKey&) const = default;
};

// Candidates for a flush of which a larger one is refused for the reasons for which a smaller one is. `alone`: what
// becomes of it says nothing of others.
enum class FlushKind : std::uint8_t { alone, plain, hinted, awaited };
inline constexpr std::size_t kFlushKinds = 4;
struct FlushGroup {
  FlushKind kind = FlushKind::alone;
  Bytes size = 0;
  auto operator<=>(const FlushGroup&) const = default;
};

// Spare replicas of a tier, the one to go first in front: a copy of what is wanted above, then what no hint names, the
// longest untouched first, then what is needed latest.
struct SpareKey {
  std::int64_t nearness = 0;  // -position of the first hint; INT64_MIN: none
  std::uint64_t touched = 0;  // 0: wanted above
  Slot slot = 0;
  auto operator<=>(const SpareKey&) const = default;
};

// A replica in two parts: its first bytes, up to `head`, are in its place on the tier `on`, and the others in a place
// on `rest`, the memory tier below. There is room for all of them there: once the first bytes have followed, the
// replica there is complete, and the one on `on` goes. Until then the one on `on` counts, and is complete when both
// parts are; that on `rest` is not, is used by the other one, and leaves with it.
struct Split {
  TierIndex on = kNoTier, rest = kNoTier;
  Bytes head = 0;
};

struct Checkpoint {
  std::uint32_t generation = 0;
  HistoryId history = 0;
  Version version = 0;
  Bytes bytes = 0;
  NameState name = NameState::free;
  WriteState write = WriteState::unwritten;
  bool hinted = false;  // by being written (History::reverse): the hint goes if it is not written after all
  bool listed_forced = false;
  TierIndex listed_on = kNoTier;  // in the flush queue under `key`
  TierIndex flush_to = kNoTier;   // a `wait` asks for it there
  PerTier<Filed> filed;
  std::uint32_t readers = 0;  // restores and borrows that have not ended
  std::uint32_t flush_failures = 0, prefetch_failures = 0;
  std::unique_ptr<const std::string> lost_why;  // what became of a copy in memory that was lost
  RestoreOrder::Position hint = RestoreOrder::kNone;
  std::uint64_t touched = 0, written = 0;
  PerTier<Replica> at;
  Split split;
  TierIndex makes_way = kNoTier;  // its replica on this tier was flushed so that another has its room
  std::vector<MoveIndex> moves;
  FlushGroup group;
  FlushKey key;
  SpareKey spare_key;           // where it is spare, but for a copy of what is wanted above
  Time flush_retry = 0;         // after a failure: not before then
  std::uint64_t stored_at = 0;  // the order in which checkpoints became complete

  bool live() const { return name != NameState::free; }
  bool nameless() const { return planner::nameless(name); }
  bool exists() const { return planner::exists(write); }
  bool stored() const { return write == WriteState::stored; }
  // By the application, which computes into it.
  bool held() const { return write == WriteState::reserved || write == WriteState::submitted; }
  // Those that the replica has in a place of its own on the tier.
  Bytes bytes_on(TierIndex t) const { return t == split.on ? split.head : bytes; }
  bool in_parts() const { return split.on != kNoTier; }
  bool part_on(TierIndex t) const { return t == split.on || t == split.rest; }
  // Whether not all of both parts is there yet.
  bool splitting() const { return in_parts() && !complete(at[split.on].state); }
  // Whether the tier has the rest of a replica that counts on another, and not the first bytes.
  bool rest_on(TierIndex t) const { return t == split.rest && at[t].state == ReplicaState::writing; }
  void become(NameState to) { name = transition(name, to); }
  void become(WriteState to) { write = transition(write, to); }
};

// Under which a spare replica of the checkpoint is in its tier's order.
inline SpareKey spare_key(Spare spare, const SpareKey& of_checkpoint) {
  return spare == Spare::wanted_above ? SpareKey{INT64_MIN, 0, of_checkpoint.slot} : of_checkpoint;
}

inline std::string key_text(const Checkpoint& c) { return "version " + std::to_string(c.version); }

// How far the restore order is served on a tier: the bytes of every hinted checkpoint before `next` are there or above,
// or in flight to there; `ahead` is their size. An event that may make that untrue resets the cursor.
struct Cursor {
  RestoreOrder::Position next = INT64_MIN;
  Bytes ahead = 0;
};

// The hinted checkpoints before `next` that exist are complete on the fastest tier, and so many. What may undo that
// resets it.
struct Successors {
  RestoreOrder::Position next = INT64_MIN;
  std::uint32_t count = 0;
};

// What retention looks at: all that is or will be stored on a tier.
struct Stored {
  RecycledMap<Version, Slot> line;  // but for exempt ones
  RecycledMap<Version, Slot> safe;  // of those, the durable ones
  RecycledMap<Version, Slot> exempt;
};

// Made for a tier once something is: empty ones of all tiers would take most of a history's memory.
class StoredByTier {
 public:
  Stored& operator[](TierIndex tier) {
    auto& one = tiers_[tier];
    if (!one) one = std::make_unique<Stored>();
    return *one;
  }
  const Stored& operator[](TierIndex tier) const {
    static const Stored kNothing;
    return tiers_[tier] ? *tiers_[tier] : kNothing;
  }

 private:
  PerTier<std::unique_ptr<Stored>> tiers_;
};

struct History {
  RestoreOrder order;
  PerTier<Cursor> served;
  Successors ready;
  RecycledHashMap<Version, Slot> slots;
  StoredByTier stored;
  std::size_t live_checkpoints = 0;     // also those that have lost their name
  VersionSet consumed;                  // ephemeral stores: to refuse by the right name
  std::map<Version, std::string> lost;  // whose only copy was in memory that was lost: why
  std::size_t unwritten = 0;            // hinted checkpoints that do not exist
  bool reading = false;                 // the last call was a restore or borrow: prefetch before flush
  bool started = false;                 // start_prefetch
  bool reverse = false;                 // each version is hinted as it is written
  Version agreed = -1;                  // event::Agreed
  bool foreseen = false;                // the last write was hinted, and when the first such was, others were too
  std::uint64_t writes = 0;             // so far, and the bytes of them all
  Bytes written_bytes = 0;
  Time last_write = 0, write_interval = 0;  // running average between writes
};

}  // namespace ebb::planner
