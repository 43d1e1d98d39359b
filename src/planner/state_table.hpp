#pragma once
// The life of something as a table of the transitions that it may make.
#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

namespace ebb::planner {

template <class State>
struct TransitionOf {
  State from, to;
  const char* cause;
  const char* precondition;
};

// States are numbered from 0.
template <class State, std::size_t kStates>
class StateTable {
 public:
  // `what`: "a replica", for messages.
  constexpr StateTable(const char* what, const std::array<const char*, kStates>& names,
                       std::span<const TransitionOf<State>> transitions)
      : what_(what), names_(names) {
    for (const TransitionOf<State>& t : transitions) allowed_[at(t.from)][at(t.to)] = true;
  }

  constexpr const char* name_of(State state) const { return names_[at(state)]; }
  // `to`, if the table has it; throws std::logic_error naming both states otherwise, in every build.
  State transition(State from, State to) const {
    if (!allowed_[at(from)][at(to)])
      throw std::logic_error(std::string("illegal transition of ") + what_ + ": " + name_of(from) + " to " +
                             name_of(to));
    return to;
  }

 private:
  static constexpr std::size_t at(State state) { return static_cast<std::size_t>(state); }

  const char* what_;
  std::array<const char*, kStates> names_;
  std::array<std::array<bool, kStates>, kStates> allowed_{};
};

}  // namespace ebb::planner
