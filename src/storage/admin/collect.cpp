#include "storage/admin/collect.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "planner/retention.hpp"
#include "storage/admin/collect_plan.hpp"
#include "storage/admin/snapshot_pieces.hpp"
#include "storage/file_io.hpp"
#include "storage/scan/pairing.hpp"
#include "storage/scan/store_directory.hpp"

namespace ebb::storage {
namespace {

using os::File;
using os::Files;
using os::kBlock;
using os::Open;
using Path = std::filesystem::path;

class Collector {
 public:
  Collector(Files& files, const Path& directory, const admin::GcOptions& options)
      : files_(files), given_(directory), options_(options) {}

  Result<Collected> run() {
    Durability level{};
    {
      auto there = open_store_directory(files_, given_, {.readonly = true});  // never makes a directory a store
      if (!there) return there.error();
      directory_ = there->path();
      store_ = there->head().store;
      level = there->head().level;
    }
    StoreDirectory locked;
    os::FileLock lock;
    if (options_.dry_run) {
      if (auto taken = take_turn(lock); !taken) return taken.error();
    } else {
      auto opened = open_store_directory(files_, directory_, {.level = level});
      if (!opened) return opened.error();
      locked = std::move(*opened);
    }
    bool settle = !options_.dry_run;
    if (settle && level == Durability::storage) {  // a clean close synced it; at the other level nothing is synced
      auto current = has_current_index(files_, directory_);
      if (!current) return current.error();
      settle = !*current;
    }
    auto store = inspect(files_, directory_, settle);
    if (!store) return store.error();
    out_.paired = store->paired;
    if (!read_payloads(*store)) {
      out_.ended = true;
      return std::move(out_);
    }
    find_unfinished(*store);
    const CollectPlan plan = plan_collection(*store, bad_, going_, options_.damaged);
    tell(*store, plan);
    if (options_.dry_run) return std::move(out_);
    const auto done = carry_out(plan);
    locked.announce_change();
    if (!done) return done.error();
    if (auto written = write_index(*store); !written) return written.error();
    auto after = measure(plan);
    if (!after) return after.error();
    out_.allocated_after = *after;
    return std::move(out_);
  }

 private:
  // Takes the writer's lock, because a writer's unfinished work would look like waste.
  Result<void> take_turn(os::FileLock& out) {
    const Path path = directory_ / kLockFile;
    const auto locked = files_.lock(path, Open::read);
    if (locked) out = os::FileLock(files_, static_cast<int>(locked.value));
    if (locked || locked.error == ENOENT) return {};
    if (locked.error != EWOULDBLOCK) return file_error(path, "locking it", locked.error);
    return in_use(files_, directory_, "wait for that to end");
  }

  // --- reading payloads. False: ended by the caller.

  bool read_payloads(const Inspection& store) {
    if (options_.damaged) {
      std::vector<std::size_t> all;
      for (std::size_t i = 0; i < store.records.size(); ++i) {
        if (!store.records[i].superseded) all.push_back(i);
      }
      if (!read(store, all)) return false;
    }
    for (std::size_t i = 0; i < store.records.size(); ++i)
      if (std::ranges::count(options_.retired, store.records[i].history) > 0 && !store.records[i].superseded)
        going_.emplace(i, admin::Removal::Why::retention);
    return options_.keep_last == 0 || retire(store);
  }

  bool read(const Inspection& store, const std::vector<std::size_t>& which) {
    std::vector<RecordHead> heads;
    for (const std::size_t i : which) heads.push_back(store.records[i].head);
    const std::vector<Verified> verdicts = verify_all(files_, directory_, heads, options_.threads, options_.progress);
    for (std::size_t k = 0; k < which.size(); ++k) {
      using Kind = admin::Verdict::Kind;
      const Inspected& record = store.records[which[k]];
      switch (verdicts[k].kind) {
        case Kind::unknown: return false;
        case Kind::intact: intact_.insert(which[k]); break;
        case Kind::damaged: bad_.emplace(which[k], verdicts[k].damage); break;
        case Kind::unreadable:
        case Kind::gone: unreadable_.push_back({verdicts[k].damage, record.history, record.head.version}); break;
      }
      known_.insert(which[k]);
    }
    return true;
  }

