#pragma once
// The planner by hand: a test says which commands are under way and which of them end.
#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "planner/links.hpp"
#include "planner/planner.hpp"
#include "units.hpp"

namespace ebb::policy::testing_support {

inline Machine machine_of(Bytes device, Bytes host, Bytes local, Bytes chunk = 4 * kMiB) {
  Machine m;
  if (device) m.tiers.push_back({"device", Medium::device, device * kMiB, 4096});
  if (host) m.tiers.push_back({"host", Medium::host, host * kMiB, 4096});
  if (local) m.tiers.push_back({"local", Medium::file, local * kMiB, 4096});
  m.links = make_links(m.tiers);
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
    commits += out.commit ? 1 : 0;
    for (const Command& c : out.commands) {
      under_way.push_back(c);
      by_link[planner.machine().links.at(static_cast<std::size_t>(c.link)).name] += c.length;
    }
    for (const Answer& a : out.answers) {
      EXPECT_TRUE(answers.emplace(a.request, a).second) << "answered twice";
    }
    wakeup = out.wakeup;
  }
  void finish(std::size_t i = 0, bool failed = false, bool permanent = false, bool hopeless = false) {
    Event e;
    e.hopeless = hopeless;
    e.kind = failed ? EventKind::failed : EventKind::finished;
    e.flag = permanent;
    e.command = under_way.at(i).id;
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(i));
    now += 1'000'000;
    send(e);
  }
  void carry(std::size_t i = 0) {
    Event e;
    e.kind = EventKind::carried;
    e.command = under_way.at(i).id;
    now += 1'000'000;
    send(e);
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
  RequestId call(EventKind kind, Version v, Bytes mib = 0, bool flag = false, Time timeout = 0,
                 TierIndex tier = kNoTier) {
    Event e;
    e.kind = kind;
    e.version = v;
    e.bytes = mib * kMiB;
    e.flag = flag;
    e.timeout = timeout;
    e.tier = tier;
    e.request = ++last;
    send(e);
    return last;
  }
  void tell(EventKind kind, Version v, bool flag = false, RequestId held = 0) {
    Event e;
    e.request = held;
    e.kind = kind;
    e.version = v;
    e.flag = flag;
    send(e);
  }
  void adopt(Version v, Bytes mib, HistoryId history = 0) {
    Event e;
    e.kind = EventKind::adopt;
    e.history = history;
    e.version = v;
    e.bytes = mib * kMiB;
    send(e);
  }
  void hint(std::vector<Version> order, bool replace = false) {
    Event e;
    e.kind = EventKind::hint;
    e.versions = std::move(order);
    e.flag = replace;
    send(e);
  }
  Reason reason(RequestId id) { return answers.at(id).reason; }
  bool answered(RequestId id) const { return answers.contains(id); }
  Reason write(Version v, Bytes mib) {
    const RequestId id = call(EventKind::checkpoint, v, mib);
    for (int i = 0; !answered(id) && i < 100000; ++i) step();
    return reason(id);
  }
  Reason read(Version v, bool keep = false) {
    const RequestId id = call(EventKind::restore, v, 0, keep);
    for (int i = 0; !answered(id) && i < 100000; ++i) step();
    return reason(id);
  }
  void step() {
    if (!under_way.empty()) return finish();
    ASSERT_NE(wakeup, kNever) << "stalled";
    now = std::max(now, wakeup);
    send({});
  }

  Planner planner;
  Output out;
  Time now = 1, wakeup = kNever;
  RequestId last = 0;
  std::deque<Command> under_way;
  std::map<RequestId, Answer> answers;
  std::vector<Freed> freed;
  std::vector<Failure> failures;
  int commits = 0;  // asked for
  std::map<std::string, Bytes> by_link;
};

// A call whose copies are on a stream of the application.
inline RequestId ordered(Driver& d, EventKind kind, Version v, Bytes mib = 0, bool keep = false) {
  Event e;
  e.kind = kind;
  e.version = v;
  e.bytes = mib * kMiB;
  e.flag = keep;
  e.ordered = true;
  e.request = ++d.last;
  d.send(e);
  return d.last;
}

// A restore has returned, or what is held was let go of.
inline void submit(Driver& d, RequestId id, bool keep = false) {
  Event e;
  e.kind = EventKind::submit;
  e.flag = keep;
  e.ordered = true;
  e.request = id;
  d.send(e);
}

}  // namespace ebb::policy::testing_support
