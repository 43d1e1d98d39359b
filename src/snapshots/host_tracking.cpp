#include "snapshots/host_tracking.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/start_thread.hpp"
#include "os/automatic_track.hpp"
#include "snapshots/memory_read.hpp"

namespace ebb::snapshots {

using os::PageRange;
using os::WatchForm;

// --- what is watched -------------------------------------------------------------------------------------------------

Result<void> HostTracking::add(std::span<const Protection> made) {
  if (made.empty()) return {};
  auto track = choose_track(made[0].track);
  if (!track) return track.error();
  const ProtectedMemory alone(made, zone_bytes_);
  if (alone.bodies().empty()) return {};
  auto watch = watch_for(*track);
  if (!watch) return watch.error();
  if (*watch != nullptr) {
    if (auto watched = watch_bodies(**watch, alone, *track == Track::scan); !watched) {
      watch = std::shared_ptr<WatchThread>();
      end_unused();
      return watched;
    }
  }
  const auto before = static_cast<std::ptrdiff_t>(tracked_.size());
  for (const Body& body : alone.bodies())
    tracked_.push_back({.region = body.region,
                        .pages = body.pages(),
                        .track = *track,
                        .watch = *watch,
                        .automatic = made[0].track == Track::automatic,
                        .choice = planner::TrackChoice(planner::track_bounds(zone_bytes_))});
  std::ranges::inplace_merge(tracked_, tracked_.begin() + before, {}, &Tracked::region);
  return {};
}

Result<void> HostTracking::watch_bodies(WatchThread& watch, const ProtectedMemory& memory, bool arm) {
  std::vector<PageRange> pages;
  for (const Body& body : memory.bodies()) pages.push_back(body.pages());
  std::ranges::sort(pages, {}, &PageRange::begin);
  if (auto watched = watch.watch().watch_all(pages); !watched || !arm) return watched;
  for (const PageRange& range : pages) {
    const auto armed = watch.watch().arm(range);
    if (armed) continue;
    for (const PageRange& one : pages) watch.watch().forget(one);
    return armed;
  }
  return {};
}

std::vector<HostTracking::Forget> HostTracking::remove(std::span<const std::uint32_t> regions) {
  std::vector<Forget> gone;
  std::erase_if(tracked_, [&](Tracked& one) {
    if (!std::ranges::binary_search(regions, one.region)) return false;
    if (one.watch != nullptr) gone.push_back({std::move(one.watch), one.pages});
    return true;
  });
  end_unused();
  std::erase_if(gone, [&](const Forget& one) { return !used(one.watch); });
  return gone;
}

bool HostTracking::used(const std::shared_ptr<WatchThread>& watch) const {
  return std::ranges::any_of(tracked_, [&](const Tracked& one) { return one.watch == watch; });
}

void HostTracking::end_unused() {
  for (std::shared_ptr<WatchThread>* mine : {&faults_, &notes_})
    if (!used(*mine)) mine->reset();
}

void HostTracking::begin(std::shared_ptr<const ProtectedMemory> memory) {
  memory_ = std::move(memory);
  for (Tracked& one : tracked_) one.on = one.measured = false;
  driver_.begin(memory_, faults_, notes_);
}

void HostTracking::clear() {
  tracked_.clear();
  faults_.reset();
  notes_.reset();
}

Result<Track> HostTracking::choose_track(Track wanted) {
  if (wanted != Track::automatic && wanted != Track::faults && wanted != Track::scan) return wanted;
  if (abilities_.empty()) abilities_ = watches_->abilities();
  if (wanted == Track::automatic) return os::automatic_track(abilities_);
  const auto able = [&](WatchForm form) {
    const auto found = std::ranges::find(abilities_, form, &os::WatchAbility::form);
    return found != abilities_.end() && found->usable;
  };
  if (wanted == Track::scan ? able(WatchForm::userfaultfd_async)
                            : able(WatchForm::userfaultfd_sync) || able(WatchForm::mprotect))
    return wanted;
  std::string why;
  for (const os::WatchAbility& one : abilities_)
    if (!one.usable) why += "; " + std::string(name_of(one.form)) + ": " + one.note;
  return Error{Errc::unsupported, std::string("writes cannot be tracked by ") +
                                      (wanted == Track::scan ? "scan" : "faults") + " here" + why};
}

Result<std::shared_ptr<WatchThread>> HostTracking::watch_for(Track track) {
  if (track != Track::faults && track != Track::scan) return std::shared_ptr<WatchThread>();
  std::shared_ptr<WatchThread>& mine = track == Track::faults ? faults_ : notes_;
  if (mine != nullptr && !mine->failed()) return mine;
  auto opened = watches_->open(track == Track::faults ? WatchForm::userfaultfd_sync : WatchForm::userfaultfd_async);
  if (!opened && track == Track::faults) opened = watches_->open(WatchForm::mprotect);
  if (!opened) return opened.error();
  try {
    mine = std::make_shared<WatchThread>(
        std::move(*opened), [this](const auto& event) { driver_.told(event); }, [this] { driver_.confirmed(); });
  } catch (const base::ThreadRefused& refused) {
    return base::no_thread(refused);
  }
  return mine;
}

// --- the cut ---------------------------------------------------------------------------------------------------------

Result<void> HostTracking::find_written(FoundWrites& found, std::span<std::uint8_t> dirty, bool known) {
  const std::span<const Body> bodies = memory_->bodies();
  for (std::size_t b = 0; b < bodies.size(); ++b) {
    const Body& body = bodies[b];
    Tracked& tracked = tracked_[b];
    const std::size_t from = found.zones.size();
    if (tracked.track == Track::scan)
      if (auto noted = take_notes(body, tracked, found); !noted) return noted;
    if (tracked.track == Track::digest)
      if (auto compared = compare(body, tracked, found); !compared) return compared;
    if (!tracked.on && tracked.track != Track::declared) found.zones.push_back({body.first, body.zones});
    for (std::size_t i = from; i < found.zones.size(); ++i)
      std::fill_n(dirty.begin() + found.zones[i].first, found.zones[i].count, std::uint8_t{1});

    bool on = tracked.track != Track::everything;
    if (tracked.automatic) {
      std::optional<double> share;
      if (std::exchange(tracked.sampled, false)) {
        share = driver_.sampled(body);
      } else if (tracked.on && tracked.measured && known) {
        share = static_cast<double>(std::ranges::count(dirty.subspan(body.first, body.zones), std::uint8_t{1})) /
                body.zones;
      }
      const planner::Tracked watched = tracked.choice.at_cut(share);
      tracked.sampled = watched == planner::Tracked::sample && tracked.track == Track::faults;
      on = watched != planner::Tracked::nothing && !tracked.sampled;
    }
    found.untracked = found.untracked && !tracked.on && !on;
    tracked.measured = tracked.on = on;
    found.armed.push_back(on && tracked.track == Track::faults);
    found.blocks = found.blocks || !found.armed.back();
  }
  return {};
}

Result<void> HostTracking::take_notes(const Body& body, Tracked& tracked, FoundWrites& found) {
  std::vector<PageRange> written;
  if (auto taken = tracked.watch->watch().take_written(body.pages(), written); !taken) {
    driver_.lose(body);
    return *driver_.lost();
  }
  for (const PageRange& range : written) found.zones.push_back(ProtectedMemory::zones_in(body, range, zone_bytes_));
  return {};
}

// The digests that it notes are those of what the cut stores: the program does not write during the call.
Result<void> HostTracking::compare(const Body& body, Tracked& tracked, FoundWrites& found) {
  tracked.seen.resize(body.zones);
  std::vector<std::byte> bytes(zone_bytes_);
  for (std::uint32_t i = 0; i < body.zones; ++i) {
    const PageRange range = memory_->range_of(body.first + i);
    if (!read_memory(bytes.data(), range.begin, range.bytes)) {
      driver_.lose(body);
      return *driver_.lost();
    }
    const storage::Checksum sum = storage::checksum_of(std::span(bytes).first(range.bytes));
    if (sum != std::exchange(tracked.seen[i], sum)) found.zones.push_back({body.first + i, 1});
  }
  return {};
}

void HostTracking::copied(const FoundWrites& found) {
  for (std::size_t b = 0; b < tracked_.size(); ++b)
    if (tracked_[b].track == Track::faults && !found.armed[b]) driver_.disarm(memory_->bodies()[b]);
  sample();
}

void HostTracking::sample() {
  for (std::size_t b = 0; b < tracked_.size(); ++b)
    if (tracked_[b].sampled) driver_.sample(memory_->bodies()[b]);
}

// --- restores --------------------------------------------------------------------------------------------------------

// All of a body will be written, so a fault for each zone would tell nothing.
void HostTracking::before_restore(const std::function<bool(const Body&)>& covered) {
  const std::span<const Body> bodies = memory_->bodies();
  for (std::size_t b = 0; b < bodies.size(); ++b) {
    if (tracked_[b].track != Track::faults || !covered(bodies[b])) continue;
    driver_.touch({bodies[b].first, bodies[b].zones});
    driver_.disarm(bodies[b]);
  }
}

bool HostTracking::adopt(std::size_t b, const storage::StoredSnapshot& from, const RestoredZones& restored,
                         const std::function<bool()>& lean) {
  const Body& body = memory_->bodies()[b];
  Tracked& tracked = tracked_[b];
  if (tracked.track == Track::everything || (tracked.automatic && tracked.choice.stopped())) return false;
  std::uint32_t count = 0;
  for (const storage::ZoneRange& range : restored.zones) count += range.count;
  if (!tracked.on && count < body.zones) return false;
  if (tracked.track == Track::scan) {  // of other zones, and of the restore itself
    std::vector<PageRange> written;
    if (!tracked.watch->watch().take_written(body.pages(), written)) return false;
    for (const PageRange& range : written) driver_.touch(ProtectedMemory::zones_in(body, range, zone_bytes_));
  }
  if (!lean()) return false;
  if (tracked.track == Track::digest) {
    tracked.seen.resize(body.zones);
    for (const auto& [source, piece] : restored.pieces)
      for (std::uint32_t i = 0; i < piece.zones.count; ++i)
        tracked.seen[piece.zones.first + i] = from.map.sums[piece.sum + i];
  }
  for (const storage::ZoneRange& range : restored.zones)
    driver_.restored({body.first + range.first, range.count}, tracked.track == Track::faults);
  tracked.on = true;
  return true;
}

}  // namespace ebb::snapshots
