#include "snapshots/snapshotter.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <random>
#include <set>
#include <unistd.h>

#include "base/own_process.hpp"
#include "base/start_thread.hpp"
#include "snapshots/memory_check.hpp"
#include "store/lifetime.hpp"

namespace ebb::snapshots {

using os::PageRange;
using store::Engine;

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

}  // namespace

Result<std::shared_ptr<Snapshotter>> Snapshotter::make_for(const std::shared_ptr<Engine>& engine, std::uint64_t zone,
                                                           Setup setup) {
  if (auto good = check_zone(zone); !good) return good.error();
  if (const auto there = std::dynamic_pointer_cast<Snapshotter>(engine->attached())) return same(there, zone, setup);
  if (engine->read_only())
    return Error{Errc::unsupported, "this store is read-only: it takes no snapshots, so no memory is protected for it"};
  if (auto open = engine->view("").versions(); !open) return open.error();
  if (!setup.watches) setup.watches = std::make_shared<os::SystemWriteWatches>();
  const Setup modes{.hints = setup.hints, .duplicate = setup.duplicate};
  if (setup.piece_bytes == 0) setup.piece_bytes = piece_bytes_for(engine->first_cache_bytes(), zone);
  try {
    std::shared_ptr<Snapshotter> made(new Snapshotter(engine, static_cast<std::uint32_t>(zone), std::move(setup)),
                                      base::InOwnProcess{});
    if (auto started = made->start(); !started) return started.error();
    const auto kept = engine->attach(made);
    if (!kept) return kept.error();
    return same(std::dynamic_pointer_cast<Snapshotter>(*kept), zone, modes);
  } catch (const base::ThreadRefused& refused) {
    return base::no_thread(refused);
  }
}

Result<std::shared_ptr<Snapshotter>> Snapshotter::of(const std::shared_ptr<Engine>& engine) {
  if (auto there = std::dynamic_pointer_cast<Snapshotter>(engine->attached())) return there;
  if (auto open = engine->histories().versions(0); !open) return open.error();
  return Error{Errc::invalid_argument, "no memory is protected: call protect first"};
}

Snapshotter::Snapshotter(std::shared_ptr<Engine> engine, std::uint32_t zone_bytes, Setup setup)
    : process_(::getpid()),
      engine_(engine),
      zone_bytes_(zone_bytes),
      setup_(std::move(setup)),
      archive_(engine, setup_.piece_bytes),
      driver_(cuts_, {.zone_bytes = zone_bytes,
                      .slot_zones = static_cast<std::uint32_t>(setup_.piece_bytes / zone_bytes),
                      .longest_wait = setup_.longest_wait,
                      .hints = setup_.hints,
                      .duplicate = setup_.duplicate,
                      .store =
                          [this](Cut& cut, std::span<std::byte> bytes, std::span<const std::uint32_t> zones) {
                            return archive_.store_piece(cut, bytes, zones);
                          }}),
      tracking_(setup_.watches, driver_, zone_bytes),
      device_(engine, zone_bytes, static_cast<std::uint32_t>(setup_.piece_bytes / zone_bytes)) {}

Result<void> Snapshotter::start() {
  if (auto left = archive_.know_left(); !left) return left;
  archive_.tidy({});
  if (auto started = driver_.start(); !started) return started;
  tracking_.begin(memory_);
  archiver_.start();
  return {};
}

Snapshotter::~Snapshotter() { stop(); }

Result<void> Snapshotter::end(const Interrupt& interrupted) {
  if (process_ != ::getpid()) return {};
  closing_ = true;
  const std::lock_guard lock(calls_);
  if (ended_) return {};
  const auto engine = engine_.lock();
  Result<void> stored;
  if (engine && engine->durability() != Durability::ephemeral) {
    auto waited = wait_for_cuts(0, {}, interrupted);
    if (!waited && waited.error().code != Errc::timed_out) {  // held up, perhaps for ever
      archive_.stop();
      waited = wait_for_cuts(0, {}, interrupted);
    }
    if (!waited) {
      closing_ = false;
      return Error{Errc::timed_out, "closing the store was interrupted while snapshots were in flight"};
    }
    stored = archiver_.not_stored(*engine, {});
  }
  stop();
  return stored;
}

