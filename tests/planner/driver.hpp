#pragma once
// The planner by hand: a test says which commands are under way and which of them end.
#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "planner/planner.hpp"
#include "planner/topology.hpp"
#include "units.hpp"

namespace ebb::planner::testing_support {

inline Machine machine_of(Bytes device, Bytes host, Bytes local, Bytes chunk = 4 * kMiB) {
  Machine m;
  if (device) m.tiers.push_back({"device", Medium::device, device * kMiB, 4096});
  if (host) m.tiers.push_back({"host", Medium::host, host * kMiB, 4096});
  if (local) m.tiers.push_back({"local", Medium::file, local * kMiB, 4096});
  connect(m);
  for (auto& l : m.links) l.chunk = chunk;
  return m;
}

// Carries commands out when told to, the oldest first, one millisecond after the other.
class Driver {
 public:
  explicit Driver(const Machine& m) : planner(m) {}

  void send(Event e) {
    e.now = now;
    out.clear();
    planner.on(e, out);
    planner.check();
    for (const Freed& f : out.freed) freed.push_back(f);
    for (const Failure& f : out.failures) failures.push_back(f);
    for (const Returned& r : out.returned) returned.push_back(r);
    commits += out.commit != 0 ? 1 : 0;
    for (const Command& c : out.commands) {
      under_way.push_back(c);
      by_link[planner.machine().links.at(static_cast<std::size_t>(c.link)).name] += c.length;
    }
    for (const Answer& a : out.answers) {
      EXPECT_TRUE(answers.emplace(a.request, a).second) << "answered twice";
    }
    wakeup = out.wakeup;
  }
  void tell(event::Any what, HistoryId client = 0) { send({.client = client, .what = std::move(what)}); }
  void finish(std::size_t i = 0, bool failed = false, bool permanent = false, bool hopeless = false) {
    const CommandId id = under_way.at(i).id;
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(i));
    now += 1'000'000;
    if (!failed) return tell(event::Finished{id});
    tell(event::Failed{id, permanent  ? event::Failed::no_room
                           : hopeless ? event::Failed::source
                                      : event::Failed::passing});
  }
  void carry(std::size_t i = 0) {
    now += 1'000'000;
    tell(event::Carried{under_way.at(i).id});
  }
  // Until nothing is under way and the planner wants to be woken for nothing.
  void run() {
    for (int i = 0; i < 100000; ++i) {
      if (!under_way.empty()) {
        finish();
      } else if (wakeup != kNever) {
        now = std::max(now, wakeup);
        send({});
      } else {
        return;
      }
    }
    FAIL() << "it never ends";
  }
  // Calls: each gives its request.
  RequestId checkpoint(Version v, Bytes mib, Time timeout = 0, bool ordered = false) {
    return ask(event::Checkpoint{++last, v, mib * kMiB, timeout, ordered});
  }
  RequestId reserve(Version v, Bytes mib, Time timeout = 0) {
    return ask(event::Reserve{++last, v, mib * kMiB, timeout});
  }
  RequestId restore(Version v, bool keep = false, bool ordered = false) {
    return ask(event::Restore{++last, v, keep, ordered});
  }
  RequestId borrow(Version v, Time timeout = 0) { return ask(event::Borrow{++last, v, timeout}); }
  RequestId wait(Version v, TierIndex tier) { return ask(event::Wait{++last, v, tier}); }
  RequestId wait_all(TierIndex tier) { return ask(event::WaitAll{++last, tier}); }
  RequestId ask(event::Any call) {
    const RequestId id = last;
    tell(std::move(call));
    return id;
  }
  // An ordered restore has returned, or what is held was submitted with a stream.
  void submit(RequestId id, bool keep = false) { tell(event::Submit{id, keep, true}); }
  void adopt(Version v, Bytes mib, HistoryId history = 0) { adopt_on(v, mib, last_tier(), history); }
  void adopt_on(Version v, Bytes mib, TierIndex tier, HistoryId history = 0) {
    tell(event::Recovered{v, mib * kMiB, tier}, history);
  }
  void hint(std::vector<Version> order, bool replace = false) { tell(event::Hint{replace, std::move(order)}); }
  Reason reason(RequestId id) { return answers.at(id).reason; }
  bool answered(RequestId id) const { return answers.contains(id); }
  Reason write(Version v, Bytes mib) {
    const RequestId id = checkpoint(v, mib);
    for (int i = 0; !answered(id) && i < 100000; ++i) step();
    return reason(id);
  }
  Reason read(Version v, bool keep = false) {
    const RequestId id = restore(v, keep);
    for (int i = 0; !answered(id) && i < 100000; ++i) step();
    return reason(id);
  }
  void step() {
    if (!under_way.empty()) return finish();
    ASSERT_NE(wakeup, kNever) << "stalled";
    now = std::max(now, wakeup);
    send({});
  }

  TierIndex last_tier() const { return static_cast<TierIndex>(planner.machine().tiers.size() - 1); }

  Planner planner;
  Output out;
  Time now = 1, wakeup = kNever;
  RequestId last = 0;
  std::deque<Command> under_way;
  std::map<RequestId, Answer> answers;
  std::vector<Freed> freed;
  std::vector<Failure> failures;
  std::vector<Returned> returned;
  int commits = 0;  // asked for
  std::map<std::string, Bytes> by_link;
};

}  // namespace ebb::planner::testing_support
