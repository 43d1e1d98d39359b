#include "sim/bound.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>

namespace ebb::sim {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
constexpr double kTick = 1e-9;
constexpr std::size_t kEveryWindow = 4096;  // calls; beyond, windows begin only where the kind of call changes

struct Item {  // one writing of a checkpoint
  double bytes = 0;
  std::size_t written = kNone;  // the call that wrote it
  std::size_t dies = kNone;     // the call after which it is no longer needed; kNone: it stays
};

struct TimedStep {
  bool write = false, read = false;
  std::size_t item = kNone;
  double copy = 0;          // seconds of its own copy
  double slept = 0;         // computing since the call before
  std::size_t segment = 0;  // no window spans a wait
};

struct Timeline {
  std::vector<TimedStep> steps;
  std::vector<Item> items;
  struct Wait {
    std::size_t before = 0;  // steps that came before it
    double live = 0;         // bytes that were needed then
    bool all = false;
  };
  std::vector<Wait> waits;
  std::vector<std::vector<std::size_t>> dying;  // items, by step
  double slept = 0;                             // in all
};

Timeline timeline(const BoundMachine& m, const Program& program) {
  Timeline out;
  std::map<Version, std::size_t> newest;
  double slept = static_cast<double>(program.start) * kTick;
  std::size_t segment = 0;
  auto add = [&](bool write, bool read, std::size_t item, double copy) {
    out.steps.push_back({write, read, item, copy, slept, segment});
    slept = 0;
  };
  for (const Op& op : program.ops) {
    const auto known = newest.find(op.version);
    switch (op.kind) {
      case Op::Kind::checkpoint:
      case Op::Kind::reserve: {
        const auto bytes = static_cast<double>(op.bytes);
        const bool copies = op.kind == Op::Kind::checkpoint && !op.async;
        newest[op.version] = out.items.size();
        out.items.push_back({bytes, out.steps.size(), kNone});
        if (op.async) out.items.back().bytes = 0;  // its bytes may still be the application's: no demand
        add(!op.async, false, out.items.size() - 1, copies && m.copy_in > 0 ? bytes / m.copy_in : 0);
        break;
      }
      case Op::Kind::restore:
      case Op::Kind::borrow: {
        if (known == newest.end()) break;
        Item& item = out.items[known->second];
        const bool copies = op.kind == Op::Kind::restore && !op.async;
        if (m.exclusive) item.dies = out.steps.size();  // the last one counts
        add(false, !op.async, known->second, copies && m.copy_out > 0 ? item.bytes / m.copy_out : 0);
        break;
      }
      case Op::Kind::drop:
        for (auto it = newest.begin(); it != newest.end();) {
          if (!op.flag && it->first != op.version) {
            ++it;
            continue;
          }
          Item& item = out.items[it->second];
          if (item.dies == kNone) item.dies = out.steps.empty() ? 0 : out.steps.size() - 1;
          it = newest.erase(it);
        }
        break;
      case Op::Kind::sleep:
        slept += static_cast<double>(op.time) * kTick;
        out.slept += static_cast<double>(op.time) * kTick;
        break;
      case Op::Kind::wait: {
        Timeline::Wait wait{out.steps.size(), 0, op.flag};
        out.waits.push_back(wait);
        ++segment;
        slept = 0;
        break;
      }
      case Op::Kind::join: ++segment; break;  // it waits for calls whose copies are not charged
      default: break;
    }
  }
  out.dying.resize(out.steps.size());
  for (std::size_t i = 0; i < out.items.size(); ++i)
    if (out.items[i].dies != kNone && out.items[i].dies < out.steps.size()) out.dying[out.items[i].dies].push_back(i);
  for (Timeline::Wait& wait : out.waits)
    for (const Item& item : out.items)
      if (item.written < wait.before && (item.dies == kNone || item.dies >= wait.before)) wait.live += item.bytes;
  return out;
}

// The time that a cut's links need for so many bytes. Of what exceeds the computing time, calls may avoid a part by
// copying past the tiers above.
struct Need {
  double time = 0;
  double apart = 1, over = 1;  // what remains of the excess, if links stand still or run during copies
  double excess_apart(double slept) const { return apart * std::max(0.0, time - slept); }
  double excess_over(double slept) const { return over * std::max(0.0, time - slept); }
};

// In one direction. A byte that goes past costs its call 1/past instead of 1/copy, and saves 1/rate.
Need one_way(double bytes, double rate, double past, double with_past, double copy) {
  if (rate <= 0) return {};
  Need out{bytes / rate, 1, 1};
  if (past <= 0) return out;
  out.apart = std::clamp(rate * (1 / past - (copy > 0 ? 1 / copy : 0)), 0.0, 1.0);
  out.over = rate / (with_past > 0 ? with_past : rate + past);
  return out;
}

// Whichever demands most: both directions can be the busier one, and what they share can be busier than either.
template <class Excess>
double most_excess(const BoundMachine& m, const BoundCut& cut, double down, double up, Excess&& excess) {
  const Need write = one_way(down, cut.write, cut.past_in, cut.write_with_past, m.copy_in);
  const Need read = one_way(up, cut.read, cut.past_out, cut.read_with_past, m.copy_out);
  Need both{0, std::min(write.apart, read.apart), std::min(write.over, read.over)};
  if (cut.shared) both.time = write.time + read.time;
  if (cut.total > 0 && cut.write > 0 && cut.read > 0) both.time = std::max(both.time, (down + up) / cut.total);
  return std::max({excess(write), excess(read), excess(both)});
}

// Of the path to the files, which nothing goes past.
double device_time(const BoundMachine& m, double down, double up) {
  return most_excess(m, m.files, down, up, [](const Need& need) { return need.time; });
}

// The bytes that must cross a cut in windows from one step to a later one: of what is new, what memory above the cut
// does not hold, and the same of what is older.
class Window {
 public:
  Window(const Timeline& t, std::size_t first) : t_(t), first_(first), read_(t.items.size()) {}
  void extend(std::size_t last) {
    const TimedStep& s = t_.steps[last];
    copies += s.copy;
    slept += s.slept;
    const Item& item = t_.items[s.item];
    if (s.write) newly_ += item.bytes;
    if (s.read && item.written < first_ && !read_[s.item]) {
      read_[s.item] = true;
      older_ += item.bytes;
    }
    for (std::size_t dead : t_.dying[last])
      if (t_.items[dead].written >= first_ && t_.steps[t_.items[dead].written].write) newly_ -= t_.items[dead].bytes;
  }
  double down(const BoundCut& cut) const { return std::max(0.0, newly_ - cut.memory); }
  double up(const BoundCut& cut) const { return std::max(0.0, older_ - cut.memory); }
  // What the cut that demands most adds to the computing time.
  double excess_apart(const BoundMachine& m) const {
    return most(m, [&](const Need& need) { return need.excess_apart(slept); });
  }
  double excess_over(const BoundMachine& m) const {
    return most(m, [&](const Need& need) { return need.excess_over(slept); });
  }
  double copies = 0, slept = 0;

