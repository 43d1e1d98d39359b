#include "sim/network.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::sim {

int Network::add_group(std::uint64_t bytes_per_s) {
  groups_.push_back({.bytes_per_s = bytes_per_s});
  return static_cast<int>(groups_.size()) - 1;
}

int Network::add_link(std::uint64_t bytes_per_s, Time latency, int depth, bool shared, const std::vector<int>& groups) {
  if (bytes_per_s == 0 || depth < 1 || latency < 0) throw std::invalid_argument("a link needs a rate and a depth");
  Link link;
  link.bytes_per_s = bytes_per_s;
  link.latency = latency;
  link.depth = static_cast<std::size_t>(depth);
  link.shared = shared;
  for (int group : groups) static_cast<void>(groups_.at(static_cast<std::size_t>(group)));
  link.groups = groups;
  links_.push_back(std::move(link));
  return static_cast<int>(links_.size()) - 1;
}

void Network::submit(int index, std::uint64_t id, Bytes bytes, Time now) {
  settle(now);
  Link& link = links_.at(static_cast<std::size_t>(index));
  if (link.jobs.empty()) link.busy_since = now;
  link.jobs.push_back({id, static_cast<Work>(bytes) * static_cast<Work>(kSecond), 0, false});
  link.use.bytes += bytes;
  ++link.use.transfers;
  divide();
}

bool Network::moves(const Link& link, std::size_t i) const {
  if (i >= link.depth || i >= link.jobs.size() || !link.jobs[i].held || link.jobs[i].ready > now_) return false;
  return link.shared || i == 0;
}

void Network::settle(Time now) {
  if (now < now_) throw std::logic_error("the simulated time went back");
  const auto passed = static_cast<Work>(now - now_);
  if (passed > 0)
    for (Link& link : links_) {
      if (link.active == 0) continue;
      for (std::size_t i = 0; i < link.jobs.size() && i < link.depth; ++i)
        if (moves(link, i)) link.jobs[i].left -= std::min(link.jobs[i].left, passed * link.rate);
    }
  now_ = now;
}

// What the link may have of what its groups have left, all links that wait having as much.
std::uint64_t Network::share(const Link& link) const {
  std::uint64_t out = link.rate;
  for (int g : link.groups) {
    const Group& group = groups_[static_cast<std::size_t>(g)];
    if (group.bytes_per_s > 0) out = std::min(out, group.left / group.active);
  }
  return out;
}

// Progressive filling: whoever's share is the least has it, and what it leaves of its groups goes to the others. Before
// that, a group without a rate leaves each of n links 1/n of the link's own.
void Network::fill() {
  for (Group& group : groups_) {
    group.left = group.bytes_per_s;
    group.active = 0;
  }
  waiting_.clear();
  for (Link& link : links_) {
    link.rate = link.bytes_per_s;
    if (link.active == 0 || link.groups.empty()) continue;
    waiting_.push_back(&link);
    for (int g : link.groups) ++groups_[static_cast<std::size_t>(g)].active;
  }
  for (Link* link : waiting_)
    for (int g : link->groups) {
      const Group& group = groups_[static_cast<std::size_t>(g)];
      if (group.bytes_per_s == 0) link->rate = std::min(link->rate, link->bytes_per_s / group.active);
    }
  while (!waiting_.empty()) {
    auto least = waiting_.begin();
    std::uint64_t rate = share(**least);
    for (auto it = least + 1; it != waiting_.end(); ++it) {
      const std::uint64_t other = share(**it);
      if (other > rate || (other == rate && (*it)->rate >= (*least)->rate)) continue;
      least = it;
      rate = other;
    }
    (*least)->rate = rate;
    for (int g : (*least)->groups) {
      Group& group = groups_[static_cast<std::size_t>(g)];
      group.left -= rate;
      --group.active;
    }
    waiting_.erase(least);
  }
}

// Recomputes rates and next_.
void Network::divide() {
  for (Link& link : links_) {
    link.active = 0;
    for (std::size_t i = 0; i < link.jobs.size() && i < link.depth; ++i) {
      if (!link.jobs[i].held) {
        link.jobs[i].held = true;
        link.jobs[i].ready = now_ + link.latency;
      }
      if (moves(link, i)) ++link.active;
    }
  }
  fill();
  next_ = planner::kNever;
  for (Link& link : links_) {
    if (link.active > 1) link.rate /= link.active;
    link.rate = std::max<std::uint64_t>(link.rate, 1);
    for (std::size_t i = 0; i < link.jobs.size() && i < link.depth; ++i) {
      const Job& job = link.jobs[i];
      if (moves(link, i)) {
        const Work wait = (job.left + link.rate - 1) / link.rate;
        next_ = std::min(next_, now_ + static_cast<Time>(wait));
      } else if (job.held && job.ready > now_) {
        next_ = std::min(next_, job.ready);
      }
    }
  }
}

std::optional<Network::Done> Network::advance(Time now) {
  if (now > next_) throw std::logic_error("the simulated time leapt over an event");
  settle(now);
  for (std::size_t l = 0; l < links_.size(); ++l) {
    Link& link = links_[l];
    for (std::size_t i = 0; i < link.jobs.size() && i < link.depth; ++i) {
      if (!moves(link, i) || link.jobs[i].left != 0) continue;
      const Done done{static_cast<int>(l), link.jobs[i].id};
      link.jobs.erase(link.jobs.begin() + static_cast<std::ptrdiff_t>(i));
      if (link.jobs.empty()) link.use.busy += now_ - link.busy_since;
      divide();
      return done;
    }
  }
  divide();
  return std::nullopt;
}

}  // namespace ebb::sim
