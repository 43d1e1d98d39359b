#include "snapshots/watched_memory.hpp"

#include <algorithm>

#include "os/files.hpp"

namespace ebb::snapshots {

using os::PageRange;

namespace {

constexpr std::uint32_t kSampled = 32;            // zones of a body
constexpr std::uint32_t kLongestGap = 256 << 10;  // bytes between two ranges that are armed in one call

}  // namespace

Error LostBody::error() const {
  const char* what = how == How::removed     ? " was discarded"
                     : how == How::unmapped  ? " was unmapped"
                     : how == How::moved     ? " was moved"
                     : how == How::unwatched ? " can no longer be watched"
                                             : " could not be read";
  return {Errc::lost,
          "the memory of region " + std::to_string(region) + what + " while it was protected: unprotect it to go on"};
}

WatchedMemory::WatchedMemory(std::shared_ptr<const ProtectedMemory> memory, Watches watches)
    : memory_(std::move(memory)),
      watches_(std::move(watches)),
      lost_(memory_->bodies().size()),
      sample_(memory_->host_zones(), Sample::no) {
  to_arm_.reserve(memory_->host_zones());
}

// --- what is armed ---------------------------------------------------------------------------------------------------

os::WatchResult WatchedMemory::arm(const planner::SnapshotPlan& plan, bool full, std::span<const std::uint8_t> armed) {
  if (watches_[0] == nullptr) return {};
  os::WriteWatch& watch = watches_[0]->watch();
  const std::span<const Body> bodies = memory_->bodies();
  if (full) {
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      if (!armed[b]) continue;
      if (auto good = watch.arm(bodies[b].pages()); !good) return good;
    }
    return {};
  }
  to_arm_.clear();
  plan.for_each_dirty([&](std::uint32_t zone) { to_arm_.push_back(zone); });
  std::ranges::sort(to_arm_);
  std::size_t b = 0;
  const std::uint32_t gap = kLongestGap / memory_->zone_bytes();  // zones
  for (std::size_t i = 0; i < to_arm_.size();) {
    const std::uint32_t first = to_arm_[i];
    while (first >= bodies[b].first + bodies[b].zones) ++b;
    const std::uint32_t end = bodies[b].first + bodies[b].zones;
    // The zones between are armed already, and walking over them costs less than another call.
    std::uint32_t count = 0;
    for (; i < to_arm_.size() && to_arm_[i] < end && to_arm_[i] - first <= count + gap; ++i)
      count = to_arm_[i] - first + 1;
    if (!armed[b]) continue;
    if (auto good = watch.arm(memory_->range_of(first, count)); !good) return good;
  }
  return {};
}

bool WatchedMemory::arm(ProtectedMemory::Zones zones) {
  return watches_[0] != nullptr && watches_[0]->watch().arm(memory_->range_of(zones.first, zones.count));
}

void WatchedMemory::disarm(PageRange range) {
  if (watches_[0] == nullptr || watches_[0]->watch().disarm(range) || range.bytes <= os::kBlock) return;
  const std::size_t half = os::round_up(range.bytes / 2);
  disarm({range.begin, half});
  disarm({range.begin + half, range.bytes - half});
}

void WatchedMemory::disarm_all() {
  for (const Body& body : memory_->bodies()) disarm(body.pages());
}

bool WatchedMemory::answer(PageRange range) {
  if (watches_[0] == nullptr) return true;
  const os::WatchResult good = watches_[0]->watch().disarm(range);
  if (good.code() == Errc::out_of_memory) return false;
  if (!good) disarm(range);
  return true;
}

void WatchedMemory::sample(const Body& body) {
  if (watches_[0] == nullptr) return;
  const std::uint32_t step = (body.zones - 1) / kSampled + 1;
  for (std::uint32_t zone = body.first; zone < body.first + body.zones; zone += step)
    sample_[zone] = arm({zone, 1}) ? Sample::unwritten : Sample::written;  // an unseen write would be missed
}

void WatchedMemory::written(std::uint32_t zone) {
  if (sample_[zone] == Sample::unwritten) sample_[zone] = Sample::written;
}

double WatchedMemory::sampled(const Body& body) {
  std::uint32_t zones = 0, written = 0;
  for (Sample& one : std::span(sample_).subspan(body.first, body.zones)) {
    zones += one != Sample::no;
    written += one == Sample::written;
    one = Sample::no;
  }
  disarm(body.pages());
  return zones == 0 ? 1 : static_cast<double>(written) / zones;
}

// --- what is lost ----------------------------------------------------------------------------------------------------

std::optional<LostBody> WatchedMemory::lost() const {
  if (!any_lost_) return {};
  for (std::size_t b = 0; b < lost_.size(); ++b)
    if (lost_[b]) return LostBody{*lost_[b], memory_->bodies()[b].region};
  return {};
}

void WatchedMemory::lose(const Body& body, How how) {
  std::optional<How>& lost = lost_[static_cast<std::size_t>(&body - memory_->bodies().data())];
  if (!lost) lost = how;
  any_lost_ = true;
}

bool WatchedMemory::lose(PageRange range, How how) {
  bool any = false;
  for (std::size_t b = 0; b < lost_.size(); ++b) {
    if (ProtectedMemory::zones_in(memory_->bodies()[b], range, memory_->zone_bytes()).count == 0) continue;
    any = any_lost_ = true;
    lost_[b] = how;
  }
  return any;
}

void WatchedMemory::lose_watches() {
  std::ranges::fill(lost_, How::unwatched);
  any_lost_ = true;
}

void WatchedMemory::take_over_lost(const WatchedMemory& before) {
  const std::span<const Body> bodies = memory_->bodies();
  for (std::size_t old = 0; old < before.lost_.size(); ++old) {
    if (!before.lost_[old]) continue;
    const Body& one = before.memory_->bodies()[old];
    const Body* const now = memory_->body_of_region(one.region, false);
    if (now == nullptr || !now->same_memory(one)) continue;
    lost_[static_cast<std::size_t>(now - bodies.data())] = before.lost_[old];
    any_lost_ = true;
  }
  for (const auto& watch : watches_)
    if (watch != nullptr && watch->failed()) lose_watches();
}

// --- what the watches confirm ----------------------------------------------------------------------------------------

WatchedMemory::Tickets WatchedMemory::ask() {
  Tickets tickets{};
  for (std::size_t w = 0; w < watches_.size(); ++w)
    if (watches_[w] != nullptr) tickets[w] = watches_[w]->ask();
  return tickets;
}

bool WatchedMemory::confirmed(const Tickets& tickets) const {
  for (std::size_t w = 0; w < watches_.size(); ++w)
    if (watches_[w] != nullptr && watches_[w]->confirmed() < tickets[w]) return false;
  return true;
}

}  // namespace ebb::snapshots
