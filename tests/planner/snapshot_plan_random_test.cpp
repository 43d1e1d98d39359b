// The plan against full copies: programs that write as they like, copies and drains that end in any order, cuts at any
// time, failures. Every version that is complete has exactly the memory of its cut.
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "planner/snapshot_plan.hpp"

namespace ebb::planner {
namespace {

using SE = SnapshotEvent;
using SC = SnapshotCommand;

constexpr ZoneIndex kZones = 40;
constexpr int kNothing = -1;  // where no zone is protected

using Contents = std::vector<int>;  // of each zone

struct NaiveCut {
  Contents memory;                // as it was: what the snapshot must have
  std::vector<CutIndex> sources;  // of each zone: the cut that stores it
  Contents buffered, stored;      // what the plan had copied, and drained
  bool copied = false, drained = false;
};

struct PendingCopy {
  ZoneIndex zone;
  CutIndex cut;
  std::uint32_t slot;
};

class SnapshotWorld {
 public:
  explicit SnapshotWorld(std::uint64_t seed) : random_(seed), spec_(spec_of(random_)), plan_(spec_), cuts_(1) {
    tell({.kind = SE::protect, .count = kZones});
  }

  void step() {
    pass_time();
    const ZoneIndex zone = pick(kZones);
    switch (pick(48)) {
      case 0: cut(pick(4) == 0); break;
      case 1: touch(zone); break;
      case 2: restore(zone); break;
      case 3: pick(8) == 0 ? protect_anew(zone) : late_fault(zone); break;
      case 4: pick(20) == 0 ? fail() : end_copy(); break;
      default: {
        const std::uint32_t what = pick(10);
        if (what < 4) {
          write(pick(3) == 0 ? zone : zone % 7);
        } else if (what < 8) {
          end_copy();
        } else {
          end_drain();
        }
      }
    }
    check_waits();
  }

  // Without writes all ends.
  void finish() {
    while (!copies_.empty() || !draining_.empty()) {
      while (!copies_.empty()) end_copy();
      if (!draining_.empty()) end_drain();
    }
    EXPECT_FALSE(plan_.in_flight());
    EXPECT_TRUE(waiting_.empty());
    EXPECT_EQ(plan_.counters().blocked, blocked_);
    EXPECT_EQ(plan_.counters().faults, faults_);
    EXPECT_EQ(plan_.counters().duplicates, duplicates_);
    EXPECT_EQ(plan_.counters().copies, gathered_);
    EXPECT_EQ(plan_.counters().gathered, 3 * gathered_);
  }

  std::uint64_t checked = 0, failures = 0, overlaps = 0;

 private:
  static SnapshotSpec spec_of(std::mt19937_64& random) {
    SnapshotSpec spec;
    spec.slots = 1 + random() % 3;
    spec.slot_zones = 1 + random() % 6;
    spec.reserve = random() % spec.slot_zones;
    spec.copies = 1 + random() % 4;
    spec.duplicate = random() % 3 > 0;
    spec.hints = random() % 3 > 0;
    spec.longest_wait = random() % 2 ? 1'000'000 : 600;
    return spec;
  }