Result<void> Snapshotter::settle(std::optional<Version> version, std::optional<Seconds> timeout,
                                 const Interrupt& interrupted) {
  if (process_ != ::getpid()) return {};
  const auto begun = std::chrono::steady_clock::now();
  Result<void> ended;
  for (const std::shared_ptr<Cut>& cut : cuts_.in_flight(version)) {
    const auto left = timeout ? std::optional<Seconds>(*timeout - (std::chrono::steady_clock::now() - begun)) : timeout;
    ended = wait_until(*cut, Reached::end, left, interrupted);
    if (!ended && ended.error().code == Errc::timed_out) return ended;
    if (!ended) break;
  }
  const auto engine = engine_.lock();
  if (!engine) return ended;
  if (auto stored = archiver_.not_stored(*engine, version); !stored) return stored;
  return ended;
}

void Snapshotter::stop() {
  if (ended_) return;
  ended_ = true;
  archive_.stop();
  device_.stop(snapshots_closed());
  driver_.stop(snapshots_closed());
  archiver_.join();
  tracking_.clear();
}

std::optional<Error> Snapshotter::refused() const {
  if (process_ != ::getpid())
    return Error{Errc::unsupported, "this store was opened by the parent process, and this is a forked child"};
  return {};
}

// --- protection ------------------------------------------------------------------------------------------------------

Result<void> Snapshotter::protect(std::span<const Target> memory, const ProtectOptions& options) {
  if (auto error = refused()) return *error;
  const std::lock_guard lock(calls_);
  const auto engine = engine_.lock();
  if (ended_ || !engine) return snapshots_closed();
  std::vector<Protection> made;
  for (const Target& one : memory)
    made.push_back({one.id, static_cast<std::byte*>(one.data), one.bytes, options.track,
                    one.bytes > 0 && engine->device()->owns(one.data, one.bytes)});
  if (auto good = check_protections(made, protections_, engine->device()->gpu()); !good) return good;
  std::ranges::sort(made, {}, &Protection::region);
  // What is in flight is gathered from the list of arrays.
  if (auto waited = wait_for_cuts(0, {}, {}); !waited) return waited;
  // The watches come first: if they fail, nothing has changed.
  if (auto added = add(made); !added) return added;
  std::vector<Protection> all;
  std::ranges::merge(protections_, made, std::back_inserter(all), {}, &Protection::region, &Protection::region);
  replace(std::move(all));
  return {};
}

Result<void> Snapshotter::add(std::span<const Protection> made) {
  std::vector<Protection> on_host;
  std::vector<std::uint32_t> on_device;
  std::ranges::copy_if(made, std::back_inserter(on_host), [](const Protection& one) { return !one.on_device; });
  Result<void> added;
  for (const Protection& one : made) {
    if (!one.on_device) continue;
    if (added = device_.add(one); !added) break;
    on_device.push_back(one.region);
  }
  if (added) added = tracking_.add(on_host);
  if (!added) device_.remove(on_device);
  return added;
}

Result<void> Snapshotter::unprotect(std::optional<std::uint32_t> region, const Interrupt& interrupted) {
  if (auto error = refused()) return *error;
  const std::lock_guard lock(calls_);
  if (ended_) return snapshots_closed();
  if (region && find(*region) == nullptr)
    return Error{Errc::invalid_argument, "region " + std::to_string(*region) + " is not protected"};
  if (auto waited = wait_for_cuts(0, {}, interrupted); !waited) return waited;
  std::vector<Protection> left;
  std::vector<std::uint32_t> regions;
  for (const Protection& one : protections_) {
    if (region && one.region != *region)
      left.push_back(one);
    else
      regions.push_back(one.region);
  }
  const auto forgotten = tracking_.remove(regions);
  device_.remove(regions);
  replace(std::move(left));
  for (const HostTracking::Forget& one : forgotten) one.watch->watch().forget(one.pages);
  return {};
}

const Protection* Snapshotter::find(std::uint32_t region) const {
  const auto found = std::ranges::lower_bound(protections_, region, {}, &Protection::region);
  return found == protections_.end() || found->region != region ? nullptr : &*found;
}

void Snapshotter::replace(std::vector<Protection> protections) {
  protections_ = std::move(protections);
  memory_ = std::make_shared<ProtectedMemory>(protections_, zone_bytes_);
  device_.begin(memory_);
  dirty_.assign(memory_->zones(), 0);
  tracking_.begin(memory_);
}

