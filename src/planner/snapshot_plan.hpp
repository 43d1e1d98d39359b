#pragma once
// What happens to protected memory while snapshots of it drain: which zone is copied next, to which place of the
// buffer, which write goes on and which one waits, and for how long. "GPU Snapshot" (ICS'19) is cited by section:
// zones 4.1.2 and 4.1.3, writes that wait and go first 4.1.5, increments 4.2.3, the double buffer 4.3.1,
// duplicate-on-write 4.3.2, and the modes F, I, NB, H, D and FG 5.1. docs/design/snapshots.md explains the rules.
//
// Decides only. A driver protects and copies memory, drains the buffer and reports: the runtime in real time, the
// simulator of the hardware in virtual time.
#include <span>
#include <vector>

#include "planner/ids.hpp"
#include "planner/zone_buffer.hpp"
#include "planner/zones.hpp"

namespace ebb::planner {

using ZoneIndex = std::uint32_t;
inline constexpr ZoneIndex kNoZone = UINT32_MAX;
// While no more are in flight, `cut` and `touch` allocate nothing either.
inline constexpr std::size_t kCutsWithoutAllocation = 8;

// The share of a slot that only writes get. A store's copies are about as fast as what drains its buffer, so copies in
// turn seldom fill it; and what drains is a piece of a file, of which a larger reserve makes more and smaller ones.
inline constexpr double kReserveOfStore = 1.0 / 8;
// Copies within a device are a hundred times as fast as its link and fill the buffer at once: what they may not take is
// all that writes find.
inline constexpr double kReserveOfDevice = 3.0 / 4;

// The paper's modes: FG is a smaller zone, F a `full_cut` and I a `cut`. Without NB the program waits for `copied`.
struct SnapshotSpec {
  ZoneIndex zones = 0;            // for which there is memory at once; `protect` makes more
  std::uint32_t slots = 2;        // of the buffer: one drains while the next is filled. A handful
  std::uint32_t slot_zones = 64;  // places in a slot; what drains is packed
  // The last places of a slot, which only writes get: copies in turn would else keep the buffer full. How many pays
  // depends on what fills it: see kReserveOfStore and kReserveOfDevice.
  std::uint32_t reserve = 8;
  std::uint32_t copies = 4;  // in turn that are under way at once
  bool duplicate = true;     // D: a write to an owed zone has it copied at once. Otherwise it waits for its turn
  bool hints = true;         // H: a zone may be written once it is copied. Otherwise once all of its cut are
  Time longest_wait = 1'000'000'000;  // of a write, for a place in the buffer or for its turn
};

enum class SnapshotTrouble : std::uint8_t { none, waited_too_long, copy_failed, drain_failed, watch_failed };
const char* name_of(SnapshotTrouble trouble);

struct SnapshotEvent {
  enum Kind : std::uint8_t {
    tick,       // only the time
    protect,    // zone, count: `gone` so far
    unprotect,  // zone, count: no cut in flight is owed them, and no write waits for them
    fault,      // zone: a write waits for an answer. It may be late, or come twice
    touch,      // zone, count: written without a fault, or to be stored once more. No cut is owed them
    restored,   // zone, count: they were written by a restore, and are clean against it
    cut,        // of everything dirty
    full_cut,   // of everything
    copied,     // zone, slot, bytes: the copy that was commanded has ended
    drained,    // slot
    failed,     // trouble: nothing that is in flight can be completed
  } kind = tick;
  Time now = 0;
  ZoneIndex zone = 0, count = 1;
  std::uint32_t slot = 0;
  Bytes bytes = 0;
  SnapshotTrouble trouble = SnapshotTrouble::none;
};

struct SnapshotCommand {
  enum Kind : std::uint8_t {
    answer,     // zone: all its writes go on, and the next ones need no answer
    wait,       // zone: the answer to this fault comes later; said of one that is not duplicated at once
    duplicate,  // zone, slot, place, cut: copy it now, a write waits. Ends with `copied`
    copy,       // the same in its turn
    begun,      // cut; count: the zones that it is owed
    drain,      // slot, cut; count: the places that it has used. Ends with `drained`
    copied,     // cut: it no longer depends on memory
    drained,    // cut: nothing of it is in the buffer. It has ended
    failed,     // trouble, cut: the first that failed, and with it all in flight. Disarm everything: no write waits
  } kind = answer;
  ZoneIndex zone = kNoZone;
  CutIndex cut = 0;
  std::uint32_t slot = 0, place = 0, count = 0;
  SnapshotTrouble trouble = SnapshotTrouble::none;
};

struct SnapshotCommands {
  std::span<const SnapshotCommand> list;  // valid until the next event
  bool more = false;                      // send a `tick` at once: there is more than fits
  Time wakeup = kNever;                   // send a `tick` then, unless another event comes first
};

struct SnapshotCounters {
  ZoneIndex dirty = 0;  // zones that the next cut is owed, now
  std::uint64_t faults = 0, duplicates = 0;
  std::uint64_t waits = 0;  // faults that waited for more than their own duplicate
  Time blocked = 0;         // from a fault until its answer, added up over zones
  std::uint64_t copies = 0;
  Bytes gathered = 0;  // into the buffer
  std::uint64_t cuts = 0, failures = 0;
};

// Not thread-safe; deterministic. Memory: 24 bytes a zone.
// 1. Every zone that a cut is owed is copied once, as it was at the cut: none is answered between a cut and its copy.
// 2. A zone is owed to one cut at a time. A later cut finds it unchanged, and leaves it to the earlier one.
// 3. A cut is said to be copied after those before it: the zones that it left to them are copied as well.
// 4. A write waits for longest_wait at most, the copy of its zone aside; then every cut in flight fails, and no write
//    waits. Nothing is watched after that: the next cut is owed everything.
// 5. An event costs O(slots + cuts in flight) and what it commands; a cut costs what it is owed, a full one all zones.
//    `fault`, `copied`, `drained`, `failed` and `tick` allocate and free nothing.
class SnapshotPlan {
 public:
  explicit SnapshotPlan(const SnapshotSpec& spec);  // std::logic_error for one that cannot be

