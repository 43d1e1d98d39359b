#include "store/recovery.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "planner/record_choice.hpp"
#include "store/lifetime.hpp"
#include "store/persistence.hpp"

namespace ebb::store {
namespace {

// "model/.ebbtide-file/3/...": the versions of a file are histories, whose names begin alike.
struct OfFile {
  std::string series;
  Version version = 0;
};
std::optional<OfFile> file_of(const std::string& history) {
  const auto mark = history.rfind(kReservedInNames);
  if (mark == std::string::npos) return {};
  OfFile file{history.substr(0, mark + kReservedInNames.size())};
  const char* const end = history.data() + history.size();
  const auto [after, wrong] = std::from_chars(history.data() + file.series.size(), end, file.version);
  if (wrong != std::errc() || after == end || *after != '/') return {};
  return file;
}

// The objects of a checkpoint, by file tier, but for those of which `of` gives 0.
template <class Of>
std::vector<std::pair<std::size_t, storage::ObjectId>> objects_of(const Record& record, Of&& of) {
  std::vector<std::pair<std::size_t, storage::ObjectId>> found;
  for (std::size_t file = 0; file < record.files.size(); ++file)
    if (const storage::ObjectId object = of(record.files[file]); object != 0) found.emplace_back(file, object);
  return found;
}

}  // namespace

void Recovery::register_recovered(const Locked& locked) {
  if (!files_.persistent()) return;
  std::vector<std::vector<storage::Found>> found;
  for (const auto& tier : files_.tiers()) found.push_back(tier->persistent()->take_found());
  if (found.size() > 1) drop_outdated(found);
  // The slowest first: the planner knows of each version where it need not be sent any more.
  for (std::size_t file = found.size(); file-- > 0;)
    add(locked, *files_.tiers()[file], std::exchange(found[file], {}), false);
}

void Recovery::drop_outdated(std::vector<std::vector<storage::Found>>& found) {
  planner::RecordChoice choice(files_.pool().storage() == nullptr);
  const auto key = [](const storage::Found& one) {
    return std::pair(storage::checksum_of(std::as_bytes(std::span(one.history))), one.version);
  };
  for (std::size_t file = 0; file < found.size(); ++file)
    for (const storage::Found& one : found[file]) choice.add(file, key(one), one.sequence, one.body);
  for (const auto& tier : files_.tiers())
    for (const storage::Gone& one : tier->persistent()->gone())
      choice.add_dropped({one.history, one.version}, one.sequence, one.body);
  for (std::size_t file = 0; file < found.size(); ++file)
    std::erase_if(found[file], [&](const storage::Found& one) {
      if (choice.counts(key(one), one.body)) return false;
      files_.tiers()[file]->storage().drop(one.object);
      return true;
    });
}

void Recovery::add(const Locked& locked, const FileTier& tier, const std::vector<storage::Found>& found, bool beside) {
  const std::string* last = nullptr;  // they are sorted by it
  planner::HistoryId history = 0;
  for (const storage::Found& one : found) {
    const bool other = last == nullptr || *last != one.history;
    if (other) history = catalog_.number_of(locked, one.history);
    last = &one.history;
    Record* known = catalog_.find(locked, history, one.version);
    if (known != nullptr && beside) {
      const std::uint64_t sequence = sequence_of(*known);
      if (one.sequence < sequence) continue;  // what the other process is about to drop there
      if (one.sequence > sequence || known->files[tier.number()].object.id != 0) {
        discard_stale(locked, known->checkpoint, {});  // it has dropped that and written it anew
        known = nullptr;
      }
    }
    port_.submit(locked, history, planner::event::Recovered{one.version, one.bytes, tier.index()});
    catalog_.mark_used(locked, history);
    if (const auto file = other ? file_of(one.history) : std::nullopt)
      unwritten_files_.insert(file->series);
    else if (other && one.history.find("/.ebbtide-") == std::string::npos)
      unwritten_.insert(history);
    Record& record = known != nullptr ? *known : catalog_.add(locked, history, one.version);
    InFile& there = record.files[tier.number()];
    there.durability = InFile::Durability::durable;
    there.recovered = there.object.id = one.object;
    catalog_.set_written(locked, record.checkpoint);
  }
}

// Hides a checkpoint from every later call; reads under way go on, and the file is left as it is. `why`: the error of
// later calls.
void Recovery::discard_stale(const Locked& locked, planner::CheckpointRef checkpoint, const Error& why) {
  Record* const record = catalog_.find(locked, checkpoint);
  if (record == nullptr || !catalog_.live(locked, *record)) return;
  const planner::HistoryId history = record->history;
  const Version version = record->version;
  for (std::size_t file = 0; file < record->files.size(); ++file)
    if (std::as_const(record->files)[file].object.id != 0) record->files[file].object.leave = true;
  port_.submit(locked, history, planner::event::Drop{version});
  catalog_.forget_written(locked, history, version);
  if (why.code != Errc::ok) catalog_.mark_lost(locked, history, version, why);
}

void Recovery::pass_over(const Locked& locked, planner::HistoryId history, Version version, const Error& why) {
  if (const Record* const record = catalog_.find(locked, history, version)) {
    discard_stale(locked, record->checkpoint, why);
  }
}

std::optional<std::string> Recovery::beneath(const Locked& locked, planner::HistoryId history, Version version) {
  if (port_.machine().retention.keep_last == 0) return {};
  struct Earlier {
    Version version;
    std::string text;
  };
  std::optional<Earlier> highest;
  const auto consider = [&](planner::HistoryId of, Version stored, Version counts) {
    const Record* const record = catalog_.find(locked, of, stored);
    if (record == nullptr || !record->recovered_in() || (highest && highest->version > counts)) return;
    highest = {counts, catalog_.key_text(locked, of, stored)};
  };
  if (unwritten_.erase(history) > 0) {
    catalog_.for_each_written(locked, history, [&](Version one, auto) { consider(history, one, one); });
  } else if (const auto file = unwritten_files_.empty() ? std::nullopt : file_of(catalog_.name_of(locked, history));
             file && unwritten_files_.erase(file->series) > 0) {
    version = file->version;
    for (const std::string& name : catalog_.names(locked, file->series))
      if (const auto one = file_of(name); one && name.ends_with("/record"))
        consider(catalog_.number_of(locked, name), 0, one->version);
  }
  if (!highest || highest->version < version) return {};
  return setup_.directory.string() + " has " + highest->text + " of an earlier run, and this one writes version " +
         std::to_string(version) +
         ": keep_last keeps the highest versions, and latest() returns the highest. Continue above it, drop the "
         "earlier run's versions, or give this run a directory or a history of its own";
}

Error Recovery::dropped_error(const Locked& locked, planner::HistoryId history, Version version) const {
  return {Errc::unknown_version,
          catalog_.key_text(locked, history, version) + " was dropped by the process that writes"};
}

void Recovery::refresh(Locked& locked) {
  if (!files_.persistent() || !setup_.readonly || lifetime_.closed(locked)) return;
  const InFlight reading(locked, lifetime_);
  const std::lock_guard turn(looking_);
  // The fastest first: what goes on down meanwhile is seen in one of them.
  std::vector<std::vector<storage::Found>> found;
  for (const auto& tier : files_.tiers()) found.push_back(tier->persistent()->refresh());
  if (std::ranges::all_of(found, [](const auto& in_tier) { return in_tier.empty(); })) return;
  struct Held {
    Locked& locked;
    explicit Held(Locked& one) : locked(one) { locked.lock(); }
    ~Held() { locked.unlock(); }
  } const held(locked);
  if (lifetime_.closed(locked)) return;
  for (std::size_t file = 0; file < found.size(); ++file) add(locked, *files_.tiers()[file], found[file], true);
}

// Of the newest of the checkpoint's records on the disk.
std::uint64_t Recovery::sequence_of(const Record& record) const {
  std::uint64_t newest = 0;
  for (const auto& [file, object] : objects_of(record, [](const InFile& in) { return in.recovered; }))
    newest = std::max(newest, files_.tiers()[file]->persistent()->sequence(object));
  return newest;
}

std::uint64_t Recovery::changes_seen() const {
  std::uint64_t all = 0;
  for (const auto& tier : files_.tiers()) all += tier->persistent()->changes_seen();
  return all;
}

Result<void> Recovery::load_metadata(Locked& locked, planner::HistoryId history, Version version, bool to_check) {
  if (!files_.persistent()) return {};
  if (setup_.readonly) {
    refresh(locked);
    find_dropped(locked, history, version);
  }
  for (;;) {
    if (lifetime_.closed(locked)) return lifetime_.closed_error();
    const Record* const record = catalog_.find(locked, history, version);
    if (record == nullptr) return {};  // the planner says why there is none
    const bool sums = record->info && to_check && setup_.verify_all && record->recovered_in() && !record->sums;
    if (record->info && !sums) return {};
    const planner::CheckpointRef checkpoint = record->checkpoint;
    const std::optional<Error> unread = load(locked, checkpoint, sums);
    if (lifetime_.closed(locked)) return lifetime_.closed_error();
    if (!unread) continue;
    if (unread->code == Errc::unknown_version) {
      discard_stale(locked, checkpoint, dropped_error(locked, history, version));
      refresh(locked);  // which may have written it anew
      continue;
    }
    const bool damaged = unread->code == Errc::damaged;
    const Error error{unread->code, catalog_.key_text(locked, history, version) +
                                        (damaged ? " is damaged: " : " cannot be read: ") + unread->message};
    if (damaged) discard_stale(locked, checkpoint, error);
    return error;
  }
}

// Reads what a record lacks: its regions, or with `sums` their checksums. From the fastest file tier that can be read.
std::optional<Error> Recovery::load(Locked& locked, planner::CheckpointRef checkpoint, bool sums) {
  const auto objects =
      objects_of(*catalog_.find(locked, checkpoint), [](const InFile& file) { return file.recovered; });
  std::shared_ptr<const storage::Description> description;
  std::shared_ptr<const Record::Sums> found;
  std::optional<Error> unread;
  {
    const InFlight reading(locked, lifetime_);
    for (const auto& [file, object] : objects) {
      storage::PersistentStorage& storage = *files_.tiers()[file]->persistent();
      Error error;
      if (sums) {
        auto read = storage.region_checksums(object);
        if (read)
          found = std::make_shared<const Record::Sums>(std::move(*read));
        else
          error = read.error();
      } else {
        auto read = storage.load_description(object);
        if (read)
          description = std::move(*read);
        else
          error = read.error();
      }
      if (found || description) break;
      if (!unread || unread->code == Errc::damaged || unread->code == Errc::unknown_version) unread = error;
    }
  }
  if (!found && !description) return unread;
  Record* const record = lifetime_.closed(locked) ? nullptr : catalog_.find(locked, checkpoint);
  if (record != nullptr && sums)
    record->sums = std::move(found);
  else if (record != nullptr)
    record->info = std::shared_ptr<const CheckpointInfo>(description, &description->info);
  return {};
}

// Beside a process that writes: what is in a cache may be of a version that is dropped, and perhaps written anew, by
// now. One that has left the fastest directory for the next one was not dropped.
void Recovery::find_dropped(Locked& locked, planner::HistoryId history, Version version) {
  for (;;) {
    const Record* const record = lifetime_.closed(locked) ? nullptr : catalog_.find(locked, history, version);
    const std::uint64_t looks = changes_seen();
    if (record == nullptr || record->looked == looks) return;
    const planner::CheckpointRef checkpoint = record->checkpoint;
    const auto objects = objects_of(*record, [](const InFile& file) { return file.recovered; });
    bool gone = false;
    {
      const InFlight reading(locked, lifetime_);
      gone = std::ranges::all_of(
          objects, [&](const auto& one) { return files_.tiers()[one.first]->persistent()->was_dropped(one.second); });
    }
    if (lifetime_.closed(locked)) return;
    Record* const now = catalog_.find(locked, checkpoint);
    if (now == nullptr) continue;
    if (!gone) {
      now->looked = looks;
      return;
    }
    discard_stale(locked, checkpoint, dropped_error(locked, history, version));
    refresh(locked);  // since the last look at the store it may have been written anew
  }
}

Recovery::Objects Recovery::objects_of_version(const Locked& locked, planner::HistoryId history,
                                               Version version) const {
  const Record* const record = lifetime_.closed(locked) ? nullptr : catalog_.find(locked, history, version);
  Objects found{};
  for (std::size_t file = 0; record != nullptr && file < found.size(); ++file)
    found[file] = record->files[file].recovered;
  return found;
}

std::optional<Error> Recovery::settle(Locked& locked, planner::HistoryId history, Version version, const Error& error,
                                      const Objects& before) {
  if (error.code != Errc::unknown_version && error.code != Errc::lost && error.code != Errc::dropped) return error;
  refresh(locked);
  find_dropped(locked, history, version);
  if (lifetime_.closed(locked)) return error;
  if (catalog_.find(locked, history, version) != nullptr) {
    if (objects_of_version(locked, history, version) != before) return {};
    return error;
  }
  const Error* const why = catalog_.lost(locked, history, version);
  return why != nullptr && why->code == Errc::unknown_version ? *why : error;
}

Result<std::optional<Version>> Recovery::latest(Locked& locked, planner::HistoryId history,
                                                std::optional<Version> at_most, const Interrupt& interrupted) {
  if (!files_.persistent()) {
    return Error{
        Errc::unsupported,
        "latest() is not supported: this store's durability is \"ephemeral\", and no process left it anything"};
  }
  refresh(locked);
  std::optional<Error> unread;
  std::optional<Version> below = at_most;
  for (bool inclusive = true;;) {
    if (lifetime_.closed(locked)) return lifetime_.closed_error();
    std::optional<Version> newest;
    catalog_.for_each_written(locked, history, [&](Version version, auto) {
      const bool low = !below || version < *below || (inclusive && version == *below);
      if (low && (!newest || version > *newest)) newest = version;
    });
    if (!newest && unread) return *unread;  // something is there, and cannot be judged
    if (!newest) return newest;
    below = newest;
    inclusive = false;
    if (setup_.readonly) find_dropped(locked, history, *newest);
    const Record* const record = lifetime_.closed(locked) ? nullptr : catalog_.find(locked, history, *newest);
    if (setup_.readonly && record == nullptr) continue;
    if (record == nullptr || known_intact(locked, *record)) return newest;
    const planner::CheckpointRef checkpoint = record->checkpoint;
    bool stop = false;
    const Result<std::size_t> intact = verify(locked, *record, interrupted, stop);
    if (lifetime_.closed(locked)) return lifetime_.closed_error();
    const std::string key = catalog_.key_text(locked, history, *newest);
    if (!intact && stop) {
      return Error{Errc::timed_out, "the call was interrupted before all of " + key + " was read"};
    }
    if (intact) {
      Record* const now = catalog_.find(locked, checkpoint);
      inclusive = now == nullptr;  // another record of the version may have taken its place
      if (now == nullptr) continue;
      now->files[*intact].checked = true;
      if (now->files[*intact].recovered != 0) files_.submit_durable(locked, checkpoint, *intact, true);
      return newest;
    }
    if (intact.error().code == Errc::unknown_version) {
      discard_stale(locked, checkpoint, dropped_error(locked, history, *newest));
      refresh(locked);  // which may have written it anew
      inclusive = true;
    } else if (intact.error().code == Errc::damaged) {
      // The version may be written again; the damaged record stays on the disk, as evidence.
      discard_stale(locked, checkpoint, {Errc::damaged, key + " is damaged: " + intact.error().message});
    } else {
      unread = Error{intact.error().code, key + " cannot be read: " + intact.error().message};
    }
  }
}

// Whether the record need not be read and checked: it was, is not durable yet, is in no file, or is in a cache.
bool Recovery::known_intact(const Locked& locked, const Record& record) const {
  if (!record.durable_in()) return true;
  for (std::size_t file = 0; file < InFiles::size(); ++file)
    if (record.files[file].checked) return true;
  return record.info && port_.in_memory(port_.planner(locked).fastest_complete(record.checkpoint));
}

// Reads all of a checkpoint, in the files of one tier after the other until it is intact. `stop` is set if that was
// interrupted.
Result<std::size_t> Recovery::verify(Locked& locked, const Record& record, const Interrupt& interrupted, bool& stop) {
  const auto objects = objects_of(record, [](const InFile& file) {
    return file.durability == InFile::Durability::durable ? file.object.id : storage::ObjectId{0};
  });
  const Version version = record.version;
  const InFlight reading(locked, lifetime_);
  std::optional<Error> unread;
  for (const auto& [file, object] : objects) {
    const Result<void> intact = files_.tiers()[file]->persistent()->verify(
        object, [&]() noexcept { return stop = stop || (interrupted && interrupted()); });
    if (intact) return file;
    if (!unread || unread->code == Errc::damaged || unread->code == Errc::unknown_version) unread = intact.error();
    if (stop) break;
    if (intact.error().code == Errc::unknown_version || !setup_.log) continue;
    const bool more = file != objects.back().first;
    setup_.log.warning("version " + std::to_string(version) + " is " +
                       (more ? "read from the shared directory: " : "passed over: ") + intact.error().message);
  }
  return *unread;
}

}  // namespace ebb::store
