// The bindings of ebbtide.sim: machines, operations and runs as plain values; ebbtide/sim/ is the public side.
#include "sim/sim.hpp"

#include <algorithm>
#include <array>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <stdexcept>

#include "errors.hpp"
#include "modules.hpp"
#include "text.hpp"

namespace ebb::python {
namespace {

using sim::MachineModel;
using sim::Op;
using sim::Simulation;

template <class T, std::size_t n>
T named(const std::array<std::pair<const char*, T>, n>& names, const std::string& name, const char* key) {
  std::string right;
  for (const auto& [text, value] : names) {
    if (name == text) return value;
    right += (right.empty() ? "\"" : ", \"") + std::string(text) + "\"";
  }
  raise(Errc::invalid_argument, std::string(key) + "=\"" + name + "\" is not valid: expected one of " + right);
}

constexpr std::array<std::pair<const char*, planner::Medium>, 3> kMedia{
    {{"device", planner::Medium::device}, {"host", planner::Medium::host}, {"file", planner::Medium::file}}};
constexpr std::array<std::pair<const char*, planner::EvictionPolicy>, 4> kEvictions{
    {{"score", planner::EvictionPolicy::score},
     {"score_paper", planner::EvictionPolicy::score_paper},
     {"lru", planner::EvictionPolicy::lru},
     {"fifo", planner::EvictionPolicy::fifo}}};
constexpr std::array<std::pair<const char*, Op::Kind>, 18> kOpKinds{{{"checkpoint", Op::Kind::checkpoint},
                                                                     {"reserve", Op::Kind::reserve},
                                                                     {"commit", Op::Kind::commit},
                                                                     {"abandon", Op::Kind::abandon},
                                                                     {"restore", Op::Kind::restore},
                                                                     {"borrow", Op::Kind::borrow},
                                                                     {"release", Op::Kind::release},
                                                                     {"hint", Op::Kind::hint},
                                                                     {"hint_front", Op::Kind::hint_front},
                                                                     {"unhint", Op::Kind::unhint},
                                                                     {"start_prefetch", Op::Kind::start_prefetch},
                                                                     {"drop", Op::Kind::drop},
                                                                     {"wait", Op::Kind::wait},
                                                                     {"sleep", Op::Kind::sleep},
                                                                     {"join", Op::Kind::join},
                                                                     {"barrier", Op::Kind::barrier},
                                                                     {"break_link", Op::Kind::break_link},
                                                                     {"mend_link", Op::Kind::mend_link}}};
constexpr std::array<std::pair<const char*, sim::Shot::Order>, 3> kOrders{{{"reverse", sim::Shot::Order::reverse},
                                                                           {"sequential", sim::Shot::Order::sequential},
                                                                           {"irregular", sim::Shot::Order::irregular}}};
constexpr std::array<std::pair<const char*, sim::Shot::Hints>, 3> kHints{
    {{"all", sim::Shot::Hints::all}, {"one", sim::Shot::Hints::one}, {"none", sim::Shot::Hints::none}}};

const char* name_of_kind(Op::Kind kind) {
  for (const auto& [text, value] : kOpKinds) {
    if (value == kind) return text;
  }
  return "?";
}

using TierTuple =
    std::tuple<std::string, std::string, std::uint64_t, bool>;  // name, medium, capacity, whether it is lent

MachineModel make_machine(const std::vector<TierTuple>& tiers, const std::string& eviction, bool manual_prefetch,
                          std::uint64_t ring_slot, int ring_slots, int lent_slots, bool ephemeral) {
  planner::Machine planner;
  planner.ephemeral = ephemeral;
  for (const auto& [name, medium, capacity, lent] : tiers) {
    if (capacity == 0 && !lent) continue;
    planner.tiers.push_back({name, named(kMedia, medium, "medium"), capacity});
    if (planner.tiers.back().medium != planner::Medium::file) planner.tiers.back().grain = planner::kGrain;
  }
  if (planner.tiers.empty())
    raise(Errc::invalid_argument, "all tiers have capacity 0: expected at least one with room");
  planner::connect(planner, ring_slots);
  for (auto& node : planner.nodes)
    if (planner::all_lent(planner, static_cast<planner::NodeIndex>(&node - planner.nodes.data())))
      node.staging = lent_slots;
  for (auto& link : planner.links) link.resources.clear();
  planner.resources.clear();
  planner.eviction = named(kEvictions, eviction, "eviction");
  planner.manual_prefetch = manual_prefetch;
  planner.ring_slot = ring_slot;
  return sim::model_of(planner);
}

int link_index(const MachineModel& machine, const std::string& name) {
  const int found = planner::find_link(machine.planner.links, name);
  if (found >= 0) return found;
  std::string names;
  for (const auto& link : machine.planner.links) names += (names.empty() ? "\"" : ", \"") + link.name + "\"";
  raise(Errc::invalid_argument, "link \"" + name + "\" does not exist: the links of these tiers are " + names);
}

// A link's real properties, and the planner's first estimates.
void set_link(MachineModel& machine, const std::string& name, double bytes_per_s, std::int64_t latency_ns,
              std::uint64_t chunk, int depth, bool shared, std::vector<int> groups) {
  const auto index = static_cast<std::size_t>(link_index(machine, name));
  auto& spec = machine.planner.links[index];
  auto& link = machine.links[index];
  spec.bytes_per_s = bytes_per_s;
  spec.latency = latency_ns;
  if (chunk != 0) spec.chunk = chunk;
  spec.depth = depth;
  spec.resources = groups;
  link.bytes_per_s = static_cast<std::uint64_t>(bytes_per_s);
  link.latency = latency_ns;
  link.shared = shared;
  link.groups = std::move(groups);
}

void provision(MachineModel& machine, int tier, double touch, double pin, std::int64_t pin_latency_ns) {
  const auto& spec = machine.planner.tiers.at(static_cast<std::size_t>(tier));
  if (spec.medium == planner::Medium::file)
    raise(Errc::invalid_argument, "tier \"" + spec.name + "\" is not in memory: nothing of it can be provisioned");
  if (!(touch >= 1) || !(pin >= 1) || pin_latency_ns < 0)
    raise(Errc::invalid_argument,
          "provision of tier \"" + spec.name + "\": expected rates above 0 and no negative latency");
  machine.provisioned.push_back({.tier = static_cast<planner::TierIndex>(tier),
                                 .touch_bytes_per_s = static_cast<std::uint64_t>(touch),
                                 .pin_bytes_per_s = static_cast<std::uint64_t>(pin),
                                 .pin_latency = pin_latency_ns});
}

Op make_op(const std::string& kind, std::int64_t version, std::uint64_t bytes, std::int64_t time, std::int64_t deadline,
           int tier, bool flag, bool async, int link, std::vector<std::int64_t> versions) {
  Op op;
  op.kind = named(kOpKinds, kind, "kind");
  op.version = version;
  op.bytes = bytes;
  op.time = time < 0 ? planner::kNever : time;
  op.deadline = deadline;
  op.tier = static_cast<planner::TierIndex>(tier);
  op.flag = flag;
  op.async = async;
  op.link = link;
  op.versions = std::move(versions);
  return op;
}

struct ShotObject {
  sim::Shot shot;
};

nb::tuple to_tuple(const sim::Call& call) {
  return nb::make_tuple(call.client, name_of_kind(call.kind), call.history, call.version, call.bytes, call.begun,
                        call.answered ? nb::object(nb::int_(call.ended)) : nb::none(), planner::name_of(call.reason),
                        static_cast<int>(call.found_on), call.distance, call.detail, call.rank);
}

nb::dict rank_dict(const sim::MachineModel& machine, const sim::RankResult& rank) {
  nb::list tiers, links;
  for (std::size_t i = 0; i < rank.tiers.size(); ++i) {
    nb::dict one;
    one["name"] = machine.planner.tiers[i].name;
    one["capacity"] = rank.tiers[i].capacity;
    one["used"] = rank.tiers[i].used;
    one["replicas"] = rank.tiers[i].replicas;
    one["evictions"] = rank.tiers[i].evictions;
    one["ready_s"] = 0.0;
    one["memory_wait_s"] = 0.0;
    for (const auto& memory : rank.memories) {
      if (memory.tier != static_cast<planner::TierIndex>(i)) continue;
      const bool ready = memory.ready_at != planner::kNever;
      one["ready_s"] = ready ? nb::object(nb::float_(static_cast<double>(memory.ready_at) * 1e-9)) : nb::none();
      one["memory_wait_s"] = static_cast<double>(memory.waited) * 1e-9;
    }
    tiers.append(one);
  }
  for (const auto& link : rank.links) {
    nb::dict one;
    one["name"] = link.name;
    one["bytes"] = link.bytes;
    one["transfers"] = link.transfers;
    one["failures"] = link.failures;
    one["busy_s"] = static_cast<double>(link.busy) * 1e-9;
    links.append(one);
  }
  nb::list filed;
  for (const auto& [checkpoint, bytes] : rank.filed)
    filed.append(nb::make_tuple(checkpoint.first, checkpoint.second, bytes));
  nb::dict result;
  result["tiers"] = tiers;
  result["links"] = links;
  result["filed"] = filed;
  result["dropped_flushes"] = rank.counters.dropped_flushes;
  result["direct_writes"] = rank.counters.direct_writes;
  result["direct_reads"] = rank.counters.direct_reads;
  result["prefetches"] = rank.counters.prefetches;
  result["flushes"] = rank.counters.flushes;
  result["retries"] = rank.counters.retries;
  result["failures"] = rank.counters.failures;
  result["lost"] = std::count_if(rank.failures.begin(), rank.failures.end(), [](const auto& f) { return f.lost; });
  return result;
}

// A simulation, with the machine for its results and each tier's peak use.
class SimulationObject {
 public:
  using ProgramTuple = std::tuple<std::uint32_t, std::int64_t, std::vector<Op>>;  // history, start, operations

