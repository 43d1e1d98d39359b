#include "tests/sim/random_run.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <stdexcept>

#include "tests/sim/pace_judge.hpp"
#include "trace/event_text.hpp"

namespace ebb::sim::testing {
namespace {

using planner::Event;
using planner::Reason;

// What is known for certain of a version, from the calls and their answers alone.
struct Fate {
  bool touched = false;   // a call that may remove it began after it was written
  bool written = false;   // a write of it was answered `ok`
  bool ever = false;      // a write of it was begun
  bool dropping = false;  // it was dropped at some time
  Bytes bytes = 0;
  planner::RequestId reservation = 0;  // the newest
  std::uint64_t stored = 0;            // its turn among all
  bool recovered = false;              // an earlier process wrote it
};

class Judge {
 public:
  Judge(const RandomCase& c)
      : case_(c), first_(planner::first_keeping(c.machine.planner)), tiers_(c.machine.planner.tiers) {}

  void before(const Event& e, const planner::Planner& planner) {
    using namespace planner::event;
    spared_.clear();
    if (const auto* lost = std::get_if<Lost>(&e.what))
      for (const auto& [id, name] : names_) {
        const auto found = planner.find(name.first, name.second);
        if (!found || key(*found) != id) continue;
        for (TierIndex t = 0; t < static_cast<TierIndex>(tiers_.size()); ++t)
          if (t != lost->tier && planner.complete_on(*found, t) && planner.rest_of(*found, t) != lost->tier)
            spared_.insert(id);
      }
    const bool ephemeral = case_.machine.planner.ephemeral;
    const HistoryId h = e.client;
    if (const auto* call = std::get_if<Checkpoint>(&e.what))
      write(h, call->request, call->version, call->bytes, call->timeout);
    if (const auto* call = std::get_if<Reserve>(&e.what))
      write(h, call->request, call->version, call->bytes, call->timeout);
    if (const auto* call = std::get_if<Adopt>(&e.what))
      write(h, call->request, call->version, call->bytes, call->timeout);
    if (const auto* call = std::get_if<Restore>(&e.what)) {
      read(h, call->request, call->version);
      if (!call->keep && ephemeral) fate(h, call->version).touched = true;
    }
    if (const auto* call = std::get_if<Borrow>(&e.what)) read(h, call->request, call->version);
    if (const auto* call = std::get_if<Wait>(&e.what)) begun(call->request, h, call->version);
    if (const auto* call = std::get_if<WaitAll>(&e.what)) begun(call->request, h, 0);
    if (const auto* end = std::get_if<Submit>(&e.what); end && !end->keep && ephemeral) of(end->request).touched = true;
    if (const auto* end = std::get_if<Release>(&e.what); end && !end->keep && ephemeral)
      of(end->request).touched = true;
    if (const auto* end = std::get_if<Commit>(&e.what))  // another one's version was dropped meanwhile
      if (Fate& f = of(end->request); f.reservation == end->request) stored(f);
    if (const auto* end = std::get_if<Abandon>(&e.what)) of(end->request).touched = true;
    if (const auto* drop = std::get_if<Drop>(&e.what)) {
      for (auto& [tier, durable] : durable_) durable[h].erase(drop->version);
      if (const auto it = fates_.find({h, drop->version}); it != fates_.end())
        it->second.touched = it->second.dropping = true;
    }
    if (std::holds_alternative<DropAll>(e.what)) {
      for (auto& [tier, durable] : durable_) durable.erase(h);
      for (auto& [name, f] : fates_)
        if (name.first == h) f.touched = f.dropping = true;
    }
    if (const auto* found = std::get_if<Recovered>(&e.what)) {
      Fate& f = fate(h, found->version);
      stored(f);
      f.ever = f.recovered = true;
      f.touched = false;
      f.bytes = std::max(f.bytes, found->bytes);
      durable_[found->tier][h].insert(found->version);
    }
    if (const auto* durable = std::get_if<Durable>(&e.what)) durable_[durable->tier][h].insert(durable->version);
    const auto* const undone = std::get_if<NotDurable>(&e.what);
    not_durable_ = undone != nullptr;
    if (undone != nullptr) late_.insert({h, undone->version});
    if (const auto* cancel = std::get_if<Cancel>(&e.what)) cancelled_[cancel->request] = true;
    if (const auto* lend = std::get_if<Lend>(&e.what)) {  // it may be a staging ring
      has(lend->tier, lend->segment,
          lend->relays ? lend->bytes - std::min(lend->bytes, ring_bytes(lend->tier)) : lend->bytes);
    }
    if (const auto* recall = std::get_if<Recall>(&e.what)) has(recall->tier, recall->segment, recall->bytes);
    if (const auto* lost = std::get_if<Lost>(&e.what)) has(lost->tier, lost->segment, 0);
  }

