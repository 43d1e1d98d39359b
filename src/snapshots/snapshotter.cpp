#include "snapshots/snapshotter.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <random>
#include <set>
#include <system_error>
#include <unistd.h>

#include "base/own_process.hpp"
#include "os/automatic_track.hpp"
#include "snapshots/memory_check.hpp"
#include "snapshots/memory_read.hpp"
#include "store/lifetime.hpp"

namespace ebb::snapshots {

using platform::PageRange;
using platform::WatchForm;
using runtime::Engine;

namespace {

constexpr std::uint64_t kLeastZoneBytes = 4 << 10, kMostZoneBytes = 16 << 20;
constexpr std::uint64_t kMostPiece = 16 << 20, kPiecesInCache = 16;
constexpr std::size_t kMostSources = 8;

Error snapshots_closed() { return {Errc::closed, "the store is closed, and its snapshots have ended"}; }

Result<void> check_zone(std::uint64_t zone) {
  if (std::has_single_bit(zone) && zone >= kLeastZoneBytes && zone <= kMostZoneBytes) return {};
  return Error{Errc::invalid_argument,
               "zone=" + std::to_string(zone) + " is not valid: expected a power of two from 4 KiB to 16 MiB"};
}

std::uint64_t piece_bytes_for(std::uint64_t cache, std::uint64_t zone) {
  return std::max(zone, std::min(kMostPiece, std::bit_floor(cache / kPiecesInCache)));
}

Error all_the_same(const std::string& given, const std::string& have) {
  return {Errc::invalid_argument,
          given + " is not valid: all memory of a store has the same, and this one's is " + have};
}

Result<std::shared_ptr<Snapshotter>> same(std::shared_ptr<Snapshotter> there, std::uint64_t zone,
                                          const Snapshotter::Setup& setup) {
  const auto text = [](bool value) { return std::string(value ? "true" : "false"); };
  const Snapshotter::Setup& have = there->setup();
  if (there->zone_bytes() != zone)
    return all_the_same("zone=" + std::to_string(zone), std::to_string(there->zone_bytes()));
  if (have.hints != setup.hints) return all_the_same("hints=" + text(setup.hints), text(have.hints));
  if (have.duplicate != setup.duplicate)
    return all_the_same("duplicate=" + text(setup.duplicate), text(have.duplicate));
  return there;
}

bool covers(std::span<const Target> targets, const Body& body) {
  return std::ranges::any_of(targets, [&](const Target& target) {
    const auto* const begin = static_cast<const std::byte*>(target.data);
    return begin <= body.memory && body.memory + body.bytes <= begin + target.bytes;
  });
}

}  // namespace

Result<std::shared_ptr<Snapshotter>> Snapshotter::make_for(const std::shared_ptr<Engine>& engine, std::uint64_t zone,
                                                           Setup setup) {
  if (auto good = check_zone(zone); !good) return good.error();
  if (const auto there = std::dynamic_pointer_cast<Snapshotter>(engine->attached())) return same(there, zone, setup);
  if (engine->read_only())
    return Error{Errc::unsupported, "this store is read-only: it takes no snapshots, so no memory is protected for it"};
  if (auto open = engine->view("").versions(); !open) return open.error();
  if (!setup.watches) setup.watches = std::make_shared<platform::SystemWriteWatches>();
  const Setup modes{.hints = setup.hints, .duplicate = setup.duplicate};
  if (setup.piece_bytes == 0) setup.piece_bytes = piece_bytes_for(engine->first_cache_bytes(), zone);
  try {
    std::shared_ptr<Snapshotter> made(new Snapshotter(engine, static_cast<std::uint32_t>(zone), std::move(setup)),
                                      runtime::InOwnProcess{});
    if (auto started = made->start(); !started) return started.error();
    const auto kept = engine->attach(made);
    if (!kept) return kept.error();
    return same(std::dynamic_pointer_cast<Snapshotter>(*kept), zone, modes);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) throw;
    return Error{Errc::out_of_memory, std::string("a thread cannot be started: ") + error.what()};
  }
}

