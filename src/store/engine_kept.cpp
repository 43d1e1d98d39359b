// What outlives the process: opening what an earlier one left, durability, retention, closing.
#include <algorithm>

#include "base/wait_points.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/scratch/scratch_file.hpp"
#include "store/engine.hpp"

namespace ebb::runtime {
namespace {

constexpr std::uint64_t kMostBlock = 64 << 10;

transfer::FileEngineOptions::Kind kind_of(Io io) {
  using Kind = transfer::FileEngineOptions::Kind;
  return io == Io::uring ? Kind::uring : io == Io::threads ? Kind::threads : Kind::automatic;
}

// The longest power of two that every range put to a file is a multiple of.
std::uint32_t block_of(const policy::Machine& machine) {
  std::uint64_t all = kMostBlock | machine.ring_slot;
  for (const policy::LinkSpec& link : machine.links) all |= link.chunk;
  return static_cast<std::uint32_t>(std::min(kMostBlock, all & ~(all - 1)));
}

}  // namespace

// --- opening -------------------------------------------------------------------------------------------------------

Result<void> Engine::open_storage(const transfer::Done& done) {
  const policy::TierSpec& tier = setup_.machine.tiers.back();
  const transfer::FileEngineOptions engine{.kind = kind_of(setup_.io)};
  if (setup_.durability == Durability::ephemeral && !setup_.readonly) {
    if (auto refused = refuse_kept_store(); !refused) return refused;
    auto storage =
        storage::open_scratch_file(*seams_.files, {setup_.directory, tier.capacity, setup_.direct_io, engine}, done);
    if (!storage) return storage.error();
    machinery_->storage = std::move(*storage);
    return {};
  }
  storage::PersistentOptions options;
  options.directory = setup_.directory;
  options.capacity = tier.capacity;
  options.synced = setup_.durability == Durability::storage;
  options.readonly = setup_.readonly;
  options.direct = setup_.direct_io;
  options.checksums = setup_.checksums;
  options.block_bytes = block_of(setup_.machine);
  options.engine = engine;
  auto storage = storage::open_persistent_storage(
      *seams_.files, *seams_.clock, options, done,
      [this](storage::ObjectId id, const Result<void>& result) { on_kept(id, result); },
      [this](transfer::Token token) { on_carried(token); });
  if (!storage) return storage.error();
  machinery_->kept = storage->get();
  machinery_->storage = std::move(*storage);
  setup_.durability = machinery_->kept->level();
  return {};
}

// A program that lost its `durability` is told so on its first run, and not when it looks for what it wrote.
Result<void> Engine::refuse_kept_store() const {
  const auto store = storage::find_store(*seams_.files, setup_.directory);
  if (!store) return store.error();
  if (!*store) return {};
  const std::string level(name_of(Result<std::optional<storage::StoreHead>>(store).value()->level));
  return Error{Errc::invalid_argument, "directory=\"" + setup_.directory.string() + "\" is a store of durability \"" +
                                           level + "\": give durability=\"" + level +
                                           "\" to add to it, readonly to look at it, or "
                                           "another directory for a store that keeps nothing"};
}

void Engine::adopt(const Locked& locked, const std::vector<storage::Found>& found) {
  for (const storage::Found& one : found) {
    const policy::HistoryId history = catalog_.number_of(locked, one.history);
    if (const auto old =
            port_.planner(locked).find(history, one.version)) {  // the other process has dropped it and written it anew
      discard_stale(locked, *old, {});
    }
    port_.submit(locked, history, policy::event::Recovered{one.version, one.bytes});
    catalog_.mark_used(locked, history);
    Record& record = catalog_.add(locked, history, one.version);
    record.durability = Record::Durability::durable;
    record.recovered = record.object.id = one.object;
    catalog_.set_written(locked, record.checkpoint);
  }
}

void Engine::warn_of(const std::vector<storage::Damage>& damages) {
  if (!setup_.log) return;
  for (const storage::Damage& damage : damages) {
    setup_.log.warning(damage.file.string() + ", offset " + std::to_string(damage.offset) + ": " + damage.what);
  }
}

// --- becoming durable ----------------------------------------------------------------------------------------------

std::shared_ptr<const storage::Description> Engine::description_of(const Locked& locked,
                                                                   const policy::CheckpointRef& checkpoint) {
  const Record* record = catalog_.find(locked, checkpoint);
  if (machinery_->kept == nullptr || record == nullptr || !record->info) return nullptr;
  return std::make_shared<const storage::Description>(
      storage::Description{catalog_.name_of(locked, record->history), record->version, *record->info});
}

// No command moves a checkpoint of no bytes, and yet it is one.
void Engine::keep_empty(Locked& locked, policy::CheckpointRef checkpoint) {
  if (machinery_->kept == nullptr || lifetime_.closed(locked) || port_.poisoned(locked)) return;
  Record* const record = catalog_.find(locked, checkpoint);
  if (record == nullptr || !catalog_.live(locked, *record)) return;  // dropped already
  catalog_.name_object(locked, *record);
  catalog_.set_pending(locked, *record);
  const storage::ObjectId object = record->object.id;
  auto description = description_of(locked, checkpoint);
  const Result<void> begun = [&] {
    const InFlight beginning(locked, lifetime_);
    return machinery_->kept->begin(object, std::move(description));
  }();
  Record* const now = catalog_.find(locked, checkpoint);
  const bool dropped = now == nullptr || now->object.id != object;
  if (begun) {
    if (dropped) machinery_->kept->drop(object);  // when the storage did not know it yet
    return;
  }
  catalog_.take_pending(locked, object);
  if (dropped) return;
  now->durability = Record::Durability::failed;
  now->not_durable = Error{begun.error().code, catalog_.key_text(locked, now->history, now->version) +
                                                   " could not be written: " + begun.error().message};
  if (const auto future = now->future.lock()) future->error = now->not_durable;
  tell_durable(locked, checkpoint, false);
  machinery_->ended.notify_all();
}

// On a thread of the storage's.
void Engine::on_kept(storage::ObjectId object, const Result<void>& result) {
  Locked locked = port_.lock();
  const auto checkpoint = catalog_.take_pending(locked, object);
  if (!checkpoint) return;  // dropped
  if (Record* const record = catalog_.find(locked, *checkpoint)) {
    record->durability = result ? Record::Durability::durable : Record::Durability::failed;
    const auto future = record->future.lock();
    if (result && future) future->kept = true;
    if (result && record->not_durable) {  // of an earlier attempt
      record->not_durable.reset();
      if (future) future->error.reset();
    }
    if (!result) {
      record->not_durable = Error{result.error().code, catalog_.key_text(locked, record->history, record->version) +
                                                           " is not durable: " + result.error().message};
      if (future) future->error = record->not_durable;
    }
    try {
      tell_durable(locked, *checkpoint, static_cast<bool>(result));
    } catch (const std::exception& error) {
      port_.poison(locked, error);
    }
  }
  machinery_->ended.notify_all();
}

// The planner decides what that means for others.
void Engine::tell_durable(const Locked& locked, policy::CheckpointRef checkpoint, bool durable) {
  const Record* const record = catalog_.find(locked, checkpoint);
  if (lifetime_.closed(locked) || port_.poisoned(locked) || record == nullptr || !catalog_.live(locked, *record))
    return;
  if (durable)
    port_.submit(locked, record->history, policy::event::Durable{record->version});
  else
    port_.submit(locked, record->history, policy::event::NotDurable{record->version});
}

// All of it lies on the file tier; now until it is kept as the store promises.
Result<void> Engine::await_kept(Locked& locked, policy::HistoryId history, std::optional<Version> version,
                                std::string_view level, const Timer& timer, const Interrupt& interrupted) {
  std::vector<policy::CheckpointRef> waited = catalog_.pending(locked, history, version);
  if (waited.empty() && !version &&
      !lifetime_.closing(locked)) {  // what was reported durable, also long ago, is to be there
    if (const auto error = catalog_.not_durable(locked, history, version)) return *error;
    const InFlight looking(locked, lifetime_);
    return machinery_->kept->check_files_exist();
  }
  const auto pending = [&](const policy::CheckpointRef& checkpoint) {
    const Record* const record = catalog_.find(locked, checkpoint);
    return record != nullptr && record->durability == Record::Durability::pending && catalog_.live(locked, *record);
  };
  bool stop = false;
  const auto over = [&] {
    while (!waited.empty() && !pending(waited.back())) {
      if (const Record* const record = catalog_.find(locked, waited.back()); record != nullptr && record->not_durable)
        return true;
      waited.pop_back();
    }
    return waited.empty() || lifetime_.closed(locked) || port_.poisoned(locked) || timer.fired || stop;
  };
  if (!waited.empty()) machinery_->kept->commit();
  while (!over()) {
    if (wants_pump(locked)) machinery_->pump.notify_one();
    if (!interrupted) {
      EBB_WAIT(kept_awaited, machinery_->ended.wait(locked.native(), over));
      break;
    }
    bool woken = false;
    EBB_WAIT(kept_polled, woken = machinery_->ended.wait_for(locked.native(), kInterruptEvery, over));
    if (!woken) stop = asked_to_stop(locked, interrupted) || stop;
  }
  port_.throw_if_poisoned(locked);
  if (const auto error = catalog_.not_durable(locked, history, version)) return *error;
  if (waited.empty()) return {};
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  return Error{Errc::timed_out, "the time limit passed, or the call was interrupted, before " +
                                    waited_for(locked, history, version,
                                               static_cast<policy::TierIndex>(port_.machine().tiers.size() - 1)) +
                                    " was kept (\"" + std::string(level) + "\"): the files in " +
                                    setup_.directory.string() + " have not answered yet"};
}

// Which checkpoints a wait still stands for: "version 3", "version 3 and 5 more".
std::string Engine::waited_for(const Locked& locked, policy::HistoryId history, std::optional<Version> version,
                               policy::TierIndex tier) {
  if (version) return catalog_.key_text(locked, history, *version);
  std::optional<Version> first;
  std::size_t more = 0;
  for (const Record& record : catalog_.records(locked)) {
    if (!record.used || record.reserved || record.history != history) continue;
    if (!catalog_.live(locked, record)) continue;
    const bool there = port_.planner(locked).bytes_of(record.checkpoint) == 0 ||
                       port_.planner(locked).lowest_complete(record.checkpoint) >= tier;
    if (there && (machinery_->kept == nullptr || record.durability == Record::Durability::durable)) continue;
    if (first) ++more;
    first = first ? std::min(*first, record.version) : record.version;
  }
  if (!first) return "everything written";
  return catalog_.key_text(locked, history, *first) + (more ? " and " + std::to_string(more) + " more" : "");
}

// Before a kept store closes. Everything is tried, also when something has failed already. timed_out too if it was
// interrupted.
Result<void> Engine::drain(Locked& locked, policy::Time until, const Interrupt& interrupted) {
  if (machinery_->kept == nullptr || setup_.readonly || port_.poisoned(locked) || !lifetime_.opened(locked)) return {};
  Result<void> result;
  for (policy::HistoryId history = 0; history < catalog_.histories(locked); ++history) {
    locked.unlock();
    const bool stop = [&]() noexcept { return interrupted && interrupted(); }();
    locked.lock();
    if (stop) return Error{Errc::timed_out, "the call was interrupted"};
    std::optional<Seconds> left;
    if (until != policy::kNever)
      left = Seconds(static_cast<double>(std::max<policy::Time>(0, until - port_.now())) * 1e-9);
    const Result<void> one = wait_locked(locked, history, {}, name_of(setup_.durability), left, interrupted);
    if (!one && (result || one.error().code == Errc::timed_out)) result = one;
  }
  if (!result) return result;
  const InFlight looking(locked, lifetime_);
  return machinery_->kept->check_files_exist();
}

// Its last writes may meet files that do not answer. False: not in time, and it goes on for as long as that takes.
bool Engine::stop_storage(policy::Time until) {
  if (!machinery_->storage) return true;
  if (until != policy::kNever) {
    machinery_->stop_thread = std::thread([this] {
      machinery_->storage->stop();
      const Locked locked = port_.lock();
      stopped_ = true;
      lifetime_.wake(locked);
    });
    Locked locked = port_.lock();
    if (!lifetime_.await(locked, until, [&] { return stopped_; })) return false;
    locked.unlock();
    machinery_->stop_thread.join();
  }
  machinery_->storage->stop();
  for (const std::string& name :
       machinery_->kept&& setup_.log ? machinery_->kept->failed_drops() : std::vector<std::string>()) {
    setup_.log.warning(name +
                       " was dropped, and is there again when the store is opened next: its mark could not be "
                       "written to the files in " +
                       setup_.directory.string());
  }
  machinery_->storage.reset();
  return true;
}

}  // namespace ebb::runtime