  void answered(const Call& c) {
    const bool certain = certain_[c.request];
    Fate& f = fate(c.history, c.version);
    const bool write = c.kind == Op::Kind::checkpoint || c.kind == Op::Kind::reserve;
    if (c.reason == Reason::ok) {
      if (write && certain) wrong(c, "overwrote an existing version");
      if (c.kind == Op::Kind::checkpoint) {
        stored(f);
        f.touched = false;
        // Calls that began while it was being written may still remove it.
        for (const auto& [id, open] : open_)
          if (open.history == c.history && open.version == c.version && id != c.request) f.touched = true;
      }
      if (c.kind == Op::Kind::reserve) f.written = f.touched = false, f.reservation = c.request;
      return;
    }
    if (c.kind == Op::Kind::borrow || c.kind == Op::Kind::restore)
      refuse_read(c, certain);
    else if (write)
      refuse_write(c, f);
    else
      refuse_wait(c);
    if (write && !certain && c.reason != Reason::version_exists) f.touched = true;
  }

  // The planner's answer to an event: lost versions, and versions that it releases in the file of a persistent store.
  void given(const Event& e, const planner::Planner& planner, const planner::Output& out) {
    const auto* const recovered = std::get_if<planner::event::Recovered>(&e.what);
    if (recovered) names_[key(*planner.find(e.client, recovered->version))] = {e.client, recovered->version};
    for (const planner::Answer& a : out.answers)
      if (const auto it = open_.find(a.request);
          it != open_.end() && a.reason == Reason::ok && a.checkpoint.generation > 0)
        names_[key(a.checkpoint)] = {it->second.history, it->second.version};
    for (const planner::Failure& f : out.failures) {
      const auto it = names_.find(key(f.checkpoint));
      if (f.lost && spared_.contains(key(f.checkpoint)))
        throw std::logic_error("lost with a segment, though another tier has all of it");
      if (f.lost && !case_.faulty) throw std::logic_error("lost, though nothing has failed");
      if (it == names_.end()) continue;
      if (f.lost)
        fates_[it->second].touched = true;
      else
        late_.insert(it->second);
    }
    if (case_.machine.planner.ephemeral || tiers_.back().medium != planner::Medium::file) return;
    for (const planner::Retired& one : out.retired) retired(one);
    for (const planner::Command& c : out.commands) commands_[c.id] = c.checkpoint;
    for (const planner::Freed& f : out.freed)
      if (f.tier >= first_) left_file(f, planner);
    if (recovered) safe_.insert({key(*planner.find(e.client, recovered->version)), recovered->tier});
    const auto* const finished = std::get_if<planner::event::Finished>(&e.what);
    if (finished == nullptr) return;
    const planner::CheckpointRef moved = commands_.at(finished->command);
    const auto it = names_.find(key(moved));
    if (it == names_.end() || planner.find(it->second.first, it->second.second) != moved) return;
    for (TierIndex t = first_; t < static_cast<TierIndex>(tiers_.size()); ++t)
      if (planner.complete_on(moved, t)) safe_.insert({key(moved), t});
  }

  // What was complete in a file leaves it only if it could not be read, has been dropped, is durable below, or is not
  // to stay there while another file has it: is durable there if it was here, or newer ones make up for it there too.
  void left_file(const planner::Freed& f, const planner::Planner& planner) {
    const bool was_safe = safe_.erase({key(f.checkpoint), f.tier}) > 0;
    const auto it = names_.find(key(f.checkpoint));
    if (it == names_.end()) return;
    const auto [history, version] = it->second;
    const auto now = planner.find(history, version);
    const bool superseded = is_superseded(history, version, f.tier);
    const bool was_durable = durable_[f.tier][history].contains(version) && !is_made_up_for(history, version);
    if (!now || now == f.checkpoint) durable_[f.tier][history].erase(version);  // not written anew
    if (!was_safe || f.failed || now != f.checkpoint) return;
    bool below = false, elsewhere = false;
    for (TierIndex t = first_; t < static_cast<TierIndex>(tiers_.size()); ++t) {
      below |= t > f.tier && durable_[t][history].contains(version) && planner.complete_on(*now, t);
      elsewhere |=
          t != f.tier && planner.complete_on(*now, t) && (!was_durable || durable_[t][history].contains(version));
    }
    if (below || (elsewhere && (superseded || (not_durable_ && f.tier > first_)))) return;
    throw std::logic_error("version " + std::to_string(version) + " left the file it was safe in");
  }

