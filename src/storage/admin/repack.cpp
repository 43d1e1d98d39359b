#include "storage/admin/repack.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <random>

#include "storage/format/repacking.hpp"
#include "storage/format/snapshot_names.hpp"
#include "storage/format/stored_snapshot.hpp"
#include "storage/persistent_storage.hpp"

namespace ebb::storage {
namespace {

using os::kBlock;
using Bytes = std::vector<std::byte>;

struct Free {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

// A storage that writes one checkpoint at a time, and returns when it is persistent.
//
// Thread safety: used by one thread; the mutex guards what the storage's threads report.
class Writer {
 public:
  Result<void> open(os::Files& files, os::Clock& clock, const PersistentOptions& options) {
    auto opened = open_persistent_storage(
        files, clock, options, [this](Token, const Result<void>& how) { report(put_, how); },
        [this](ObjectId, const Result<void>& how) { report(persisted_, how); });
    if (!opened) return opened.error();
    block_ = options.block_bytes;
    storage_ = std::move(*opened);
    return {};
  }
  ~Writer() {
    if (storage_) storage_->stop();
  }

  PersistentStorage& storage() { return *storage_; }

  Result<ObjectId> write(Description description, std::span<const std::byte> payload) {
    description.info.bytes = payload.size();
    const std::size_t room = os::round_up(std::max<std::size_t>(payload.size(), 1), block_);
    const std::unique_ptr<std::byte, Free> memory(static_cast<std::byte*>(std::aligned_alloc(kBlock, room)));
    if (!memory) throw std::bad_alloc();
    std::memcpy(memory.get(), payload.data(), payload.size());
    const ObjectId id = next_++;
    put_.reset();
    persisted_.reset();
    if (auto begun = storage_->begin(id, std::make_shared<const Description>(std::move(description))); !begun)
      return begun.error();
    auto how = storage_->put(id, id, payload.size(), 0, memory.get(), payload.size());
    if (how) how = wait_for(put_);
    if (how) {
      storage_->commit();
      how = wait_for(persisted_);
    }
    if (how) return id;
    storage_->drop(id);
    return how.error();
  }

 private:
  void report(std::optional<Result<void>>& to, const Result<void>& how) {
    const std::lock_guard lock(mutex_);
    to = how;
    changed_.notify_all();
  }
  Result<void> wait_for(std::optional<Result<void>>& report) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return report.has_value(); });
    return *report;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<void>> put_, persisted_;  // by the mutex: of the checkpoint that is being written
  std::uint32_t block_ = 0;
  ObjectId next_ = kFirstObject;
  std::unique_ptr<PersistentStorage> storage_;
};

// One snapshot that live maps may need: what is stored of it, and what they need.
struct Source {
  Version version = 0;
  SnapshotId id;
  std::uint64_t piece_bytes = 0;
  bool live = false;  // has a map of its own
  bool fits = true;   // its maps agree on its pieces
  Repacking packing;
  std::vector<ObjectId> maps;             // that name it
  std::map<std::uint64_t, Found> pieces;  // that are there, by number
  std::string failed;                     // why it was not packed anew

  std::uint64_t stored() const {
    std::uint64_t bytes = 0;
    for (const auto& [number, piece] : pieces) bytes += piece.bytes;
    return bytes;
  }
  bool repays() const { return fits && packing.bytes() < stored() / 2; }
};

struct SnapshotHistory {
  std::string name;
  std::vector<ObjectId> maps;
  std::vector<Source> sources;
  bool known = true;  // what its maps need

