#include "storage/veloc/veloc_search.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
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

// Of `<name>-<version>`.
std::optional<VelocName> parse_mark(std::string_view mark, int rank) {
  const auto dash = mark.rfind('-');
  const std::string_view digits = mark.substr(std::min(dash, mark.size() - 1) + 1);
  Version version = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), version);
  if (dash == mark.npos || digits.empty() || error != std::errc() || end != digits.data() + digits.size()) return {};
  VelocName name{std::string(mark.substr(0, dash)), rank, version};
  if (!check_veloc_name(name.name, version) || veloc_mark_name(name.name, version) != mark) return {};
  return name;
}

std::string mark_of_number(const VelocName& name) { return veloc_mark_name(name.name, veloc_number(name.version)); }

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

// Which edition a file is of; a mark that waits with its file is of no other.
class Editions {
 public:
  Editions(const VelocFolders& folders, const VelocOwnFiles& own) : folders_(folders), own_(own) {}

  /// Of a file's marks: those of its editions, the newest first.
  std::vector<Version> of(const VelocName& name) const {
    std::vector<Version> all;
    if (const auto found = own_.editions.find(mark_of_number(name)); found != own_.editions.end())
      for (const Version version : found->second)
        if (!own_.waiting.contains(veloc_mark_name(name.name, version))) all.push_back(version);
    std::ranges::reverse(all);
    return all;
  }
  /// Of a file that has no mark: that in whose place it is or, of another version, that which this library wrote last
  /// before it.
  Version of_others(const VelocName& name, std::int64_t touched_ns) {
    if (const auto own = of(name); !own.empty()) return own.front();
    Version edition = 0;
    for (const auto& [written_ns, newer] : newer_of(name.name))
      if (written_ns <= touched_ns) edition = std::max(edition, newer);
    return edition * kVelocEdition + name.version;
  }

 private:
  using Times = std::vector<std::pair<std::int64_t, Version>>;
  const Times& newer_of(const std::string& name) {
    const auto [found, first] = newer_.try_emplace(name);
    if (!first) return found->second;
    for (const auto& [mark, files] : own_.marks) {
      const auto parsed = parse_mark(mark, folders_.rank());
      if (!parsed || parsed->name != name || parsed->version < kVelocEdition || own_.waiting.contains(mark)) continue;
      if (const auto begin = folders_.read_mark_begin(folders_.own() / files.front()))
        found->second.emplace_back(begin->head.written_ns, parsed->version / kVelocEdition);
    }
    return found->second;
  }

  const VelocFolders& folders_;
  const VelocOwnFiles& own_;
  std::map<std::string, Times> newer_;  // when editions above the first were written
};

SharedVelocObject marked_object(const VelocMarkBegin& begin, const Path& mark, VelocName name,
                                const os::FileStatus& status, Path path) {
  auto object = std::make_shared<VelocObject>();
  object->name = std::move(name);
  object->path = std::move(path);
  object->file = state_of(status);
  object->part = {0, status.bytes};
  object->bytes = begin.head.payload_bytes;
  object->sequence = begin.head.sequence;
  object->mark = mark;
  object->counted = object->put = true;
  return object;
}

Result<VelocSeen> find_object(const VelocFolders& folders, const VelocName& name, const VelocFolders::FileAt& place,
                              const os::FileStatus& status, const VelocOwnFiles& own, Editions& editions) {
  std::optional<Error> unreadable;
  if (name.rank != kAllRanks && !place.linked) {
    for (const Version version : editions.of(name)) {
      for (const std::string& mark : own.marks.at(veloc_mark_name(name.name, version))) {
        const auto begin = folders.read_mark_begin(folders.own() / mark);
        if (begin && begin->file == state_of(status)) {
          auto object =
              marked_object(*begin, folders.own() / mark, {name.name, name.rank, version}, status, place.path);
          object->named = true;
          return VelocSeen{std::move(object), begin->body, true};
        }
        if (!begin && !unreadable) unreadable = begin.error();
      }
    }
  }
  if (unreadable)
    return Error{unreadable->code, unreadable->message +
                                       ": without it nothing tells whether this file is as it was "
                                       "written; remove it to believe the file"};
  auto object = std::make_shared<VelocObject>();
  object->name = {name.name, name.rank, editions.of_others(name, status.touched_ns)};
  object->path = place.path;
  object->linked = place.linked;
  object->file = state_of(status);
  object->counted = object->put = object->named = true;
  const auto part = part_of(folders, name, status.bytes);
  if (!part) return part.error();
  object->part = *part;
  auto info = place.linked ? Result<CheckpointInfo>(program_file(status.bytes)) : read_table(folders, *object);
  if (!info) return info.error();
  object->layout = VelocLayout::of(*info);
  object->bytes = info->bytes;
  // A later write by somebody else counts as newer than all of ours before it.
  object->sequence = static_cast<std::uint64_t>(std::max<std::int64_t>(status.touched_ns, 1));
  object->description =
      std::make_shared<const Description>(Description{name.name, object->name.version, std::move(*info), 0});
  return VelocSeen{std::move(object), {}, false};
}

