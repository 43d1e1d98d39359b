#pragma once
// Counts what becomes durable in each tier's file, and what the file has room for (of a store with retention).
//
// A file that holds what retention keeps and one checkpoint more always makes progress, however large each of them is:
//   - A checkpoint that no such room is left for is refused when it is asked for (short_of_file).
//   - Checkpoints come to the file in the order in which they became complete, so that each of them finds there what
//     was kept when it was asked for, and nothing that is newer.
//   - What is complete in the file and not durable yet counts as in flight: a call that needs room waits for it, and
//     has it committed.
//   - What was dropped and is on the disk still takes room (Machine::releases_later): a call that needs room waits for
//     that too, and has it released.
//   - What an earlier process left behind is dropped where room is needed, once what makes up for it was read.
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner/checkpoint_table.hpp"
#include "planner/context.hpp"
#include "planner/retention.hpp"
#include "planner/tier_space.hpp"
#include "planner/transfers.hpp"

namespace ebb::planner {

class Durability {
 public:
  Durability(Context& context, CheckpointTable& table, TierSpace& space, const Links& links, const Transfers& transfers)
      : context_(context), table_(table), space_(space), links_(links), transfers_(transfers) {}

  void begin_event() {
    for (TierIndex t = context_.first_keeping; t < context_.tiers(); ++t) of(t).full = false, of(t).lacks = Short{};
  }
  // Brings the counts to what the facts say.
  void count(Slot slot);
  // Whether checkpoints are complete in the file and not durable yet, or dropped and not released yet.
  bool settling(TierIndex tier) const { return of(tier).syncing > 0 || space_.unreleased(tier) > 0; }
  // In the fastest file; in one below it, what is not durable keeps room there.
  bool settling() const {
    if (!context_.keeps_in_file()) return false;
    bool any = settling(context_.first_keeping);
    for (TierIndex t = context_.first_keeping + 1; t < context_.tiers(); ++t) any |= of(t).syncing > 0 && !silent(t);
    return any;
  }
  // A lower file has reported what became durable, or did not.
  void hear(TierIndex tier) { of(tier).reported = context_.now; }
  // Of the lower files: says which of them do not answer, and which do so again. True: anything was said.
  bool look_for_silence();
  bool silent(TierIndex tier) const { return of(tier).silent; }
  void set_unreleased(TierIndex tier, Bytes bytes);

  // The file had no room for a checkpoint of so many bytes.
  void note_no_room(TierIndex tier, Bytes bytes);
  // What the file had no room for, once for each time that this happens, and whether nothing in flight will make any.
  struct Short {
    Bytes bytes = 0;
    bool nothing_comes = false;
  };
  Short take_short(TierIndex tier) { return std::exchange(of(tier).lacks, Short{}); }
  // Whether nothing begins to go down to the file: what was sent there does not end.
  bool stands_still(TierIndex tier) const;
  Slot next_to(TierIndex tier) const;
  bool short_of_file(const Checkpoint& c) const;
  std::string describe_short(const Checkpoint& c) const;
  // `idle_calls`: calls or waits are held up, and nothing is in flight for them.
  void ask_to_commit(bool idle_calls);

  // A version that newer ones make up for.
  struct Superseded {
    Slot slot = kNoSlot;
    bool goes = false;         // false: a multiple of keep_every
    bool made_up_for = false;  // in a lower file: by the retention of the fastest, whichever file has the newer ones
  };
  enum class When : std::uint8_t { now, room_is_needed, all_is_durable };
  std::vector<Superseded> superseded(const History& history, TierIndex tier, When when) const;

 private:
  friend class Invariants;

  struct Level {
    // The checkpoints that have yet to go down to the file, in the order of stored_at.
    RecycledSet<std::pair<std::uint64_t, Slot>> unfiled;
    std::size_t syncing = 0;      // checkpoints that are complete there and not durable
    std::size_t filling = 0;      // on their way there
    std::size_t uncommitted = 0;  // of the former, those that no commit was asked for
    Bytes releasing = 0;          // of what is not released, what a commit was asked for
    Bytes owed = 0;               // what the file holds once all of it is there and retention has dropped nothing
    Bytes passing = 0;            // of that, what need not stay once it is durable below
    bool full = false;            // something is held up since the file has no room yet
    bool busy = false;            // something is to end there
    bool silent = false;          // and nothing has ended for long
    Time reported = 0;            // when it last said what is durable
    Time heard = 0;               // the last end of anything there, or the beginning of the first
    Short lacks;
  };
  Level& of(TierIndex tier) { return levels_[tier]; }
  const Level& of(TierIndex tier) const { return levels_[tier]; }
  void count(Slot slot, TierIndex tier, bool written);
  Filed::Stage stage_of(const Checkpoint& c, TierIndex tier, bool written, Bytes size) const;
  bool coming(TierIndex tier) const;
  Bytes needed_in_file(const Checkpoint& c) const;
  Version oldest_to_make_up(const History& history) const;

  Context& context_;
  CheckpointTable& table_;
  TierSpace& space_;
  const Links& links_;
  const Transfers& transfers_;
  PerTier<Level> levels_;
};

}  // namespace ebb::planner
