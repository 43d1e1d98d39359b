#include "snapshots/archive.hpp"

#include <algorithm>
#include <cstring>

#include "os/files.hpp"
#include "snapshots/device_copies.hpp"
#include "snapshots/snapshot_reader.hpp"
#include "storage/format/snapshot_layout.hpp"
#include "storage/format/snapshot_names.hpp"

namespace ebb::snapshots {

using storage::SnapshotId;
using store::Engine;

namespace {

Error engine_gone() { return {Errc::closed, "the store is closed"}; }

// The beginning of the names of all pieces of a snapshot.
std::string prefix_of(const SnapshotId& id) {
  std::string name = storage::PieceName{"", id, 0}.text();
  name.pop_back();
  return name;
}

bool contains(std::span<const SnapshotId> ids, const SnapshotId& id) { return std::ranges::find(ids, id) != ids.end(); }

}  // namespace

Result<void> Archive::store_piece(Cut& cut, std::span<std::byte> bytes, std::span<const std::uint32_t> zones) {
  const auto engine = engine_.lock();
  if (!engine) return engine_gone();
  StoredPiece piece;
  const std::size_t zone_bytes = cut.memory->zone_bytes();
  const std::uint64_t begin = cut.pieces.size() * piece_bytes_;
  for (std::size_t i = 0; i < zones.size(); ++i) {
    const std::span<std::byte> zone = bytes.subspan(i * zone_bytes, zone_bytes);
    const std::size_t used = cut.memory->range_of(zones[i]).bytes;
    const storage::Checksum sum = storage::checksum_of(zone.first(used));
    const std::size_t at = piece.zones.size() * zone_bytes;
    if (cut.dedup && used == zone_bytes) {
      if (cut.share && !cut.places.contains(sum) && share(cut, zones[i], sum)) continue;
      const auto [place, added] = cut.places.try_emplace(sum, begin + at);
      if (!added) {
        cut.shared.push_back({zones[i], place->second, sum});
        continue;
      }
    }
    if (at != i * zone_bytes) std::memcpy(bytes.data() + at, zone.data(), zone_bytes);
    piece.zones.push_back(zones[i]);
    piece.sums.push_back(sum);
  }
  if (piece.zones.empty()) return {};
  const auto packed = bytes.first(piece.zones.size() * zone_bytes);
  return add_piece(*engine, cut, packed, std::move(piece));
}

// Lets the zone have the bytes of an older snapshot, which stay until the cut's map is stored.
bool Archive::share(Cut& cut, std::uint32_t zone, const storage::Checksum& sum) {
  const std::lock_guard lock(mutex_);
  const auto found = table_.equal(*cut.memory, zone, sum);
  if (!found) return false;
  const std::pair one(cut.id, found->in->source.id);
  if (std::ranges::find(shared_, one) == shared_.end()) shared_.push_back(one);
  cut.shared.push_back(*found);
  return true;
}

CheckpointOptions Archive::waiting(std::string metadata) const {
  return {.metadata = std::move(metadata), .timeout = kRoomTimeout, .interrupted = [this] { return stopping_.load(); }};
}

Result<void> Archive::add_piece(Engine& engine, Cut& cut, std::span<const std::byte> bytes, StoredPiece piece) {
  piece.piece = static_cast<std::uint32_t>(cut.pieces.size());
  piece.bytes = bytes.size();
  History history = engine.view(storage::PieceName{"", cut.id, piece.piece}.text());
  auto written = history.checkpoint(storage::kPieceVersion, {{0, bytes.data(), bytes.size()}}, waiting());
  if (!written) return written.error();
  cut.pieces.push_back(std::move(piece));
  return {};
}

constexpr Seconds kLook{0.2};

// Pieces of dropped snapshots are dropped while it waits: the pieces may wait for their room. What a full pool holds up
// goes on with the next drop.
Result<void> Archive::wait_for_pieces(Engine& engine, const Cut& cut, const InFlight& in_flight) {
  const bool pooled = engine.durability() == Durability::node;
  // Pieces go on to a shared directory in the background, and the store holds the map back there until they are in it.
  const Durability level = engine.durability() == Durability::shared ? Durability::storage : engine.durability();
  for (const StoredPiece& piece : cut.pieces) {
    for (bool again = false;; again = true) {
      const std::uint64_t ask = [&] {
        const std::lock_guard lock(cut.board->mutex);
        return cut.board->asked;
      }();
      if (again) tidy(in_flight());
      const auto safe = engine.view(storage::PieceName{"", cut.id, piece.piece}.text())
                            .wait(storage::kPieceVersion, name_of(level), kLook);
      if (safe) break;
      const bool full = pooled && safe.error().code == Errc::no_space;
      if ((!full && safe.error().code != Errc::timed_out) || stopping_) return safe;
      if (full && again) hold_up(cut, ask, safe.error());
    }
  }
  return {};
}

// Tells the waits, and tries again with the next one, or soon.
void Archive::hold_up(const Cut& cut, std::uint64_t ask, const Error& why) const {
  auto error = std::make_shared<const Error>(
      Error{why.code, "the snapshot of version " + std::to_string(cut.version) +
                          " is not stored, and will be once a drop makes room: " + why.message});
  Board& board = *cut.board;
  std::unique_lock lock(board.mutex);
  board.held_up.swap(error);  // the one before is freed without the mutex
  board.answered = ask;
  board.changed.notify_all();
  board.changed.wait_for(lock, kLook, [&] { return board.asked > ask || stopping_; });
}

Result<Future> Archive::store_map(Cut& cut, const InFlight& in_flight) {
  const auto engine = engine_.lock();
  if (!engine) return engine_gone();
  {
    const std::lock_guard lock(mutex_);
    stored_.push_back(cut.id);
  }
  if (cut.device)
    if (auto collected = cut.device->collect(cut.pieces); !collected) return collected.error();

  // Edges are packed at blocks, in pieces of their own.
  std::vector<ZoneTable::StoredEdge> edges;
  std::vector<std::byte> packed;
  const std::byte* from = cut.edges.data();
  const auto end_piece = [&]() -> Result<void> {
    if (packed.empty()) return {};
    auto added = add_piece(*engine, cut, packed, {});
    packed.clear();
    return added;
  };
  for (const MapRegion& part : cut.memory->parts()) {
    if (!part.is_edge()) continue;
    if (packed.size() == piece_bytes_)
      if (auto added = end_piece(); !added) return added.error();
    const std::size_t at = packed.size();
    edges.push_back({cut.pieces.size() * piece_bytes_ + at, storage::checksum_of({from, part.bytes})});
    packed.resize(at + os::kBlock);
    std::memcpy(packed.data() + at, from, part.bytes);
    from += part.bytes;
  }
  if (auto added = end_piece(); !added) return added.error();

  if (engine->durability() != Durability::ephemeral)
    if (auto safe = wait_for_pieces(*engine, cut, in_flight); !safe) return safe.error();

  const std::uint64_t packed_bytes =
      cut.pieces.empty() ? 0 : (cut.pieces.size() - 1) * piece_bytes_ + cut.pieces.back().bytes;
  MadeMap made;
  {
    const std::lock_guard lock(mutex_);
    made = table_.add(cut, piece_bytes_, packed_bytes, edges);
  }
  storage::SnapshotLayout layout{.parts = {}, .piece_bytes = made.piece_bytes};
  for (const MapRegion& part : cut.memory->parts()) layout.parts.push_back({part.region, part.at});
  const std::vector<std::byte> map = storage::encode(made.map), places = encode(layout);
  const std::array<Source, 2> sources{Source{storage::kMapRegion, map.data(), map.size()},
                                      Source{storage::kLayoutRegion, places.data(), places.size()}};
  auto written = engine->writes().checkpoint(engine, 0, cut.version, sources, waiting(cut.metadata));
  if (!written) return written.error();
  const std::lock_guard lock(mutex_);
  std::erase_if(shared_, [&](const auto& one) { return one.first == cut.id; });
  std::vector<SnapshotId>& ids = maps_[cut.version];
  ids.clear();
  for (const auto& source : made.map.sources) ids.push_back(source.id);
  return *written;
}

void Archive::leave(const Cut& cut) {
  if (const auto engine = engine_.lock()) drop_pieces(*engine, prefix_of(cut.id));
  const std::lock_guard lock(mutex_);
  std::erase(stored_, cut.id);
  std::erase_if(shared_, [&](const auto& one) { return one.first == cut.id; });
}

// The next call tries again what cannot be dropped now.
void Archive::tidy(std::span<const SnapshotId> in_flight) {
  const auto engine = engine_.lock();
  if (!engine) return;
  const auto versions = engine->view("").versions();
  if (!versions) return;
  std::vector<SnapshotId> gone;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(maps_, [&](const auto& map) { return !std::ranges::binary_search(*versions, map.first); });
    const std::vector<SnapshotId> mine = table_.ids();
    std::erase_if(stored_, [&](const SnapshotId& id) {
      const auto names_it = [&](const auto& map) { return contains(map.second, id); };
      const auto shares_it = [&](const auto& one) { return one.second == id; };
      if (contains(in_flight, id) || contains(mine, id) || std::ranges::any_of(maps_, names_it) ||
          std::ranges::any_of(shared_, shares_it))
        return false;
      gone.push_back(id);
      return true;
    });
  }
  if (gone.empty()) return;
  // A crash may undo the drop of a map, which must then find its pieces.
  if (!engine->histories().wait_for_drops(kRoomTimeout, [this] { return stopping_.load(); })) {
    const std::lock_guard lock(mutex_);
    stored_.insert(stored_.end(), gone.begin(), gone.end());
    return;
  }
  for (const SnapshotId& id : gone) drop_pieces(*engine, prefix_of(id));
}