// Nobody else writes in the own folder: a copy of it has other times, and the same files.
Result<std::optional<VelocSeen>> find_waiting(const VelocFolders& folders, const std::string& name,
                                              const VelocOwnFiles& own) {
  const auto parsed = parse_mark(name, folders.rank());
  const auto marks = own.marks.find(name);
  if (!parsed || marks == own.marks.end()) return std::optional<VelocSeen>();
  const Path path = folders.waiting_of(*parsed);
  os::FileStatus status;
  const auto asked = folders.files().status(path, status);
  if (!asked && asked.error == ENOENT) return std::optional<VelocSeen>();  // it has its name by now
  if (!asked) return file_error(path, "asking for its status", asked.error);
  std::optional<Error> unreadable;
  for (const std::string& mark : marks->second) {
    const auto begin = folders.read_mark_begin(folders.own() / mark);
    if (begin && begin->file.bytes == status.bytes) {
      auto object = marked_object(*begin, folders.own() / mark, *parsed, status, path);
      object->waits = true;
      object->sum_checked = true;  // a checksum file is of what has the name
      return std::optional(VelocSeen{std::move(object), begin->body, true});
    }
    if (!begin) unreadable = begin.error();
  }
  return unreadable.value_or(Error{Errc::damaged, "it is cut, or not the file that its mark is of"});
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
    } else if (name.ends_with(kVelocWaiting)) {
      own.waiting.insert(name.substr(0, name.size() - kVelocWaiting.size()));
    } else {
      own.marks[name].insert(own.marks[name].begin(), name);
    }
  }
  for (const std::string& name : own.pending) own.marks[mark_of_file(name, kVelocPending)].push_back(name);
  for (const auto& [mark, files] : own.marks)
    if (const auto parsed = parse_mark(mark, folders.rank()))
      own.editions[mark_of_number(*parsed)].insert(parsed->version);
  return own;
}

// The file that a pending mark may be of: where another edition has the final name, it is not that.
Result<Path> file_of_pending(const VelocFolders& folders, const VelocOwnFiles& own, const VelocName& name) {
  if (own.waiting.contains(veloc_mark_name(name.name, name.version))) return folders.waiting_of(name);
  const Path file = folders.path_of(name);
  os::FileStatus status;
  const auto asked = folders.files().status(file, status);
  if (!asked && asked.error != ENOENT) return file_error(file, "asking for its status", asked.error);
  for (const Version other : own.editions.at(mark_of_number(name))) {
    const std::string mark = veloc_mark_name(name.name, other);
    if (!asked || other == name.version || own.waiting.contains(mark) || own.marks.at(mark).front() != mark) continue;
    const auto begin = folders.read_mark_begin(folders.own() / mark);
    if (!begin && begin.error().code != Errc::damaged) return begin.error();
    if (begin && begin->file == state_of(status)) return folders.waiting_of(name);
  }
  return file;
}

Result<VelocOwnFiles> settle_interrupted(const VelocFolders& folders, const VelocOwnFiles& own) {
  for (const std::string& name : own.pending) {
    const std::string mark = mark_of_file(name, kVelocPending);
    const auto parsed = parse_mark(mark, folders.rank());
    if (!parsed) continue;  // nobody's
    const auto file = file_of_pending(folders, own, *parsed);
    if (!file) return file.error();
    os::FileStatus status;
    const auto begin = folders.read_mark_begin(folders.own() / name);
    if (!begin && begin.error().code != Errc::damaged) return begin.error();  // it may be readable the next time
    const auto asked = folders.files().status(*file, status);
    if (!asked && asked.error != ENOENT) return file_error(*file, "asking for its status", asked.error);
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
  auto left = list_own_files(folders);
  if (left)
    for (const std::string& name : left->waiting)
      if (!left->marks.contains(name))  // its mark was not written, or is removed already
        static_cast<void>(folders.files().remove(folders.own() / (name + std::string(kVelocWaiting))));
  return left;
}

Result<VelocLook> look(const VelocFolders& folders, const VelocObjects& objects, const VelocOwnFiles& own) {
  VelocLook look;
  look.before = folders.times();
  std::vector<std::string> names;
  if (const auto listed = folders.files().list(folders.directory(), names); !listed && listed.error != ENOENT)
    return file_error(folders.directory(), "listing it", listed.error);
  const auto known = objects.files();
  Editions editions(folders, own);
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
    const auto has_mark = [&](Version version) {
      if (!aggregated) look.marks.insert(veloc_mark_name(parsed->name, version));
    };
    if (place.linked && status.kind != os::FileStatus::Kind::file)
      look.damages.push_back(
          {folders.directory() / name, 0, "it leads to " + place.path.string() + ", which is no file"});
    if (status.kind != os::FileStatus::Kind::file) {
      std::ranges::for_each(editions.of(*parsed), has_mark);
      continue;
    }
    if (const auto same = known.find(name); same != known.end() && same->second.state == state_of(status)) {
      has_mark(same->second.version);
      look.there.insert(name);
      continue;
    }
    auto one = find_object(folders, *parsed, place, status, own, editions);
    if (!one) {
      std::ranges::for_each(editions.of(*parsed), has_mark);
      look.damages.push_back({folders.directory() / name, 0, one.error().message, one.error().code != Errc::damaged});
      continue;
    }
    has_mark(one->object->name.version);
    // It waited for its name when it was found.
    const std::string waited = folders.waiting_of(one->object->name).filename().string();
    if (const auto same = known.find(waited); same != known.end() && same->second.state == state_of(status))
      look.there.insert(waited);
    else
      look.seen.push_back(std::move(*one));
  }
  for (const std::string& mark : own.waiting) {
    const std::string name = mark + std::string(kVelocWaiting);
    look.marks.insert(mark);
    if (known.contains(name)) {
      look.there.insert(name);
      continue;
    }
    auto one = find_waiting(folders, mark, own);
    if (!one)
      look.damages.push_back({folders.own() / name, 0, one.error().message, one.error().code != Errc::damaged});
    else if (*one)
      look.seen.push_back(std::move(**one));
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