  // Whether a file drops what newer versions make up for.
  bool retains() const {
    bool any = false;
    for (TierIndex t = first_; t < static_cast<TierIndex>(tiers_.size()); ++t)
      any |= tiers_[static_cast<std::size_t>(t)].retention.value_or(case_.machine.planner.retention).keep_last > 0;
    return any;
  }

  // Whether enough newer ones are durable on the tier.
  bool is_superseded(HistoryId history, Version version, TierIndex tier) {
    return is_superseded(version, tier, durable_[tier][history]);
  }
  // Whether enough newer ones for the fastest file are durable in any.
  bool is_made_up_for(HistoryId history, Version version) {
    std::set<Version> durable;
    for (auto& [tier, histories] : durable_) durable.insert(histories[history].begin(), histories[history].end());
    return is_superseded(version, first_, durable);
  }
  bool is_superseded(Version version, TierIndex tier, const std::set<Version>& durable) const {
    const planner::Retention how = retention(tier);
    const auto newer = static_cast<std::uint64_t>(std::distance(durable.upper_bound(version), durable.end()));
    const bool multiple = how.keep_every && version % static_cast<Version>(how.keep_every) == 0;
    return how.keep_last > 0 && newer >= how.keep_last && !multiple;
  }

  planner::Retention retention(TierIndex tier) const {
    return tiers_[static_cast<std::size_t>(tier)].retention.value_or(case_.machine.planner.retention);
  }

  // Whether enough newer ones, written after it, are durable on the tier without multiples, and in any file for the
  // fastest.
  bool overstays(HistoryId history, Version version, TierIndex tier) const {
    const auto durable_on = [&](TierIndex t) -> const std::set<Version>& {
      static const std::set<Version> kNone;
      const auto on = durable_.find(t);
      if (on == durable_.end()) return kNone;
      const auto of = on->second.find(history);
      return of == on->second.end() ? kNone : of->second;
    };
    std::set<Version> here, any;
    for (TierIndex t = first_; t < static_cast<TierIndex>(tiers_.size()); ++t)
      for (const Version newer : durable_on(t)) {
        const Fate& other = fates_.at({history, newer});
        if (other.recovered || other.stored < fates_.at({history, version}).stored) continue;
        any.insert(newer);
        const auto every = static_cast<Version>(retention(tier).keep_every);
        if (t == tier && (every == 0 || newer % every != 0)) here.insert(newer);
      }
    return durable_on(tier).contains(version) && is_superseded(version, tier, here) &&
           is_superseded(version, first_, any);
  }

  // At the end, when no transfer is in flight.
  void at_rest(const planner::Planner& planner) const {
    if (case_.machine.planner.ephemeral || tiers_.back().medium != planner::Medium::file) return;
    const auto last = static_cast<TierIndex>(tiers_.size() - 1);
    const bool several = first_ < last;
    for (const auto& [name, f] : fates_) {
      if (!f.written || f.touched) continue;
      const std::string what = "version " + std::to_string(name.second) + " of history " + std::to_string(name.first);
      const auto found = planner.find(name.first, name.second);
      if (!found) throw std::logic_error(what + " is gone, but was not dropped");
      if (several && planner.complete_on(*found, last) && overstays(name.first, name.second, last))
        throw std::logic_error(what + " stays in the lowest file, though newer ones make up for it");
      if (planner.lowest_complete(*found) == last || late_.contains(name) || case_.faulty) continue;
      if (planner.lowest_complete(*found) < first_ &&
          planner.use(first_).largest_gap >= padded(static_cast<std::size_t>(first_), planner.bytes_of(*found)))
        throw std::logic_error(what + " has not come to the file, which has room for it");
      if (!several || planner.lowest_complete(*found) < first_ || planner.bytes_of(*found) == 0) continue;
      const auto every = static_cast<Version>(tiers_.back().every);
      if ((every > 1 && name.second % every != 0) || retains()) continue;
      if (planner.use(last).largest_gap >= padded(tiers_.size() - 1, planner.bytes_of(*found)))
        throw std::logic_error(what + " has not come to the lowest file, which has room for it");
    }
  }