Result<void> Archive::know_left() {
  const auto engine = engine_.lock();
  if (!engine) return engine_gone();
  const auto names = engine->histories().names(storage::PieceName::prefix(""));
  if (!names) return names.error();
  if (names->empty()) return {};
  const auto versions = engine->view("").versions();
  if (!versions) return versions.error();
  const std::lock_guard lock(mutex_);
  for (const Version version : *versions) {
    const auto snapshot = SnapshotReader(*engine, 0, version, {.keep = true}).load();
    if (!snapshot && snapshot.error().code == Errc::damaged) continue;  // nobody can read what it names
    if (!snapshot && snapshot.error().code == Errc::unknown_version) continue;
    if (!snapshot) return snapshot.error();
    if (!*snapshot) continue;
    for (const auto& source : (*snapshot)->map.sources) maps_[version].push_back(source.id);
  }
  for (const std::string& name : *names) {
    const auto piece = storage::parse_piece_name(name);
    if (piece && piece->history.empty() && !contains(stored_, piece->id)) stored_.push_back(piece->id);
  }
  return {};
}

void Archive::drop_pieces(Engine& engine, const std::string& prefix) {
  const auto names = engine.histories().names(prefix);
  if (!names) return;
  for (const std::string& name : *names) static_cast<void>(engine.view(name).drop());
}