Result<std::shared_ptr<Snapshotter>> Snapshotter::of(const std::shared_ptr<Engine>& engine) {
  if (auto there = std::dynamic_pointer_cast<Snapshotter>(engine->attached())) return there;
  if (auto open = engine->versions(0); !open) return open.error();
  return Error{Errc::invalid_argument, "no memory is protected: call protect first"};
}

Snapshotter::Snapshotter(std::shared_ptr<Engine> engine, std::uint32_t zone_bytes, Setup setup)
    : process_(::getpid()),
      engine_(engine),
      zone_bytes_(zone_bytes),
      setup_(std::move(setup)),
      archive_(engine, setup_.piece_bytes),
      driver_(
          {.zone_bytes = zone_bytes,
           .slot_zones = static_cast<std::uint32_t>(setup_.piece_bytes / zone_bytes),
           .longest_wait = setup_.longest_wait,
           .hints = setup_.hints,
           .duplicate = setup_.duplicate,
           .board = board_,
           .store = [this](Cut& cut, std::span<std::byte> bytes,
                           std::span<const std::uint32_t> zones) { return archive_.store_piece(cut, bytes, zones); }}),
      device_(engine, zone_bytes, static_cast<std::uint32_t>(setup_.piece_bytes / zone_bytes)) {}

Result<void> Snapshotter::start() {
  if (auto left = archive_.know_left(); !left) return left;
  archive_.tidy({});
  if (auto started = driver_.start(); !started) return started;
  driver_.begin(memory_, nullptr, nullptr);
  archiver_ = std::thread([this] { run_archive(); });
  return {};
}

Snapshotter::~Snapshotter() { stop(); }

Result<void> Snapshotter::end(const Interrupt& interrupted) {
  if (process_ != ::getpid()) return {};
  closing_ = true;
  const std::lock_guard lock(calls_);
  if (ended_) return {};
  const auto engine = engine_.lock();
  if (engine && engine->durability() != Durability::ephemeral) {
    if (auto waited = wait_for_cuts(0, {}, interrupted); !waited) {
      closing_ = false;
      return Error{Errc::timed_out, "closing the store was interrupted while snapshots were in flight"};
    }
  }
  const auto lost = engine && engine->durability() != Durability::ephemeral ? not_stored({}) : Result<void>();
  stop();
  return lost;
}

Result<void> Snapshotter::settle(std::optional<Version> version, std::optional<Seconds> timeout,
                                 const Interrupt& interrupted) {
  if (process_ != ::getpid()) return {};
  const auto begun = std::chrono::steady_clock::now();
  for (const std::shared_ptr<Cut>& cut : driver_.in_flight(version)) {
    const auto left = timeout ? std::optional<Seconds>(*timeout - (std::chrono::steady_clock::now() - begun)) : timeout;
    if (auto ended = wait_until(*cut, Reached::end, left, interrupted); !ended) return ended;
  }
  return not_stored(version);
}

Result<void> Snapshotter::not_stored(std::optional<Version> version) {
  const auto engine = engine_.lock();
  const std::lock_guard lock(lost_mutex_);
  if (lost_.empty() || !engine) return {};
  if (const auto there = engine->view("").versions(); there)  // written since
    std::erase_if(lost_, [&](const auto& one) { return std::ranges::binary_search(*there, one.first); });
  const auto found = version ? lost_.find(*version) : lost_.begin();
  if (found == lost_.end()) return {};
  return Error{found->second.code,
               "the snapshot of version " + std::to_string(found->first) + " was not stored: " + found->second.message};
}

void Snapshotter::dropped(std::optional<Version> version) {
  const std::lock_guard lock(lost_mutex_);
  version ? static_cast<void>(lost_.erase(*version)) : lost_.clear();
}

void Snapshotter::stop() {
  if (ended_) return;
  ended_ = true;
  archive_.stop();
  device_.stop(snapshots_closed());
  driver_.stop(snapshots_closed());
  if (archiver_.joinable()) archiver_.join();
  tracked_.clear();
  faults_.reset();
  notes_.reset();
}