  static bool is_of_a_file(const Inspected& record) {
    return record.history.find(kReservedInNames) != std::string::npos;
  }

  // Pieces of files that were never closed, and of snapshots that no map names: the lock is held, so no process is
  // writing them. What is damaged may be the record of a file, or a map, so then nothing is taken for unfinished; nor
  // is anything in one of two directories, where those may be in the other one.
  void find_unfinished(const Inspection& store) {
    if (store.paired) return;
    if (!store.damages.empty() && !options_.damaged) return;
    const auto file_of = [](const std::string& history) {
      return std::string_view(history).substr(0, history.rfind('/') + 1);
    };
    std::set<std::string_view> closed;
    const auto is_removed = [&](std::size_t i) { return going_.contains(i) || (options_.damaged && bad_.contains(i)); };
    for (std::size_t i = 0; i < store.records.size(); ++i) {
      const Inspected& one = store.records[i];
      if (is_of_a_file(one) && one.history.ends_with("/record") && !one.superseded && !is_removed(i))
        closed.insert(file_of(one.history));
    }
    for (std::size_t i = 0; i < store.records.size(); ++i) {
      const Inspected& one = store.records[i];
      if (is_of_a_file(one) && !one.superseded && !closed.contains(file_of(one.history)))
        going_.emplace(i, admin::Removal::Why::unfinished);
    }
    for (const std::size_t i : unnamed_pieces(files_, directory_, store.records, is_removed))
      going_.emplace(i, admin::Removal::Why::unfinished);
  }

  // From the newest of each history until enough are intact; all histories at once.
  bool retire(const Inspection& store) {
    struct Descent {
      std::vector<std::size_t> newest_first;
      std::size_t at = 0;
      std::uint64_t intact = 0;
    };
    std::map<std::string_view, Descent> histories;
    for (std::size_t i = store.records.size(); i-- > 0;) {
      const Inspected& one = store.records[i];
      const auto begins = [&](const std::string& name) { return one.history.starts_with(name); };
      if (!one.superseded && !is_of_a_file(one) && !is_snapshot_piece(one) &&
          std::ranges::none_of(options_.apart, begins))
        histories[one.history].newest_first.push_back(i);
    }
    for (;;) {
      std::vector<std::size_t> wanted;
      for (auto& [name, one] : histories) {
        while (one.at < one.newest_first.size() && one.intact < options_.keep_last &&
               known_.contains(one.newest_first[one.at])) {
          one.intact += intact_.contains(one.newest_first[one.at++]);
        }
        const std::uint64_t missing = options_.keep_last - one.intact;
        for (std::size_t k = one.at; k < one.newest_first.size() && k - one.at < missing; ++k) {
          if (!known_.contains(one.newest_first[k])) wanted.push_back(one.newest_first[k]);
        }
      }
      if (wanted.empty()) break;
      if (!read(store, wanted)) return false;
    }
    for (auto& [name, one] : histories) {
      std::vector<planner::Retained> versions;
      for (const std::size_t i : one.newest_first)
        versions.push_back({store.records[i].head.version, intact_.contains(i)});
      for (const auto& [place, goes] : planner::dispensable({options_.keep_last, options_.keep_every}, versions)) {
        if (goes) going_.emplace(one.newest_first[place], admin::Removal::Why::retention);
      }
    }
    return true;
  }

  void tell(const Inspection& store, const CollectPlan& plan) {
    out_.removals = plan.removals;
    out_.damages = plan.damages;
    for (const InspectedDamage& one : unreadable_) out_.damages.push_back(one);
    out_.left_over_files = store.left_over.size();
    std::map<std::uint64_t, std::uint64_t> allocated;
    for (const admin::SegmentUse& use : store.segments) out_.allocated_before += allocated[use.segment] = use.allocated;
    for (const SegmentPlan& one : plan.segments) {
      out_.allocated_after += std::min(allocated[one.segment], one.bytes_after);
      if (one.remove) out_.segments.push_back(segment_path(directory_, one.segment));
    }
  }

