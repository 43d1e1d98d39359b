#pragma once
// The restore-order queue of one history (hpdc23 sec. 4.1.1), extended: hints may be withdrawn, repeated, put first.
//
// Each hint has a position; positions grow from the head to the tail and keep their order, so that the
// position of a checkpoint's first hint compares like its prefetch distance while hints before it come and go.
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

namespace ebb::planner {

class RestoreOrder {
 public:
  using Position = std::int64_t;
  static constexpr Position kNone = INT64_MAX;
  static constexpr std::uint32_t kWithdrawn = UINT32_MAX;

  void append(std::uint32_t checkpoint);
  void prepend(std::uint32_t checkpoint);
  bool remove_first(std::uint32_t checkpoint);        // its first hint; false: it has none
  void rename(std::uint32_t from, std::uint32_t to);  // `to` takes the hints of `from`; it must have none
  void clear();

  Position first(std::uint32_t checkpoint) const;  // kNone: no hint names it
  std::uint32_t count(std::uint32_t checkpoint) const;
  std::size_t size() const { return size_; }

  // Walk: for (p = head(); p < tail(); ++p) if (at(p) != kWithdrawn) ...
  Position head() const { return base_; }
  Position tail() const { return tail_; }
  std::uint32_t at(Position p) const { return (*entries_)[static_cast<std::size_t>(p - base_)]; }

 private:
  void trim();
  std::deque<std::uint32_t>& entries() { return entries_ ? *entries_ : entries_.emplace(); }

  std::optional<std::deque<std::uint32_t>> entries_;  // an empty one takes 576 bytes, and most histories have no hint
  Position base_ = 0, tail_ = 0;  // of the first entry, which is never withdrawn, and beyond the last
  std::size_t size_ = 0;
  std::unordered_map<std::uint32_t, std::vector<Position>> positions_;  // ascending
};

}  // namespace ebb::planner
