#include "snapshots/snapshot_reader.hpp"

#include <algorithm>

#include "store/layout.hpp"
#include "store/piece.hpp"

namespace ebb::snapshots {

using storage::StoredSnapshot;
using storage::ZoneMap;
using storage::ZonePiece;
using storage::ZonePlan;
using storage::ZoneRange;
using storage::ZonesInPiece;
using store::LoadedPiece;
using store::Reads;

namespace {

bool same_memory(const StoredSnapshot& a, const StoredSnapshot& b) {
  return a.layout.parts == b.layout.parts && storage::same_regions(a.map, b.map);
}

bool is_missing(Errc code) {
  return code == Errc::unknown_version || code == Errc::consumed || code == Errc::lost || code == Errc::dropped;
}

using Chunks = std::vector<ZonesInPiece>::const_iterator;
Chunks end_of_piece(Chunks at, Chunks end) {
  return std::find_if(at, end,
                      [&](const ZonesInPiece& one) { return one.source != at->source || one.piece != at->piece; });
}

}  // namespace

// The regions of a map's checkpoint, as they are stored.
struct SnapshotReader::Read {
  std::vector<RegionInfo> regions;
  std::vector<std::unique_ptr<std::byte[]>> bytes;

  explicit Read(const CheckpointInfo& stored) : regions(stored.regions) {
    for (const RegionInfo& region : regions) bytes.push_back(std::make_unique_for_overwrite<std::byte[]>(region.bytes));
  }
  std::vector<Target> targets() const {
    std::vector<Target> out;
    for (std::size_t i = 0; i < regions.size(); ++i) out.push_back({regions[i].id, bytes[i].get(), regions[i].bytes});
    return out;
  }
  std::span<const std::byte> region(std::uint32_t id) const {
    const std::size_t i = regions[0].id == id ? 0 : 1;
    return {bytes[i].get(), regions[i].bytes};
  }
};

SnapshotReader::SnapshotReader(Engine& engine, planner::HistoryId history, Version version,
                               const RestoreOptions& options)
    : engine_(engine), history_(history), version_(version), options_(options) {
  asked_ = engine_.now();
  if (!options_.timeout) {
    stop_ = options_.interrupted;
    return;
  }
  stop_ = [this, until = store::later(asked_, *options_.timeout)] {
    return engine_.now() >= until || (options_.interrupted && options_.interrupted());
  };
}

SnapshotReader::~SnapshotReader() = default;

Result<std::optional<StoredSnapshot>> SnapshotReader::load() { return load(version_, read_); }

Result<std::optional<StoredSnapshot>> SnapshotReader::load(Version version, std::unique_ptr<Read>& read) {
  const auto stored = engine_.histories().info(history_, version);
  if (!stored) return stored.error();
  if (!storage::is_snapshot(*stored)) return std::optional<StoredSnapshot>();
  read = std::make_unique<Read>(*stored);
  const RestoreOptions options{.keep = true, .interrupted = stop_};
  if (auto done = engine_.reads().restore(history_, version, read->targets(), options, Reads::Reading::look); !done)
    return done.error().code == Errc::size_mismatch ? written_anew() : done.error();  // the targets were made for it

  const auto damaged = [&](const std::string& what) {
    return Error{Errc::damaged, engine_.histories().key_text(history_, version) + " is damaged: " + what};
  };
  auto found =
      storage::parse_snapshot(read->region(storage::kMapRegion), read->region(storage::kLayoutRegion), *stored);
  if (!found) return damaged(found.error().message);
  return std::optional(std::move(*found));
}

Result<StoredSnapshot> SnapshotReader::demand() {
  auto found = load();
  if (!found) return found.error();
  if (*found) return std::move(**found);
  return written_anew();
}

Error SnapshotReader::written_anew() {
  return {Errc::dropped, engine_.histories().key_text(history_, version_) + " was written anew while the call read it"};
}

Result<CheckpointInfo> SnapshotReader::info() {
  auto found = demand();
  if (!found) return found.error();
  return std::move(found->info);
}

Result<std::vector<ZoneRange>> SnapshotReader::zones_to_read(const StoredSnapshot& wanted) {
  if (!options_.have) return storage::all_zones(wanted.map.regions);
  std::unique_ptr<Read> ignored;
  const auto have = load(*options_.have, ignored);
  if (!have && (have.error().code == Errc::timed_out || have.error().code == Errc::closed)) return have.error();
  // What cannot be compared is read: that is right, whatever the targets have.
  if (!have || !*have || !same_memory(wanted, **have)) return storage::all_zones(wanted.map.regions);
  return storage::differing_zones(wanted.map, (*have)->map);
}

Result<void> SnapshotReader::restore(std::span<const Target> targets, const Restored& restored) {
  const auto stream = engine_.streams().resolve(options_.stream);
  if (!stream) return stream.error();
  auto snapshot = demand();
  if (!snapshot) return snapshot.error();
  const auto regions = store::pieces_of(snapshot->info, targets);
  if (!regions) {
    return Error{regions.error().code,
                 engine_.histories().key_text(history_, version_) + ": " + regions.error().message};
  }
  const auto zones = zones_to_read(*snapshot);
  if (!zones) return zones.error();

  auto done = deliver(*snapshot, *regions, *zones, *stream);
  hint_pieces(*snapshot, false);  // of which only some may have been read
  if (!done) return done;
  if (restored) restored(*snapshot, *zones);
  // A restore uses up a hint of the version.
  done = options_.keep ? engine_.histories().hint(history_, planner::event::Unhint{{version_}}) : consume();
  if (const auto next = engine_.histories().next_hinted(history_)) {
    SnapshotReader reader(engine_, history_, *next, {.keep = true, .interrupted = stop_});
    if (const auto found = reader.load(); found && *found) reader.hint_pieces(**found, true);
  }
  return done;
}

// Hints the pieces of a snapshot, or no longer: the program's hints name its map alone.
void SnapshotReader::hint_pieces(const StoredSnapshot& of, bool wanted) {
  const auto chunks = zones_by_piece(of, storage::plan_restore(of.map));
  for (auto at = chunks.begin(); at != chunks.end(); at = end_of_piece(at, chunks.end())) hint_piece(of, *at, wanted);
}

void SnapshotReader::hint_piece(const StoredSnapshot& of, const ZonesInPiece& chunk, bool wanted) {
  const auto [piece, in_hand] = engine_.histories().history(piece_name(of, chunk), Order::none);
  if (engine_.histories().hinted(piece, storage::kPieceVersion) == wanted) return;
  if (wanted)
    static_cast<void>(
        static_cast<bool>(engine_.histories().hint(piece, planner::event::Hint{false, {storage::kPieceVersion}})));
  else
    static_cast<void>(static_cast<bool>(engine_.histories().hint(piece, planner::event::UnhintAll{})));
}

// On a GPU the next few pieces come while one is checked and placed.
Result<void> SnapshotReader::deliver(const StoredSnapshot& snapshot, std::span<const PlacedRegion> regions,
                                     std::span<const ZoneRange> zones, std::optional<device::StreamId> stream) {
  constexpr std::size_t kAhead = 8;
  SnapshotDelivery delivery(engine_.device(), engine_.zone_scratches(), snapshot, regions, stream);
  const auto chunks = zones_by_piece(snapshot, storage::plan_restore(snapshot.map, zones));
  const bool ahead = !engine_.device()->host_memory();
  auto hinted = chunks.begin();
  std::size_t pieces = 0, hints = 0;
  for (auto at = chunks.begin(); at != chunks.end(); ++pieces) {
    for (; ahead && hinted != chunks.end() && hints <= pieces + kAhead; ++hints) {
      if (hinted != at) hint_piece(snapshot, *hinted, true);
      hinted = end_of_piece(hinted, chunks.end());
    }
    const auto end = end_of_piece(at, chunks.end());
    if (auto stop = asked_to_stop()) return *stop;
    if (auto done = restore_piece(snapshot, {at, end}, delivery); !done) return done;
    at = end;
  }
  return {};
}

Result<std::uint64_t> SnapshotReader::bytes_of_piece(planner::HistoryId piece, const StoredSnapshot& from,
                                                     std::span<const ZonesInPiece> chunks) {
  const auto stored = engine_.histories().info(piece, storage::kPieceVersion);
  if (!stored) return failed(from, chunks.front(), 0, stored.error());
  const bool whole = stored->regions.size() == 1 && stored->regions[0].id == 0;
  const std::uint64_t bytes = whole ? stored->regions[0].bytes : 0;
  for (const ZonesInPiece& chunk : chunks) {
    if (chunk.zones.offset + chunk.zones.bytes > bytes)
      return failed(from, chunk, 0, {Errc::damaged, "its piece ends before it"});
  }
  return bytes;
}

Result<void> SnapshotReader::restore_piece(const StoredSnapshot& from, std::span<const ZonesInPiece> chunks,
                                           SnapshotDelivery& delivery) {
  const std::string name = piece_name(from, chunks.front());
  History history = engine_.view(name);  // its number stays, for as long as this is held
  const auto bytes = bytes_of_piece(engine_.histories().history(name, Order::none).first, from, chunks);
  if (!bytes) return bytes.error();
  const bool host = engine_.device()->host_memory();
  auto loaded = LoadedPiece::load(history, storage::kPieceVersion, *bytes, host || delivery.on_device(chunks), stop_);
  if (!loaded) return failed(from, chunks.front(), 0, loaded.error());
  const bool on_device = loaded->lent() && !host;
  const auto wrong =
      on_device ? delivery.place_on_device(chunks, loaded->data()) : delivery.place(chunks, loaded->data());
  const auto given_back = on_device ? loaded->give_back(delivery.stream()) : Result<void>();
  if (!wrong) return wrong.error();
  if (!*wrong && !given_back) return failed(from, chunks.front(), 0, given_back.error());
  if (!*wrong) return {};
  return failed(from, chunks[(*wrong)->chunk], (*wrong)->zone, {Errc::damaged, "it does not match its checksum"});
}

// Another call may have consumed or dropped the version since this one began, which is no error of this one.
Result<void> SnapshotReader::consume() {
  const auto done =
      engine_.reads().restore(history_, version_, read_->targets(), {.interrupted = stop_}, Reads::Reading::stored);
  if (done || is_missing(done.error().code)) return {};
  return done.error();
}

Result<void> SnapshotReader::check() {
  const auto snapshot = demand();
  if (!snapshot) return snapshot.error();
  const auto chunks = zones_by_piece(*snapshot, storage::plan_restore(snapshot->map));
  for (auto at = chunks.begin(); at != chunks.end();) {
    const auto end = end_of_piece(at, chunks.end());
    if (auto stop = asked_to_stop()) return *stop;
    const std::string name = piece_name(*snapshot, *at);
    History history = engine_.view(name);
    const auto intact = history.latest(storage::kPieceVersion, stop_);
    if (!intact) return failed(*snapshot, *at, 0, intact.error());
    const auto bytes = bytes_of_piece(engine_.histories().history(name, Order::none).first, *snapshot, {at, end});
    if (!bytes) return bytes.error();
    at = end;
  }
  return {};
}

std::string SnapshotReader::piece_name(const StoredSnapshot& of, const ZonesInPiece& chunk) {
  return storage::PieceName{engine_.histories().name_of(history_), of.map.sources[chunk.source].id, chunk.piece}.text();
}

Error SnapshotReader::failed(const StoredSnapshot& of, const ZonesInPiece& chunk, std::uint32_t zone,
                             const Error& why) {
  const std::string key = engine_.histories().key_text(history_, version_);
  const ZoneRange& zones = chunk.zones.zones;
  const storage::SnapshotLayout::RegionPart& part = of.layout.parts[zones.region];
  const std::uint64_t from = part.at + of.map.regions[zones.region].begin(zones.first + zone);
  const std::string what = "zone " + std::to_string(zones.first + zone) + " (region " + std::to_string(part.region) +
                           " from byte " + std::to_string(from) + " on), which version " +
                           std::to_string(of.map.sources[chunk.source].version) + " stored: " + why.message;
  if (why.code == Errc::damaged) return {Errc::damaged, key + " is damaged: " + what};
  if (!is_missing(why.code)) return {why.code, key + " could not be read: " + what};
  if (const auto there = engine_.histories().info(history_, version_); !there && is_missing(there.error().code)) {
    return {Errc::dropped, key + " was dropped or consumed while a call read it"};
  }
  return {Errc::lost, key + " is lost: " + what};
}

// Pieces that the cache has are read without a wait, in which the caller would be asked.
std::optional<Error> SnapshotReader::asked_to_stop() {
  if (!stop_ || engine_.now() - asked_ < std::chrono::nanoseconds(store::kInterruptEvery).count()) return {};
  asked_ = engine_.now();
  if (!stop_()) return {};
  return Error{Errc::timed_out, "the time limit passed, or the call was interrupted, at " +
                                    engine_.histories().key_text(history_, version_)};
}

}  // namespace ebb::snapshots
