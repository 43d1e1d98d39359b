#pragma once
// What each link carries next: by chunk, over one hop or through the staging ring over two, the most urgent first.
#include <vector>

#include "planner/state.hpp"

namespace ebb::planner {

class LinkScheduler : Decider {
 public:
  explicit LinkScheduler(State& state);

  // Gives every command that can be given now. `awaited`: the lowest tier that a `wait` which has not been
  // answered asks for; kNoTier: there is none.
  void issue(TierIndex awaited);

 private:
  static constexpr int kNone = 3;
  struct Queue {
    std::vector<int> rivals;  // links, itself too, that use a resource of its on which the more urgent goes first
    // The most urgent move over it with anything to send, or with anything in flight; kNone: none.
    int to_send = kNone, pending = kNone;
    bool down = false;  // it leads to a lower file: what passes it is all alike, and has a slot of the ring already
  };
  int urgency(const Move& m) const;
  bool find_urgent();
  bool yields(int link, int urgency) const;
  bool rather_relayed(const Move& m, const Link& own);
  bool none_goes_down(const Link& link) const;
  enum class Round { nothing, sent, turned };  // turned: something goes on over links that the round was past
  Round issue_round();

  std::vector<Queue> queues_;  // of each link
  TierIndex awaited_ = kNoTier;
};

}  // namespace ebb::planner
