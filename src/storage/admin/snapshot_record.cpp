#include "storage/admin/snapshot_record.hpp"

#include <algorithm>
#include <cerrno>

#include "storage/file_io.hpp"
#include "storage/format/snapshot_names.hpp"
#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {
namespace {

std::string name_of(const std::string& history, const StoredSnapshot& snapshot, const ZonesInPiece& chunk) {
  return PieceName{history, snapshot.map.sources[chunk.source].id, chunk.piece}.text();
}

// Divides what is longer, so that little is in memory at once.
void divide(std::vector<ZonesInPiece>& chunks, const ZoneMap& map) {
  std::vector<ZonesInPiece> out;
  for (ZonesInPiece rest : chunks) {
    const ZoneMap::Region& region = map.regions[rest.zones.zones.region];
    const std::uint32_t most = std::max<std::uint32_t>(1, RecordReader::kPiece / region.zone_bytes);
    while (rest.zones.zones.count > most) {
      ZonesInPiece first = rest;
      first.zones.zones.count = most;
      first.zones.bytes = region.bytes_of(first.zones.zones.first, most);
      out.push_back(first);
      rest.zones.zones.first += most;
      rest.zones.zones.count -= most;
      rest.zones.sum += most;
      rest.zones.at += first.zones.bytes;
      rest.zones.offset += first.zones.bytes;
      rest.zones.bytes -= first.zones.bytes;
    }
    out.push_back(rest);
  }
  chunks = std::move(out);
}

}  // namespace

Result<std::optional<StoredSnapshot>> read_snapshot(RecordReader& opened) {
  const CheckpointInfo& info = opened.header().description.info;
  if (!is_snapshot(info)) return std::optional<StoredSnapshot>();
  std::vector<std::byte> payload;
  for (;;) {
    const auto part = opened.next();
    if (!part) return part.error();
    if (part->empty()) break;
    payload.insert(payload.end(), part->begin(), part->end());
  }
  const auto region = [&](std::uint32_t id) {
    const RegionInfo& one = info.regions[info.regions[0].id == id ? 0 : 1];
    return std::span(payload).subspan(one.offset, one.bytes);
  };
  auto found = parse_snapshot(region(kMapRegion), region(kLayoutRegion), info);
  if (!found) return found.error();
  return std::optional(std::move(*found));
}

std::vector<std::string> needed_pieces(const std::string& history, const StoredSnapshot& snapshot) {
  std::vector<std::string> names;
  for (const ZonesInPiece& chunk : zones_by_piece(snapshot, plan_restore(snapshot.map)))
    names.push_back(name_of(history, snapshot, chunk));
  std::ranges::sort(names);
  const auto twice = std::ranges::unique(names);
  names.erase(twice.begin(), twice.end());
  return names;
}

SnapshotContent::SnapshotContent(os::Files& files, std::string history, StoredSnapshot snapshot,
                                 const HeadsByHistory& pieces)
    : files_(files),
      history_(std::move(history)),
      snapshot_(std::move(snapshot)),
      pieces_(pieces),
      chunks_(zones_by_piece(snapshot_, plan_restore(snapshot_.map))) {
  std::ranges::sort(chunks_, {},
                    [](const ZonesInPiece& one) { return std::pair(one.zones.zones.region, one.zones.zones.first); });
  divide(chunks_, snapshot_.map);
}

Error SnapshotContent::fail(Errc code, const PlacedHead* piece, const std::string& what) {
  trouble_ = {};
  if (piece != nullptr)
    trouble_ = {segment_path(piece->directory, piece->head.place.segment), piece->head.place.offset, what};
  trouble_.what = what;
  return {code, what};
}

// Fills `bytes_` from the payload's `offset` on. Fewer bytes: the record is not there any more, or damaged.
os::SysResult SnapshotContent::read_payload(const os::File& file, const RecordHead& head, std::uint64_t offset) {
  if (!head.compact()) return read_whole(files_, file.fd(), bytes_, head.place.offset + head.header_bytes + offset);
  std::vector<std::byte> record(head.header_bytes);
  auto got = read_whole(files_, file.fd(), record, head.place.offset);
  if (!got) return got;
  const auto header = parse_header(std::span(record).first(static_cast<std::size_t>(got.value)), head);
  if (!header) return os::SysResult::of(0);
  std::ranges::copy(std::span(header->payload).subspan(offset, bytes_.size()), bytes_.begin());
  return os::SysResult::of(static_cast<std::int64_t>(bytes_.size()));
}

Result<std::span<const std::byte>> SnapshotContent::next() {
  if (at_ == chunks_.size()) return std::span<const std::byte>();
  const ZonesInPiece& chunk = chunks_[at_];
  const std::string name = name_of(history_, snapshot_, chunk);
  const std::string needs = "zone " + std::to_string(chunk.zones.zones.first) + " of it is stored by version " +
                            std::to_string(snapshot_.map.sources[chunk.source].version) + ", ";
  const auto [first, last] = pieces_.equal_range(name);
  Result<void> read = Error{Errc::damaged, {}};
  for (auto piece = first; piece != last && !read; ++piece) read = read_from(piece->second, chunk, needs);
  if (first == last) return fail(Errc::damaged, nullptr, needs + "in a piece that is not there: " + name);
  if (!read) return read.error();
  ++at_;
  return std::span<const std::byte>(bytes_);
}

// Fills `bytes_`.
Result<void> SnapshotContent::read_from(const PlacedHead& piece, const ZonesInPiece& chunk, const std::string& needs) {
  const RecordHead& head = piece.head;
  if (chunk.zones.offset + chunk.zones.bytes > head.payload_bytes)
    return fail(Errc::damaged, &piece, needs + "in a piece that is too short");
  const std::filesystem::path path = segment_path(piece.directory, head.place.segment);
  const auto opened = files_.open(path, os::Open::read, false);
  if (!opened && opened.error != ENOENT) {
    const Error error = file_error(path, "opening it", opened.error);
    return fail(error.code, &piece, needs + "which cannot be read: " + error.message);
  }
  bytes_.resize(chunk.zones.bytes);
  if (opened) {
    const os::File file(files_, static_cast<int>(opened.value), path.string(), false);
    const auto got = read_payload(file, head, chunk.zones.offset);
    if (!got) {
      const Error error = file_error(path, "reading it", got.error);
      return fail(error.code, &piece, needs + "which cannot be read: " + error.message);
    }
    const bool whole = static_cast<std::size_t>(got.value) == bytes_.size();
    if (whole && !first_mismatch(snapshot_.map, chunk.zones, bytes_)) return {};
  }
  if (!opened || is_dropped(files_, piece.directory, head))
    return fail(Errc::unknown_version, &piece, needs + "in a piece that was dropped");
  return fail(Errc::damaged, &piece, needs + "and does not match its checksum");
}

}  // namespace ebb::storage