 private:
  template <class Excess>
  double most(const BoundMachine& m, Excess&& excess) const {
    double out = most_excess(m, m.files, down(m.files), up(m.files), excess);
    for (const BoundCut& cut : m.others) out = std::max(out, most_excess(m, cut, down(cut), up(cut), excess));
    return out;
  }

  const Timeline& t_;
  std::size_t first_;
  std::vector<bool> read_;
  double newly_ = 0, older_ = 0;
};

struct Best {
  std::vector<double> apart, over;  // over the first k steps
  std::vector<std::size_t> begins;  // of the last window of `apart`
};

// The best partition of steps [from, end) into windows.
Best best_windows(const BoundMachine& m, const Timeline& t, std::size_t from) {
  const std::size_t n = t.steps.size();
  Best best;
  best.apart.assign(n + 1, -1);
  best.over.assign(n + 1, -1);
  best.begins.assign(n + 1, from);
  best.apart[from] = best.over[from] = 0;
  for (std::size_t i = from; i < n; ++i) {
    const bool border =
        i == from || t.steps[i].segment != t.steps[i - 1].segment || t.steps[i].write != t.steps[i - 1].write;
    Window window(t, i);
    for (std::size_t j = i; j < n && t.steps[j].segment == t.steps[i].segment; ++j) {
      window.extend(j);
      const double apart = best.apart[i] + window.copies + window.excess_apart(m);
      const double over = best.over[i] + std::max(window.copies, window.excess_over(m));
      if (apart > best.apart[j + 1]) {
        best.apart[j + 1] = apart;
        best.begins[j + 1] = i;
      }
      best.over[j + 1] = std::max(best.over[j + 1], over);
      if (n - from > kEveryWindow && !border) break;
    }
  }
  return best;
}

// What links carry at the same time, at most: for any choice of groups, all of those and the links of none of them.
double together(const MachineModel& machine, const std::vector<std::size_t>& links) {
  std::map<int, double> groups;  // and what each carries
  for (std::size_t l : links)
    for (int g : machine.links[l].groups) {
      const auto limit = static_cast<double>(machine.rate_of_group(g));
      const auto alone = static_cast<double>(machine.links[l].bytes_per_s);
      groups[g] = limit > 0 ? limit : std::max(groups[g], alone);  // 0: by time
    }
  constexpr std::size_t kMost = 16;  // every choice of them is tried
  if (groups.size() > kMost)
    throw std::invalid_argument("links that cross one cut are in " + std::to_string(groups.size()) +
                                " groups; at most " + std::to_string(kMost) + " can be bounded");
  const std::vector<std::pair<int, double>> of(groups.begin(), groups.end());
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t chosen = 0; chosen < std::size_t{1} << of.size(); ++chosen) {
    double sum = 0;
    for (std::size_t i = 0; i < of.size(); ++i) sum += chosen >> i & 1 ? of[i].second : 0;
    for (std::size_t l : links) {
      bool counted = false;
      for (std::size_t i = 0; i < of.size(); ++i)
        counted |= (chosen >> i & 1) && std::ranges::count(machine.links[l].groups, of[i].first) > 0;
      sum += counted ? 0 : static_cast<double>(machine.links[l].bytes_per_s);
    }
    least = std::min(least, sum);
  }
  return least;
}

