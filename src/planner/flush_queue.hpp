#pragma once
// Which checkpoints have yet to go down from each memory tier, in the order in which they leave.
#include <array>
#include <numeric>

#include "planner/checkpoint.hpp"
#include "planner/recycled.hpp"
#include "planner/topology.hpp"

namespace ebb::planner {

class FlushQueue {
 public:
  using Order = RecycledSet<FlushKey>;
  // Of each kind, the size from which on flushes are refused for now.
  struct Refused {
    std::array<Bytes, kFlushKinds> from{kNever, kNever, kNever, kNever};
    bool any = false;
    void note(FlushKind kind, Bytes size) {
      Bytes& smallest = from[static_cast<std::size_t>(kind)];
      smallest = std::min(smallest, size);
      any = true;
    }
    bool has(FlushGroup group) const { return group.size >= from[static_cast<std::size_t>(group.kind)]; }
  };

  explicit FlushQueue(const Machine& machine) : grouped_(!machine.ephemeral) {
    for (const TierSpec& t : machine.tiers) {
      granule_ = std::gcd(granule_, t.granule);
      grain_ = std::gcd(grain_, t.grain ? t.grain : t.granule);
    }
  }

  bool empty(TierIndex t, bool forced) const { return lists_[t][forced].all.empty(); }
  // The first after `after` (null: of all) that is not refused; null: there is none. `forced`: of those that a `wait`
  // asks for, or whose memory was recalled.
  const FlushKey* next(TierIndex t, bool forced, const FlushKey* after, const Refused& refused) const {
    const auto first_of = [&](const Order& order) {
      const auto at = after == nullptr ? order.begin() : order.upper_bound(*after);
      return at == order.end() ? nullptr : &*at;
    };
    const List& list = lists_[t][forced];
    if (!refused.any) return first_of(list.all);
    const FlushKey* first = nullptr;
    for (std::size_t kind = 0; kind < kFlushKinds; ++kind)
      for (auto at = list.groups.lower_bound({static_cast<FlushKind>(kind), 0});
           at != list.groups.end() && at->first < FlushGroup{static_cast<FlushKind>(kind), refused.from[kind]}; ++at)
        if (const FlushKey* const key = first_of(at->second); key != nullptr && (first == nullptr || *key < *first))
          first = key;
    return first;
  }

  // The largest that is to leave the tier.
  Bytes largest(TierIndex t) const {
    Bytes largest = 0;
    for (const auto& [group, order] : lists_[t][false].groups) largest = std::max(largest, group.size);
    return largest;
  }

  // The checkpoint is to leave `tier` (kNoTier: none).
  void put(Checkpoint& c, TierIndex tier, bool forced, const FlushKey& key, FlushKind kind) {
    const FlushGroup group{kind, grouped_ ? footprint(c.bytes) : 0};
    if (tier == c.listed_on && forced == c.listed_forced && (tier == kNoTier || (key == c.key && group == c.group)))
      return;
    if (c.listed_on != kNoTier) {
      erase(lists_[c.listed_on][false], c);
      if (c.listed_forced) erase(lists_[c.listed_on][true], c);
    }
    c.listed_on = tier;
    c.listed_forced = forced;
    c.key = key;
    c.group = group;
    if (tier == kNoTier) return;
    insert(lists_[tier][false], c);
    if (forced) insert(lists_[tier][true], c);
  }

 private:
  struct List {
    Order all;
    RecycledMap<FlushGroup, Order> groups;  // the same, none of them empty
  };
  void insert(List& list, const Checkpoint& c) const {
    list.all.insert(c.key);
    if (grouped_) list.groups[c.group].insert(c.key);
  }
  void erase(List& list, const Checkpoint& c) const {
    list.all.erase(c.key);
    if (!grouped_) return;
    const auto at = list.groups.find(c.group);
    at->second.erase(c.key);
    if (at->second.empty()) list.groups.erase(at);
  }

  // The same for what no tier tells apart.
  Bytes footprint(Bytes bytes) const {
    const Bytes unit = bytes + grain_ > granule_ ? granule_ : grain_;
    return (bytes + unit - 1) / unit * unit;
  }

  const bool grouped_;             // an ephemeral store ends with the first that is refused
  Bytes granule_ = 0, grain_ = 0;  // of every tier
  PerTier<std::array<List, 2>> lists_;
};

}  // namespace ebb::planner