std::optional<Error> Snapshotter::refused() const {
  if (process_ != ::getpid())
    return Error{Errc::unsupported, "this store was opened by the parent process, and this is a forked child"};
  return {};
}

// --- protection ------------------------------------------------------------------------------------------------------

Result<void> Snapshotter::protect(std::uint32_t region, void* memory, std::size_t bytes,
                                  const ProtectOptions& options) {
  if (auto error = refused()) return *error;
  const std::lock_guard lock(calls_);
  const auto engine = engine_.lock();
  if (ended_ || !engine) return snapshots_closed();
  const Protection made{region, static_cast<std::byte*>(memory), bytes, options.track,
                        engine->device().owns(memory, bytes)};
  if (auto good = check_protection(made, protections_, engine->gpu()); !good) return good;
  auto track = made.on_device ? Result<Track>(options.track) : choose_track(options.track);
  if (!track) return track.error();
  std::vector<Protection> all = protections_;
  const auto place = std::ranges::upper_bound(all, region, {}, &Protection::region);
  all.insert(place, made);

  // What is watched is watched before anything is changed.
  const ProtectedMemory alone(std::span(&made, 1), zone_bytes_);
  if (!alone.bodies().empty()) {
    const PageRange pages = alone.bodies()[0].pages();
    auto watch = watch_for(*track);
    if (!watch) return watch.error();
    if (*watch != nullptr) {
      if (auto watched = (*watch)->watch().watch(pages); !watched) return watched;
    }
    if (*track == Track::scan) {
      if (auto armed = (*watch)->watch().arm(pages); !armed) {
        (*watch)->watch().forget(pages);
        return armed;
      }
    }
    const auto next = std::ranges::upper_bound(tracked_, region, {}, &Tracked::region);
    tracked_.insert(next, {.region = region,
                           .track = *track,
                           .watch = std::move(*watch),
                           .automatic = options.track == Track::automatic,
                           .choice = policy::TrackChoice(policy::track_bounds(zone_bytes_))});
  }
  if (made.on_device)
    if (auto added = device_.add(made); !added) return added;
  replace(std::move(all));
  return {};
}

Result<void> Snapshotter::unprotect(std::uint32_t region) {
  if (auto error = refused()) return *error;
  const std::lock_guard lock(calls_);
  if (ended_) return snapshots_closed();
  std::vector<Protection> all = protections_;
  if (std::erase_if(all, [&](const Protection& one) { return one.region == region; }) == 0)
    return Error{Errc::invalid_argument, "region " + std::to_string(region) + " is not protected"};
  const std::shared_ptr<const ProtectedMemory> before = memory_;
  const auto tracked = std::ranges::find(tracked_, region, &Tracked::region);
  std::shared_ptr<WatchThread> watch;
  if (tracked != tracked_.end()) {
    watch = std::move(tracked->watch);
    tracked_.erase(tracked);
  }
  driver_.wait_for_cuts(0, {});
  device_.remove(region);
  replace(std::move(all));
  for (const Body& body : before->bodies()) {
    if (body.region == region && watch != nullptr) watch->watch().forget(body.pages());
  }
  return {};
}

void Snapshotter::replace(std::vector<Protection> protections) {
  driver_.wait_for_cuts(0, {});
  protections_ = std::move(protections);
  memory_ = std::make_shared<ProtectedMemory>(protections_, zone_bytes_);
  device_.begin(memory_);
  dirty_.assign(memory_->zones(), 0);
  for (Tracked& one : tracked_) one.on = one.measured = false;
  driver_.begin(memory_, faults_, notes_);
}