// The links that cross a cut in one direction: those between tiers, and the application's own.
struct Crossing {
  std::vector<std::size_t> tiers, past;
};

// The cut below the first `above` tiers. Nodes without tiers are above or below it.
BoundCut cut_below(const MachineModel& machine, std::size_t above, bool stages_above, bool staging) {
  const std::vector<planner::TierSpec>& tiers = machine.planner.tiers;
  const std::vector<planner::NodeSpec>& nodes = machine.planner.nodes;
  std::vector<bool> upper(nodes.size()), lower(nodes.size());
  BoundCut out;
  for (std::size_t t = 0; t < tiers.size(); ++t) {
    (t < above ? upper : lower)[static_cast<std::size_t>(tiers[t].node)] = true;
    if (t < above) out.memory += static_cast<double>(tiers[t].capacity);
    for (const LentModel& lent : machine.lent) {
      if (lent.lender > 0) throw std::invalid_argument("memory that several GPUs lend to one rank cannot be bounded");
      if (t < above && lent.tier == static_cast<TierIndex>(t)) out.memory += static_cast<double>(lent.bytes);
    }
  }
  for (std::size_t n = 1; n < nodes.size(); ++n) {
    if (!upper[n] && !lower[n]) (stages_above ? upper : lower)[n] = true;
    if (staging && upper[n] && !planner::all_lent(machine.planner, static_cast<planner::NodeIndex>(n)))
      out.memory += 2.0 * static_cast<double>(machine.planner.ring_slot) * nodes[n].staging;
  }
  Crossing down, up;
  for (std::size_t l = 0; l < machine.links.size(); ++l) {
    const auto from = static_cast<std::size_t>(machine.planner.links[l].from);
    const auto to = static_cast<std::size_t>(machine.planner.links[l].to);
    if (lower[to] && from == planner::kApplication) down.past.push_back(l);
    if (lower[to] && upper[from]) down.tiers.push_back(l);
    if (lower[from] && to == planner::kApplication) up.past.push_back(l);
    if (lower[from] && upper[to]) up.tiers.push_back(l);
  }
  const auto fill = [&](const Crossing& crossing, double& rate, double& past, double& with_past) {
    rate = together(machine, crossing.tiers);
    for (std::size_t l : crossing.past) past = std::max(past, together(machine, {l}));
    std::vector<std::size_t> all = crossing.tiers;
    all.insert(all.end(), crossing.past.begin(), crossing.past.end());
    with_past = together(machine, all);
  };
  fill(down, out.write, out.past_in, out.write_with_past);
  fill(up, out.read, out.past_out, out.read_with_past);
  std::vector<std::size_t> both = down.tiers;
  both.insert(both.end(), up.tiers.begin(), up.tiers.end());
  for (int g = 0; g < static_cast<int>(machine.groups.size()) && !both.empty(); ++g) {
    const auto in = [&](std::size_t l) { return std::ranges::count(machine.links[l].groups, g) > 0; };
    out.shared |= machine.rate_of_group(g) == 0 && std::ranges::all_of(both, in);
  }
  out.total = together(machine, both);
  return out;
}

}  // namespace