  SimulationObject(const MachineModel& machine, const std::vector<std::vector<ProgramTuple>>& ranks, double fault,
                   double permanent, std::uint64_t seed, bool verify, int check_every, bool peaks)
      : machine_(machine), peaks_(peaks ? machine.planner.tiers.size() : 0) {
    sim::Options options;
    options.faults.probability = fault;
    options.faults.permanent = permanent;
    options.faults.seed = seed;
    options.verify = verify;
    options.check_every = check_every;
    std::vector<std::vector<sim::Program>> programs;
    for (const auto& rank : ranks) {
      auto& clients = programs.emplace_back();
      for (const auto& [history, start, ops] : rank) clients.push_back({history, start, ops});
    }
    simulation_ = std::make_unique<Simulation>(machine_, std::move(programs), options);
    simulation_->on_answer = [this](const sim::Call& call) { answers_.push_back(call); };
    if (peaks) {
      simulation_->observer = [this](int rank, const planner::Event&, const planner::Output&) { note_peaks(rank); };
    }
  }

  bool step() { return simulation_->step(); }
  void run() {
    nb::gil_scoped_release unlocked;
    while (simulation_->step()) {
    }
  }
  std::int64_t now() const { return simulation_->now(); }
  void append(std::size_t client, const Op& op) { simulation_->append(client, op); }
  // Steps until the client has nothing left to do, or nothing is in progress any more.
  bool run_client(std::size_t client) {
    while (!simulation_->ended(client)) {
      if (!simulation_->step()) return false;
    }
    return true;
  }
  /// Until then, or until nothing is in progress any more.
  void run_until(std::int64_t time) {
    nb::gil_scoped_release unlocked;
    while (simulation_->now() < time && simulation_->step()) {
    }
  }
  void check() const { simulation_->planner().check(); }
  std::size_t pending() const { return simulation_->planner().pending(); }
  nb::list take_answers() {
    nb::list result;
    for (const auto& call : answers_) result.append(to_tuple(call));
    answers_.clear();
    return result;
  }
  bool known(std::uint32_t history, std::int64_t version) const {
    return simulation_->planner().find(history, version).has_value();
  }
  int fastest(std::uint32_t history, std::int64_t version) const {
    const auto found = simulation_->planner().find(history, version);
    return found ? simulation_->planner().fastest_complete(*found) : planner::kNoTier;
  }
  int slowest(int rank, std::uint32_t history, std::int64_t version) const {
    const planner::Planner& planner = simulation_->planner(rank);
    const auto found = planner.find(history, version);
    return found ? planner.lowest_complete(*found) : planner::kNoTier;
  }
  std::uint64_t used(int tier) const { return simulation_->planner().use(static_cast<planner::TierIndex>(tier)).used; }

