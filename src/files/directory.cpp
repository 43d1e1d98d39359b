#include "files/directory.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "planner/retention.hpp"

namespace ebb::files {
namespace {

constexpr std::uint64_t kSmallest = 256 << 10, kLargest = 64 << 20, kLeast = 4096;
constexpr std::uint64_t kShare = 16;  // of the cache a piece is at most so small a part: several are in hand
// A small cache has fewer, because shorter pieces cost more than they save.
constexpr std::uint64_t kSmallShare = 7, kWorthwhile = 1 << 20;

Error not_there(const FileName& file, const std::string& why) {
  return {Errc::unknown_version, file.text() + " is not there: " + why};
}

// The record's first: what a crash leaves without it is no file.
std::vector<std::string> histories(const Directory::Parts::value_type& file) {
  const FileName name{file.first.first, file.first.second};
  std::vector<std::string> names{name.record()};
  for (const std::string& part : file.second)
    if (part != "record" && part != "writer") names.push_back(name.prefix() + part);
  return names;
}

bool has_record(const std::vector<std::string>& parts) { return std::ranges::find(parts, "record") != parts.end(); }

}  // namespace

PieceLayout Directory::layout() const {
  const std::uint64_t cache = engine_->first_cache_bytes();
  const std::uint64_t share = std::max(cache / kShare, std::min(cache / kSmallShare, kWorthwhile));
  const std::uint64_t largest = std::clamp(std::bit_floor(share), kLeast, kLargest);
  return {std::min(kSmallest, largest), largest};
}

Result<FileRecord> Directory::record_of(const FileName& file) const {
  History stored = history(file.record());
  const auto info = stored.info(0);
  if (!info && info.error().code == Errc::unknown_version)
    return not_there(file, "no such file was written and closed");
  if (!info) return info.error();
  std::vector<std::byte> bytes(info->bytes);
  if (auto read = stored.restore(0, {{0, bytes.data(), bytes.size()}}, {.keep = true}); !read) return read.error();
  auto record = decode(bytes);
  if (!record) return Error{record.error().code, file.text() + ": " + record.error().message};
  for (const RecordedPiece& piece : record->pieces) {
    const auto versions = history(file.piece(piece.index)).versions();
    if (!versions) return versions.error();
    if (std::ranges::find(*versions, piece.version) == versions->end())
      return not_there(file, "its piece " + std::to_string(piece.index) + " is missing");
  }
  return record;
}

Result<Directory::Parts> Directory::parts(const std::optional<std::string>& name) const {
  const auto names = engine_->histories().names(name ? *name + std::string(kMark) : "");
  if (!names) return names.error();
  Parts found;
  for (const std::string& each : *names) {
    auto history = parse_history(each);
    if (history && (!name || history->file.name == *name))
      found[{history->file.name, history->file.version}].push_back(std::move(history->part));
  }
  return found;
}

Result<void> Directory::drop(const FileName& file, const std::vector<std::string>& parts) const {
  if (auto gone = history(file.record()).drop(); !gone) return gone;
  for (const std::string& part : parts) {
    if (part == "writer") continue;
    if (auto gone = history(file.prefix() + part).drop(); !gone) return gone;
  }
  return {};
}

Result<void> Directory::drop_left_over(const FileName& writing) const {
  const auto all = parts(writing.name);
  if (!all) return all.error();
  for (const auto& [key, parts] : *all) {
    const FileName file{key.first, key.second};
    std::optional<Reservation> writer;
    if (file.version != writing.version) {
      if (has_record(parts)) continue;  // a record is written last, and dropped first
      auto reserved = reserve_writer(file);
      if (!reserved) continue;
      writer = std::move(*reserved);
      // Looked at only now: until here it may have been closed.
      if (const auto there = record_of(file); there || there.error().code != Errc::unknown_version) continue;
    }
    if (auto dropped = drop(file, parts); !dropped) return dropped;
  }
  return {};
}

void Directory::begin_retention() const {
  if (engine_->retention().keep_last == 0) return;
  engine_->on_files_durable([](store::Engine& engine, const std::optional<std::string>& history) {
    const Directory files(std::shared_ptr<store::Engine>(std::shared_ptr<void>(), &engine));  // does not keep it
    const auto part = history ? parse_history(*history) : std::nullopt;
    const auto parts = files.parts(part ? std::optional(part->file.name) : std::nullopt);
    if (!parts) return;
    if (part) {
      const auto file = parts->find({part->file.name, part->file.version});
      if (file == parts->end() || !engine.histories().standing(histories(*file)).safe) return;
    }
    Parts of_one_name;
    for (auto at = parts->begin(); at != parts->end();) {
      of_one_name.insert(*at);
      if (++at == parts->end() || at->first.first != of_one_name.begin()->first.first)
        files.retire(std::exchange(of_one_name, {}));
    }
  });
}

// Drops what newer files make up for. What is not safe yet makes up for nothing.
void Directory::retire(const Parts& of_one_name) const {
  std::vector<planner::Retained> newest_first;
  std::vector<std::pair<std::vector<std::string>, store::Histories::Standing>> files;
  std::uint64_t last_write = 0;
  for (auto at = of_one_name.rbegin(); at != of_one_name.rend(); ++at) {
    if (!has_record(at->second)) continue;
    auto names = histories(*at);
    const auto standing = engine_->histories().standing(names);
    newest_first.push_back({at->first.second, standing.safe, standing.ours && standing.order >= last_write});
    last_write = std::max(last_write, standing.order);
    files.emplace_back(std::move(names), standing);
  }
  for (const auto& [place, goes] : planner::dispensable(engine_->retention(), newest_first))
    if (goes) engine_->histories().drop_unchanged(files[place].first, files[place].second);
}

}  // namespace ebb::files