BoundMachine bound_machine(const MachineModel& machine, bool staging) {
  const std::vector<planner::TierSpec>& tiers = machine.planner.tiers;
  BoundMachine out;
  out.exclusive = machine.planner.ephemeral;
  const auto memory_tiers = static_cast<std::size_t>(
      std::ranges::count_if(tiers, [](const planner::TierSpec& tier) { return tier.medium != planner::Medium::file; }));
  out.files = cut_below(machine, memory_tiers, true, staging);
  // Nodes that only stage are above the files' cut and below the others.
  const bool only_stages = std::ranges::none_of(tiers, [](const auto& tier) { return tier.node == planner::kHost; });
  for (std::size_t above = 1; above < tiers.size(); ++above)
    if (above != memory_tiers || only_stages) out.others.push_back(cut_below(machine, above, false, staging));
  for (std::size_t l = 0; l < machine.links.size(); ++l) {
    const planner::LinkSpec& link = machine.planner.links[l];
    if (link.from == planner::kApplication) out.copy_in = std::max(out.copy_in, together(machine, {l}));
    if (link.to == planner::kApplication) out.copy_out = std::max(out.copy_out, together(machine, {l}));
  }
  return out;
}

Bound bound(const BoundMachine& m, const Program& program) {
  const Timeline t = timeline(m, program);
  const Best best = best_windows(m, t, 0);
  Bound out;
  const std::size_t n = t.steps.size();
  out.blocked_s = best.apart[n];
  out.overlapped_s = best.over[n];
  for (std::size_t end = n; end > 0; end = best.begins[end]) {
    bool writes = true;
    for (std::size_t i = best.begins[end]; i < end; ++i) {
      writes &= t.steps[i].write;
      out.copies_s += t.steps[i].copy;
    }
    (writes ? out.checkpoint_s : out.restore_s) += best.apart[end] - best.apart[best.begins[end]];
  }
  for (const Timeline::Wait& wait : t.waits) {
    if (!wait.all || m.files.write <= 0) continue;
    double before = best.apart[wait.before];
    for (std::size_t i = 0; i < wait.before; ++i) before += t.steps[i].slept;
    out.flush_wait_s = std::max(out.flush_wait_s, wait.live / m.files.write - before);
  }
  return out;
}