Result<void> Snapshotter::touch(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes) {
  if (auto error = refused()) return *error;
  const std::lock_guard lock(calls_);
  if (ended_) return snapshots_closed();
  const Protection* const found = find(region);
  if (found == nullptr) return Error{Errc::invalid_argument, "region " + std::to_string(region) + " is not protected"};
  if (offset > found->bytes || bytes > found->bytes - offset)
    return Error{Errc::invalid_argument, "offset=" + std::to_string(offset) + ", bytes=" + std::to_string(bytes) +
                                             " is not valid: region " + std::to_string(region) + " has " +
                                             std::to_string(found->bytes) + " bytes"};
  const Body* const body = memory_->body_of_region(region, found->on_device);
  if (body == nullptr || bytes == 0) return {};
  const auto zones = ProtectedMemory::zones_in(*body, {found->memory + offset, bytes}, zone_bytes_);
  if (zones.count == 0) return {};
  if (found->on_device)
    device_.touch(zones);
  else
    driver_.touch(zones);
  return {};
}

Result<void> Snapshotter::wait_for_cuts(std::size_t at_most, std::optional<Seconds> timeout,
                                        const Interrupt& interrupted) {
  const auto begun = std::chrono::steady_clock::now();
  std::shared_ptr<const Error> held_up;
  const std::uint64_t ask = cuts_.board()->ask();
  while (!cuts_.wait_down_to(at_most, store::kInterruptEvery, ask, held_up)) {
    if (held_up) return *held_up;
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
  const auto memory = driver_.protected_memory();
  const RestoredMemory written(targets);
  const auto concerned = [&](const Body& body) { return written.touches(body); };
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
  auto restored = restore_protected(*engine, version, targets, written, left);
  if (!restored && restored.error().code == Errc::timed_out && closing_) return snapshots_closed();
  return restored;
}

Result<void> Snapshotter::restore_protected(Engine& engine, Version version, std::span<const Target> targets,
                                            const RestoredMemory& written, const RestoreOptions& options) {
  const std::span<const Body> bodies = memory_->bodies();
  std::vector<bool> clean(bodies.size());
  std::set<std::uint32_t> adopted;  // regions on the device
  const auto take_over = [&](const storage::StoredSnapshot& from, std::span<const storage::ZoneRange> zones) {
    const RestoredSnapshot restored(from, zones);
    const auto restored_zones = [&](const Body& body) {
      const Protection& protection = *find(body.region);
      return written.is_in_place(protection) ? restored.zones_of(body, protection, zone_bytes_) : RestoredZones{};
    };
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      const auto mine = restored_zones(bodies[b]);
      clean[b] = !mine.zones.empty() && tracking_.adopt(b, from, mine, [&] { return lean_on(bodies[b], from, mine); });
    }
    for (const Body& body : memory_->device_bodies()) {
      const auto mine = restored_zones(body);
      if (!mine.zones.empty() && device_.adopt(body, mine.zones, [&] { return lean_on(body, from, mine); }))
        adopted.insert(body.region);
    }
  };
  if (!options.have) tracking_.before_restore([&](const Body& body) { return written.covers(body); });
  auto restored = engine.restore(0, version, targets, options, take_over);
  for (const Body& body : memory_->device_bodies())
    if (!adopted.contains(body.region))
      written.for_each_in(body, zone_bytes_, [&](const auto& zones) { device_.touch(zones); });
  for (std::size_t b = 0; b < bodies.size(); ++b)
    if (tracking_.declared(b) && !clean[b])
      written.for_each_in(bodies[b], zone_bytes_, [&](const auto& zones) { driver_.touch(zones); });
  return restored;
}

// Lets the next cut lean on a snapshot that was restored. False: something that this one names is no longer there.
bool Snapshotter::lean_on(const Body& body, const storage::StoredSnapshot& from, const RestoredZones& zones) {
  if (!archive_.adopt(memory_, body.first, from, zones)) return false;
  for (const storage::ZoneMap::Source& source : from.map.sources) last_id_ = std::max(last_id_, source.id.cut);
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
  if (!cuts_.in_flight(version).empty() || engine->view("").info(version))
    return Error{Errc::version_exists, "version " + std::to_string(version) + " exists"};
  if (auto waited = wait_for_cuts(CutList::kCutsAtOnce - 1, {}, options.interrupted); !waited) return waited.error();
  driver_.ask_watches();
  if (auto lost = driver_.lost()) return *lost;
  if (auto lost = device_.lost()) return *lost;
  if (auto usable = engine->streams().check(options.stream); !usable) return usable.error();
  try {
    return take(*engine, version, options);
  } catch (...) {
    lose_track({Errc::lost, "the next snapshot could not be taken"});
    throw;
  }
}

// Zones that were found to be written may be in no list yet: the next cut stores everything.
void Snapshotter::lose_track(const Error& why) {
  driver_.lose_track();
  device_.lose(why);
}