bool Archive::adopt(const std::shared_ptr<const ProtectedMemory>& memory, std::uint32_t first,
                    const storage::StoredSnapshot& from, const RestoredZones& zones) {
  const std::lock_guard lock(mutex_);
  for (const RestoredZones::StoredZones& piece : zones.pieces)
    if (!contains(stored_, from.map.sources[piece.source].id)) return false;
  table_.adopt(memory, first, from, zones.pieces);
  return true;
}

Archive::Choice Archive::choose(const ProtectedMemory& memory, std::span<const std::uint8_t> dirty,
                                std::size_t sources) const {
  Choice out;
  const std::lock_guard lock(mutex_);
  const std::vector<planner::SnapshotSource> leans = table_.sources(memory, dirty);
  if (leans.empty()) return out;
  const auto bytes = static_cast<std::uint64_t>(std::ranges::count(dirty, std::uint8_t{1})) * memory.zone_bytes();
  const planner::SnapshotChoice choice = planner::choose_snapshot(leans, bytes, {}, {.sources = sources});
  out.full = choice.kind == planner::SnapshotKind::full;
  if (choice.kind == planner::SnapshotKind::merged)
    table_.for_each_in(choice.merged, [&](std::uint32_t zone) {
      if (!dirty[zone]) out.zones.push_back(zone);
    });
  return out;
}

}  // namespace ebb::snapshots