JointBound joint_bound(const BoundMachine& m, const std::vector<Program>& programs) {
  JointBound out;
  double apart_suffix = 0, over_suffix = 0, prefix_copies = 0, all_copies = 0, alone = 0, alone_over = 0;
  bool waits = false, waits_in_prefix = false;
  std::vector<double> prefix_need, prefix_time, all_need, all_time;
  for (const Program& program : programs) {
    out.ranks.push_back(bound(m, program));
    alone += out.ranks.back().blocked_s;
    alone_over += out.ranks.back().overlapped_s;
    const Timeline t = timeline(m, program);
    const std::size_t n = t.steps.size();
    // Down: by the end of the step after which most is needed. Up: from the step from which most is read.
    double down = 0, up = 0, copies = 0, slept = 0, prefix_slept = 0, prefix_copy = 0;
    std::size_t turn = 0;
    Window prefix(t, 0);
    for (std::size_t j = 0; j < n; ++j) {
      prefix.extend(j);
      if (prefix.down(m.files) > down) {
        down = prefix.down(m.files);
        turn = j + 1;
        prefix_copy = prefix.copies;
        prefix_slept = prefix.slept;
      }
    }
    copies = prefix.copies;
    slept = t.slept + static_cast<double>(program.start) * kTick;
    for (std::size_t i = 0; i < n; ++i) {
      if (i > 0 && t.steps[i].write == t.steps[i - 1].write) continue;
      Window suffix(t, i);
      for (std::size_t j = i; j < n; ++j) suffix.extend(j);
      up = std::max(up, suffix.up(m.files));
    }
    const Best rest = best_windows(m, t, turn);
    apart_suffix += rest.apart[n];
    over_suffix += rest.over[n];
    for (const Timeline::Wait& w : t.waits) waits_in_prefix |= w.before < turn;
    waits |= !t.waits.empty();
    for (std::size_t i = 1; i < n; ++i) waits |= t.waits.empty() && t.steps[i].segment != t.steps[i - 1].segment;
    waits_in_prefix |= turn > 0 && t.steps[turn - 1].segment != t.steps[0].segment;
    prefix_copies += prefix_copy;
    all_copies += copies;
    prefix_need.push_back(device_time(m, down, 0));
    prefix_time.push_back(prefix_slept + prefix_copy);
    all_need.push_back(device_time(m, down, up));
    all_time.push_back(slept + copies);
    out.makespan_s = std::max(out.makespan_s, slept + out.ranks.back().overlapped_s);
  }
  // The k-th rank to get its bytes through has waited for those of at least the k smallest. Sorting both sides gives
  // the least sum of excesses (no other matching reduces the larger of two).
  auto excess = [](std::vector<double> need, std::vector<double> time) {
    std::sort(need.begin(), need.end());
    std::sort(time.begin(), time.end());
    double through = 0, sum = 0;
    for (std::size_t k = 0; k < need.size(); ++k) {
      through += need[k];
      sum += std::max(0.0, through - time[k]);
    }
    return sum;
  };
  out.blocked_s = alone;
  out.overlapped_s = alone_over;
  if (!waits) {
    const double whole = all_copies + excess(all_need, all_time);
    out.blocked_s = std::max(out.blocked_s, whole);
    out.overlapped_s = std::max(out.overlapped_s, whole);
  }
  if (!waits_in_prefix) {
    const double written = prefix_copies + excess(prefix_need, prefix_time);
    out.blocked_s = std::max(out.blocked_s, written + apart_suffix);
    out.overlapped_s = std::max(out.overlapped_s, written + over_suffix);
  }
  out.makespan_s = std::max(out.makespan_s, std::accumulate(all_need.begin(), all_need.end(), 0.0));
  return out;
}

double closed_form_s(const BoundMachine& m, std::size_t n, double bytes, double pass_s) {
  const double all = static_cast<double>(n) * bytes;
  const auto pass = [&](bool writes) {
    const auto of = [&](const BoundCut& cut) {
      const double below = std::max(0.0, all - cut.memory);
      return most_excess(m, cut, writes ? below : 0, writes ? 0 : below,
                         [&](const Need& need) { return need.excess_apart(pass_s); });
    };
    double out = of(m.files);
    for (const BoundCut& cut : m.others) out = std::max(out, of(cut));
    return out;
  };
  return all / m.copy_in + all / m.copy_out + pass(true) + pass(false);
}

}  // namespace ebb::sim