  void ended(const Call& c) { open_.erase(c.request); }

 private:
  // Of a staging ring in a tier's lent memory.
  Bytes ring_bytes(TierIndex tier) const {
    const planner::Machine& machine = case_.machine.planner;
    const auto node = tiers_.at(static_cast<std::size_t>(tier)).node;
    const auto out = std::ranges::find_if(
        machine.links, [&](const planner::LinkSpec& l) { return l.from == node && l.to == planner::kHost; });
    const Bytes slot = out == machine.links.end() ? machine.ring_slot : out->chunk;
    return 2 * static_cast<Bytes>(machine.nodes.at(static_cast<std::size_t>(node)).staging) * slot;
  }
  // A tier has room for a replica if its largest segment does.
  void has(TierIndex tier, planner::SegmentId segment, Bytes bytes) {
    std::vector<Bytes>& segments = segments_[tier];
    if (segments.empty()) segments.push_back(tiers_[static_cast<std::size_t>(tier)].capacity);
    segments.resize(std::max<std::size_t>(segments.size(), segment + 1u));
    segments[segment] = bytes;
    tiers_[static_cast<std::size_t>(tier)].capacity = *std::ranges::max_element(segments);
  }

  Fate& fate(HistoryId h, Version v) { return fates_[{h, v}]; }
  void stored(Fate& f) { f.written = true, f.recovered = false, f.stored = ++stored_; }
  Fate& of(planner::RequestId call) { return fates_[called_.at(call)]; }

  void begun(planner::RequestId call, HistoryId h, Version v) {
    Call open;
    open.request = call;
    open.history = h;
    open.version = v;
    open_[call] = open;
    called_[call] = {h, v};
  }
  void write(HistoryId h, planner::RequestId call, Version v, Bytes bytes, Time timeout) {
    read(h, call, v);
    Fate& f = fate(h, v);
    f.ever = true;
    // Where a version may be gone already, this write may be of a new one: sizes are judged by the larger.
    f.bytes = std::max(f.bytes, bytes);
    timeouts_[call] = timeout;
  }
  void read(HistoryId h, planner::RequestId call, Version v) {
    const Fate& f = fate(h, v);
    certain_[call] = f.written && !f.touched;
    begun(call, h, v);
  }

  // Only durable versions are dropped, after newer durable ones on each tier that has them, and enough for the fastest.
  void retired(const planner::Retired& one) {
    bool any = false;
    if (!is_made_up_for(one.history, one.version))
      throw std::logic_error("retention dropped version " + std::to_string(one.version) +
                             ", which the fastest file would keep");
    for (auto& [tier, histories] : durable_) {
      if (!histories[one.history].contains(one.version)) continue;
      any = true;
      if (!is_superseded(one.history, one.version, tier))
        throw std::logic_error("retention dropped version " + std::to_string(one.version) + ", which tier " +
                               std::to_string(tier) + " keeps");
      histories[one.history].erase(one.version);
    }
    if (!any) throw std::logic_error("retention dropped version " + std::to_string(one.version) + ", not durable");
    Fate& f = fate(one.history, one.version);
    f.touched = f.dropping = true;
  }

  [[noreturn]] void wrong(const Call& c, const std::string& what) const {
    throw std::logic_error("call " + std::to_string(c.request) + " (kind " + std::to_string(static_cast<int>(c.kind)) +
                           ", history " + std::to_string(c.history) + ", version " + std::to_string(c.version) + ", " +
                           std::to_string(c.bytes) + " bytes, answered " + planner::name_of(c.reason) + " at " +
                           std::to_string(c.ended) + ": " + c.detail + "): " + what);
  }

