#pragma once
// Which versions of a history were consumed, in little memory.
#include <cstddef>
#include <cstdint>

#include "planner/recycled.hpp"

namespace ebb::planner {

/// A set of versions as ranges: what follows one another costs nothing more, however long a store is used. Of more than
/// `most` ranges the lowest are forgotten: it is then not known of them that they were in it.
/// Not thread-safe.
class VersionSet {
 public:
  using Version = std::int64_t;
  static constexpr std::size_t kMost = 1 << 16;
  explicit VersionSet(std::size_t most = kMost) : most_(most) {}

  bool contains(Version version) const;
  void insert(Version version);
  void erase(Version version);
  void clear() { ranges_.clear(); }
  std::size_t ranges() const { return ranges_.size(); }

 private:
  std::size_t most_;
  RecycledMap<Version, Version> ranges_;  // first and last of each; between any two is a version that is in neither
};

}  // namespace ebb::planner
