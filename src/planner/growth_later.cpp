#include "planner/growth_later.hpp"

#include <algorithm>

namespace ebb::policy {
namespace {

constexpr int kDoublings = 6;        // of the pause
constexpr Time kSlowLateRests = 50;  // as long as the registration took

Time later(Time now, Time by) { return by < kNever - now ? now + by : kNever; }

}  // namespace

void GrowthLater::add(const ByteRange& range, Time now) {
  if (ranges_.empty()) due_ = later(now, patience_);
  if (!ranges_.empty() && ranges_.back().end() == range.offset) {
    ranges_.back().length += range.length;
  } else {
    ranges_.push_back(range);
  }
}

void GrowthLater::pinned(const ByteRange& range, Time now) {
  const auto found = std::ranges::find_if(
      ranges_, [&](const ByteRange& r) { return r.offset <= range.offset && range.end() <= r.end(); });
  if (found == ranges_.end()) return;
  const ByteRange after{range.end(), found->end() - range.end()};
  found->length = range.offset - found->offset;
  const auto next = found->length == 0 ? ranges_.erase(found) : found + 1;
  if (after.length > 0) ranges_.insert(next, after);
  from_ = range.end();
  due_ = later(now, patience_);
  in_vain_ = 0;
}

void GrowthLater::busy(const ByteRange& range, Time now) {
  from_ = range.end();
  in_vain(now);
  due_ = later(at_, patience_);
}

void GrowthLater::in_vain(Time now) {
  at_ = std::max(at_, later(now, pause_ << std::min(in_vain_, kDoublings)));
  ++in_vain_;
}

void GrowthLater::slow(Time took, Time now) { at_ = std::max(at_, later(now, kSlowLateRests * took)); }

ByteRange GrowthLater::next(Bytes piece) const {
  auto next = std::ranges::find_if(ranges_, [&](const ByteRange& r) { return r.end() > from_; });
  if (next == ranges_.end()) next = ranges_.begin();
  const Bytes begin = from_ < next->end() ? std::max(next->offset, from_) : next->offset;
  return {begin, std::min(piece, next->end() - begin)};
}

Time GrowthLater::when(bool copies_run) const { return copies_run ? std::max(at_, due_) : at_; }

}  // namespace ebb::policy