  void common(const Call& c) {
    if (c.reason == Reason::cancelled && !cancelled_[c.request]) wrong(c, "it was not cancelled");
    const bool overdue = c.kind == Op::Kind::wait && case_.options.hang.until > 0;  // it is not durable, for now
    if (c.reason == Reason::lost && !case_.faulty && !overdue) wrong(c, "nothing has failed");
    if (c.reason == Reason::dropped && !dropped_in(c)) wrong(c, "it was not dropped");
  }

  // Only memory can be lent.
  bool no_memory_tier(const Call& c) const {
    return c.reason == Reason::no_such_tier && (c.kind == Op::Kind::reserve || c.kind == Op::Kind::borrow) &&
           tiers_[0].medium == planner::Medium::file;
  }

  bool dropped_in(const Call& c) {
    if (c.kind == Op::Kind::wait) return true;  // names many
    return fate(c.history, c.version).dropping || fate(c.history, c.version).touched;
  }

  void refuse_read(const Call& c, bool certain) {
    common(c);
    if (no_memory_tier(c)) return;
    switch (c.reason) {
      case Reason::unknown_version:
      case Reason::consumed:
        if (certain) wrong(c, "the version exists");
        return;
      case Reason::lost:
      case Reason::dropped:
      case Reason::cancelled: return;
      case Reason::too_large:
        if (c.kind != Op::Kind::borrow || padded(0, c.bytes) <= tiers_[0].capacity) wrong(c, "it fits");
        return;
      case Reason::no_space:
        if (c.kind != Op::Kind::borrow) wrong(c, "a restore needs no room");
        if (!case_.faulty && room(c, 0, true)) wrong(c, "there would be room");
        return;
      default: wrong(c, "not a reason for it");
    }
  }

  void refuse_write(const Call& c, const Fate& f) {
    common(c);
    if (no_memory_tier(c)) return;
    const bool first_only = c.kind == Op::Kind::reserve;
    switch (c.reason) {
      case Reason::version_exists:
        if (!f.ever) wrong(c, "it was never written");
        return;
      case Reason::too_large:
        for (std::size_t t = 0; t < written_to(first_only); ++t)
          if (padded(t, c.bytes) <= tiers_[t].capacity) wrong(c, "it fits " + tiers_[t].name);
        return;
      case Reason::no_space:
        if (case_.faulty) return;
        if ((retains() || case_.levels) && !room(c, written_to(false) - 1, first_only)) return;
        for (std::size_t t = 0; t < written_to(first_only); ++t)
          if (room(c, t, first_only)) wrong(c, "there would be room on " + tiers_[t].name);
        return;
      case Reason::lost:
      case Reason::dropped:
      case Reason::cancelled: return;
      default: wrong(c, "not a reason for it");
    }
  }

  // So many tiers, from the fastest on, may take a write: none below the first file that keeps.
  std::size_t written_to(bool first_only) const {
    return first_only ? 1 : std::min(tiers_.size(), static_cast<std::size_t>(first_) + 1);
  }

  void refuse_wait(const Call& c) {
    common(c);
    if (c.reason == Reason::version_exists || c.reason == Reason::too_large) wrong(c, "not a reason for it");
  }

  Bytes padded(std::size_t t, Bytes bytes) const {
    const Bytes g = tiers_[t].granule;
    return (bytes + g - 1) / g * g;
  }

  // Whether tier t would certainly have room for it beside everything that may be live: in a file that needs so many
  // free bytes, in an arena, where k others may lie anywhere, a gap of a (k + 1)th of what is free.
  bool room(const Call& c, std::size_t t, bool) const {
    Bytes live = 0, count = 0;
    for (const auto& [name, f] : fates_) {
      const bool itself = name.first == c.history && name.second == c.version;
      if (!f.ever || (itself && !f.touched)) continue;  // what had the name before may be lent out still
      live += padded(t, f.bytes);
      ++count;
    }
    // Some may be there twice, lent out under a name that was reused.
    live += live;
    count += count;
    const Bytes need = padded(t, c.bytes), capacity = tiers_[t].capacity;
    if (capacity < live) return false;
    const Bytes free = capacity - live;
    const Bytes ragged = tiers_[t].grain != 0 ? 2 * tiers_[t].granule : tiers_[t].granule;
    return tiers_[t].medium == planner::Medium::file ? need <= free : need + ragged <= free / (count + 1);
  }

  static std::uint64_t key(planner::CheckpointRef ref) { return std::uint64_t{ref.slot} << 32 | ref.generation; }

