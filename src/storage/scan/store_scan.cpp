// Scans a whole store: its index, all of its segments, or both and compares them.
#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "storage/file_io.hpp"
#include "storage/format/sector.hpp"
#include "storage/scan/segment_scan.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/scan/unreadable.hpp"

namespace ebb::storage {

using os::File;
using os::Files;
using os::FileStatus;
using Path = std::filesystem::path;

namespace {

constexpr unsigned kThreads = 4;
constexpr int kLists = 3;                        // of the directory, before a file counts as missing
constexpr std::uint64_t kHidden = 1ull << 32;    // more than the sequences in unread data can be
constexpr std::uint64_t kMaxIndex = 8ull << 30;  // bytes; a larger one is not read

// Whether the index describes the files that exist, with their lengths.
Result<bool> is_current(Files& files, const Path& directory, const ScannedStore& index,
                        const std::vector<std::uint64_t>& segments) {
  if (index.segments.size() != segments.size()) return false;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (index.segments[i].segment != segments[i]) return false;
    const Path path = segment_path(directory, segments[i]);
    FileStatus status;
    const auto known = files.status(path, status);
    if (!known && known.error == ENOENT) return false;
    if (!known) return file_error(path, "measuring it", known.error);
    if (status.kind != FileStatus::Kind::file || status.bytes != index.segments[i].bytes) return false;
  }
  return true;
}

struct ScanOne {
  std::optional<Result<ScannedSegment>> segment;
  std::vector<Damage> damages;
};

// Several at once: a disk serves many small reads faster together.
std::vector<ScanOne> scan_all(Files& files, const Path& directory, const Uuid& store,
                              const std::vector<std::uint64_t>& segments, bool settle) {
  std::vector<ScanOne> out(segments.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr thrown;
  {
    const auto work = [&] {
      try {
        for (std::size_t i; (i = next++) < segments.size();) {
          out[i].segment = scan_segment(files, directory, store, segments[i], 0, out[i].damages, settle);
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!thrown) thrown = std::current_exception();
      }
    };
    std::vector<std::jthread> threads;
    try {
      for (std::size_t i = 1; i < std::min<std::size_t>(kThreads, segments.size()); ++i) threads.emplace_back(work);
    } catch (const std::system_error&) {  // no more threads: those that started do the work
    }
    work();
  }
  if (thrown) std::rethrow_exception(thrown);
  return out;
}

std::string checkpoints(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " checkpoint" : " checkpoints");
}

// Records in the index that the scan found neither intact nor damaged. `segments` are those in the directory.
void find_lost(const Path& directory, const ScannedStore& index, const std::vector<std::uint64_t>& segments,
               ScannedStore& scanned) {
  std::set<std::pair<std::uint64_t, std::uint64_t>> there;
  for (const ScannedSegment& segment : index.segments) {
    if (std::ranges::binary_search(segments, segment.segment) || !segment.records.empty()) continue;  // reported below
    scanned.damages.push_back({segment_path(directory, segment.segment), 0,
                               "the index lists " + segment_name(segment.segment) + ", which is not there any more"});
  }
  for (const ScannedSegment& segment : scanned.segments) {
    for (const ScannedRecord& record : segment.records) there.emplace(segment.segment, record.head.place.offset);
  }
  std::set<std::pair<Path, std::uint64_t>> told;
  for (const Damage& damage : scanned.damages) told.emplace(damage.file, damage.offset);
  for (const ScannedSegment& segment : index.segments) {
    const Path path = segment_path(directory, segment.segment);
    for (const ScannedRecord& record : segment.records) {
      const std::uint64_t offset = record.head.place.offset;
      if (there.contains({segment.segment, offset}) || told.contains({path, offset})) continue;
      scanned.damages.push_back({path, offset,
                                 "version " + std::to_string(record.head.version) + " of history '" + record.history +
                                     "' is in the index, and there is no record of it here"});
    }
  }
}

// Records that existed when the store was last opened to write, in a file that still exists, and that are neither live
// nor dropped now: the head became zeros or was cut off. An unfinished record after a crash looks the same.
void find_lost_since(const Path& directory, const ScannedStore& old, ScannedStore& scanned) {
  std::map<std::uint64_t, const ScannedSegment*> now;
  for (const ScannedSegment& segment : scanned.segments) now.emplace(segment.segment, &segment);
  std::set<std::pair<Path, std::uint64_t>> told;
  for (const Damage& damage : scanned.damages) told.emplace(damage.file, damage.offset);
  for (const ScannedSegment& before : old.segments) {
    const auto found = now.find(before.segment);
    if (found == now.end() || found->second->bytes == 0) continue;  // it may have been removed in the meantime
    const ScannedSegment& segment = *found->second;
    std::set<std::uint64_t> heads;
    for (const ScannedRecord& record : segment.records) heads.insert(record.head.place.offset);
    for (const ScannedSegment::Stretch& place : segment.waste) heads.insert(place.offset);
    const Path path = segment_path(directory, before.segment);
    for (const ScannedRecord& record : before.records) {
      const std::uint64_t offset = record.head.place.offset;
      if (heads.contains(offset) || told.contains({path, offset})) continue;
      scanned.damages.push_back(
          {path, offset,
           "version " + std::to_string(record.head.version) + " of history '" + record.history +
               "' was here when the store was last opened, and there is no record of it any more"});
    }
  }
  for (const Damage& damage : old.damages) {  // known from before, and no intact record begins there now
    const auto number = segment_number(damage.file.filename());
    const auto found = number ? now.find(*number) : now.end();
    if (found == now.end() || told.contains({directory / damage.file, damage.offset})) continue;
    const ScannedSegment& segment = *found->second;
    const bool gap = std::ranges::any_of(segment.gaps, [&](const ScannedSegment::Gap& one) {
      return damage.offset >= one.offset && damage.offset - one.offset < one.length;
    });
    if (!gap && (damage.offset < segment.end || damage.offset >= segment.bytes)) continue;
    scanned.damages.push_back({directory / damage.file, damage.offset, damage.what, damage.unreadable});
  }
}

// Of the segments that existed when the store was last opened to write, only the last can be known to be missing: a
// writer removes others when they are empty, but never the last one before there is a newer one.
Result<std::optional<Damage>> find_lost_segment(Files& files, const Path& directory, const ScannedStore& old) {
  using Lost = std::optional<Damage>;
  if (old.segments.empty()) return Lost();
  const ScannedSegment& last = old.segments.back();
  // If another process writes, names change while they are listed. A process that removed this file created a newer one
  // first, so a later list has that one, or an even newer one.
  for (int tries = 0; tries < kLists; ++tries) {
    auto segments = list_segments(files, directory);
    if (!segments) return segments.error();
    if (!segments->empty() && segments->back() >= last.segment) return Lost();
  }
  return Lost({segment_path(directory, last.segment), 0,
               "the file existed when the store was last opened, with " + checkpoints(last.records.size()) +
                   ", and neither it nor a newer one exists any more"});
}

// Numbers are never reused, not even those lost in a power failure: an index that survived it refers to them.
void go_beyond(const std::vector<ScannedSegment>& known, std::uint64_t next_sequence, ScannedStore& out) {
  for (const ScannedSegment& segment : known) out.next_segment = std::max(out.next_segment, segment.segment + 1);
  out.next_sequence = std::max(out.next_sequence, next_sequence);
}

// What an intact first sector says about the file.
std::optional<std::uint64_t> said_length(std::span<const std::byte> index) {
  std::uint32_t format = 0;
  auto in = open_sector(index, kIndexMagic, "the index", &format);
  if (!in) return {};
  in->number<std::uint32_t>();
  in->array<Uuid>();
  return in->number<std::uint64_t>();
}

// The contents of the directory before any segment is read.
struct Listed {
  std::optional<IndexFile> file, old_file;
  std::optional<ScannedStore> old;    // from the previous index, if there is no intact one
  std::optional<ScannedStore> index;  // from an intact file
  std::optional<Damage> damage;       // of one that is not intact
  std::vector<std::uint64_t> segments;
  bool current = false;  // the index describes these as they are
};

Result<Listed> list_store(Files& files, const StoreDirectory& store) {
  const Path index_path = store.path() / kIndexFile;
  Listed out;
  auto file = read_index(files, index_path);
  if (!file) return file.error();
  out.file = std::move(*file);
  if (out.file && !out.file->wrong.empty()) {
    out.damage = Damage{index_path, 0, out.file->wrong};
  } else if (out.file) {
    auto parsed = parse_index(out.file->bytes, store.head());
    if (!parsed && parsed.error().code == Errc::unsupported) {
      return Error{Errc::unsupported, index_path.string() + ": " + parsed.error().message};
    }
    if (parsed) {
      out.index = std::move(*parsed);
    } else {
      out.damage = Damage{index_path, 0, parsed.error().message};
    }
  }
  if (!out.index) {
    auto old = read_index(files, store.path() / kOldIndexFile);
    if (!old) return old.error();
    out.old_file = std::move(*old);
    auto parsed = out.old_file ? parse_index(out.old_file->bytes, store.head()) : Error{Errc::damaged, {}};
    if (parsed) out.old = std::move(*parsed);  // otherwise only the segments count
  }
  auto segments = list_segments(files, store.path());
  if (!segments) return segments.error();
  out.segments = std::move(*segments);
  if (out.index && !may_come_back(out.index->damages)) {
    auto current = is_current(files, store.path(), *out.index, out.segments);
    if (!current) return current.error();
    out.current = *current;
  }
  return out;
}

}  // namespace