Result<Track> Snapshotter::choose_track(Track wanted) {
  if (wanted != Track::automatic && wanted != Track::faults && wanted != Track::scan) return wanted;
  if (abilities_.empty()) abilities_ = setup_.watches->abilities();
  if (wanted == Track::automatic) return platform::automatic_track(abilities_);
  const auto able = [&](WatchForm form) {
    const auto found = std::ranges::find(abilities_, form, &platform::WatchAbility::form);
    return found != abilities_.end() && found->usable;
  };
  if (wanted == Track::scan ? able(WatchForm::userfaultfd_async)
                            : able(WatchForm::userfaultfd_sync) || able(WatchForm::mprotect))
    return wanted;
  std::string why;
  for (const platform::WatchAbility& one : abilities_)
    if (!one.usable) why += "; " + std::string(name_of(one.form)) + ": " + one.note;
  return Error{Errc::unsupported, std::string("writes cannot be tracked by ") +
                                      (wanted == Track::scan ? "scan" : "faults") + " here" + why};
}

Result<std::shared_ptr<WatchThread>> Snapshotter::watch_for(Track track) {
  if (track != Track::faults && track != Track::scan) return std::shared_ptr<WatchThread>();
  std::shared_ptr<WatchThread>& mine = track == Track::faults ? faults_ : notes_;
  if (mine != nullptr && !mine->failed()) return mine;
  auto opened =
      setup_.watches->open(track == Track::faults ? WatchForm::userfaultfd_sync : WatchForm::userfaultfd_async);
  if (!opened && track == Track::faults) opened = setup_.watches->open(WatchForm::mprotect);
  if (!opened) return opened.error();
  mine = std::make_shared<WatchThread>(
      std::move(*opened), [this](const auto& event) { driver_.told(event); }, [this] { driver_.confirmed(); });
  return mine;
}

Result<void> Snapshotter::touch(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes) {
  if (auto error = refused()) return *error;
  const std::lock_guard lock(calls_);
  if (ended_) return snapshots_closed();
  const auto found = std::ranges::find(protections_, region, &Protection::region);
  if (found == protections_.end())
    return Error{Errc::invalid_argument, "region " + std::to_string(region) + " is not protected"};
  if (offset > found->bytes || bytes > found->bytes - offset)
    return Error{Errc::invalid_argument, "offset=" + std::to_string(offset) + ", bytes=" + std::to_string(bytes) +
                                             " is not valid: region " + std::to_string(region) + " has " +
                                             std::to_string(found->bytes) + " bytes"};
  for (const Body& body : memory_->bodies()) {
    if (body.region != region) continue;
    const PageRange written{found->memory + offset, static_cast<std::size_t>(bytes)};
    const auto zones = ProtectedMemory::zones_in(body, written, zone_bytes_);
    if (zones.count > 0) driver_.touch(zones);
  }
  for (const Body& body : memory_->device_bodies())
    if (body.region == region && bytes > 0)
      device_.touch(ProtectedMemory::zones_in(body, {found->memory + offset, bytes}, zone_bytes_));
  return {};
}

Result<void> Snapshotter::wait_for_cuts(std::size_t at_most, std::optional<Seconds> timeout,
                                        const Interrupt& interrupted) {
  const auto begun = std::chrono::steady_clock::now();
  while (!driver_.wait_for_cuts(at_most, runtime::kInterruptEvery)) {
    const Seconds passed = std::chrono::steady_clock::now() - begun;
    if ((interrupted && interrupted()) || (timeout && passed > *timeout))
      return Error{Errc::timed_out,
                   "the time limit passed, or the call was interrupted, before earlier snapshots were stored"};
  }
  return {};
}

// --- restores --------------------------------------------------------------------------------------------------------

