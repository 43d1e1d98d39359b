#include "storage/veloc/veloc_search.hpp"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "storage/file_io.hpp"

namespace ebb::storage {
namespace {

using Path = std::filesystem::path;

constexpr std::size_t kMostRankTable = std::size_t{64} << 20;  // bytes, for 8 million ranks

// "heat-2" of "heat-2.7.mark".
std::string mark_of_file(std::string_view name, std::string_view suffix) {
  name.remove_suffix(suffix.size());
  return std::string(name.substr(0, name.rfind('.')));
}

// Which part of a file is the rank's.
Result<VelocPart> part_of(const VelocFolders& folders, const VelocName& name, std::uint64_t file_bytes) {
  if (name.rank != kAllRanks) return VelocPart{0, file_bytes};
  if (folders.meta().empty())
    return Error{Errc::damaged,
                 "it is aggregated: which part of it is whose is said in VELOC's directory of metadata, "
                 "so name that (veloc_meta, or meta in VELOC's configuration)"};
  const Path path = folders.meta() / file_name(name);
  std::vector<std::byte> table;
  const auto got = read_front(folders.files(), path, kMostRankTable, table);
  if (!got && got.error != ENOENT) return file_error(path, "reading it", got.error);
  if (!got) return Error{Errc::damaged, "its table " + path.string() + " is not there"};
  return parse_veloc_table(table, folders.rank(), file_bytes);
}

Result<CheckpointInfo> read_table(const VelocFolders& folders, const VelocObject& object) {
  std::vector<std::byte> bytes;
  auto got = read_front(folders.files(), object.path, sizeof(std::uint64_t), bytes, object.part.begin);
  const std::uint64_t header = veloc_header_bytes(bytes, object.part.bytes);
  if (got && header > 0) got = read_front(folders.files(), object.path, header, bytes, object.part.begin);
  if (!got) return file_error(object.path, "reading it", got.error);
  return parse_veloc_header(bytes, object.part.bytes);
}

Result<VelocSeen> find_object(const VelocFolders& folders, const VelocName& name, const VelocFolders::FileAt& place,
                              const os::FileStatus& status, const VelocOwnFiles& own) {
  auto object = std::make_shared<VelocObject>();
  object->name = name;
  object->path = place.path;
  object->linked = place.linked;
  object->file = state_of(status);
  object->counted = object->put = object->named = true;
  const auto part = part_of(folders, name, status.bytes);
  if (!part) return part.error();
  object->part = *part;
  std::optional<Error> unreadable;
  const auto marks = own.marks.find(veloc_mark_name(name.name, name.version));
  if (name.rank != kAllRanks && !place.linked && marks != own.marks.end()) {
    for (const std::string& mark : marks->second) {
      const auto begin = folders.read_mark_begin(folders.own() / mark);
      if (begin && begin->file == object->file) {
        object->bytes = begin->head.payload_bytes;
        object->sequence = begin->head.sequence;
        object->mark = folders.own() / mark;
        return VelocSeen{std::move(object), begin->body, true};
      }
      if (!begin && !unreadable) unreadable = begin.error();
    }
  }
  if (unreadable)
    return Error{unreadable->code, unreadable->message +
                                       ": without it nothing tells whether this file is as it was "
                                       "written; remove it to believe the file"};
  auto info = place.linked ? Result<CheckpointInfo>(program_file(status.bytes)) : read_table(folders, *object);
  if (!info) return info.error();
  object->layout = VelocLayout::of(*info);
  object->bytes = info->bytes;
  // A later write by somebody else counts as newer than all of ours before it.
  object->sequence = static_cast<std::uint64_t>(std::max<std::int64_t>(status.touched_ns, 1));
  object->description = std::make_shared<const Description>(Description{name.name, name.version, std::move(*info), 0});
  return VelocSeen{std::move(object), {}, false};
}

}  // namespace

Result<VelocOwnFiles> list_own_files(const VelocFolders& folders) {
  VelocOwnFiles own;
  std::vector<std::string> names;
  const auto listed = folders.files().list(folders.own(), names);
  if (!listed && (!folders.readonly() || listed.error != ENOENT))
    return file_error(folders.own(), "listing it", listed.error);
  for (const std::string& name : names) {
    if (name.find('-') == name.npos) continue;
    if (name.ends_with(kVelocUnfinished)) {
      own.unfinished.push_back(name);
    } else if (name.ends_with(kVelocPending)) {
      own.pending.push_back(name);
    } else {
      own.marks[name].insert(own.marks[name].begin(), name);
    }
  }
  for (const std::string& name : own.pending) own.marks[mark_of_file(name, kVelocPending)].push_back(name);
  return own;
}

Result<VelocOwnFiles> settle_interrupted(const VelocFolders& folders, const VelocOwnFiles& own) {
  for (const std::string& name : own.pending) {
    const std::string mark = mark_of_file(name, kVelocPending);
    const auto dash = mark.rfind('-');
    const Path file = folders.directory() /
                      (mark.substr(0, dash) + "-" + std::to_string(folders.rank()) + mark.substr(dash) + ".dat");
    os::FileStatus status;
    const auto begin = folders.read_mark_begin(folders.own() / name);
    if (!begin && begin.error().code != Errc::damaged) return begin.error();  // it may be readable the next time
    const auto asked = folders.files().status(file, status);
    if (!asked && asked.error != ENOENT) return file_error(file, "asking for its status", asked.error);
    if (begin && asked && begin->file == state_of(status)) {
      if (auto renamed = folders.rename(folders.own() / name, folders.own() / mark); !renamed) return renamed.error();
    } else {
      static_cast<void>(folders.files().remove(folders.own() / name));
    }
  }
  for (const std::string& name : own.unfinished) {
    const Path mark = folders.own() / mark_of_file(name, kVelocUnfinished);
    os::FileStatus status;
    const auto begin = folders.read_mark_begin(mark);
    if (!begin && folders.files().status(mark, status)) continue;  // without it nothing tells what was meant
    if (begin && folders.files().status(folders.own() / name, status) && begin->file == state_of(status)) {
      static_cast<void>(folders.files().remove(mark));
      if (const auto synced = folders.sync(folders.own()); !synced) return synced.error();
    }
    static_cast<void>(folders.files().remove(folders.own() / name));
  }
  return list_own_files(folders);
}

Result<VelocLook> look(const VelocFolders& folders, const VelocObjects& objects, const VelocOwnFiles& own) {
  VelocLook look;
  look.before = folders.times();
  std::vector<std::string> names;
  if (const auto listed = folders.files().list(folders.directory(), names); !listed && listed.error != ENOENT)
    return file_error(folders.directory(), "listing it", listed.error);
  const auto known = objects.files();
  std::ranges::sort(names);
  for (const std::string& name : names) {
    const auto parsed = parse_file_name(name);
    const bool aggregated = parsed && parsed->rank == kAllRanks;
    if (!parsed || (!aggregated && parsed->rank != folders.rank())) continue;
    // A file of the rank's own counts before one of all.
    if (aggregated && std::ranges::binary_search(names, file_name({parsed->name, folders.rank(), parsed->version})))
      continue;
    os::FileStatus status;
    VelocFolders::FileAt place;
    const auto asked = folders.find(*parsed, place, status);
    if (!asked && asked.error == ENOENT) continue;
    if (!asked) return file_error(folders.directory() / name, "asking for its status", asked.error);
    if (!aggregated) look.marks.insert(veloc_mark_name(parsed->name, parsed->version));
    if (place.linked && status.kind != os::FileStatus::Kind::file)
      look.damages.push_back(
          {folders.directory() / name, 0, "it leads to " + place.path.string() + ", which is no file"});
    if (status.kind != os::FileStatus::Kind::file) continue;
    if (const auto same = known.find(name); same != known.end() && same->second == state_of(status)) {
      look.there.insert(name);
      continue;
    }
    auto one = find_object(folders, *parsed, place, status, own);
    if (one)
      look.seen.push_back(std::move(*one));
    else
      look.damages.push_back({folders.directory() / name, 0, one.error().message, one.error().code != Errc::damaged});
  }
  return look;
}

std::vector<VelocDeleted> find_deleted(const VelocFolders& folders, const VelocOwnFiles& own,
                                       const std::set<std::string>& there) {
  std::vector<VelocDeleted> deleted;
  std::set<std::string> moved;  // back, by a process that is removing them
  for (const std::string& name : own.unfinished) moved.insert(mark_of_file(name, kVelocUnfinished));
  for (const auto& [name, marks] : own.marks) {
    if (marks.front() != name || there.contains(name) || moved.contains(name)) continue;
    const auto begin = folders.read_mark_begin(folders.own() / name);
    if (!begin) continue;
    const auto history = std::as_bytes(std::span(name.data(), name.rfind('-')));
    deleted.push_back(
        {{checksum_of(history), begin->head.version, begin->head.sequence + 1, {}}, folders.own() / name});
  }
  return deleted;
}

}  // namespace ebb::storage
