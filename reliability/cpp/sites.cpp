#include "reliability/cpp/sites.hpp"

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "storage/format/sector.hpp"
#include "storage/scan/segment_scan.hpp"

namespace ebb::trials {
namespace {

using doubles::Change;
using doubles::Inode;
using ChangeKind = Change::Kind;

std::string file_of(const Change& change) { return std::filesystem::path(change.text).filename(); }
bool is_segment(const std::string& name) { return storage::segment_number(name).has_value(); }

// What a write to a segment put there: as much as tells it from others.
std::string written(const Change& change) {
  std::string out = "payload";
  for (const auto& piece : *change.pieces) {
    for (std::size_t at = os::round_up(piece.from, storage::kSector); at + storage::kSector <= piece.to;
         at += storage::kSector) {
      const std::span<const std::byte> sector(piece.page->data() + at, storage::kSector);
      if (storage::has_magic(sector, storage::kSegmentMagic)) return "segment-head";
      if (!storage::has_magic(sector, storage::kRecordMagic)) continue;
      storage::BytesReader in(sector.subspan(12));
      out = "mark";  // small ones that share a block with a dropped one are written as they were
      if (in.number<std::uint32_t>() != 1) return "drop";
    }
  }
  return out;
}

std::string name_change(const Change& change) {
  if (change.kind == ChangeKind::make_directory) return "store-directory";
  const std::string to = change.kind == ChangeKind::rename ? change.to_name : change.name;
  if (is_segment(to)) return change.kind == ChangeKind::remove ? "segment-removal" : "segment-name";
  if (to == storage::kStoreFile) return "store-name";
  if (to == storage::kOldIndexFile && change.kind == ChangeKind::rename) return "index-removal";
  if (to == storage::kIndexFile) return change.kind == ChangeKind::remove ? "index-removal" : "index-name";
  return {};
}

// What each directory and file had done to it since its last sync.
class Sites {
 public:
  explicit Sites(const Journal& journal) {
    for (const Change& change : journal.changes) take(change);
  }
  std::map<std::string, std::vector<std::size_t>> out, failed;

