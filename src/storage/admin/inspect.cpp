#include "storage/admin/inspect.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "storage/scan/newest.hpp"
#include "storage/scan/pairing.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/scan/unreadable.hpp"

namespace ebb::storage {
namespace {

using os::Files;
using Path = std::filesystem::path;
using ReportedPlace = std::pair<Path, std::uint64_t>;

std::string name_of(const std::string& history, Version version) {
  return "version " + std::to_string(version) + " of history '" + history + "'";
}

class Inspector {
 public:
  Inspector(Files& files, const Path& directory, bool settle) : files_(files), given_(directory), settle_(settle) {}

  Result<Inspection> run() {
    auto opened = open_store_directory(files_, given_, {.readonly = true});
    if (!opened) return opened.error();
    out_.directory = opened->path();
    const Path index_path = out_.directory / kIndexFile;
    auto before = read_index(files_, index_path);
    if (!before) return before.error();
    auto scanned = scan_store(files_, out_.directory, false, settle_);
    if (!scanned) return scanned.error();
    out_.head = scanned->head;
    out_.scanned = std::move(*scanned);
    auto after = read_index(files_, index_path);
    if (!after) return after.error();
    for (const Damage& damage : out_.scanned.damages) add(damage);
    // A process that began to write meanwhile has set it aside, so it is ignored.
    if (*before && *before == *after) {
      if (auto index = parse_index((*before)->bytes, out_.head)) hold_against(*index);
    }
    if (!out_.index) {
      auto old = read_index(files_, out_.directory / kOldIndexFile);
      if (!old) return old.error();
      if (*old) {
        if (auto index = parse_index((*old)->bytes, out_.head)) name_damages(*index);
      }
    }
    take_records();
    name_payloads();
    if (auto measured = take_segments(); !measured) return measured.error();
    if (auto listed = list(); !listed) return listed.error();
    out_.scanned.damages.clear();
    for (const InspectedDamage& one : out_.damages) out_.scanned.damages.push_back(one.damage);
    return std::move(out_);
  }

 private:
  void add(const Damage& damage) {
    if (!reported_.insert({{damage.file, damage.offset}, damage.what}).second) return;
    out_.damages.push_back({damage, {}, {}});
  }

  void hold_against(const ScannedStore& index) {
    out_.index = true;
    const Path index_path = out_.directory / kIndexFile;
    std::map<std::uint64_t, const ScannedSegment*> listed;
    for (const ScannedSegment& segment : index.segments) listed.emplace(segment.segment, &segment);
    for (const ScannedSegment& segment : out_.scanned.segments) {
      const std::string file = segment_name(segment.segment);
      const auto found = listed.find(segment.segment);
      if (found == listed.end()) {
        add({index_path, 0, "it does not know " + file});
        continue;
      }
      const ScannedSegment& there = *found->second;
      listed.erase(found);
      if (there.bytes != segment.bytes) {
        add({index_path, 0,
             "it says that " + file + " has " + std::to_string(there.bytes) + " bytes, and it has " +
                 std::to_string(segment.bytes)});
      }
      compare(segment, there);
    }
    for (const auto& [number, segment] : listed) {
      if (is_told(segment_path(out_.directory, number), 0)) continue;
      add({index_path, 0, "it lists " + segment_name(number) + ", which is not there"});
    }
    for (Damage damage : index.damages) {                            // known from an earlier time
      if (damage.file == kIndexFile || damage.unreadable) continue;  // what is still unreadable was just reported
      damage.file = out_.directory / damage.file;
      if (!is_told(damage.file, damage.offset)) add(damage);
    }
    name_damages(index);
  }

  void compare(const ScannedSegment& segment, const ScannedSegment& index) {
    std::map<std::uint64_t, const ScannedRecord*> listed;
    for (const ScannedRecord& record : index.records) listed.emplace(record.head.place.offset, &record);
    for (const ScannedRecord& record : segment.records) {
      const auto found = listed.find(record.head.place.offset);
      const std::string where =
          " (" + segment_name(segment.segment) + ", offset " + std::to_string(record.head.place.offset) + ")";
      if (found == listed.end()) {
        add({out_.directory / kIndexFile, 0,
             "it does not list " + name_of(record.history, record.head.version) + where});
      } else if (found->second->head != record.head || found->second->history != record.history) {
        add({out_.directory / kIndexFile, 0,
             "what it says of " + name_of(record.history, record.head.version) + " is not what its header says" +
                 where});
      }
    }
  }

  bool is_told(const Path& file, std::uint64_t offset) const {
    const auto found = reported_.lower_bound({{file, offset}, {}});
    return found != reported_.end() && found->first == ReportedPlace(file, offset);
  }

