#pragma once
// Links in virtual time: a fluid that flows at rates divided fairly, in whole bytes a second and whole nanoseconds.
// Fairly means max-min: no link could have more unless one with as much or less had less.
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "sim/machine.hpp"

namespace ebb::sim {

// Each link holds the first `depth` of its commands; it moves them one at a time, or all concurrently (`shared`). A
// held command first waits for the link's latency. Rates change only when a command becomes ready or ends; what has
// moved until then is settled exactly (in bytes x 10^-9), and an end is rounded up to the next nanosecond.
class Network {
 public:
  struct Done {
    int link = 0;
    std::uint64_t id = 0;
  };
  struct LinkTraffic {
    Bytes bytes = 0;
    std::uint64_t transfers = 0;
    Time busy = 0;  // with at least one command queued
  };

  int add_group(std::uint64_t bytes_per_s);
  int add_link(std::uint64_t bytes_per_s, Time latency, int depth, bool shared, const std::vector<int>& groups);

  void submit(int link, std::uint64_t id, Bytes bytes, Time now);
  // The time at which something ends or changes next; kNever: nothing does.
  Time next() const { return next_; }
  // Moves on to `now` (never beyond next()); gives one command that has ended by then, until there is none.
  std::optional<Done> advance(Time now);
  const LinkTraffic& use(int link) const { return links_[static_cast<std::size_t>(link)].use; }
  // Bytes a second that move over it now; 0: it has none that may move.
  std::uint64_t rate(int link) const {
    const Link& l = links_[static_cast<std::size_t>(link)];
    return l.rate * l.active;
  }
  std::size_t queued(int link) const { return links_[static_cast<std::size_t>(link)].jobs.size(); }

 private:
  __extension__ typedef unsigned __int128 Work;  // bytes x nanoseconds a second
  struct Job {
    std::uint64_t id = 0;
    Work left = 0;
    Time ready = 0;
    bool held = false;
  };
  struct Link {
    std::uint64_t bytes_per_s = 0, rate = 0;  // rate: of each active job now
    Time latency = 0, busy_since = 0;
    std::size_t depth = 1, active = 0;  // jobs that move now
    bool shared = false;
    std::vector<int> groups;
    std::deque<Job> jobs;
    LinkTraffic use;
  };
  struct Group {
    std::uint64_t bytes_per_s = 0, left = 0;
    std::size_t active = 0;  // links that wait for their share of what is left
  };
  bool moves(const Link& link, std::size_t index) const;
  void settle(Time now);
  void divide();
  void fill();
  std::uint64_t share(const Link& link) const;
  std::vector<Link> links_;
  std::vector<Group> groups_;
  std::vector<Link*> waiting_;  // of fill()
  Time now_ = 0, next_ = planner::kNever;
};

}  // namespace ebb::sim