 private:
  void take(const Change& change) {
    switch (change.kind) {
      case ChangeKind::create:
      case ChangeKind::make_directory:
      case ChangeKind::rename:
      case ChangeKind::remove:
        if (const std::string name = name_change(change); !name.empty()) {
          since_[change.kind == ChangeKind::rename ? change.to_directory : change.directory] = name;
        }
        break;
      case ChangeKind::write:
        if (is_segment(file_of(change))) {
          std::string& since = since_[change.inode];
          const std::string now = written(change);
          if (rank(now) >= rank(since)) since = now;
        }
        break;
      case ChangeKind::sync: {
        const std::string name = file_of(change);
        if (name == storage::kNewStoreFile)
          out["store-file"].push_back(change.number);
        else if (name == storage::kNewIndexFile)
          out["index-file"].push_back(change.number);
        else
          end(change, "payload");  // of nothing: objects without bytes
        break;
      }
      case ChangeKind::failed_sync:
        failed[since_[change.inode]].push_back(change.number);
        since_[change.inode].clear();
        break;
      case ChangeKind::sync_directory:
        if (since_[change.inode] == "index-name") since_[change.inode].clear();  // nobody waits for that one
        end(change, "opening");
        break;
      default: break;
    }
  }
  // The index may be lost, and the head of a segment goes with its first payload. A batch writes marks behind the
  // payloads, and drops behind both.
  static int rank(const std::string& what) {
    return what.empty() ? 0 : what == "segment-head" ? 1 : what == "payload" ? 2 : what == "mark" ? 3 : 4;
  }
  void end(const Change& change, const std::string& otherwise) {
    std::string& since = since_[change.inode];
    const bool plain = since.empty() || since == "segment-head";
    out[plain ? otherwise : since].push_back(change.number);
    since.clear();
  }
  std::unordered_map<Inode, std::string> since_;
};

void number(Journal& journal) {
  for (std::size_t i = 0; i < journal.changes.size(); ++i) journal.changes[i].number = i + 1;
}

using Wrong = std::optional<Journal>;

Wrong leave_out(const Journal& right, const char* name, const Part&) {
  const std::vector<std::size_t> which = sites_of(right)[name];
  if (which.empty()) return {};
  Journal out = right;
  for (const std::size_t at : which) out.changes.at(at - 1).kind = ChangeKind::nothing;
  return out;
}

// What a killed process left is not synced by the next one's opening.
template <ChangeKind kind>
Wrong leave_out_of_opening(const Journal& right, const char*, const Part& opening) {
  Journal out = right;
  bool any = false;
  for (std::size_t at = opening.after; at < opening.to; ++at) {
    if (right.changes.at(at).kind != kind) continue;
    out.changes.at(at).kind = ChangeKind::nothing;
    any = true;
  }
  return any ? Wrong(std::move(out)) : Wrong();
}

// Each sync of this kind comes later: right behind the first entry after it that `until` is true of.
template <class Until>
Wrong later(const Journal& right, const std::string& site, Until until) {
  std::vector<std::pair<std::size_t, std::size_t>> moves;  // from, to behind; numbers
  const std::vector<std::size_t> syncs = sites_of(right)[site];
  for (const std::size_t at : syncs) {
    for (std::size_t to = at + 1; to <= right.changes.size(); ++to) {
      if (!until(right.changes[at - 1], right.changes[to - 1])) continue;
      moves.emplace_back(at, to);
      break;
    }
  }
  if (moves.empty()) return {};
  Journal out{right.before, {}};
  for (const Change& change : right.changes) {
    if (!std::ranges::any_of(moves, [&](const auto& move) { return move.first == change.number; }))
      out.changes.push_back(change);
    for (const auto& [from, to] : moves) {
      if (to == change.number) out.changes.push_back(right.changes[from - 1]);
    }
  }
  number(out);
  return out;
}

bool reports(const Change& change) { return change.kind == ChangeKind::note && change.text.starts_with("durable"); }

Wrong mark_before_payload(const Journal& right, const char*, const Part&) {
  return later(right, "payload", [](const Change& sync, const Change& change) {
    return change.kind == ChangeKind::write && change.inode == sync.inode && written(change) == "mark";
  });
}

Wrong report_before_mark(const Journal& right, const char*, const Part&) {
  return later(right, "mark", [](const Change&, const Change& change) { return reports(change); });
}

Wrong report_before_name(const Journal& right, const char*, const Part&) {
  return later(right, "segment-name", [](const Change&, const Change& change) { return reports(change); });
}

Wrong punch_before_drop(const Journal& right, const char*, const Part&) {
  return later(right, "drop", [](const Change& sync, const Change& change) {
    return change.kind == ChangeKind::punch && change.inode == sync.inode;
  });
}

Wrong store_name_before_file(const Journal& right, const char*, const Part&) {
  return later(right, "store-file",
               [](const Change&, const Change& change) { return change.kind == ChangeKind::note; });
}

Wrong index_name_before_file(const Journal& right, const char*, const Part&) {
  return later(right, "index-file",
               [](const Change&, const Change& change) { return change.kind == ChangeKind::sync_directory; });
}

// The index goes when the first checkpoint is reported, and not before the first change.
Wrong index_stays_too_long(const Journal& right, const char*, const Part&) {
  Journal out{right.before, {}};
  std::vector<Change> held;
  bool any = false;
  for (const Change& change : right.changes) {
    if (change.kind == ChangeKind::rename && name_change(change) == "index-removal") {
      held.push_back(change);
      any = true;
      continue;
    }
    if (!held.empty() && held.size() < 2 && change.kind == ChangeKind::sync_directory) {
      held.push_back(change);
      continue;
    }
    const bool ends = change.kind == ChangeKind::create && change.name == storage::kNewIndexFile;
    if (ends) out.changes.insert(out.changes.end(), held.begin(), held.end());
    if (ends) held.clear();
    out.changes.push_back(change);
  }
  if (out.changes.size() != right.changes.size()) out.changes.insert(out.changes.end(), held.begin(), held.end());
  number(out);
  return any ? Wrong(std::move(out)) : Wrong();
}

// A version that was written anew is reported before the old one is dropped: that is then done right behind the reports
// of its batch. What is dropped for its own sake is dropped there anyway.
Wrong report_before_drop(const Journal& right, const char*, const Part&) {
  Journal out{right.before, {}};
  std::vector<Change> held;
  bool marked = false, passed = false, any = false;  // since the last report; a report while something was held
  const auto release = [&] {
    out.changes.insert(out.changes.end(), held.begin(), held.end());
    held.clear();
    any = any || passed;
    passed = false;
  };
  for (const Change& change : right.changes) {
    const bool writes = change.kind == ChangeKind::write && is_segment(file_of(change));
    const std::string what = writes ? written(change) : std::string();
    const bool of_held = std::ranges::any_of(held, [&](const Change& one) { return one.inode == change.inode; });
    const bool follows = of_held && !passed && (change.kind == ChangeKind::sync || change.kind == ChangeKind::punch);
    if ((marked && what == "drop") || follows) {
      held.push_back(change);
      continue;
    }
    const bool tells_readers = change.kind == ChangeKind::write && file_of(change) == "lock";  // before each report
    if (change.kind != ChangeKind::note && !tells_readers) release();
    if (what == "mark") marked = true;
    if (reports(change)) {
      marked = false;
      passed = passed || !held.empty();
    }
    out.changes.push_back(change);
  }
  release();
  number(out);
  return any ? Wrong(std::move(out)) : Wrong();
}

// What a failed sync was to cover is told to be lost, and its marks are not taken back.
Wrong marks_stay(const Journal& right, const char*, const Part&) {
  Journal out = right;
  Inode broken = 0;
  bool any = false;
  for (Change& change : out.changes) {
    if (change.kind == ChangeKind::failed_sync && is_segment(file_of(change))) broken = change.inode;
    if (change.kind == ChangeKind::note && change.text.starts_with("lost")) broken = 0;
    if (broken == 0 || change.inode != broken) continue;
    const bool taken_back = change.kind == ChangeKind::write && written(change) == "drop";
    if (!taken_back && change.kind != ChangeKind::sync) continue;
    change.kind = ChangeKind::nothing;
    any = true;
  }
  return any ? Wrong(std::move(out)) : Wrong();
}

}  // namespace

std::map<std::string, std::vector<std::size_t>> sites_of(const Journal& journal) { return Sites(journal).out; }

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> kAll{
      {"store-file", leave_out},
      {"store-name", leave_out},
      {"store-directory", leave_out},
      {"segment-name", leave_out},
      {"payload", leave_out},
      {"mark", leave_out},
      {"drop", leave_out},
      {"index-removal", leave_out},
      {"index-file", leave_out},
      {"segment-removal", leave_out},
      {"mark-before-payload", mark_before_payload},
      {"report-before-mark", report_before_mark},
      {"report-before-name", report_before_name},
      {"punch-before-drop", punch_before_drop},
      {"name-before-store", store_name_before_file},
      {"name-before-index", index_name_before_file},
      {"index-stays-too-long", index_stays_too_long},
      {"report-before-drop", report_before_drop},
      {"opening", leave_out_of_opening<ChangeKind::sync>, Mistake::Of::killed},
      {"opening-names", leave_out_of_opening<ChangeKind::sync_directory>, Mistake::Of::killed},
      {"marks-stay", marks_stay, Mistake::Of::failing},
  };
  return kAll;
}

bool is_known_site(std::string_view site) {
  return std::ranges::any_of(mistakes(), [&](const Mistake& one) { return site == one.name; });
}

}  // namespace ebb::trials
