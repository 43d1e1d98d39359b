#pragma once
// Which of several records of one version counts, where a store has several files.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "planner/ids.hpp"

namespace ebb::planner {

/// A version of which the files differ was dropped and written anew, and the process or the machine ended before all of
/// them had dropped it. The sequences tell what was written last, in any file, also where that was dropped since: what
/// it replaced stays gone.
class RecordChoice {
 public:
  using Sum = std::array<std::byte, 16>;
  /// Of a version: the checksum of its history's name, and its number.
  using Key = std::pair<Sum, Version>;
  static constexpr Sum kOthers{};

  /// `one_counter`: all files have their sequences from one. Otherwise, as in a node's pool, whose agent counts by
  /// itself, nothing is in a slower file that is not in a faster one, and that counts; but for what others than this
  /// library did to a file, which has no sum (kOthers) and was the last: they wrote it anew, or deleted it.
  explicit RecordChoice(bool one_counter) : one_counter_(one_counter) {}

  /// `file`: from 0, the fastest first. `body`: equal for records of the same bytes.
  void add(std::size_t file, const Key& key, std::uint64_t sequence, const Sum& body) {
    const std::pair ranked(rank(file, sequence, body), body);
    const auto added = newest_.try_emplace(key, ranked);
    added.first->second = std::max(added.first->second, ranked);
  }
  /// The same of a record that was dropped; after all that were not.
  void add_dropped(const Key& key, std::uint64_t sequence, const Sum& body) {
    const auto last = one_counter_ || body == kOthers ? newest_.find(key) : newest_.end();
    if (last != newest_.end()) last->second = std::max(last->second, {rank(0, sequence, body), body});
  }
  /// Whether a record that was added holds what counts of its version.
  bool counts(const Key& key, const Sum& body) const { return newest_.at(key).second == body; }

 private:
  std::uint64_t rank(std::size_t file, std::uint64_t sequence, const Sum& body) const {
    if (one_counter_) return sequence;
    return body == kOthers ? ~std::uint64_t{0} : ~(std::uint64_t{file} + 1);
  }

  bool one_counter_;
  std::map<Key, std::pair<std::uint64_t, Sum>> newest_;
};

}  // namespace ebb::planner