Result<void> Snapshotter::restore(Version version, std::span<const Target> targets, const RestoreOptions& options) {
  const auto engine = engine_.lock();
  if (!engine) return snapshots_closed();
  if (process_ != ::getpid()) return engine->restore(0, version, targets, options);  // which refuses it
  const auto memory = driver_.memory();
  const auto concerned = [&](const Body& body) {
    return std::ranges::any_of(targets, [&](const Target& target) { return written_by(target, body).count > 0; });
  };
  if (std::ranges::none_of(memory->bodies(), concerned) && std::ranges::none_of(memory->device_bodies(), concerned))
    return engine->restore(0, version, targets, options);
  const std::lock_guard lock(calls_);
  if (ended_) return engine->restore(0, version, targets, options);
  RestoreOptions left = options;
  left.interrupted = [&] { return closing_.load() || (options.interrupted && options.interrupted()); };
  const auto begun = std::chrono::steady_clock::now();
  if (auto waited = wait_for_cuts(0, options.timeout, left.interrupted); !waited) return waited;
  if (options.timeout)
    left.timeout = std::max(Seconds(0), *options.timeout - Seconds(std::chrono::steady_clock::now() - begun));
  auto restored = restore_protected(*engine, version, targets, left);
  if (!restored && restored.error().code == Errc::timed_out && closing_) return snapshots_closed();
  return restored;
}

Result<void> Snapshotter::restore_protected(Engine& engine, Version version, std::span<const Target> targets,
                                            const RestoreOptions& options) {
  const std::span<const Body> bodies = memory_->bodies();
  std::vector<bool> clean(bodies.size());
  std::set<std::uint32_t> adopted;  // regions on the device
  const auto take_over = [&](const storage::StoredSnapshot& from, std::span<const storage::ZoneRange> zones) {
    for (std::size_t b = 0; b < bodies.size(); ++b) clean[b] = adopt(b, targets, from, zones);
    for (const Body& body : memory_->device_bodies())
      if (adopt_on_device(body, targets, from, zones)) adopted.insert(body.region);
  };
  // All of a whole body is written: a fault for each zone would tell nothing.
  for (std::size_t b = 0; b < bodies.size(); ++b) {
    if (tracked_[b].track != Track::faults || options.have || !covers(targets, bodies[b])) continue;
    driver_.touch({bodies[b].first, bodies[b].zones});
    driver_.disarm(bodies[b]);
  }
  auto restored = engine.restore(0, version, targets, options, take_over);
  for (const Body& body : memory_->device_bodies()) {
    if (adopted.contains(body.region)) continue;
    for (const Target& target : targets)
      if (const auto zones = written_by(target, body); zones.count > 0) device_.touch(zones);
  }
  for (std::size_t b = 0; b < bodies.size(); ++b) {
    if (tracked_[b].track != Track::declared || clean[b]) continue;
    for (const Target& target : targets)
      if (const auto zones = written_by(target, bodies[b]); zones.count > 0) driver_.touch(zones);
  }
  return restored;
}

// Of a body that was restored to its own place, in the numbers of the map; none: nothing is known of it.
std::vector<storage::ZoneRange> Snapshotter::restored_zones(const Body& body, std::span<const Target> targets,
                                                            const storage::StoredSnapshot& from,
                                                            std::span<const storage::ZoneRange> zones) const {
  const auto protection = std::ranges::find(protections_, body.region, &Protection::region);
  if (std::ranges::none_of(targets, [&](const Target& target) {
        return target.id == body.region && target.data == protection->memory && target.bytes == protection->bytes;
      }))
    return {};
  const storage::SnapshotLayout::Part part{body.region, static_cast<std::uint64_t>(body.memory - protection->memory)};
  const auto found = std::ranges::find(from.layout.parts, part);
  if (found == from.layout.parts.end()) return {};
  const auto region = static_cast<std::uint32_t>(found - from.layout.parts.begin());
  if (from.map.regions[region] != storage::ZoneMap::Region{body.bytes, zone_bytes_}) return {};
  std::vector<storage::ZoneRange> mine;
  std::ranges::copy_if(zones, std::back_inserter(mine), [&](const auto& range) { return range.region == region; });
  return mine;
}

// As adopt().
bool Snapshotter::adopt_on_device(const Body& body, std::span<const Target> targets,
                                  const storage::StoredSnapshot& from, std::span<const storage::ZoneRange> zones) {
  const std::vector<storage::ZoneRange> mine = restored_zones(body, targets, from, zones);
  std::vector<ProtectedMemory::Zones> clean;
  for (const storage::ZoneRange& range : mine) clean.push_back({body.first + range.first, range.count});
  if (clean.empty() || !device_.settle(body.region, clean)) return false;
  if (!archive_.adopt(memory_, body.first, from, mine)) {
    device_.forget();
    return false;
  }
  for (const storage::ZoneMap::Source& source : from.map.sources) last_id_ = std::max(last_id_, source.id.cut);
  return true;
}

