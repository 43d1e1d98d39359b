#pragma once
// The ranks of a job, beside what their group agrees on: whether a call succeeded on all of them.
#include <cstdint>
#include <memory>
#include <string>

#include "ebbtide/group.hpp"

namespace ebb::veloc {

/// A job of one process, without MPI; `id` is its own among those that use the same directories.
std::unique_ptr<Collective> alone(int id);

class Peers {
 public:
  explicit Peers(std::unique_ptr<Collective> collective) : collective_(std::move(collective)) {}
  int rank() const { return collective_->rank(); }
  int count() const { return collective_->count(); }
  /// Whether this rank speaks and decides for all.
  bool leads() const { return rank() == 0 || count() == 1; }
  /// What the one that leads gives, on all. Collective.
  Result<std::int64_t> first(std::int64_t mine);
  /// The least of what the ranks give. Collective.
  Result<std::int64_t> least(std::int64_t mine);
  /// Failed on one rank: an error on all; those that did not fail themselves say which one did. Collective.
  Result<void> all(const Result<void>& mine, const std::string& what);

 private:
  std::unique_ptr<Collective> collective_;
};

}  // namespace ebb::veloc
