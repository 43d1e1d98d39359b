#pragma once
// The rounds of an Agreement over a Collective, and what members do at the same point.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebbtide/agreement.hpp"
#include "ebbtide/group.hpp"

namespace ebb::group {

/// Thread safety: none, as the group's.
/// Once members cannot talk, or one could not do what was agreed on, every call fails with that error: what this member
/// knows may differ from what the others do.
class Rounds {
 public:
  explicit Rounds(std::unique_ptr<Collective> collective) : collective_(std::move(collective)) {}

  Agreement agreement;

  int rank() const { return collective_->rank(); }
  int count() const { return collective_->count(); }

  /// Nothing begins any more.
  void break_off(const Error& why) { broken_ = broken_.value_or(why); }
  const std::optional<Error>& broken() const { return broken_; }

  /// What a round brought, if one has ended.
  Result<std::optional<Agreement::Outcome>> look();
  /// Begins one if none is under way.
  Result<void> begin();
  /// Waits for the round under way.
  Result<Agreement::Outcome> end();
  /// The least that a member gave, of each. Only at a meeting.
  Result<std::vector<std::int64_t>> least(std::vector<std::int64_t> values);
  /// Only at a meeting. Failed anywhere: an error everywhere.
  Result<void> all(const Result<void>& mine, const std::string& what);

 private:
  Result<bool> test(bool wait);

  std::unique_ptr<Collective> collective_;
  std::optional<Error> broken_;
  bool lost_ = false;                    // members cannot talk
  std::vector<std::int64_t> under_way_;  // empty: none is
};

}  // namespace ebb::group