Result<std::vector<std::uint64_t>> list_segments(Files& files, const Path& directory) {
  std::vector<std::string> names;
  if (const auto listed = files.list(directory, names); !listed)
    return file_error(directory, "listing it", listed.error);
  std::vector<std::uint64_t> out;
  for (const std::string& name : names) {
    if (const auto number = segment_number(name)) out.push_back(*number);
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<bool> has_current_index(Files& files, const Path& directory) {
  const auto opened = open_store_directory(files, directory, {.readonly = true});
  if (!opened) return opened.error();
  auto listed = list_store(files, *opened);
  if (!listed) return listed.error();
  return listed->current;
}

Result<std::optional<IndexFile>> read_index(Files& files, const Path& path) {
  using Read = std::optional<IndexFile>;
  const auto opened = files.open(path, os::Open::read, false);
  if (!opened && opened.error == ENOENT) return Read();
  if (!opened) return file_error(path, "opening it", opened.error);
  const File file(files, static_cast<int>(opened.value), path.string(), false);
  FileStatus status;
  if (const auto known = files.status(file.fd(), status); !known) return file_error(path, "measuring it", known.error);
  if (status.kind != FileStatus::Kind::file)
    return Error{Errc::not_permitted, path.string() + ": it is not a plain file"};
  IndexFile out;
  for (std::uint64_t bytes = kSector;; bytes = status.bytes) {
    out.bytes.resize(bytes);
    const auto got = read_whole(files, file.fd(), out.bytes, 0);
    if (!got && got.error == EIO) {  // the segments have the same information
      return Read({{}, "the index cannot be read: " + os::describe_errno(EIO)});
    }
    if (!got) return file_error(path, "reading it", got.error);
    out.bytes.resize(static_cast<std::size_t>(got.value));
    const auto said = said_length(out.bytes);
    if (!said || bytes == status.bytes) return Read(std::move(out));
    if (*said != status.bytes || *said > kMaxIndex) {
      out.wrong = "the index should have " + std::to_string(*said) + " bytes and has " + std::to_string(status.bytes);
      return Read(std::move(out));
    }
  }
}

Result<ScannedStore> scan_store(Files& files, const Path& directory, bool use_index, bool settle) {
  const auto opened = open_store_directory(files, directory, {.readonly = true});
  if (!opened) return opened.error();
  const StoreDirectory& store = *opened;
  auto listed = list_store(files, store);
  if (!listed) return listed.error();
  if (use_index && listed->current) {
    for (Damage& damage : listed->index->damages) damage.file = store.path() / damage.file;
    ScannedStore out = std::move(*listed->index);
    go_beyond(out.segments, 1, out);
    return out;
  }

  ScannedStore out;
  out.head = store.head();
  auto scanned = scan_all(files, store.path(), out.head.store, listed->segments, settle);
  for (ScanOne& one : scanned) {
    if (!*one.segment) return one.segment->error();
    ScannedSegment& segment = **one.segment;
    out.next_sequence = std::max(out.next_sequence, segment.last_sequence + 1);
    out.segments.push_back(std::move(segment));
    std::move(one.damages.begin(), one.damages.end(), std::back_inserter(out.damages));
  }
  go_beyond(out.segments, 1, out);
  for (const auto& index : {std::cref(listed->index), std::cref(listed->old)}) {
    if (index.get()) go_beyond(index.get()->segments, index.get()->next_sequence, out);
  }
  // Records that reappear must not take precedence over newer ones.
  if (may_come_back(out.damages)) out.next_sequence = std::min(out.next_sequence + kHidden, kMaxSequence + 1);
  if (listed->damage) out.damages.push_back(*listed->damage);
  if (listed->index) {
    const std::size_t before = out.damages.size();
    find_lost(store.path(), *listed->index, listed->segments, out);
    // A process that began to write meanwhile has set the index aside first, so it is ignored.
    if (out.damages.size() != before) {
      auto again = read_index(files, store.path() / kIndexFile);
      if (!again) return again.error();
      if (*again != listed->file) out.damages.resize(before);
    }
  }
  if (listed->old) {
    const std::size_t before = out.damages.size();
    find_lost_since(store.path(), *listed->old, out);
    auto lost = find_lost_segment(files, store.path(), *listed->old);
    if (!lost) return lost.error();
    if (*lost) out.damages.push_back(**lost);
    if (out.damages.size() != before) {
      auto again = read_index(files, store.path() / kOldIndexFile);
      if (!again) return again.error();
      if (*again != listed->old_file) out.damages.resize(before);
    }
  }
  return out;
}

}  // namespace ebb::storage