// False: what was restored is not known to be the snapshot's, zone by zone.
bool Snapshotter::adopt(std::size_t b, std::span<const Target> targets, const storage::StoredSnapshot& from,
                        std::span<const storage::ZoneRange> zones) {
  const Body& body = memory_->bodies()[b];
  Tracked& tracked = tracked_[b];
  if (tracked.track == Track::everything || (tracked.automatic && tracked.choice.stopped())) return false;
  const std::vector<storage::ZoneRange> mine = restored_zones(body, targets, from, zones);
  if (mine.empty()) return false;
  std::uint32_t count = 0;
  for (const storage::ZoneRange& range : mine) count += range.count;
  if (!tracked.on && count < body.zones) return false;
  if (tracked.track == Track::scan) {  // of other zones, and of the restore itself
    std::vector<PageRange> written;
    if (!tracked.watch->watch().take_written(body.pages(), written)) return false;
    for (const PageRange& range : written) driver_.touch(ProtectedMemory::zones_in(body, range, zone_bytes_));
  }
  if (!archive_.adopt(memory_, body.first, from, mine)) return false;
  for (const storage::ZoneMap::Source& source : from.map.sources) last_id_ = std::max(last_id_, source.id.cut);
  if (tracked.track == Track::digest) {
    tracked.seen.resize(body.zones);
    for (const storage::ZonePiece& piece : storage::plan_restore(from.map, mine).pieces)
      for (std::uint32_t i = 0; i < piece.zones.count; ++i)
        tracked.seen[piece.zones.first + i] = from.map.sums[piece.sum + i];
  }
  for (const storage::ZoneRange& range : mine)
    driver_.restored({body.first + range.first, range.count}, tracked.track == Track::faults);
  tracked.on = true;
  return true;
}

// --- the cut ---------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<Cut>> Snapshotter::snapshot(Version version, const SnapshotOptions& options) {
  if (auto error = refused()) return *error;
  const std::lock_guard lock(calls_);
  const auto engine = engine_.lock();
  if (ended_ || !engine) return snapshots_closed();
  if (protections_.empty()) return Error{Errc::invalid_argument, "no memory is protected: call protect first"};
  if (auto open = engine->view("").versions(); !open) return open.error();
  if (!driver_.in_flight(version).empty() || engine->view("").info(version))
    return Error{Errc::version_exists, "version " + std::to_string(version) + " exists"};
  if (auto waited = wait_for_cuts(CutDriver::kCutsAtOnce - 1, {}, options.interrupted); !waited) return waited.error();
  driver_.ask_watches();
  if (auto lost = driver_.lost()) return *lost;
  if (auto lost = device_.lost()) return *lost;
  if (auto usable = engine->streams().check(options.stream); !usable) return usable.error();
  try {
    return take(*engine, version, options);
  } catch (...) {  // what was found to be written may be in no list yet
    driver_.lose_track();
    throw;
  }
}

