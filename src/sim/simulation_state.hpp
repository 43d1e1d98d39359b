#pragma once
// The state of a simulation. The planner's side: simulation_commands.cpp; the application's:
// simulation_clients.cpp; time: simulation.cpp. Parts with a state of their own: CallBook, Lenders, Syncing,
// Provisioning.
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/content.hpp"
#include "sim/network.hpp"
#include "sim/simulation.hpp"
#include "sim/simulation_calls.hpp"
#include "sim/simulation_durability.hpp"
#include "sim/simulation_segments.hpp"

namespace ebb::sim {

namespace event = planner::event;
using planner::Answer;
using planner::Command;
using planner::Endpoint;
using planner::Event;
using planner::Output;
using planner::Planner;
using planner::Reason;
using planner::RequestId;

struct Simulation::Impl {
  struct Written {
    std::uint64_t serial = 0;
    Bytes bytes = 0;
  };

  // An item on a client's stream: computing, a copy, or an event that is sent when the stream reaches it.
  struct Item {
    Time busy = 0;
    std::optional<Command> command;
    std::optional<Event> event;
    bool content = false;  // the copy's bytes are tracked from when it was enqueued
  };

  // A call in stream order: how much of it is on the stream, or copied.
  struct Ordered {
    std::size_t client = 0;
    bool restore = false;
    Bytes bytes = 0, enqueued = 0, ordered_to = 0;
    std::map<Bytes, Bytes> ahead;
    bool spoiled = false, returned = false;
    bool all() const { return !spoiled && enqueued == bytes; }
    void count(const Command& c) {
      Bytes& end = ahead[c.offset];
      end = std::max(end, c.offset + c.length);
      for (auto first = ahead.begin(); first != ahead.end() && first->first <= enqueued; first = ahead.erase(first))
        enqueued = std::max(enqueued, first->second);
    }
  };

  struct Client {
    int rank = 0, index = 0;
    Program program;
    std::size_t next = 0;
    std::size_t barriers_left = 0;
    RequestId blocked_on = 0;
    bool at_barrier = false, joining = false, done = false;
    std::size_t open_calls = 0;  // asynchronous ones
    std::size_t join_call = 0;
    std::map<Version, std::vector<RequestId>> reserved, borrowed;
    std::deque<Item> stream;
    Time stream_ends = planner::kNever;  // what its first item does; kNever: it has not begun
  };

  struct Rank {
    Rank(const planner::Machine& machine, bool verify) : planner(machine) {
      if (verify) content.emplace(machine);
    }
    Planner planner;
    std::optional<Content> content;
    Time wakeup = planner::kNever;
    std::vector<bool> broken;
    std::map<std::pair<HistoryId, Version>, Written> written;
    std::map<std::pair<HistoryId, Version>, std::pair<Time, std::uint64_t>> recovered;       // when, and as which write
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::pair<HistoryId, Version>> names;  // by slot and generation
    RankResult result;
  };

  struct Moving {
    int rank = 0;
    Command command;
  };

  const MachineModel machine;
  const Options options;
  Simulation* self = nullptr;
  Network network;
  std::map<std::pair<int, int>, int> groups;                            // of the network, by GPU and number
  std::map<std::tuple<int, int, planner::PartyId>, int> network_links;  // by rank, link and lender; 0: of no lender
  std::vector<Rank> ranks;
  std::vector<Client> clients;
  Provisioning provisioning;
  Lenders lenders;
  Syncing syncing;
  CallBook calls;
  Time now = 0, makespan = 0;
  std::uint64_t events = 0, ticks_at_once = 0;
  std::unordered_map<std::uint64_t, Moving> moving;
  std::uint64_t next_moving = 1;
  using Checked = std::pair<Time, std::uint64_t>;  // when it will be, and what
  std::priority_queue<Checked, std::vector<Checked>, std::greater<>> checked;
  std::priority_queue<Checked, std::vector<Checked>, std::greater<>> overdue;  // writes that hang: when it is said
  std::map<RequestId, Ordered> ordered;                                        // and not answered
  std::set<std::pair<int, planner::CommandId>> in_flight, poisoned,
      awaited;  // awaited: something enqueued comes after it
  using Ready = std::tuple<Time, std::uint64_t, std::size_t>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
  std::uint64_t ready_sequence = 0;
  std::priority_queue<std::pair<Time, RequestId>, std::vector<std::pair<Time, RequestId>>, std::greater<>> deadlines;
  Output scratch;

  Impl(const MachineModel& m, std::vector<std::vector<Program>> programs, const Options& o);
  int group_of(int rank, int number, planner::PartyId lender);
  int link_of(int rank, int number, planner::PartyId lender);
  void lend_at_first();
  void wake(std::size_t client, Time at) { ready.emplace(at, ready_sequence++, client); }

  // --- the planner's side -------------------------------------------------------------------------------------------
  void give(int r, const Event& event);
  // The version that an event gives its bytes; none: it is another event.
  std::optional<Version> version_of(const Event& event) const;
  static bool touches_application(const Command& c);
  // What a lender does, if the planner hears of it.
  void lender_event(int r, std::optional<event::Any> what);
  void begin(int r, const Command& c);
  void carry_out(int r, const Command& c);
  // What waited for memory, and does so no more.
  bool release_one();
  void enqueue(Rank& rank, Ordered& call, const Command& c);
  void enqueue(Client& client, Time busy, std::optional<Event> event);
  // Starts the first item of a stream if its predecessor has ended.
  void begin_first(Client& client);
  void end_first(Client& client);
  // A call with all copies on its stream.
  bool return_one();
  // 0: succeeded; 1: failed; 2: failed permanently.
  int fate(int r, const Command& c) const;
  bool reads_file(const Command& c) const;
  bool hangs(const Command& c) const;
  void report_overdue(std::uint64_t id);
  void carried(std::uint64_t id);
  void ended(std::uint64_t id);
  void report(const Moving& m, bool on_stream, bool worthless);
  void answered(int r, const Answer& a);
  void answer_call(int r, const Answer& a);
  void settle_content(Rank& rank, Client& client, const Call& call, const Answer& a);

  // --- the application's side ---------------------------------------------------------------------------------------
  void act(std::size_t index);
  void submit_recovered(const Client& client, const Op& op);
  TierIndex found_on(const Op& op) const;
  // When the stream has done its present work.
  void hand_back(std::size_t index, const Op& op, std::map<Version, std::vector<RequestId>>& open);
  static RequestId take(std::map<Version, std::vector<RequestId>>& open, const Op& op, Rank& rank, bool commit);
  static void forget(Rank& rank, HistoryId history, const Op& op);
  Event event_for(const Client& client, const Op& op, RequestId request = 0) const;
  void submit_event(std::size_t index, const Op& op, RequestId loan = 0);
  void call(std::size_t index, const Op& op);
  void join(std::size_t index);
  void meet(Client& client);

  // --- time ---------------------------------------------------------------------------------------------------------
  bool idle() const;
  bool step();
  [[noreturn]] void stall() const;
};

}  // namespace ebb::sim
