// What an earlier process left, or another one adds: what is in it, and the newest that is intact.
#include "store/engine.hpp"

namespace ebb::runtime {

// Out of everybody's sight, but for what is being read of it; on the disk it stays as it is. With a reason, whoever
// asks for it is told.
void Engine::discard_stale(const Locked& locked, policy::CheckpointRef checkpoint, const Error& why) {
  Record* const record = catalog_.find(locked, checkpoint);
  if (record == nullptr || !catalog_.live(locked, *record)) return;
  const policy::HistoryId history = record->history;
  const Version version = record->version;
  record->object.leave = true;
  port_.submit(locked, history, policy::event::Drop{version});
  catalog_.forget_written(locked, history, version);
  if (why.code != Errc::ok) catalog_.mark_lost(locked, history, version, why);
}

// The regions of what an earlier process wrote are read when somebody asks for them.
// `to_check`: also the checksums of its regions, if what is handed out is to be checked.
Result<void> Engine::know(Locked& locked, policy::HistoryId history, Version version, bool to_check) {
  if (machinery_->kept == nullptr) return {};
  if (setup_.readonly) {
    refresh(locked);
    look_for(locked, history, version);
  }
  for (;;) {
    if (lifetime_.closed(locked)) return lifetime_.closed_error();
    const Record* const record = catalog_.find(locked, history, version);
    if (record == nullptr) return {};  // the planner says why there is none
    const bool sum = record->info && to_check && setup_.verify_all && record->recovered != 0 && !record->sums;
    if (record->info && !sum) return {};
    const policy::CheckpointRef checkpoint = record->checkpoint;
    const storage::ObjectId object = record->recovered;
    std::optional<Error> unread;
    std::shared_ptr<const storage::Description> description;
    std::shared_ptr<const Record::Sums> sums;
    {
      const InFlight reading(locked, lifetime_);
      if (sum) {
        auto read = machinery_->kept->region_checksums(object);
        if (read)
          sums = std::make_shared<const Record::Sums>(std::move(*read));
        else
          unread = read.error();
      } else {
        auto read = machinery_->kept->load_description(object);
        if (read)
          description = std::move(*read);
        else
          unread = read.error();
      }
    }
    if (lifetime_.closed(locked)) return lifetime_.closed_error();
    if (!unread) {
      Record* const now = catalog_.find(locked, checkpoint);
      if (now != nullptr && sum)
        now->sums = std::move(sums);
      else if (now != nullptr)
        now->info = std::shared_ptr<const CheckpointInfo>(description, &description->info);
      continue;
    }
    const std::string key = catalog_.key_text(locked, history, version);
    const Errc code = unread->code;
    if (code == Errc::unknown_version) {
      discard_stale(locked, checkpoint, {code, key + " was dropped by the process that writes"});
      refresh(locked);  // which may have written it anew
      continue;
    }
    const Error error{code, key + (code == Errc::damaged ? " is damaged: " : " cannot be read: ") + unread->message};
    if (code == Errc::damaged) discard_stale(locked, checkpoint, error);
    return error;
  }
}

// Beside a process that writes: what is in a cache may be of a version that is dropped, and perhaps written anew, by
// now.
void Engine::look_for(Locked& locked, policy::HistoryId history, Version version) {
  for (;;) {
    const Record* const record = lifetime_.closed(locked) ? nullptr : catalog_.find(locked, history, version);
    const std::uint64_t looks = machinery_->kept->changes_seen();
    if (record == nullptr || record->looked == looks) return;
    const policy::CheckpointRef checkpoint = record->checkpoint;
    const storage::ObjectId object = record->recovered;
    bool gone = false;
    {
      const InFlight reading(locked, lifetime_);
      gone = machinery_->kept->was_dropped(object);
    }
    if (lifetime_.closed(locked)) return;
    Record* const now = catalog_.find(locked, checkpoint);
    if (now == nullptr) continue;
    if (!gone) {
      now->looked = looks;
      return;
    }
    discard_stale(locked, checkpoint,
                  {Errc::unknown_version,
                   catalog_.key_text(locked, history, version) + " was dropped by the process that writes"});
  }
}

// What there is of a version, by its name in the storage; 0: nothing.
storage::ObjectId Engine::adopted(policy::HistoryId history, Version version) {
  const Locked locked = port_.lock();
  const Record* const record = lifetime_.closed(locked) ? nullptr : catalog_.find(locked, history, version);
  return record == nullptr ? 0 : record->recovered;
}

// What a call says that failed: none, where the process that writes has dropped what it read and there is another one
// of this version, so that it is to be called again.
std::optional<Error> Engine::settle(policy::HistoryId history, Version version, const Error& error,
                                    storage::ObjectId before) {
  if (error.code != Errc::unknown_version && error.code != Errc::lost && error.code != Errc::dropped) return error;
  Locked locked = port_.lock();
  refresh(locked);
  look_for(locked, history, version);
  if (lifetime_.closed(locked)) return error;
  if (const Record* const record = catalog_.find(locked, history, version)) {
    if (record->recovered != before) return {};
    return error;
  }
  const Error* const why = catalog_.lost(locked, history, version);
  return why != nullptr && why->code == Errc::unknown_version ? *why : error;
}

// Beside a process that writes: what it has added. Whoever asks while another thread looks waits until that is adopted.
void Engine::refresh(Locked& locked) {
  if (machinery_->kept == nullptr || !setup_.readonly || lifetime_.closed(locked)) return;
  const InFlight reading(locked, lifetime_);
  const std::lock_guard turn(refresh_turn_);
  const std::vector<storage::Found> found = machinery_->kept->refresh();
  if (found.empty()) return;
  struct Held {
    Locked& locked;
    explicit Held(Locked& one) : locked(one) { locked.lock(); }
    ~Held() { locked.unlock(); }
  } const held(locked);
  if (!lifetime_.closed(locked)) adopt(locked, found);
}

Result<std::optional<Version>> Engine::latest(policy::HistoryId history, std::optional<Version> at_most,
                                              const Interrupt& interrupted) {
  if (auto error = lifetime_.forked()) return *error;
  Locked locked = port_.lock();
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  if (machinery_->kept == nullptr) {
    return Error{
        Errc::unsupported,
        "latest() is not supported: this store's durability is \"ephemeral\", and no process left it anything"};
  }
  refresh(locked);
  std::optional<Error> unread;
  std::optional<Version> below = at_most;
  for (bool inclusive = true;; inclusive = false) {
    if (lifetime_.closed(locked)) return lifetime_.closed_error();
    std::optional<Version> newest;
    catalog_.for_each_written(locked, history, [&](Version version, auto) {
      const bool low = !below || version < *below || (inclusive && version == *below);
      if (low && (!newest || version > *newest)) newest = version;
    });
    if (!newest && unread) return *unread;  // there is something, and nobody can tell what it is worth
    if (!newest) return newest;
    below = newest;
    if (setup_.readonly) look_for(locked, history, *newest);
    Record* record = catalog_.find(locked, history, *newest);
    if (setup_.readonly && record == nullptr) continue;
    if (record == nullptr || record->checked || record->durability != Record::Durability::durable) return newest;
    if (record->info && port_.in_memory(port_.planner(locked).fastest_complete(record->checkpoint)))
      return newest;  // checked on its way there
    const policy::CheckpointRef checkpoint = record->checkpoint;
    const storage::ObjectId object = record->object.id;
    if (object == 0) return newest;
    std::optional<InFlight> reading(std::in_place, locked, lifetime_);
    bool stop = false;
    const Result<void> intact = machinery_->kept->verify(object, [&]() noexcept {
      stop = stop || (interrupted && interrupted());
      return stop;
    });
    const bool gone = !intact && intact.error().code == Errc::unknown_version;
    if (!intact && !gone && !stop && setup_.log) {
      setup_.log.warning("version " + std::to_string(*newest) + " is passed over: " + intact.error().message);
    }
    reading.reset();
    if (lifetime_.closed(locked)) return lifetime_.closed_error();
    if (!intact && stop) {
      return Error{Errc::timed_out, "the call was interrupted before all of " +
                                        catalog_.key_text(locked, history, *newest) + " was read"};
    }
    record = catalog_.find(locked, checkpoint);
    if (intact && record != nullptr) {
      record->checked = true;
      if (record->recovered != 0) tell_durable(locked, checkpoint, true);
      return newest;
    }
    if (intact) continue;
    const std::string key = catalog_.key_text(locked, history, *newest);
    if (gone) {
      discard_stale(locked, checkpoint, {Errc::unknown_version, key + " was dropped by the process that writes"});
    } else if (intact.error().code == Errc::damaged) {
      // It may be written again; what is on the disk of it stays, for whoever looks into what happened.
      discard_stale(locked, checkpoint, {Errc::damaged, key + " is damaged: " + intact.error().message});
    } else {
      unread = Error{intact.error().code, key + " cannot be read: " + intact.error().message};
    }
  }
}

}  // namespace ebb::runtime
