#include <algorithm>

#include "sim/random.hpp"
#include "tests/sim/random_run.hpp"

namespace ebb::sim::testing {
namespace {

using planner::Medium;
using planner::NodeIndex;

MachineModel random_machine(Random& random, bool exact, bool peers) {
  planner::Machine planner;
  const Bytes granule = random.chance(0.5) ? 256 : 4096;
  const Bytes chunk = granule * random.between(1, 16);
  auto tier = [&](const char* name, Medium medium, Bytes most) {
    planner.tiers.push_back({name, medium, granule * random.between(1, most), granule});
  };
  const std::uint64_t kinds = random.between(1, 31);
  if (kinds & 1 || peers) tier("device", Medium::device, peers ? 256 : 64);
  if (peers) planner.tiers.push_back({"peer", Medium::device, 0, granule});
  if (kinds & 2 || peers) tier("host", Medium::host, peers ? 512 : 128);
  if (kinds & 16 && !peers && random.chance(0.2)) tier("pool", Medium::host, 128);
  if (kinds & 4) tier("local", Medium::file, 1024);
  if (kinds & 8) tier("shared", Medium::file, 4096);
  if (planner.tiers.empty()) tier("host", Medium::host, 128);
  planner::connect(planner);
  for (planner::LinkSpec& link : planner.links) {
    link.bytes_per_s = static_cast<double>(random.between(1, 50) * 10'000'000);
    link.chunk = chunk;
    link.depth = static_cast<int>(random.between(1, 3));
    link.latency = random.chance(0.5) ? 0 : static_cast<Time>(random.below(20'000));
    if (random.chance(0.3)) link.resources.clear();
  }
  planner.ring_slot = chunk;
  planner.nodes[planner::kHost].staging = static_cast<int>(random.between(1, 6));
  planner.eviction = static_cast<planner::EvictionPolicy>(random.below(4));
  planner.ephemeral = random.chance(0.85);  // and more of them, drawn apart
  planner.manual_prefetch = random.chance(0.2);
  MachineModel out = model_of(planner);
  for (LinkModel& link : out.links) {
    link.shared = random.chance(0.2);
    if (!exact) link.bytes_per_s = random.between(1, 50) * 10'000'000;
  }
  for (GroupModel& group : out.groups)
    if (!exact && random.chance(0.5)) group.bytes_per_s = random.between(5, 60) * 10'000'000;
  return out;
}

constexpr Bytes kHoldsARing = 64;  // slots

// In two runs of three a staging ring is made in each peer's memory that holds one, and chunks, which are small then,
// pass it on their way to the host and back.
void draw_relay(planner::Machine& machine, std::uint64_t seed) {
  Random apart(seed + 7);
  const planner::TierSpec& peer = *std::ranges::find(machine.tiers, "peer", &planner::TierSpec::name);
  const int slots = static_cast<int>(apart.below(3) * apart.between(1, 4));
  machine.nodes[static_cast<std::size_t>(peer.node)].staging = slots;
  if (slots == 0) return;
  for (planner::LinkSpec& link : machine.links)
    if (link.resources.empty()) link.chunk = peer.granule;
}

class ProgramMaker {
 public:
  ProgramMaker(Random& random, const MachineModel& machine, bool faulty)
      : random_(random), machine_(machine), faulty_(faulty) {
    Bytes largest = 0, all = 0;
    for (const planner::TierSpec& t : machine.planner.tiers) {
      largest = std::max(largest, t.capacity);
      all += t.capacity;
    }
    usual_ = std::max<Bytes>(1, all / random.between(3, 60));
    largest_ = largest;
    versions_ = static_cast<Version>(random.between(4, 40));
    restless_ = random.chance(0.5);
    reserves_ = random.chance(0.5);
  }

  Program make(HistoryId history, std::size_t length) {
    Program out{.history = history, .start = 0, .ops = {}};
    const bool shot = random_.chance(0.3);
    if (shot) {
      Shot s;
      const std::size_t n = std::min<std::size_t>(length / 2 + 1, static_cast<std::size_t>(versions_));
      for (std::size_t i = 0; i < n; ++i) s.sizes.push_back(size());
      s.order = static_cast<Shot::Order>(random_.below(3));
      s.hints = static_cast<Shot::Hints>(random_.below(3));
      s.interval = pause();
      s.wait = random_.chance(0.2);
      s.seed = random_.next();
      out = program_of(s, static_cast<TierIndex>(machine_.planner.tiers.size() - 1), history);
      departures(out);
    } else {
      for (std::size_t i = 0; i < length; ++i) out.ops.push_back(any());
    }
    out.start = random_.chance(0.5) ? 0 : pause();
    for (Version v = 0; v < versions_; ++v) {  // nothing stays lent
      out.ops.push_back(op::release(v));
      out.ops.push_back(op::abandon(v));
    }
    out.ops.push_back(op::join());
    live_.clear();
    then_.clear();
    return out;
  }

 private:
  // Mostly one that has been written and not yet read, so that few calls are refused.
  Version likely() {
    if (live_.empty() || random_.chance(0.1)) return version();
    return live_[random_.below(live_.size())];
  }
  Version fresh() {
    for (int i = 0; i < 8; ++i)
      if (const Version v = version(); std::find(live_.begin(), live_.end(), v) == live_.end()) return v;
    return version();
  }
  Op note_write(Op o) {
    if (std::find(live_.begin(), live_.end(), o.version) == live_.end()) live_.push_back(o.version);
    return o;
  }
  Op note_end(Op o) {
    if (!o.flag) std::erase(live_, o.version);
    return o;
  }
  Version version() { return static_cast<Version>(random_.below(static_cast<std::uint64_t>(versions_))); }
  Bytes size() {
    if (random_.chance(0.02)) return random_.below(2);
    if (random_.chance(0.03)) return largest_ - random_.below(largest_ / 2 + 1);
    if (random_.chance(0.02)) return largest_ + random_.between(1, largest_);
    return random_.between(1, 2 * usual_);
  }
  Time pause() { return static_cast<Time>(random_.below(restless_ ? 100'000 : 3'000'000)); }
  TierIndex tier() { return static_cast<TierIndex>(random_.below(machine_.planner.tiers.size())); }
  std::vector<Version> several() {
    std::vector<Version> out;
    for (std::uint64_t n = random_.between(1, 10); n-- > 0;) out.push_back(likely());
    return out;
  }

  // Another call than was foretold, here and there.
  void departures(Program& p) {
    std::vector<Op> out;
    for (Op& o : p.ops) {
      if (random_.chance(0.1)) out.push_back(any());
      if (o.kind == Op::Kind::restore && random_.chance(0.05)) continue;
      if (o.kind == Op::Kind::restore && random_.chance(0.1)) o.async = true;
      out.push_back(o);
    }
    p.ops = std::move(out);
  }

  Op any() {
    Op o = draw();
    if (o.kind == Op::Kind::checkpoint || o.kind == Op::Kind::restore || o.kind == Op::Kind::wait) {
      o.async = random_.chance(0.25);
      // A client that waits for its own reservation waits forever, so it must have a time limit.
      if (random_.chance(0.05) || (o.kind == Op::Kind::wait && reserves_)) o.deadline = 1 + pause();
    }
    return o;
  }

  Op draw() {
    const std::uint64_t x = random_.below(100);
    if (x < 28) return note_write(op::checkpoint(fresh(), size(), random_.chance(0.1) ? pause() : 0));
    if (x < 52) return note_end(op::restore(likely(), random_.chance(0.2)));
    if (x < 60) return op::hint(several(), random_.chance(0.1));
    if (x < 64) return op::hint_front(likely());
    if (x < 67) return op::unhint(random_.chance(0.2) ? std::vector<Version>{} : several());
    if (x < 70) return note_end(op::drop(likely()));
    if (x < 71) return random_.chance(0.2) ? op::drop_all() : op::start_prefetch();
    if (x < 74 && reserves_) {
      const Version v = fresh();
      then_.push_back(random_.chance(0.8) ? note_write(op::commit(v)) : op::abandon(v));
      return op::reserve(v, size(), random_.chance(0.1) ? pause() : 0);
    }
    if (x < 80) {
      const Version v = likely();
      then_.push_back(op::release(v, random_.chance(0.2)));
      return op::borrow(v);
    }
    if (x < 84 && !then_.empty()) {
      const std::size_t i = random_.below(then_.size());
      const Op o = then_[i];
      then_.erase(then_.begin() + static_cast<std::ptrdiff_t>(i));
      return o.kind == Op::Kind::release ? note_end(o) : o;
    }
    if (x < 86) return op::wait(likely(), tier());
    if (x < 87) return op::wait_all(tier());
    if (x < 89) return op::join();
    if (faulty_ && x < 90) {
      const int link = static_cast<int>(random_.below(machine_.links.size()));
      return random_.chance(0.5) ? op::break_link(link) : op::mend_link(link);
    }
    return op::sleep(pause());
  }

  Random& random_;
  const MachineModel& machine_;
  bool faulty_, restless_ = false, reserves_ = false;
  Bytes usual_ = 1, largest_ = 1;
  Version versions_ = 1;
  std::vector<Version> live_;
  std::vector<Op> then_;  // operations that return lent memory
};

// Memory that ends early, once or more often, at any moment. Drawn apart: the programs of a seed stay as they are.
void draw_shrinks(RandomCase& out, std::uint64_t seed) {
  Random random(seed ^ 0x7ea5);
  if (!random.chance(0.3)) return;
  std::vector<TierIndex> memory;
  const auto& tiers = out.machine.planner.tiers;
  for (std::size_t t = 0; t < tiers.size(); ++t)
    if (tiers[t].medium != Medium::file) memory.push_back(static_cast<TierIndex>(t));
  if (memory.empty()) return;
  out.shrinks = true;
  out.timely = false;
  out.options.faults.unready = random.chance(0.5) ? 1 : 0.6;
  for (std::uint64_t n = random.between(1, 3); n-- > 0;) {
    const TierIndex tier = memory[random.below(memory.size())];
    const Bytes end = random.chance(0.2) ? 0 : random.below(tiers[static_cast<std::size_t>(tier)].capacity + 1);
    std::vector<Op>& ops = out.programs[random.below(out.programs.size())].ops;
    ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(random.below(ops.size())), op::recall(tier, 0, end));
  }
}

// Memory of several segments, which are lent, recalled with a deadline or without, lent again and lost.
void draw_segments(RandomCase& out, std::uint64_t seed, bool always) {
  Random random(seed ^ 0x5e65);
  const auto& tiers = out.machine.planner.tiers;
  std::vector<TierIndex> memory;
  for (std::size_t t = 0; t < tiers.size(); ++t)
    if (tiers[t].medium != Medium::file) memory.push_back(static_cast<TierIndex>(t));
  if (memory.empty() || out.shrinks || !(random.chance(0.3) || always)) return;
  out.lent = true;
  out.timely = false;
  out.faulty = true;  // versions lost with their memory
  std::vector<Op>& ops = out.programs[random.below(out.programs.size())].ops;
  std::vector<std::vector<Bytes>> lent;  // of each of `memory`
  for (const TierIndex t : memory) lent.push_back({tiers[static_cast<std::size_t>(t)].capacity});
  std::size_t at = 0;
  for (std::uint64_t n = random.between(2, 12); n-- > 0;) {
    const bool at_once = always && at == 0 && random.chance(0.7);
    if (!at_once) at += random.below(ops.size() - at + 1);
    const std::size_t which = at_once ? 1 : random.below(memory.size());  // the peers
    const TierIndex tier = memory[which];
    std::vector<Bytes>& segments = lent[which];
    const auto segment = static_cast<planner::SegmentId>(random.below(segments.size()));
    Op op = op::lose(tier, segment);
    const bool none = segments.size() == 1 && segments.front() == 0;
    if (none || (random.chance(0.4) && segments.size() < 5)) {
      segments.push_back(random.between(1, 2 * std::max(segments.front(), tiers.front().capacity)));
      // With a ring, and smaller than many checkpoints.
      if (at_once) segments.back() = kHoldsARing * tiers.front().granule + random.below(2 * tiers.front().granule);
      op = op::lend(tier, static_cast<planner::SegmentId>(segments.size() - 1), segments.back());
    } else if (random.chance(0.3)) {
      op = op::lend(tier, segment, segments[segment]);  // again, if any of it was recalled
    } else if (random.chance(0.7)) {
      const Time deadline = random.chance(0.4) ? planner::kNever : static_cast<Time>(random.below(200'000'000));
      op = op::recall(tier, segment, random.chance(0.6) ? 0 : random.below(segments[segment] + 1), deadline);
    }
    ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(at++), op);
  }
}

// Of whom a peer's memory is, and what share of their bandwidth they allow, from the beginning or from some time on.
// Apart as well.
void draw_limits(RandomCase& out, std::uint64_t seed) {
  Random random(seed ^ 0x11a17);
  const std::uint64_t lenders = random.between(1, 3);
  for (Program& p : out.programs)
    for (Op& o : p.ops)
      if (o.kind == Op::Kind::lend) {
        o.lender = static_cast<planner::PartyId>(random.between(1, lenders));
        const Medium medium = out.machine.planner.tiers[static_cast<std::size_t>(o.tier)].medium;
        o.relays = random.chance(0.9) && medium == Medium::device;
      }
  std::vector<Op>& ops = out.programs[random.below(out.programs.size())].ops;
  for (std::uint64_t n = random.below(6); n-- > 0;) {
    const auto share =
        static_cast<std::uint32_t>(random.chance(0.2) ? planner::kWholeLink : random.between(50'000, 900'000));
    const std::size_t at = random.chance(0.7) ? 0 : random.below(ops.size() + 1);
    ops.insert(ops.begin() + static_cast<std::ptrdiff_t>(at),
               op::limit(static_cast<planner::PartyId>(random.between(1, lenders)), share));
  }
}

// Some calls in stream order, after a computation; also drawn separately.
void draw_order(RandomCase& out, std::uint64_t seed) {
  Random random(seed ^ 0x0de7);
  if (!random.chance(0.3)) return;
  out.ordered = true;
  out.timely = false;
  const Time longest = static_cast<Time>(random.between(1, 2'000'000));
  for (Program& p : out.programs)
    for (Op& o : p.ops) {
      const bool can = o.kind == Op::Kind::checkpoint || o.kind == Op::Kind::restore || o.kind == Op::Kind::commit ||
                       o.kind == Op::Kind::release;
      if (!can || o.async || random.chance(0.4)) continue;
      o.ordered = true;
      o.kernel = random.chance(0.3) ? 0 : static_cast<Time>(random.below(static_cast<std::uint64_t>(longest)));
    }
}

// Stores that keep, with checkpoints of an earlier run, files that are too small, and drops of everything; apart as
// well.
void draw_keeping(RandomCase& out, std::uint64_t seed) {
  Random random(seed ^ 0x6ee9);
  planner::Machine& m = out.machine.planner;
  if (random.chance(0.45)) m.ephemeral = false;
  if (m.ephemeral || m.tiers.back().medium != Medium::file) return;
  planner::TierSpec& file = m.tiers.back();
  if (random.chance(0.3)) file.capacity = std::max(file.granule, file.capacity / 8 / file.granule * file.granule);
  for (Program& p : out.programs) {
    const auto insert = [&](std::size_t at, Op o) {
      p.ops.insert(p.ops.begin() + static_cast<std::ptrdiff_t>(at), std::move(o));
    };
    for (std::uint64_t n = random.below(3); n-- > 0;) insert(random.below(p.ops.size()), op::drop_all());
    for (std::uint64_t n = random.below(10); n-- > 0;) {
      const Op o =
          op::recovered(static_cast<Version>(random.below(40)), random.chance(0.1) ? 0 : random.below(file.capacity));
      insert(random.chance(0.7) ? 0 : random.below(p.ops.size()), o);
    }
  }
}

// Stores with retention, with files that hold little more than the retained versions; also drawn separately.
void draw_retention(RandomCase& out, std::uint64_t seed) {
  Random random(seed ^ 0x4e7a);
  planner::Machine& m = out.machine.planner;
  if (m.ephemeral || m.tiers.back().medium != Medium::file || random.chance(0.5)) return;
  m.retention = {random.between(1, 4), random.chance(0.5) ? 0 : random.between(2, 9)};
  out.options.syncs.interval = static_cast<Time>(random.below(5'000'000));
  out.options.syncs.latency = static_cast<Time>(random.below(200'000));
  out.options.syncs.failures = out.faulty && random.chance(0.5) ? 0.1 : 0;
  out.timely = false;
}

// Stores that keep in several files: what each of them keeps and gets, how soon that is durable there, and what an
// earlier run has left in them. A lower file may hang, and what is sent to it may be limited. Apart as well.
void draw_levels(RandomCase& out, std::uint64_t seed) {
  Random random(seed ^ 0x1e7e1);
  planner::Machine& m = out.machine.planner;
  const TierIndex first = planner::first_keeping(m), tiers = static_cast<TierIndex>(m.tiers.size());
  if (first + 1 >= tiers) return;
  out.levels = true;
  out.timely = false;
  out.options.syncs.interval = static_cast<Time>(random.below(5'000'000));
  out.options.syncs.latency = static_cast<Time>(random.below(200'000));
  out.options.syncs.failures = out.faulty && random.chance(0.5) ? 0.1 : 0;
  m.releases_later = random.chance(0.5);
  for (TierIndex t = first; t < tiers; ++t) {
    planner::TierSpec& tier = m.tiers[static_cast<std::size_t>(t)];
    if (random.chance(0.4))
      tier.retention = {random.chance(0.2) ? 0 : random.between(1, 6), random.chance(0.5) ? 0 : random.between(2, 9)};
    if (t == first) continue;
    tier.every = random.chance(0.5) ? 0 : random.between(1, 5);
    for (planner::LinkSpec& link : m.links)
      if (link.to == tier.node && random.chance(0.3)) link.most_bytes_per_s = link.bytes_per_s / 4;
  }
  if (random.chance(0.4)) {
    const Time from = static_cast<Time>(random.below(20'000'000));
    out.options.hang = {static_cast<TierIndex>(tiers - 1), from, from + static_cast<Time>(random.below(500'000'000)),
                        static_cast<Time>(random.below(20'000'000))};
  }
  for (Program& p : out.programs)
    for (std::uint64_t n = random.below(8); n-- > 0;) {
      const auto version = static_cast<Version>(random.below(40));
      const Bytes bytes = random.chance(0.1) ? 0 : random.below(m.tiers.back().capacity / 4);
      const bool both = random.chance(0.5);
      std::size_t at = random.chance(0.7) ? 0 : random.below(p.ops.size());
      for (TierIndex t = tiers; t-- > first;) {  // the lowest first
        if (!both && t != tiers - 1) continue;
        p.ops.insert(p.ops.begin() + static_cast<std::ptrdiff_t>(at++), op::recovered(version, bytes, t));
      }
    }
}

// What was read is checked before it counts; apart as well.
void draw_checks(RandomCase& out, std::uint64_t seed) {
  Random random(seed ^ 0xc4ec);
  if (!random.chance(0.3)) return;
  out.options.checks = static_cast<Time>(random.between(1, random.chance(0.5) ? 20'000 : 2'000'000));
  out.timely = false;
}

// Several ranks, one after another, which share groups of the node, and of the GPUs that lend to them; apart as well.
void draw_ranks(RandomCase& out, std::uint64_t seed) {
  Random random(seed ^ 0x4a2c5);
  if (!random.chance(0.3)) return;
  out.timely = false;
  out.ranks = static_cast<int>(random.between(2, 3));
  std::vector<GroupModel>& groups = out.machine.groups;
  for (GroupModel& group : groups) group.of_node = random.chance(0.5);
  const auto first = static_cast<int>(groups.size());
  for (int n = 0; n < 2; ++n)
    groups.push_back({.bytes_per_s = random.between(5, 60) * 10'000'000, .of_node = false, .of_lender = -1});
  for (int n = 0; n < 2; ++n) groups.push_back({.bytes_per_s = 0, .of_node = false, .of_lender = first + n});
  for (LinkModel& link : out.machine.links)
    for (int n = 0; n < 4; ++n)
      if (random.chance(0.3)) link.groups.push_back(first + n);
  for (int rank = 0; rank < out.ranks; ++rank)  // another one, or a GPU without a program
    out.machine.lenders.push_back(
        {(rank + static_cast<int>(random.between(1, static_cast<std::uint64_t>(out.ranks)))) % (out.ranks + 1)});
}

}  // namespace

RandomCase random_case(std::uint64_t seed, bool peers) {
  Random random(seed);
  RandomCase out;
  out.faulty = random.chance(0.3);
  const bool exact = random.chance(0.7);
  out.timely = exact && !out.faulty;
  out.machine = random_machine(random, exact, peers);
  if (peers) draw_relay(out.machine.planner, seed);
  ProgramMaker maker(random, out.machine, out.faulty);
  const std::uint64_t clients = random.between(1, 4);
  for (std::uint64_t c = 0; c < clients; ++c)
    out.programs.push_back(maker.make(static_cast<HistoryId>(random.below(clients)), random.between(5, 80)));
  out.options.verify = true;
  out.options.check_every = 1;
  out.options.max_events = 2'000'000;
  if (out.faulty) {
    out.options.faults.seed = random.next();
    out.options.faults.probability = random.chance(0.7) ? 0.05 : 0.3;
    out.options.faults.permanent = random.chance(0.5) ? 0 : 0.01;
    out.options.faults.application_links = random.chance(0.3);
  }
  draw_shrinks(out, seed);
  draw_segments(out, seed, peers);
  if (peers) draw_limits(out, seed);
  draw_order(out, seed);
  draw_keeping(out, seed);
  draw_retention(out, seed);
  draw_levels(out, seed);
  draw_checks(out, seed);
  if (peers) draw_ranks(out, seed);
  return out;
}

void adopt_some(RandomCase& c, std::uint64_t seed) {
  Random random(seed ^ 0xad097);
  planner::TierSpec& first = c.machine.planner.tiers.front();
  if (first.medium == Medium::file) return;
  first.adopted = random.between(1, 2 * first.capacity / first.granule) * first.granule;
  c.timely = false;
  for (Program& p : c.programs) {
    std::vector<Op> ops;
    for (Op& o : p.ops) {
      const bool write = o.kind == Op::Kind::checkpoint || o.kind == Op::Kind::reserve;
      if (!write || o.async || !random.chance(0.7)) {
        ops.push_back(o);
      } else if (o.kind == Op::Kind::reserve) {
        o.flag = true;
        ops.push_back(o);
      } else {
        ops.push_back(op::adopt(o.version, o.bytes, o.time));
        Op then = op::commit(o.version);
        then.ordered = o.ordered, then.kernel = o.kernel;
        ops.push_back(then);
      }
    }
    p.ops = std::move(ops);
  }
}

void split_often(RandomCase& c, std::uint64_t seed) {
  Random random(seed ^ 0x5b117);
  planner::Machine& machine = c.machine.planner;
  for (planner::LinkSpec& link : machine.links)
    if (link.resources.empty()) link.chunk = 4 * machine.tiers.front().granule;
  c.timely = false;
  if (!machine.ephemeral) return;  // their files have room for as much as was drawn
  for (planner::TierSpec& tier : machine.tiers)
    if (tier.medium == Medium::host) tier.capacity *= random.between(4, 16);
  for (Program& p : c.programs)
    for (Op& o : p.ops)
      if (o.bytes > 0 && (o.kind == Op::Kind::checkpoint || o.kind == Op::Kind::reserve))
        o.bytes = std::min(machine.tiers.front().capacity, o.bytes * random.between(1, 4));
}

void share_granules(RandomCase& c, std::uint64_t seed) {
  Random random(seed ^ 0x96a1);
  Bytes least = UINT64_MAX;
  for (planner::TierSpec& t : c.machine.planner.tiers) {
    least = std::min(least, t.granule);
    if (t.medium != Medium::file) t.grain = t.granule >> random.below(5);
  }
  const bool all = random.chance(0.3);
  for (Program& p : c.programs)
    for (Op& o : p.ops)
      if ((o.kind == Op::Kind::checkpoint || o.kind == Op::Kind::reserve) && (all || random.chance(0.6)))
        o.bytes = random.below(least);
}

void keep_more_above(RandomCase& c, std::uint64_t seed) {
  Random random(seed ^ 0x4ee9);
  planner::Machine& m = c.machine.planner;
  const auto first = static_cast<std::size_t>(planner::first_keeping(m));
  m.tiers[first].retention = {random.between(2, 3), 2};
  m.tiers.back().retention = {1, 2};
  m.tiers.back().every = 0;
  for (Program& p : c.programs) {
    Version next = 40;
    for (Op& o : p.ops)
      if (o.kind == Op::Kind::checkpoint) {
        o.version = next;
        next += random.chance(0.3) ? 1 : 2;
        o.bytes = m.tiers[first].capacity / random.between(2, 4);
      }
  }
}

std::string describe(const RandomCase& c) {
  std::string out;
  for (const planner::TierSpec& t : c.machine.planner.tiers)
    out += t.name + " " + std::to_string(t.capacity) + " (granule " + std::to_string(t.granule) + "), ";
  out += "chunk " + std::to_string(c.machine.planner.links.front().chunk) + ", ring " +
         std::to_string(c.machine.planner.nodes[planner::kHost].staging) + ", eviction " +
         std::to_string(static_cast<int>(c.machine.planner.eviction)) +
         (c.machine.planner.ephemeral ? ", ephemeral" : "") + (c.machine.planner.manual_prefetch ? ", manual" : "") +
         (c.machine.planner.tiers.front().adopted ? ", adopts" : "") +
         (c.machine.planner.retention.keep_last ? ", retention" : "") + (c.faulty ? ", faults" : "") +
         (c.shrinks ? ", shrinks" : "") + (c.lent ? ", segments" : "") + (c.ordered ? ", ordered" : "") +
         (c.options.checks ? ", checks" : "") + (c.options.hang.until ? ", hangs" : "") + (c.timely ? ", timely" : "");
  return out + ", clients " + std::to_string(c.programs.size()) + ", ranks " + std::to_string(c.ranks);
}

}  // namespace ebb::sim::testing