  Source& source(const SnapshotId& id) {
    for (Source& one : sources)
      if (one.id == id) return one;
    sources.emplace_back().id = id;
    return sources.back();
  }
};

Result<Bytes> read(PersistentStorage& storage, ObjectId object) {
  Bytes out;
  auto done = storage.read_payload(object, [&](std::uint64_t, std::span<const std::byte> bytes) {
    out.insert(out.end(), bytes.begin(), bytes.end());
  });
  if (!done) return done.error();
  return out;
}

// Nothing: it is no map.
Result<std::optional<StoredSnapshot>> read_map(PersistentStorage& storage, ObjectId object) {
  const auto description = storage.load_description(object);
  if (!description) return description.error();
  const CheckpointInfo& info = (*description)->info;
  if (!is_snapshot(info)) return std::optional<StoredSnapshot>();
  const auto payload = read(storage, object);
  if (!payload) return payload.error();
  const auto region = [&](std::uint32_t id) {
    const RegionInfo& one = info.regions[info.regions[0].id == id ? 0 : 1];
    return std::span(*payload).subspan(one.offset, one.bytes);
  };
  auto found = parse_snapshot(region(kMapRegion), region(kLayoutRegion), info);
  if (!found) return found.error();
  return std::optional(std::move(*found));
}

// A live snapshot needs all of its own bytes, and its map mostly comes before those that lean on it.
void take_map(SnapshotHistory& history, ObjectId object, const StoredSnapshot& snapshot) {
  history.source(snapshot.map.own().id).live = true;
  for (std::uint32_t i = 1; i < snapshot.map.sources.size(); ++i) {
    Source& source = history.source(snapshot.map.sources[i].id);
    if (source.live) continue;
    source.version = snapshot.map.sources[i].version;
    source.fits = source.fits && (source.maps.empty() || source.piece_bytes == snapshot.layout.piece_bytes[i]);
    source.piece_bytes = snapshot.layout.piece_bytes[i];
    source.maps.push_back(object);
    source.packing.add(snapshot.map, i);
  }
}

// The histories that have anything to be packed anew. None where damage may hide a map.
std::vector<SnapshotHistory> survey(PersistentStorage& storage) {
  if (!storage.damages().empty()) return {};
  const std::vector<Found> found = storage.found();
  std::map<std::string, SnapshotHistory, std::less<>> histories;
  for (const Found& one : found) {
    const auto piece = parse_piece_name(one.history);
    if (!piece) continue;
    SnapshotHistory& history = histories[piece->history];
    history.name = piece->history;
    history.source(piece->id).pieces.emplace(piece->piece, one);
  }
  for (const Found& one : found) {
    const auto history = histories.find(one.history);
    if (history == histories.end()) continue;
    const auto snapshot = read_map(storage, one.object);
    history->second.known = history->second.known && static_cast<bool>(snapshot);
    if (!snapshot || !*snapshot) continue;
    history->second.maps.push_back(one.object);
    take_map(history->second, one.object, **snapshot);
  }
  std::vector<SnapshotHistory> out;
  for (auto& [name, history] : histories) {
    std::erase_if(history.sources, [](const Source& one) { return one.live || one.maps.empty(); });
    for (Source& one : history.sources) {
      one.packing.pack();
      for (const Repacking::Slot& slot : one.packing.slots()) one.fits = one.fits && slot.bytes <= one.piece_bytes;
    }
    std::erase_if(history.sources, [](const Source& one) { return !one.repays(); });
    if (history.known && !history.sources.empty()) out.push_back(std::move(history));
  }
  return out;
}

// Copies the needed zones of one source to pieces of a new id.
class PieceCopier {
 public:
  PieceCopier(Writer& writer, const std::string& history, const Source& source, const SnapshotId& to)
      : writer_(writer), history_(history), source_(source), to_(to) {}

  Result<void> run() {
    for (const Repacking::Slot& slot : source_.packing.slots()) {
      if (slot.at / source_.piece_bytes != number_)
        if (auto written = end_piece(); !written) return written;
      number_ = slot.at / source_.piece_bytes;
      if (auto read = read_piece(slot.was / source_.piece_bytes); !read) return read;
      const std::uint64_t from = slot.was % source_.piece_bytes;
      if (from >= old_.size()) return Error{Errc::damaged, "piece " + name(source_.id, *old_number_) + " is too short"};
      new_.resize(slot.at % source_.piece_bytes + slot.bytes);
      const std::uint64_t there = std::min<std::uint64_t>(slot.bytes, old_.size() - from);
      std::memcpy(new_.data() + slot.at % source_.piece_bytes, old_.data() + from, there);
    }
    return end_piece();
  }
  /// What run() wrote goes.
  void undo() {
    for (const ObjectId object : written_) writer_.storage().drop(object);
  }

 private:
  std::string name(const SnapshotId& id, std::uint64_t piece) const { return PieceName{history_, id, piece}.text(); }

  Result<void> read_piece(std::uint64_t number) {
    if (old_number_ == number) return {};
    const auto piece = source_.pieces.find(number);
    if (piece == source_.pieces.end())
      return Error{Errc::damaged, "piece " + name(source_.id, number) + " is not there"};
    auto bytes = read(writer_.storage(), piece->second.object);
    if (!bytes) return bytes.error();
    old_ = std::move(*bytes);
    old_number_ = number;
    return {};
  }