  // --- writing

  Result<void> carry_out(const CollectPlan& plan) {
    bool any = false;  // removals by earlier processes were synced at opening
    for (const char* name : {kIndexFile, kOldIndexFile, kNewIndexFile, kNewStoreFile}) {
      const auto removed = files_.remove(directory_ / name);
      if (!removed && removed.error != ENOENT) return file_error(directory_ / name, "removing it", removed.error);
      any = any || removed;
    }
    if (any) {
      if (auto synced = sync_directory(); !synced) return synced;
    }
    std::map<std::uint64_t, SegmentPlan> first;
    for (const SegmentPlan& one : plan.segments) {
      if (one.again.empty()) continue;
      first[one.segment].segment = one.segment;
      first[one.segment].again = one.again;
    }
    for (const RecordHead& head : plan.first) {
      first[head.place.segment].segment = head.place.segment;
      first[head.place.segment].drop(head);
    }
    for (const SegmentPlan& one : plan.segments) lists_end_[one.segment] = one.list_at;
    for (const auto& [number, one] : first) {
      if (auto done = change(one, false); !done) return done;
    }
    any = false;
    for (const SegmentPlan& one : plan.segments) {
      if (!one.remove) {
        if (auto done = change(one, true); !done) return done;
        continue;
      }
      const Path path = segment_path(directory_, one.segment);
      const auto removed = files_.remove(path);
      if (!removed && removed.error != ENOENT) return file_error(path, "removing it", removed.error);
      any = true;
    }
    return any ? sync_directory() : Result<void>();
  }

  Result<void> sync_directory() {
    const auto synced = files_.sync_directory(directory_);
    if (!synced) return file_error(directory_, "syncing it", synced.error);
    return {};
  }

  // Heads are written and synced before the space of their records is freed. They are written even if the file seems to
  // have them: after a failed sync they may be only in memory, and another sync would not help.
  Result<void> change(const SegmentPlan& plan, bool whole) {
    const Path path = segment_path(directory_, plan.segment);
    const auto opened = files_.open(path, Open::write, false);
    if (!opened) return file_error(path, "opening it", opened.error);
    const File file(files_, static_cast<int>(opened.value), path.string(), false);
    bool written = false;
    const auto put = [&](std::span<const std::byte> bytes, std::uint64_t offset) -> Result<void> {
      if (!written_.emplace(plan.segment, offset).second) return {};
      const auto done = write_whole(files_, file.fd(), bytes, offset);
      if (!done) return file_error(path, "writing at " + std::to_string(offset), done.error);
      written = true;
      return {};
    };
    if (plan.write_head) {
      if (auto done = put(encode(SegmentHead{store_, plan.segment}), 0); !done) return done;
    }
    for (const RecordHead& head : plan.again) {
      if (auto done = put(encode(head), head.place.offset); !done) return done;
    }
    for (const RecordHead& head : plan.drops) {
      if (auto done = put(encode(head), head.place.offset); !done) return done;
    }
    for (const auto& [offset, length] : plan.nothing) {
      const RecordHead head{
          .kind = RecordHead::Kind::nothing, .place = {store_, plan.segment, offset}, .record_bytes = length};
      std::vector<std::byte> block(kBlock);  // all of it: part of an unreadable one cannot be written
      std::ranges::copy(encode(head), block.begin());
      if (auto done = put(block, offset); !done) return done;
    }
    std::vector<Drop> listed;
    std::ranges::copy_if(plan.listed, std::back_inserter(listed),
                         [&](const Drop& drop) { return written_.emplace(plan.segment, drop.offset).second; });
    if (!listed.empty()) {
      std::uint64_t& end = lists_end_[plan.segment];
      if (auto cut = cut_to(file, path, end); !cut) return cut;
      if (auto done = put(encode({store_, plan.segment, end}, listed), end); !done) return done;
      end += drops_bytes(listed.size());
    }
    if (written) {
      if (const auto synced = files_.sync(file.fd()); !synced) return file_error(path, "syncing it", synced.error);
    }
    if (!whole) return {};
    for (const auto& [offset, length] : plan.punch) {
      // If the file system cannot, the space is freed with the segment.
      static_cast<void>(files_.punch(file.fd(), offset + kBlock, length - kBlock));
    }
    // Without records there is nothing to list.
    return cut_to(file, path, plan.end == kBlock ? kBlock : std::max(plan.end, written_end(plan)));
  }