Result<std::shared_ptr<Cut>> Snapshotter::take(Engine& engine, Version version, const SnapshotOptions& options) {
  if (auto gathered = device_.finish_last(options.interrupted); !gathered) return gathered.error();
  std::ranges::fill(dirty_, std::uint8_t{0});
  driver_.dirty(std::span(dirty_).first(memory_->host_zones()));
  const std::uint64_t failures = driver_.stats().failures;
  const bool known = failures == std::exchange(failures_seen_, failures);  // else what was written since is not
  if (!known) device_.forget();
  FoundWrites found;
  if (auto looked = tracking_.find_written(found, dirty_, known); !looked) return looked.error();
  const storage::SnapshotId id = next_id();
  if (auto looked = device_.find(id, options, dirty_); !looked) {
    lose_track(looked.error());
    return looked.error();
  }
  found.untracked = found.untracked && device_.untracked();
  if (found.untracked) {
    auto stored = store_everything(engine, version, options);
    tracking_.sample();
    return stored;
  }
  bool full = options.full, again = false;
  std::vector<ProtectedMemory::Zones> also;  // on the device
  if (!full) {
    const std::size_t in_flight = cuts_.in_flight({}).size();
    const Archive::Choice choice =
        archive_.choose(*memory_, dirty_, kMostSources - std::min(in_flight, kMostSources - 1));
    full = choice.full;
    again = !choice.zones.empty();  // so that a restore reads fewer sources
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
  for (const MapRegion& part : memory_->parts()) edge_bytes += part.is_edge() ? part.bytes : 0;
  const auto cut = std::shared_ptr<Cut>(new Cut{.board = cuts_.board(),
                                                .process = process_,
                                                .version = version,
                                                .metadata = options.metadata,
                                                .memory = memory_,
                                                .id = id,
                                                .dedup = options.dedup,
                                                .share = options.dedup && !full && !again,
                                                .edges = std::vector<std::byte>(edge_bytes)});
  if (auto listed = device_.cut(cut, full, also, options); !listed) {
    archive_.leave(*cut);
    lose_track(listed.error());
    return listed.error();
  }
  // What was listed on the GPU is an increment over the cuts before it. If one of them failed meanwhile, list it anew.
  const auto unless = device_.empty() ? std::nullopt : std::optional(failures);
  const auto taken = driver_.cut(cut, full, found.zones, found.armed, unless);
  if (!taken || !*taken) {
    const Error why = taken ? Error{Errc::lost, "an earlier snapshot failed while this one was taken"} : taken.error();
    device_.abandon(cut, why);
    device_.forget();
    archive_.leave(*cut);
    if (!taken) return why;
    return take(engine, version, options);
  }
  if (!found.blocks) return cut;
  if (auto copied = wait_until(*cut, Reached::copied, {}, options.interrupted); !copied) {
    archiver_.told(*cut);
    driver_.lose_track();  // interrupted, the program writes on: what is not copied would be torn
    return copied.error();
  }
  tracking_.copied(found);
  return cut;
}

// Stores an ordinary checkpoint in place of a snapshot that would share nothing with others, and would block: it has
// the same bytes, is copied once and needs no map.
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
  if (auto waited = device_.wait(options); !waited) return waited.error();
  auto stored = engine.writes().checkpoint(
      engine.shared_from_this(), 0, version, sources,
      {.metadata = options.metadata, .timeout = kRoomTimeout, .interrupted = options.interrupted});
  if (!stored && stored.error().code == Errc::invalid_argument) return Error{Errc::lost, stored.error().message};
  if (!stored) return stored.error();
  ++untracked_;
  for (const Protection& one : protections_) untracked_bytes_ += one.bytes;
  return std::shared_ptr<Cut>(new Cut{.board = cuts_.board(),
                                      .process = process_,
                                      .version = version,
                                      .copied = true,
                                      .ended = true,
                                      .future = std::move(*stored)});
}

storage::SnapshotId Snapshotter::next_id() {
  using namespace std::chrono;
  const auto now = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
  last_id_ = std::max(static_cast<std::uint64_t>(now), last_id_ + 1);
  std::random_device random;
  return {last_id_, std::uint64_t{random()} << 32 | random()};
}

bool Snapshotter::in_flight(Version version) { return !refused() && !cuts_.in_flight(version).empty(); }

SnapshotStats Snapshotter::stats() {
  if (refused()) return {};
  SnapshotStats stats = driver_.stats();
  stats.snapshots += untracked_;
  stats.bytes_gathered += untracked_bytes_ + device_.bytes_gathered();
  return stats;
}

}  // namespace ebb::snapshots