  // Time does not go back. An event that nothing asked for is a std::logic_error.
  SnapshotCommands on(const SnapshotEvent& event);

  ZoneState state(ZoneIndex zone) const { return zones_[zone].state; }
  // The last cut that was owed the zone, 0: none. After a cut, those that it stores have its number.
  CutIndex cut_of(ZoneIndex zone) const { return zones_[zone].cut; }
  CutIndex last_cut() const { return last_cut_; }
  bool in_flight() const { return !cuts_.empty(); }
  bool failed() const { return failed_; }  // nothing is watched until the next cut
  SnapshotCounters counters() const;
  const SnapshotSpec& spec() const { return spec_; }

  // What a cut would be owed now, in the order of the first writes: what has to be armed for it. (Zones that are being
  // duplicated are armed.)
  template <class Function>
  void for_each_dirty(Function&& function) const {
    if (failed_) {
      for (ZoneIndex z = 0; z < zones_.size(); ++z)
        if (zones_[z].state != ZoneState::gone) function(z);
      return;
    }
    for (ZoneIndex z = written_.head; z != kNoZone; z = zones_[z].next)
      if (zones_[z].state != ZoneState::duplicating) function(z);
  }

 private:
  struct Zone {
    Time since = 0;  // the write waits
    ZoneIndex next = kNoZone, prev = kNoZone;
    CutIndex cut = 0;
    ZoneState state = ZoneState::gone;
    bool waits = false;
    bool in_turn = false;  // the copy under way
  };
  // Through Zone::next and prev: a zone is in one list at most.
  struct List {
    ZoneIndex head = kNoZone, tail = kNoZone, size = 0;
  };
  struct Cut {
    CutIndex index = 0;
    ZoneIndex left = 0;  // zones to be copied
    bool copied = false;
    Time waits_since = kNever;  // the first write that waits until all are copied
    List waiting;               // zones that are copied, and whose writes wait for that
  };

  void push(List& list, ZoneIndex zone);
  void unlink(List& list, ZoneIndex zone);
  void append(List& list, List& other);
  Zone& known(ZoneIndex zone);
  Cut& cut_at(CutIndex index);

  void on_protect(ZoneIndex zone);
  void on_unprotect(ZoneIndex zone);
  void on_fault(ZoneIndex zone);
  void say_wait(ZoneIndex zone);
  void on_touch(ZoneIndex zone);
  void on_restored(ZoneIndex zone);
  void on_cut(bool full);
  void on_copied(const SnapshotEvent& event);
  void fail(SnapshotTrouble trouble);
  void watch_again();

  void settle(Zone& zone);
  void write(ZoneIndex zone);
  void wait(ZoneIndex zone);
  void answer(ZoneIndex zone);
  void owe(Zone& zone);

  void advance();
  bool end_cuts();
  bool answer_freed();
  bool serve_writes();
  bool copy_in_turn();
  bool drain_slots();
  void begin_copy(ZoneIndex zone, ZoneBuffer::BufferPlace place, bool at_once);
  bool room() const { return out_.size() < kMost; }
  Time deadline() const;
  // Whether a write that waits for a copy goes on when that ends.
  bool copy_frees() const { return spec_.duplicate || spec_.hints; }

  static constexpr std::size_t kMost = 64;  // commands at a time

  SnapshotSpec spec_;
  Time now_ = 0;
  std::vector<Zone> zones_;
  ZoneBuffer buffer_;
  std::vector<Cut> cuts_;  // in flight, in order; grows in a cut only
  CutIndex last_cut_ = 0;
  CutIndex copied_ = 0;  // cuts up to here are copied
  List written_;         // dirty, duplicating, duplicated: in the order of the first writes since the last cut
  List owed_;            // whose writes, if any, have not come: by cut, each in the order of the interval before it
  List faulted_;         // owed, and a write waits for a place or its turn: first come, first served
  List freed_;           // to be answered
  std::uint32_t copying_ = 0;  // in turn
  std::uint64_t waiting_ = 0;  // zones
  bool more_ = false;
  bool failed_ = false;  // nothing is watched
  SnapshotCounters counters_;
  std::vector<SnapshotCommand> out_;
};

}  // namespace ebb::planner
