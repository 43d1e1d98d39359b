#pragma once
// The calls of a simulation.
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/simulation.hpp"

namespace ebb::sim {

// Every call that a client has made, by request; what is known of it until it is answered.
//
// Thread safety: none.
class CallBook {
 public:
  planner::RequestId new_request() { return next_request_++; }
  // A call that the planner will answer.
  void add(Call call, std::size_t client) {
    open_.emplace(call.request, Open{.client = client});
    place_.emplace(call.request, all_.size());
    all_.push_back(std::move(call));
  }
  // A join: the planner hears nothing of it. Returns its place.
  std::size_t add_join(Call call) {
    all_.push_back(std::move(call));
    return all_.size() - 1;
  }
  Call& at(std::size_t place) { return all_[place]; }
  bool knows(planner::RequestId request) const { return place_.contains(request); }
  Call& of(planner::RequestId request) { return all_[place_.at(request)]; }
  const Call& of(planner::RequestId request) const { return all_[place_.at(request)]; }
  const std::vector<Call>& all() const { return all_; }

  // Until it is answered.
  std::size_t client_of(planner::RequestId request) const { return open_.at(request).client; }
  // The write that a restore or borrow reads; 0: none is known.
  std::uint64_t& serial(planner::RequestId request) { return open_.at(request).serial; }
  void forget(planner::RequestId request) { open_.erase(request); }

  // Commands in flight that touch a call's own memory.
  void begin_copy(planner::RequestId request) { ++copies_[request]; }
  void end_copy(planner::RequestId request) {
    if (--copies_[request] == 0) copies_.erase(request);
  }
  bool copying(planner::RequestId request) const { return copies_.contains(request); }

 private:
  struct Open {
    std::size_t client = 0;
    std::uint64_t serial = 0;
  };
  std::vector<Call> all_;
  std::unordered_map<planner::RequestId, std::size_t> place_;
  std::unordered_map<planner::RequestId, Open> open_;
  std::unordered_map<planner::RequestId, int> copies_;
  planner::RequestId next_request_ = 1;
};

}  // namespace ebb::sim