  Result<void> cut_to(const File& file, const Path& path, std::uint64_t end) {
    os::FileStatus status;
    if (const auto known = files_.status(file.fd(), status); !known)
      return file_error(path, "measuring it", known.error);
    if (status.bytes <= end) return {};
    if (const auto cut = files_.truncate(file.fd(), end); !cut) return file_error(path, "cutting it", cut.error);
    if (const auto synced = files_.sync(file.fd()); !synced) return file_error(path, "syncing it", synced.error);
    return {};
  }

  // Of its lists of drops; 0: none was written.
  std::uint64_t written_end(const SegmentPlan& plan) const {
    const std::uint64_t end = lists_end_.at(plan.segment);
    return end == plan.list_at ? 0 : end;
  }

  // From the current contents, plus damage that only the old index or a payload revealed.
  Result<void> write_index(const Inspection& before) {
    auto now = scan_store(files_, directory_, false);
    if (!now) return now.error();
    std::set<std::pair<Path, std::uint64_t>> told;
    for (const Damage& damage : now->damages) told.emplace(damage.file, damage.offset);
    for (const InspectedDamage& one : out_.damages) {
      const bool lasts = one.damage.file != directory_ / kIndexFile;
      if (lasts && told.emplace(one.damage.file, one.damage.offset).second) now->damages.push_back(one.damage);
    }
    std::erase_if(out_.damages, [&](const InspectedDamage& one) { return one.damage.file == directory_ / kIndexFile; });
    now->next_sequence = std::max(now->next_sequence, before.scanned.next_sequence);
    const Path beside = directory_ / kNewIndexFile;
    const auto opened = files_.open(beside, Open::create, false);
    if (!opened) return file_error(beside, "making it", opened.error);
    os::SysResult done;
    {
      const File file(files_, static_cast<int>(opened.value), beside.string(), false);
      done = write_whole(files_, file.fd(), encode_index(*now), 0);
      if (done) done = files_.sync(file.fd());
    }
    if (done) done = files_.rename(beside, directory_ / kIndexFile);
    if (!done) {
      static_cast<void>(files_.remove(beside));
      return file_error(beside, "writing it", done.error);
    }
    return sync_directory();
  }

  Result<std::uint64_t> measure(const CollectPlan& plan) {
    std::uint64_t all = 0;
    for (const SegmentPlan& one : plan.segments) {
      if (one.remove) continue;
      const Path path = segment_path(directory_, one.segment);
      os::FileStatus status;
      if (const auto known = files_.status(path, status); !known) return file_error(path, "measuring it", known.error);
      all += status.allocated;
    }
    return all;
  }

  Files& files_;
  const Path given_;
  const admin::GcOptions& options_;
  Path directory_;
  Uuid store_{};
  std::set<std::size_t> known_, intact_;  // indexes in Inspection::records
  std::map<std::size_t, admin::Removal::Why> going_;
  std::map<std::size_t, Damage> bad_;
  std::vector<InspectedDamage> unreadable_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> written_;  // segments and offsets of written or listed heads
  std::map<std::uint64_t, std::uint64_t> lists_end_;           // by segment: where its next list of drops goes
  Collected out_;
};

}  // namespace

Result<Collected> collect(Files& files, const Path& directory, const admin::GcOptions& options) {
  return Collector(files, directory, options).run();
}

}  // namespace ebb::storage