  const RandomCase& case_;
  const TierIndex first_;     // the first file that keeps
  bool not_durable_ = false;  // the event says that something is not
  std::uint64_t stored_ = 0;
  std::map<std::uint64_t, std::pair<HistoryId, Version>> names_;
  std::map<planner::CommandId, planner::CheckpointRef> commands_;
  std::set<std::uint64_t> spared_;                      // by a loss of memory: another tier has all of it
  std::set<std::pair<std::uint64_t, TierIndex>> safe_;  // complete in a tier's file
  std::set<std::pair<HistoryId, Version>> late_;        // a flush of it failed
  std::vector<planner::TierSpec> tiers_;                // with the capacity that is left
  std::map<TierIndex, std::vector<Bytes>> segments_;
  std::map<std::pair<HistoryId, Version>, Fate> fates_;
  std::map<TierIndex, std::map<HistoryId, std::set<Version>>> durable_;
  std::map<planner::RequestId, bool> certain_, cancelled_;
  std::map<planner::RequestId, Time> timeouts_;
  std::map<planner::RequestId, Call> open_;
  std::map<planner::RequestId, std::pair<HistoryId, Version>> called_;  // also of calls that have ended
};

}  // namespace

double worst_delay(const RandomCase& c, const Result& result);

Outcome run_checked(const RandomCase& c, bool trace) {
  const auto ranks = static_cast<std::size_t>(c.ranks);
  std::vector<std::vector<Program>> programs(ranks, c.programs);
  for (std::size_t r = 1; r < ranks; ++r)
    for (Program& p : programs[r]) p.start += static_cast<Time>(r) * 1'000'000;
  Simulation simulation(c.machine, std::move(programs), c.options);
  std::vector<Judge> judges(ranks, Judge(c));
  std::vector<PaceJudge> paces(ranks, PaceJudge(c.machine.planner));
  simulation.feed = [&](planner::Planner& planner, const Event& e, planner::Output& out) {
    if (trace) {
      std::string line;
      trace::append_text(line, e);
      std::printf("%s", line.c_str());
      std::fflush(stdout);
    }
    std::size_t rank = 0;
    while (&simulation.planner(static_cast<int>(rank)) != &planner) ++rank;
    Judge& judge = judges[rank];
    judge.before(e, planner);
    planner.on(e, out);
    judge.given(e, planner, out);
    paces[rank].given(e, out);
    if (trace) {
      for (const auto& k : out.commands)
        std::printf("    cmd %lu link %s slot %u.%u req %lu bytes %lu+%lu/%lu from %d.%d@%lu to %d.%d@%lu after %lu\n",
                    k.id, c.machine.planner.links[static_cast<std::size_t>(k.link)].name.c_str(), k.checkpoint.slot,
                    k.checkpoint.generation, k.request, k.offset, k.length, k.total, k.from.at.kind, k.from.at.index,
                    k.from.offset, k.to.at.kind, k.to.at.index, k.to.offset, k.after);
      for (const auto& f : out.freed)
        std::printf("    freed tier %d slot %u.%u @%lu+%lu\n", f.tier, f.checkpoint.slot, f.checkpoint.generation,
                    f.offset, f.length);
      for (const auto& a : out.answers)
        std::printf("    answer %lu %s %s\n", a.request, planner::name_of(a.reason), a.detail.c_str());
    }
  };
  Outcome out;
  simulation.on_answer = [&](const Call& call) {
    judges[static_cast<std::size_t>(call.rank)].answered(call);
    judges[static_cast<std::size_t>(call.rank)].ended(call);
    ++out.calls;
    out.refused += call.reason != Reason::ok;
  };
  while (simulation.step()) {
  }
  for (std::size_t r = 0; r < ranks; ++r) judges[r].at_rest(simulation.planner(static_cast<int>(r)));
  const Result result = simulation.result();
  out.events = result.events;
  for (const PaceJudge& pace : paces) out.paced += pace.counted();
  for (std::size_t r = 0; r < ranks; ++r) {
    const planner::Counters& counters = simulation.planner(static_cast<int>(r)).counters();
    out.relayed += counters.relayed;
    out.split += counters.split;
  }
  if (c.timely) out.worst = worst_delay(c, result);
  return out;
}

}  // namespace ebb::sim::testing