  void name_damages(const ScannedStore& index) {
    std::map<ReportedPlace, const ScannedRecord*> places;
    for (const ScannedSegment& segment : index.segments) {
      const Path path = segment_path(out_.directory, segment.segment);
      for (const ScannedRecord& record : segment.records)
        places.emplace(ReportedPlace(path, record.head.place.offset), &record);
    }
    for (InspectedDamage& one : out_.damages) {
      const auto found = places.find({one.damage.file, one.damage.offset});
      if (found == places.end()) continue;
      one.history = found->second->history;
      one.version = found->second->head.version;
    }
  }

  void take_records() {
    Newest newest;
    for (const ScannedSegment& segment : out_.scanned.segments) newest.add(segment);
    std::map<ReportedPlace, Version> versions;  // of damaged records with intact heads
    for (const ScannedSegment& segment : out_.scanned.segments) {
      for (const ScannedRecord& record : segment.records) {
        out_.records.push_back({record.head, record.history, !newest.is_newest(record.head, record.history)});
      }
      for (const ScannedSegment::Stretch& place : segment.damaged) {
        if (place.head) versions[{segment_path(out_.directory, segment.segment), place.offset}] = place.head->version;
      }
    }
    for (InspectedDamage& one : out_.damages) {
      const auto found = versions.find({one.damage.file, one.damage.offset});
      if (found != versions.end() && !one.version) one.version = found->second;
    }
    std::sort(out_.records.begin(), out_.records.end(), [](const Inspected& a, const Inspected& b) {
      return std::tie(a.history, a.head.version, b.head.sequence) <
             std::tie(b.history, b.head.version, a.head.sequence);
    });
    for (std::size_t i = 1; i < out_.records.size(); ++i) {
      const Inspected &a = out_.records[i - 1], &b = out_.records[i];
      out_.records[i].superseded = b.superseded || (a.history == b.history && a.head.version == b.head.version);
    }
  }

  // Payload damage that was found earlier.
  void name_payloads() {
    std::map<std::string, const ScannedSegment*> segments;
    for (const ScannedSegment& segment : out_.scanned.segments)
      segments.emplace(segment_name(segment.segment), &segment);
    for (InspectedDamage& one : out_.damages) {
      const auto found = segments.find(one.damage.file.filename());
      if (one.version || found == segments.end()) continue;
      const auto& records = found->second->records;
      auto behind = std::ranges::upper_bound(records, one.damage.offset, {},
                                             [](const ScannedRecord& record) { return record.head.place.offset; });
      if (behind == records.begin()) continue;
      const ScannedRecord& record = *--behind;
      if (one.damage.offset - record.head.place.offset >= record.head.record_bytes) continue;
      one.history = record.history;
      one.version = record.head.version;
    }
  }

  Result<void> take_segments() {
    std::map<std::uint64_t, admin::SegmentUse> uses;
    for (const ScannedSegment& segment : out_.scanned.segments) {
      admin::SegmentUse& use = uses[segment.segment];
      use.segment = segment.segment;
      use.file = segment_name(segment.segment);
      use.bytes = segment.bytes;
      for (const auto& place : segment.waste) use.dropped += place.length;
      for (const auto& gap : segment.gaps) use.gaps += gap.length;
      for (const auto& place : segment.damaged) use.damaged += place.length;
      use.unused = segment.bytes - std::min(segment.bytes, segment.end);
      os::FileStatus status;
      const auto known = files_.status(segment_path(out_.directory, segment.segment), status);
      if (!known && known.error != ENOENT) {
        return Error{Errc::io_error, segment_path(out_.directory, segment.segment).string() +
                                         ": measuring it failed with " + os::describe_errno(known.error)};
      }
      use.allocated = known ? status.allocated : 0;
    }
    for (const Inspected& record : out_.records) {
      admin::SegmentUse& use = uses[record.head.place.segment];
      (record.superseded ? use.superseded : use.live) += record.head.record_bytes;
      use.checkpoints += !record.superseded;
    }
    for (const auto& [number, use] : uses) out_.segments.push_back(use);
    return {};
  }

  Result<void> list() {
    std::vector<std::string> names;
    if (const auto listed = files_.list(out_.directory, names); !listed) {
      return Error{Errc::io_error,
                   out_.directory.string() + ": listing it failed with " + os::describe_errno(listed.error)};
    }
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      if (name == kNewStoreFile || name == kNewIndexFile || (is_pair_file(name) && name.ends_with(".new"))) {
        out_.left_over.push_back(name);
      } else if (is_pair_file(name)) {
        out_.paired = true;
      } else if (name != kStoreFile && name != kLockFile && name != kIndexFile && name != kOldIndexFile &&
                 !segment_number(name)) {
        out_.others.push_back(name);
      }
    }
    return {};
  }

  Files& files_;
  const Path given_;
  const bool settle_;
  Inspection out_;
  std::set<std::pair<ReportedPlace, std::string>> reported_;
};

}  // namespace

Result<Inspection> inspect(Files& files, const Path& directory, bool settle) {
  return Inspector(files, directory, settle).run();
}

}  // namespace ebb::storage