Result<std::shared_ptr<Cut>> Snapshotter::take(Engine& engine, Version version, const SnapshotOptions& options) {
  std::ranges::fill(dirty_, std::uint8_t{0});
  driver_.dirty(std::span(dirty_).first(memory_->host_zones()));
  Found found;
  if (auto looked = find_written(found); !looked) return looked.error();
  if (auto looked = device_.find(options, dirty_); !looked) return looked.error();
  found.untracked = found.untracked && device_.untracked();
  if (found.untracked) {
    auto stored = store_everything(engine, version, options);
    sample();
    return stored;
  }
  bool full = options.full;
  std::vector<ProtectedMemory::Zones> also;  // on the device
  if (!full) {
    const std::size_t in_flight = driver_.cuts_in_flight();
    const Archive::Choice choice =
        archive_.choose(*memory_, dirty_, kMostSources - std::min(in_flight, kMostSources - 1));
    full = choice.full;
    for (const std::uint32_t zone : choice.zones) {
      if (zone >= memory_->host_zones())
        also.push_back({zone, 1});
      else if (!found.zones.empty() && found.zones.back().first + found.zones.back().count == zone)
        ++found.zones.back().count;
      else
        found.zones.push_back({zone, 1});
    }
  }
  std::uint64_t edge_bytes = 0;
  for (const Part& part : memory_->parts()) edge_bytes += part.first ? 0 : part.bytes;
  const auto cut = std::shared_ptr<Cut>(new Cut{.board = board_,
                                                .process = process_,
                                                .version = version,
                                                .metadata = options.metadata,
                                                .memory = memory_,
                                                .id = next_id(),
                                                .dedup = options.dedup,
                                                .edges = std::vector<std::byte>(edge_bytes)});
  if (auto listed = device_.cut(cut, full, also, options); !listed) {
    archive_.leave(*cut);
    return listed.error();
  }
  if (auto taken = driver_.cut(cut, full, found.zones, found.armed); !taken) {
    device_.abandon(cut, taken.error());
    archive_.leave(*cut);
    return taken.error();
  }
  if (!found.blocks) return cut;
  if (auto copied = wait_until(*cut, Reached::copied, {}, options.interrupted); !copied) {
    {
      const std::lock_guard lock(lost_mutex_);
      cut->told = true;
      lost_.erase(version);
    }
    driver_.lose_track();  // interrupted, the program writes on: what is not copied would be torn
    return copied.error();
  }
  for (std::size_t b = 0; b < tracked_.size(); ++b)
    if (tracked_[b].track == Track::faults && !found.armed[b]) driver_.disarm(memory_->bodies()[b]);
  sample();
  return cut;
}

void Snapshotter::sample() {
  for (std::size_t b = 0; b < tracked_.size(); ++b)
    if (tracked_[b].sampled) driver_.sample(memory_->bodies()[b]);
}

// Nothing of it will be shared with others, and it blocks anyway: an ordinary checkpoint has the same bytes, is copied
// once and needs no map.
Result<std::shared_ptr<Cut>> Snapshotter::store_everything(Engine& engine, Version version,
                                                           const SnapshotOptions& options) {
  if (auto waited = wait_for_cuts(0, {}, options.interrupted); !waited) return waited.error();
  std::vector<Source> sources;
  for (const Protection& one : protections_) {
    if (!one.on_device && !is_mapped(one))
      return Error{Errc::lost, "region " + std::to_string(one.region) +
                                   " is no longer memory: it was unmapped while it was protected; unprotect it to go "
                                   "on"};
    sources.push_back({one.region, one.memory, one.bytes});
  }
  auto stored = engine.checkpoint(0, version, sources,
                                  {.metadata = options.metadata,
                                   .timeout = kRoomTimeout,
                                   .interrupted = options.interrupted,
                                   .stream = options.stream});
  if (!stored) return stored.error();
  ++untracked_;
  for (const Protection& one : protections_) untracked_bytes_ += one.bytes;
  return std::shared_ptr<Cut>(new Cut{.board = board_,
                                      .process = process_,
                                      .version = version,
                                      .copied = true,
                                      .ended = true,
                                      .future = std::move(*stored)});
}