  nb::dict result() const {
    const sim::Result result = simulation_->result();
    nb::list calls, ranks;
    for (const auto& call : result.calls) calls.append(to_tuple(call));
    for (const auto& rank : result.ranks) ranks.append(rank_dict(machine_, rank));
    nb::dict dict;
    dict["calls"] = calls;
    dict["ranks"] = ranks;
    dict["makespan"] = result.makespan;
    dict["checkpoint_blocked"] = result.checkpoint_blocked;
    dict["restore_blocked"] = result.restore_blocked;
    dict["wait_blocked"] = result.wait_blocked;
    dict["events"] = result.events;
    nb::list peaks;
    for (const auto peak : peaks_) peaks.append(peak);
    dict["peaks"] = peaks;
    return dict;
  }

 private:
  void note_peaks(int rank) {
    for (std::size_t i = 0; i < peaks_.size(); ++i) {
      peaks_[i] = std::max(peaks_[i], simulation_->planner(rank).use(static_cast<planner::TierIndex>(i)).used);
    }
  }
  MachineModel machine_;
  std::vector<std::uint64_t> peaks_;
  std::vector<sim::Call> answers_;
  std::unique_ptr<Simulation> simulation_;
};

}  // namespace

void bind_sim(nb::module_& module) {
  nb::class_<MachineModel>(module, "SimMachine", "Tiers and links, as ``ebbtide.sim.Machine`` makes them.")
      .def_static("make", &make_machine, nb::arg("tiers"), nb::arg("eviction"), nb::arg("manual_prefetch"),
                  nb::arg("ring_slot"), nb::arg("ring_slots"), nb::arg("lent_slots"), nb::arg("ephemeral"))
      .def("set_link", &set_link, nb::arg("name"), nb::arg("bytes_per_s"), nb::arg("latency_ns"), nb::arg("chunk"),
           nb::arg("depth"), nb::arg("shared"), nb::arg("groups"))
      .def(
          "add_group",
          [](MachineModel& machine, std::uint64_t bytes_per_s, bool of_node, int of_lender) {
            machine.groups.push_back({bytes_per_s, of_node, of_lender});
            machine.planner.resources.push_back(
                {.name = {}, .urgent_first = bytes_per_s == 0});  // else all flow at once
            return static_cast<int>(machine.groups.size()) - 1;
          },
          nb::arg("bytes_per_s"), nb::arg("of_node"), nb::arg("of_lender") = -1)
      .def_rw("lenders", &MachineModel::lenders)
      .def(
          "lend",
          [](MachineModel& machine, int tier, int lender, std::uint64_t bytes) {
            machine.lent.push_back({static_cast<planner::TierIndex>(tier), lender, bytes});
          },
          nb::arg("tier"), nb::arg("lender"), nb::arg("bytes"))
      .def("provision", &provision, nb::arg("tier"), nb::arg("touch"), nb::arg("pin"), nb::arg("pin_latency_ns"))
      .def("link_names", [](const MachineModel& machine) {
        std::vector<std::string> names;
        for (const auto& link : machine.planner.links) names.push_back(link.name);
        return names;
      });
  nb::class_<Op>(module, "SimOp", "One operation of a program; times in nanoseconds.")
      .def_static("make", &make_op, nb::arg("kind"), nb::arg("version") = 0, nb::arg("bytes") = 0, nb::arg("time") = 0,
                  nb::arg("deadline") = 0, nb::arg("tier") = -1, nb::arg("flag") = false, nb::arg("async_") = false,
                  nb::arg("link") = -1, nb::arg("versions") = std::vector<std::int64_t>{});
  nb::class_<ShotObject>(module, "SimShot", "The papers' shot; times in nanoseconds.")
      .def_static(
          "make",
          [](std::vector<std::uint64_t> sizes, const std::string& order, const std::string& hints,
             std::int64_t interval, std::vector<std::int64_t> forward, std::vector<std::int64_t> backward,
             bool compute_after_restore, bool wait, bool barriers, std::uint64_t seed,
             std::vector<std::int64_t> given_order) {
            ShotObject object;
            object.shot.sizes = std::move(sizes);
            object.shot.order = named(kOrders, order, "order");
            object.shot.hints = named(kHints, hints, "hints");
            object.shot.interval = interval;
            object.shot.forward = std::move(forward);
            object.shot.backward = std::move(backward);
            object.shot.compute_after_restore = compute_after_restore;
            object.shot.wait = wait;
            object.shot.barriers = barriers;
            object.shot.seed = seed;
            object.shot.given_order = std::move(given_order);
            return object;
          },
          nb::arg("sizes"), nb::arg("order"), nb::arg("hints"), nb::arg("interval"), nb::arg("forward"),
          nb::arg("backward"), nb::arg("compute_after_restore"), nb::arg("wait"), nb::arg("barriers"), nb::arg("seed"),
          nb::arg("given_order"))
      .def("restore_order", [](const ShotObject& object) { return object.shot.restore_order(); })
      .def(
          "ops",
          [](const ShotObject& object, int lowest_tier) {
            return sim::program_of(object.shot, static_cast<planner::TierIndex>(lowest_tier)).ops;
          },
          nb::arg("lowest_tier"));
  module.def(
      "joint_bound",
      [](const MachineModel& machine, const std::vector<SimulationObject::ProgramTuple>& ranks) {
        std::vector<sim::Program> programs;
        for (const auto& [history, start, ops] : ranks) programs.push_back({history, start, ops});
        const sim::JointBound joint = sim::joint_bound(sim::bound_machine(machine), programs);
        double copies = 0, flush_wait = 0;
        for (const sim::Bound& rank : joint.ranks) {
          copies += rank.copies_s;
          flush_wait = std::max(flush_wait, rank.flush_wait_s);
        }
        nb::dict dict;
        dict["blocked_s"] = joint.blocked_s;
        dict["overlapped_s"] = joint.overlapped_s;
        dict["copies_s"] = copies;
        dict["flush_wait_s"] = flush_wait;
        dict["wall_s"] = joint.makespan_s;
        return dict;
      },
      nb::arg("machine"), nb::arg("ranks"),
      nb::sig("def joint_bound(machine: SimMachine, ranks: list[tuple[int, int, list[SimOp]]]) -> dict[str, float]"),
      "The least blocked time that any schedule could reach; one client (history, start, operations) per rank.");
  nb::class_<SimulationObject>(module, "Simulation",
                               R"(The planner in virtual time, step by step. Times in nanoseconds.

programs: by rank, then by client: (history, start, operations). A planner that breaks a contract, leaves a call
unanswered while nothing moves, or hands out bytes that are not those asked for (``verify``) raises RuntimeError.)")
      .def(nb::init<const MachineModel&, const std::vector<std::vector<SimulationObject::ProgramTuple>>&, double,
                    double, std::uint64_t, bool, int, bool>(),
           nb::arg("machine"), nb::arg("programs"), nb::arg("fault") = 0.0, nb::arg("permanent") = 0.0,
           nb::arg("seed") = 1, nb::arg("verify") = false, nb::arg("check_every") = 0, nb::arg("peaks") = false)
      .def("step", &SimulationObject::step,
           "Carry out what comes next: one event or operation. False when everything has ended.")
      .def("run", &SimulationObject::run, "Step to the end.")
      .def("run_until", &SimulationObject::run_until, nb::arg("time"), "Step until that time, or to the end.")
      .def("append", &SimulationObject::append, nb::arg("client"), nb::arg("op"), "Give a client one more operation.")
      .def("run_client", &SimulationObject::run_client, nb::arg("client"),
           "Step until a client has nothing left to do.")
      .def("check", &SimulationObject::check, "Raise if an invariant of the planner is broken.")
      .def("take_answers", &SimulationObject::take_answers,
           nb::sig("def take_answers(self) -> list[tuple[typing.Any, ...]]"), "The calls answered since the last time.")
      .def("known", &SimulationObject::known, nb::arg("history"), nb::arg("version"),
           "Whether a version can be restored or is being written.")
      .def("fastest", &SimulationObject::fastest, nb::arg("history"), nb::arg("version"),
           "The index of the fastest tier with a complete replica; -1: none.")
      .def("slowest", &SimulationObject::slowest, nb::arg("rank"), nb::arg("history"), nb::arg("version"),
           "The index of the slowest tier with a complete replica; -1: none.")
      .def("used", &SimulationObject::used, nb::arg("tier"), "Bytes held on a tier.")
      .def_prop_ro("now", &SimulationObject::now)
      .def_prop_ro("pending", &SimulationObject::pending, "Transfers in flight, or waiting for a link or for room.")
      .def("result", &SimulationObject::result, nb::sig("def result(self) -> dict[str, typing.Any]"));
}

}  // namespace ebb::python