  Result<void> end_piece() {
    if (new_.empty()) return {};
    Description description{name(to_, number_), kPieceVersion, {}};
    description.info.regions.push_back({0, new_.size(), 0});
    const auto written = writer_.write(std::move(description), new_);
    if (!written) return written.error();
    written_.push_back(*written);
    new_.clear();
    return {};
  }

  Writer& writer_;
  const std::string& history_;
  const Source& source_;
  const SnapshotId to_;
  std::uint64_t number_ = 0;  // of the piece that is being filled
  Bytes new_, old_;
  std::optional<std::uint64_t> old_number_;
  std::vector<ObjectId> written_;
};

struct Moved {
  Source* source = nullptr;
  SnapshotId to;
};

Result<ObjectId> write_map(Writer& writer, ObjectId object, const std::vector<Moved>& moved) {
  auto snapshot = read_map(writer.storage(), object);
  if (!snapshot) return snapshot.error();
  const auto description = writer.storage().load_description(object);
  if (!description) return description.error();
  ZoneMap map = std::move((*snapshot)->map);
  for (const Moved& one : moved) {
    for (std::uint32_t i = 1; i < map.sources.size(); ++i)
      if (map.sources[i].id == one.source->id) map = one.source->packing.moved(std::move(map), i, one.to);
  }
  const std::array<Bytes, 2> regions{encode(map), encode((*snapshot)->layout)};
  Description anew = **description;
  anew.info.regions = {{kMapRegion, regions[0].size(), 0},
                       {kLayoutRegion, regions[1].size(), os::round_up(regions[0].size())}};
  Bytes payload(anew.info.regions[1].offset + regions[1].size());
  for (std::size_t i = 0; i < 2; ++i)
    std::memcpy(payload.data() + anew.info.regions[i].offset, regions[i].data(), regions[i].size());
  return writer.write(std::move(anew), payload);
}

// The sources that could be copied. A new id has the old one's cut, so that it takes its place in every map.
std::vector<Moved> copy_pieces(Writer& writer, SnapshotHistory& history) {
  std::random_device random;
  std::vector<Moved> moved;
  for (Source& source : history.sources) {
    const SnapshotId to{source.id.cut, std::uint64_t{random()} << 32 | random()};
    PieceCopier copier(writer, history.name, source, to);
    if (const auto done = copier.run(); done) {
      moved.push_back({&source, to});
    } else {
      copier.undo();
      source.failed = done.error().message;
    }
  }
  return moved;
}

// A piece goes only when every map that needs it was written anew.
void repack(Writer& writer, SnapshotHistory& history) {
  const std::vector<Moved> moved = copy_pieces(writer, history);
  std::vector<ObjectId> replaced;
  for (const ObjectId map : history.maps) {
    const auto names = [&](const Moved& one) {
      return std::ranges::find(one.source->maps, map) != one.source->maps.end();
    };
    if (std::ranges::none_of(moved, names)) continue;
    if (const auto written = write_map(writer, map, moved); !written) {
      for (const Moved& one : moved) one.source->failed = written.error().message;
      return;
    }
    replaced.push_back(map);
  }
  for (const ObjectId object : replaced) writer.storage().drop(object);
  for (const Moved& one : moved)
    for (const auto& [number, piece] : one.source->pieces) writer.storage().drop(piece.object);
}

void tell(const SnapshotHistory& history, std::vector<admin::Repacked>& to) {
  for (const Source& one : history.sources)
    to.push_back({history.name, one.version, one.stored(), one.packing.bytes(), one.maps.size(), one.failed});
}

}  // namespace

Result<std::vector<admin::Repacked>> repack_snapshots(os::Files& files, os::Clock& clock,
                                                      const std::filesystem::path& directory, bool dry_run) {
  PersistentOptions options;
  options.directory = directory;
  options.capacity = std::uint64_t{1} << 62;
  options.direct = false;
  options.readonly = true;
  std::vector<admin::Repacked> out;
  {
    Writer reader;
    if (auto opened = reader.open(files, clock, options); !opened) return opened.error();
    options.synced = reader.storage().level() == Durability::storage;
    const auto histories = survey(reader.storage());
    if (histories.empty()) return out;
    if (dry_run) {
      for (const SnapshotHistory& history : histories) tell(history, out);
      return out;
    }
  }
  options.readonly = false;
  Writer writer;
  if (auto opened = writer.open(files, clock, options); !opened) return opened.error();
  for (SnapshotHistory& history : survey(writer.storage())) {
    repack(writer, history);
    tell(history, out);
  }
  return out;
}

}  // namespace ebb::storage
