#include "storage/admin/snapshot_pieces.hpp"

#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "storage/admin/snapshot_record.hpp"
#include "storage/format/snapshot_names.hpp"

namespace ebb::storage {
namespace {

using PieceKey = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;  // cut, random, number

PieceKey piece_of(const SnapshotId& id, std::uint64_t number) { return {id.cut, id.random, number}; }

// What the map in a record names, none if the record has no map. False: it cannot be known.
bool add_pieces(RecordReader& reader, std::set<PieceKey>& to) {
  if (!reader.open()) return false;
  const auto snapshot = read_snapshot(reader);
  if (!snapshot) return false;
  if (!*snapshot) return true;
  for (const ZonesInPiece& zones : zones_by_piece(**snapshot, plan_restore((*snapshot)->map)))
    to.insert(piece_of((*snapshot)->map.sources[zones.source].id, zones.piece));
  return true;
}

}  // namespace

bool is_snapshot_piece(const Inspected& record) { return parse_piece_name(record.history).has_value(); }

std::vector<std::size_t> unnamed_pieces(os::Files& files, const std::filesystem::path& directory,
                                        const std::vector<Inspected>& records,
                                        const std::function<bool(std::size_t)>& goes) {
  struct History {
    std::map<std::size_t, PieceKey> pieces;
    std::set<PieceKey> named;
    bool known = true;
  };
  std::map<std::string, History, std::less<>> histories;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].superseded) continue;
    if (const auto piece = parse_piece_name(records[i].history))
      histories[piece->history].pieces.emplace(i, piece_of(piece->id, piece->piece));
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    const auto found = histories.find(records[i].history);
    if (found == histories.end() || !found->second.known || records[i].superseded || goes(i)) continue;
    if (records[i].head.regions != 2) continue;
    RecordReader reader(files, directory, records[i].head);
    found->second.known = add_pieces(reader, found->second.named);
  }
  std::vector<std::size_t> unnamed;
  for (const auto& [name, history] : histories) {
    if (!history.known) continue;
    for (const auto& [i, piece] : history.pieces)
      if (!history.named.contains(piece)) unnamed.push_back(i);
  }
  return unnamed;
}

}  // namespace ebb::storage
