#pragma once
// Whether what a planner gives keeps to the shares of their bandwidth that lenders allow: within any time, copies to
// and from a lender's memory count as no more than that time and two copies. It knows the events and the commands
// alone.
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "planner/commands.hpp"
#include "planner/events.hpp"

namespace ebb::sim::testing {

class PaceJudge {
 public:
  explicit PaceJudge(const planner::Machine& machine) : machine_(machine) {
    for (const planner::TierSpec& tier : machine.tiers) segments_.push_back({{0, padded(tier, tier.capacity)}});
  }

  void given(const planner::Event& e, const planner::Output& out) {
    if (const auto* lend = std::get_if<planner::event::Lend>(&e.what)) on(*lend);
    if (const auto* limit = std::get_if<planner::event::Limit>(&e.what)) lenders_[limit->lender] = {limit->share};
    if (const auto* recall = std::get_if<planner::event::Recall>(&e.what)) {
      LentSegment& segment = segments_[index(recall->tier)].at(recall->segment);
      const planner::Bytes granule = machine_.tiers[index(recall->tier)].granule;
      segment.usable = recall->bytes / granule * granule;
      segment.urgent |= recall->deadline != planner::kNever;
    }
    for (const planner::Returned& one : out.returned) segments_[index(one.tier)].at(one.segment).urgent = false;
    for (const planner::Command& c : out.commands) {
      const planner::PartyId read = limiting(c, c.from), written = limiting(c, c.to);
      count(e.now, c, read);
      if (written != read) count(e.now, c, written);
    }
  }
  // Copies that a share applied to.
  std::uint64_t counted() const { return counted_; }

 private:
  struct LentSegment {
    planner::Bytes first = 0, usable = 0;
    planner::PartyId lender = 0;
    bool urgent = false;  // what is beyond its end has to leave in time
    bool ring = false;    // a staging ring may be in it, which that ends
  };
  struct Lender {
    std::uint32_t share = planner::kWholeLink;
    double beyond = 0, longest = 0;  // what counts as more than the time, at the most; the longest copy
    planner::Time last = 0;
  };

  static std::size_t index(planner::TierIndex tier) { return static_cast<std::size_t>(tier); }
  static planner::Bytes padded(const planner::TierSpec& tier, planner::Bytes bytes) {
    return (bytes + tier.granule - 1) / tier.granule * tier.granule;
  }

  void on(const planner::event::Lend& lend) {
    const planner::TierSpec& tier = machine_.tiers[index(lend.tier)];
    auto& segments = segments_[index(lend.tier)];
    if (lend.segment == segments.size()) {
      segments.push_back({.first = ends_[lend.tier] + padded(tier, tier.capacity)});
      ends_[lend.tier] += padded(tier, lend.bytes);
    }
    segments[lend.segment].usable = lend.bytes / tier.granule * tier.granule;
    segments[lend.segment].lender = lend.lender;
    segments[lend.segment].ring |= lend.relays;
  }

  // Whose share applies to a copy to or from there; 0: no one's.
  planner::PartyId limiting(const planner::Command& c, const planner::Place& place) {
    if (place.at.kind != planner::Endpoint::tier) return 0;
    const planner::TierSpec& tier = machine_.tiers[index(place.at.index)];
    if (tier.medium == planner::Medium::file || place.offset >= planner::kAdopted) return 0;
    const auto& segments = segments_[index(place.at.index)];
    const LentSegment& segment = *std::prev(std::ranges::upper_bound(segments, place.offset, {}, &LentSegment::first));
    const planner::Bytes end = place.offset - c.offset + padded(tier, c.total);
    if (segment.urgent && (segment.ring || end > segment.first + segment.usable)) return 0;
    return segment.lender;
  }

  void count(planner::Time now, const planner::Command& c, planner::PartyId of) {
    Lender& lender = lenders_[of];
    if (of == 0 || lender.share >= planner::kWholeLink) return;
    const double cost = static_cast<double>(c.length) * 1e9 * planner::kWholeLink /
                        (machine_.links[static_cast<std::size_t>(c.link)].bytes_per_s * lender.share);
    lender.beyond = std::max(0.0, lender.beyond - static_cast<double>(now - lender.last)) + cost;
    lender.last = now;
    lender.longest = std::max(lender.longest, cost);
    ++counted_;
    if (lender.beyond > 2 * lender.longest + 1)
      throw std::logic_error("lender " + std::to_string(of) + " is used beyond its share: " +
                             std::to_string(lender.beyond / lender.longest) + " copies more than its time has");
  }

  const planner::Machine& machine_;
  std::vector<std::vector<LentSegment>> segments_;     // of each tier
  std::map<planner::TierIndex, planner::Bytes> ends_;  // of the segments lent to it
  std::map<planner::PartyId, Lender> lenders_;
  std::uint64_t counted_ = 0;
};

}  // namespace ebb::sim::testing
