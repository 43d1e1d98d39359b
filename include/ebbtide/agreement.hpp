#pragma once
// Which versions every member of a group has: what members tell one another, and what follows from it.
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "ebbtide/checkpoint.hpp"

namespace ebb {

namespace group {

inline constexpr Version kNone = -1;

/// What a member knows of one history.
struct Known {
  std::set<Version> ailing;  // failed here, and not yet void
  std::set<Version> voided;  // beyond what was written here
  Version last = kNone, durable = kNone, agreed = kNone;
};

}  // namespace group

/// What one member knows, for a group that talks in a way of its own; Group (group.hpp) has one. It goes on in
/// *rounds*: each member offers a vector of numbers, and all learn the minimum of each. All rounds are alike, so
/// members need not be at the same point of the program when they take part in one. What they must have in common: the
/// histories, in the same order, and the versions written to each, ascending.
///
/// Thread safety: none; one thread at a time. It has no clock, and sends nothing.
class Agreement {
 public:
  static constexpr Version kNone = group::kNone;

  /// Only between two meetings of all members. Returns its number.
  std::size_t add_history();

  void written(std::size_t history, Version version);
  /// All versions up to this one are durable here, but for those that are void.
  void durable(std::size_t history, Version version);
  /// The version was not written here, or never will be durable: it is void, in every member.
  void failed(std::size_t history, Version version);
  /// At a meeting: all members go on from here.
  void restart(std::size_t history, Version from);
  /// Whether another member could not store a version that is yet to be written here.
  bool is_void(std::size_t history, Version version) const;
  /// The newest that was written or passed over here; kNone.
  Version last(std::size_t history) const { return histories_[history].last; }

  /// This member waits for all others at its next meeting.
  void arrive() { ++arrived_; }
  bool met() const { return least_arrived_ >= arrived_; }

  std::vector<std::int64_t> offer() const;
  struct At {
    std::size_t history = 0;
    Version version = 0;
    bool operator==(const At&) const = default;
  };
  struct Outcome {
    std::vector<At> voided;  // to be dropped here, if it was written
    std::vector<At> agreed;  // durable in every member, with all older ones but for void ones
  };
  /// The minima of a round in which offer() took part.
  Outcome take(std::span<const std::int64_t> minima);

 private:
  std::vector<group::Known> histories_;
  std::int64_t arrived_ = 0, least_arrived_ = 0;
};

}  // namespace ebb