  std::uint32_t pick(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  void pass_time() {
    const Time to = now_ + pick(40);
    if (wakeup_ <= to) {
      now_ = wakeup_;
      tell({});
    }
    now_ = std::max(now_, to);
  }

  // --- the program

  void write(ZoneIndex zone) {
    if (memory_[zone] == kNothing) return;
    const int value = ++last_value_;
    if (!armed_[zone]) {
      memory_[zone] = value;
      return;
    }
    const bool waits = waiting_.contains(zone);
    writes_[zone].push_back(value);
    if (waits && pick(2)) return;  // the driver knows, or tells it twice
    fault(zone);
  }

  void late_fault(ZoneIndex zone) {
    if (!armed_[zone]) fault(zone);
  }

  void fault(ZoneIndex zone) {
    ++faults_;
    answers_ = 0;
    if (armed_[zone] && !waiting_.contains(zone)) waiting_[zone] = now_;
    asked_ = zone;
    tell({.kind = SE::fault, .zone = zone});
    asked_ = kNoZone;
    EXPECT_GE(answers_, 1) << "a fault is answered or told to wait";
  }

  bool needed(ZoneIndex zone) const {
    return memory_[zone] == kNothing || waiting_.contains(zone) || pending(plan_.state(zone));
  }

  void touch(ZoneIndex zone) {
    if (needed(zone)) return;
    memory_[zone] = ++last_value_;  // no fault, as by a device
    tell({.kind = SE::touch, .zone = zone});
  }

  void restore(ZoneIndex zone) {
    const CutIndex from = 1 + pick(static_cast<std::uint32_t>(cuts_.size()));
    if (from >= cuts_.size() || !cuts_[from].drained || cuts_[from].memory[zone] == kNothing || needed(zone)) return;
    if (armed_[zone]) fault(zone);
    if (armed_[zone] || waiting_.contains(zone)) return;
    memory_[zone] = cuts_[from].memory[zone];
    sources_[zone] = cuts_[from].sources[zone];
    tell({.kind = SE::restored, .zone = zone});
    armed_[zone] = true;
  }

  void protect_anew(ZoneIndex zone) {
    if (needed(zone)) return;
    tell({.kind = SE::unprotect, .zone = zone});
    armed_[zone] = false;
    if (pick(2)) cut(false);
    tell({.kind = SE::protect, .zone = zone});
    memory_[zone] = ++last_value_;
  }

  // --- the driver

  void cut(bool full) {
    if (cuts_.size() > 1 && in_flight_ >= 4) return;
    plan_.for_each_dirty([&](ZoneIndex z) { armed_[z] = true; });
    NaiveCut& made = cuts_.emplace_back();
    made.memory = memory_;
    for (ZoneIndex z = 0; z < kZones; ++z)
      if (plan_.state(z) == ZoneState::gone) made.memory[z] = kNothing;
    made.buffered = made.stored = Contents(kZones, kNothing);
    overlaps += in_flight_ > 0;
    const bool alone = in_flight_++ == 0;
    const auto index = static_cast<CutIndex>(cuts_.size() - 1);
    announced_ = 0;
    tell({.kind = full ? SE::full_cut : SE::cut}, [&] {
      std::uint32_t owed = 0;
      for (ZoneIndex z = 0; z < kZones; ++z) {
        if (plan_.cut_of(z) == index && made.memory[z] != kNothing) sources_[z] = index, ++owed;
        if (full && alone && made.memory[z] != kNothing) {
          EXPECT_EQ(plan_.cut_of(z), index);
        }
      }
      made.sources = sources_;
      announced_ = owed;
    });
  }

  void end_copy() {
    if (copies_.empty()) return;
    const std::size_t which = pick(static_cast<std::uint32_t>(copies_.size()));
    const PendingCopy copy = copies_[which];
    copies_.erase(copies_.begin() + static_cast<std::ptrdiff_t>(which));
    // As late as can be: a write that went on too early is seen.
    if (!void_slots_.contains(copy.slot)) {
      ++gathered_;
      cuts_[copy.cut].buffered[copy.zone] = memory_[copy.zone];
      slots_[copy.slot].push_back({copy.zone, copy.cut, copy.slot});
    } else if (--void_slots_[copy.slot] == 0 && !draining_.contains(copy.slot)) {
      void_slots_.erase(copy.slot);
    }
    tell({.kind = SE::copied, .zone = copy.zone, .slot = copy.slot, .bytes = 3});
  }

  void end_drain() {
    if (draining_.empty()) return;
    const auto which = std::next(draining_.begin(), pick(static_cast<std::uint32_t>(draining_.size())));
    const std::uint32_t slot = *which;
    draining_.erase(which);
    for (const PendingCopy& in : slots_[slot]) cuts_[in.cut].stored[in.zone] = cuts_[in.cut].buffered[in.zone];
    slots_[slot].clear();
    places_[slot].clear();
    void_slots_.erase(slot);
    tell({.kind = SE::drained, .slot = slot});
  }

  void fail() { tell({.kind = SE::failed, .trouble = SnapshotTrouble::copy_failed}); }

  void tell(SE event) {
    tell(event, [] {});
  }
  template <class Between>
  void tell(SE event, Between&& between) {
    event.now = now_;
    SnapshotCommands commands = plan_.on(event);
    between();
    for (;; commands = plan_.on({.now = now_})) {
      for (const SC& c : std::vector<SC>(commands.list.begin(), commands.list.end())) obey(c);
      wakeup_ = commands.wakeup;
      if (!commands.more) break;
    }
  }

  void obey(const SC& c) {
    switch (c.kind) {
      case SC::answer:
        answers_ += c.zone == asked_;
        go_on(c.zone);
        break;
      case SC::wait:
        EXPECT_EQ(c.zone, asked_);
        ++answers_;
        break;
      case SC::duplicate:
      case SC::copy: {
        if (c.kind == SC::duplicate) answers_ += c.zone == asked_, ++duplicates_;
        EXPECT_TRUE(armed_[c.zone]);
        EXPECT_LT(c.place, spec_.slot_zones);
        EXPECT_TRUE(places_[c.slot].insert(c.place).second) << "a place is used twice";
        EXPECT_EQ(places_[c.slot].size(), c.place + 1) << "slots have no gaps";
        for (const PendingCopy& other : copies_) EXPECT_TRUE(other.slot != c.slot || other.cut == c.cut);
        copies_.push_back({c.zone, c.cut, c.slot});
        break;
      }
      case SC::begun: EXPECT_EQ(c.count, announced_); break;
      case SC::drain:
        EXPECT_EQ(places_[c.slot].size(), c.count);
        for (const PendingCopy& copy : copies_) EXPECT_NE(copy.slot, c.slot) << "a copy to it is under way";
        draining_.insert(c.slot);
        break;
      case SC::copied: {
        NaiveCut& cut = cuts_[c.cut];
        cut.copied = true;
        check(cut, &NaiveCut::buffered);
        break;
      }
      case SC::drained: {
        NaiveCut& cut = cuts_[c.cut];
        EXPECT_TRUE(cut.copied);
        --in_flight_;
        cut.drained = true;
        for (CutIndex source : cut.sources) cut.drained &= source == c.cut || source == 0 || cuts_[source].drained;
        for (ZoneIndex z = 0; z < kZones; ++z)
          if (cut.sources[z] == c.cut && cut.memory[z] != kNothing) {
            ASSERT_EQ(cut.stored[z], cut.memory[z]);
          }
        break;
      }
      case SC::failed: {
        ++failures;
        const std::vector<std::pair<ZoneIndex, Time>> all(waiting_.begin(), waiting_.end());
        if (all.size() && c.trouble == SnapshotTrouble::waited_too_long) {
          Time first = now_;
          for (const auto& [zone, since] : all) first = std::min(first, since);
          EXPECT_GE(now_ - first, spec_.longest_wait);
        }
        answers_ += asked_ != kNoZone;
        for (ZoneIndex z = 0; z < kZones; ++z) go_on(z);
        in_flight_ = 0;
        for (auto& [slot, in] : slots_) in.clear();
        void_slots_.clear();
        for (const PendingCopy& copy : copies_) ++void_slots_[copy.slot];
        for (auto& [slot, used] : places_)
          if (!draining_.contains(slot)) used.clear();
        break;
      }
    }
  }

  void go_on(ZoneIndex zone) {
    armed_[zone] = false;
    for (int value : writes_[zone]) memory_[zone] = value;
    writes_[zone].clear();
    if (const auto it = waiting_.find(zone); it != waiting_.end()) {
      blocked_ += now_ - it->second;
      waiting_.erase(it);
    }
  }

  void check(const NaiveCut& cut, Contents NaiveCut::* where) {
    for (ZoneIndex z = 0; z < kZones; ++z) {
      if (cut.memory[z] == kNothing) continue;
      ++checked;
      ASSERT_NE(cut.sources[z], 0u) << "zone " << z << " is stored nowhere";
      ASSERT_EQ((cuts_[cut.sources[z]].*where)[z], cut.memory[z]) << "zone " << z;
    }
  }

  // But for a copy that is under way, no write waits for longer than was said.
  void check_waits() {
    for (const auto& [zone, since] : waiting_) {
      const ZoneState s = plan_.state(zone);
      if (s == ZoneState::owed || s == ZoneState::done) {
        ASSERT_LT(now_ - since, spec_.longest_wait + 40);
      }
    }
  }

  std::mt19937_64 random_;
  SnapshotSpec spec_;
  SnapshotPlan plan_;
  Time now_ = 0, wakeup_ = kNever;
  Contents memory_ = Contents(kZones, 0);
  std::vector<bool> armed_ = std::vector<bool>(kZones);
  std::vector<std::vector<int>> writes_ = std::vector<std::vector<int>>(kZones);  // that wait
  std::map<ZoneIndex, Time> waiting_;
  std::vector<CutIndex> sources_ = std::vector<CutIndex>(kZones);
  std::vector<NaiveCut> cuts_;
  std::vector<PendingCopy> copies_;
  std::set<std::uint32_t> draining_;
  std::map<std::uint32_t, std::vector<PendingCopy>> slots_;
  std::map<std::uint32_t, std::set<std::uint32_t>> places_;
  std::map<std::uint32_t, int> void_slots_;  // copies of a failure that have not ended
  int last_value_ = 0, in_flight_ = 0, answers_ = 0;
  std::uint32_t announced_ = 0;
  ZoneIndex asked_ = kNoZone;
  Time blocked_ = 0;
  std::uint64_t faults_ = 0, duplicates_ = 0, gathered_ = 0;
};

TEST(SnapshotPlanRandom, EveryVersionIsTheMemoryOfItsCut) {
  std::uint64_t checked = 0, failures = 0, overlaps = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SnapshotWorld world(seed);
    for (int step = 0; step < 2000; ++step) {
      world.step();
      if (testing::Test::HasFailure()) return;
    }
    world.finish();
    if (testing::Test::HasFailure()) return;
    checked += world.checked;
    failures += world.failures;
    overlaps += world.overlaps;
  }
  EXPECT_GT(checked, 300'000u);
  EXPECT_GT(failures, 100u);
  EXPECT_GT(overlaps, 3'000u);
}

}  // namespace
}  // namespace ebb::planner