Result<void> Snapshotter::find_written(Found& found) {
  const std::span<const Body> bodies = memory_->bodies();
  const std::uint64_t failures = driver_.stats().failures;
  const bool known = failures == failures_seen_;  // after a failure, what was written since is unknown
  failures_seen_ = failures;
  if (!known) device_.forget();
  for (std::size_t b = 0; b < bodies.size(); ++b) {
    const Body& body = bodies[b];
    Tracked& tracked = tracked_[b];
    const std::size_t from = found.zones.size();
    if (tracked.track == Track::scan) {
      std::vector<PageRange> written;
      if (auto taken = tracked.watch->watch().take_written(body.pages(), written); !taken) {
        driver_.is_gone(body);
        return *driver_.lost();
      }
      for (const PageRange& range : written) found.zones.push_back(ProtectedMemory::zones_in(body, range, zone_bytes_));
    }
    if (tracked.track == Track::digest) {
      if (auto compared = compare(body, tracked, found); !compared) return compared;
    }
    if (!tracked.on && tracked.track != Track::declared) found.zones.push_back({body.first, body.zones});
    for (std::size_t i = from; i < found.zones.size(); ++i)
      std::fill_n(dirty_.begin() + found.zones[i].first, found.zones[i].count, std::uint8_t{1});

    bool on = tracked.track != Track::everything;
    if (tracked.automatic) {
      std::optional<double> share;
      if (std::exchange(tracked.sampled, false)) {
        share = driver_.sampled(body);
      } else if (tracked.on && tracked.measured && known) {
        share = static_cast<double>(std::count(dirty_.begin() + body.first, dirty_.begin() + body.first + body.zones,
                                               std::uint8_t{1})) /
                body.zones;
      }
      const policy::Tracked watched = tracked.choice.at_cut(share);
      tracked.sampled = watched == policy::Tracked::sample && tracked.track == Track::faults;
      on = watched != policy::Tracked::nothing && !tracked.sampled;
    }
    found.untracked = found.untracked && !tracked.on && !on;
    tracked.measured = tracked.on = on;
    found.armed.push_back(on && tracked.track == Track::faults);
    found.blocks = found.blocks || !found.armed.back();
  }
  return {};
}

// What it notes is what the cut stores: nothing is written during the call.
Result<void> Snapshotter::compare(const Body& body, Tracked& tracked, Found& found) {
  tracked.seen.resize(body.zones);
  std::vector<std::byte> bytes(zone_bytes_);
  for (std::uint32_t i = 0; i < body.zones; ++i) {
    const PageRange range = memory_->range_of(body.first + i);
    if (!read_memory(bytes.data(), range.begin, range.bytes)) {
      driver_.is_gone(body);
      return *driver_.lost();
    }
    const storage::Checksum sum = storage::checksum_of(std::span(bytes).first(range.bytes));
    if (sum != std::exchange(tracked.seen[i], sum)) found.zones.push_back({body.first + i, 1});
  }
  return {};
}

storage::SnapshotId Snapshotter::next_id() {
  using namespace std::chrono;
  const auto now = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
  last_id_ = std::max(static_cast<std::uint64_t>(now), last_id_ + 1);
  std::random_device random;
  return {last_id_, std::uint64_t{random()} << 32 | random()};
}

bool Snapshotter::in_flight(Version version) { return !refused() && !driver_.in_flight(version).empty(); }

SnapshotStats Snapshotter::stats() {
  if (refused()) return {};
  SnapshotStats stats = driver_.stats();
  stats.snapshots += untracked_;
  stats.bytes_gathered += untracked_bytes_ + device_.bytes_gathered();
  return stats;
}

void Snapshotter::run_archive() {
  while (const std::shared_ptr<Cut> cut = driver_.next_to_archive()) {
    Result<Future> map = CutDriver::no_memory();
    try {
      map = driver_.has_failed(*cut) ? Result<Future>(driver_.error_of(*cut))
                                     : archive_.store_map(*cut, [this] { return driver_.ids_in_flight(); });
      if (!map) {
        DeviceCopies::abandon(*cut, map.error());
        archive_.leave(*cut);
        const std::lock_guard lock(lost_mutex_);
        if (!cut->told) lost_.insert_or_assign(cut->version, map.error());
      }
    } catch (const std::bad_alloc&) {
      map = CutDriver::no_memory();
    }
    driver_.archived(cut, std::move(map));
    try {
      archive_.tidy(driver_.ids_in_flight());
    } catch (const std::bad_alloc&) {  // the next one tries again
    }
  }
}

}  // namespace ebb::snapshots
