// What outlives the process: opening what an earlier one left, durability, retention, the newest intact version.
#include <algorithm>

#include "runtime/engine.hpp"
#include "runtime/wait_points.hpp"
#include "storage/scratch_file.hpp"

namespace ebb::runtime {
namespace {

constexpr auto kInterruptEvery = std::chrono::milliseconds(50);
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

std::uint64_t key_of(policy::CheckpointRef checkpoint) {
  return (std::uint64_t{checkpoint.slot} << 32) | checkpoint.generation;
}

}  // namespace

// --- opening -------------------------------------------------------------------------------------------------------

Result<void> Engine::open_storage(const transfer::Done& done) {
  const policy::TierSpec& tier = setup_.machine.tiers.back();
  const transfer::FileEngineOptions engine{.kind = kind_of(setup_.io)};
  if (setup_.durability == Durability::ephemeral && !setup_.readonly) {
    auto storage = storage::open_scratch_file(*seams_.files, {setup_.directory, tier.capacity, setup_.direct_io, engine}, done);
    if (!storage) return storage.error();
    machinery_->storage = std::move(*storage);
    return {};
  }
  storage::KeptOptions options;
  options.directory = setup_.directory;
  options.capacity = tier.capacity;
  options.synced = setup_.durability == Durability::storage;
  options.readonly = setup_.readonly;
  options.direct = setup_.direct_io;
  options.checksums = setup_.checksums;
  options.block_bytes = block_of(setup_.machine);
  options.engine = engine;
  auto storage = storage::open_kept_storage(*seams_.files, *seams_.clock, options, done,
                                            [this](storage::ObjectId id, const Result<void>& result) { on_kept(id, result); });
  if (!storage) return storage.error();
  machinery_->kept = storage->get();
  machinery_->storage = std::move(*storage);
  return {};
}

void Engine::adopt(const std::vector<storage::Found>& found) {
  for (const storage::Found& one : found) {
    const auto [id, added] = history_ids_.try_emplace(one.history, static_cast<policy::HistoryId>(histories_.size()));
    if (added) histories_.emplace_back().name = one.history;
    const policy::HistoryId history = id->second;
    if (planner_->find(history, one.version)) continue;  // written anew by the other process: the old one serves
    policy::Event event;
    event.kind = policy::EventKind::adopt;
    event.history = history;
    event.version = one.version;
    event.bytes = one.bytes;
    feed(event);
    const policy::CheckpointRef checkpoint = *planner_->find(history, one.version);
    if (checkpoint.slot >= records_.size()) records_.resize(checkpoint.slot + 1);
    Record& record = records_[checkpoint.slot] = {};
    record.checkpoint = checkpoint;
    record.history = history;
    record.version = one.version;
    record.used = true;
    record.kept = Record::Kept::kept;
    record.adopted = one.object;
    objects_[key_of(checkpoint)] = {one.object};
    histories_[history].versions[one.version] = checkpoint;
    histories_[history].kept.insert(one.version);
  }
}

void Engine::warn_of(const std::vector<storage::Damage>& damages) {
  if (!setup_.log) return;
  for (const storage::Damage& damage : damages) {
    setup_.log("warning: " + damage.file.string() + ", offset " + std::to_string(damage.offset) + ": " + damage.what);
  }
}

// The regions of what an earlier process wrote are read when somebody asks for them.
Result<void> Engine::know(Lock& lock, policy::HistoryId history, Version version) {
  const Record* record = find_record(history, version);
  if (record == nullptr || record->info) return {};
  const policy::CheckpointRef checkpoint = record->checkpoint;
  const storage::ObjectId object = record->adopted;
  ++under_way_;
  lock.native().unlock();
  auto description = machinery_->kept->read(object);
  lock.native().lock();
  --under_way_;
  if (closed_) {
    machinery_->drained.notify_all();
    return closed_error();
  }
  Record* const now = find_record(checkpoint);
  if (now == nullptr) return {};  // dropped meanwhile: the planner says so
  if (!description) {
    return Error{description.error().code, key_text(history, version) + ": " + description.error().message};
  }
  now->info = std::shared_ptr<const CheckpointInfo>(*description, &(*description)->info);
  return {};
}

// Beside a process that writes: what it has added.
void Engine::refresh(Lock& lock) {
  if (machinery_->kept == nullptr || !setup_.readonly || closed_) return;
  ++under_way_;
  lock.native().unlock();
  const std::vector<storage::Found> found = machinery_->kept->refresh();
  lock.native().lock();
  --under_way_;
  if (closed_) machinery_->drained.notify_all();
  else adopt(found);
}

// --- becoming durable ----------------------------------------------------------------------------------------------

std::shared_ptr<const storage::Description> Engine::description_of(const policy::CheckpointRef& checkpoint) {
  const Record* record = find_record(checkpoint);
  if (machinery_->kept == nullptr || record == nullptr || !record->info) return nullptr;
  return std::make_shared<const storage::Description>(
      storage::Description{histories_[record->history].name, record->version, *record->info});
}

// No command moves a checkpoint of no bytes, and yet it is one.
void Engine::keep_empty(Lock& lock, policy::CheckpointRef checkpoint) {
  if (machinery_->kept == nullptr || closed_) return;
  const Record* const record = find_record(checkpoint);
  if (record == nullptr || record->info->bytes > 0) return;
  const storage::ObjectId object = next_object_++;
  objects_[key_of(checkpoint)] = {object};
  keeping_.emplace(object, checkpoint);
  auto description = description_of(checkpoint);
  ++under_way_;
  lock.native().unlock();
  const Result<void> begun = machinery_->kept->begin(object, std::move(description));
  lock.native().lock();
  --under_way_;
  if (closed_) machinery_->drained.notify_all();
  Record* const now = find_record(checkpoint);
  if (now == nullptr || begun) return;
  keeping_.erase(object);
  now->kept = Record::Kept::failed;
  now->not_kept = begun.error();
}

// On a thread of the storage's.
void Engine::on_kept(storage::ObjectId object, const Result<void>& result) {
  Lock lock(*this);
  const auto found = keeping_.find(object);
  if (found == keeping_.end()) return;  // dropped
  const policy::CheckpointRef checkpoint = found->second;
  keeping_.erase(found);
  if (Record* const record = find_record(checkpoint)) {
    record->kept = result ? Record::Kept::kept : Record::Kept::failed;
    if (!result) {
      record->not_kept = Error{result.error().code, key_text(record->history, record->version) +
                                                        " is not durable: " + result.error().message};
      if (const auto future = record->future.lock()) future->error = record->not_kept;
    } else if (!closed_ && !broken_ && planner_->find(record->history, record->version) == checkpoint) {
      try {
        retain(record->history, record->version);
      } catch (const std::logic_error&) {
        // Kept in broken_: the callers throw it.
      }
    }
  }
  machinery_->ended.notify_all();
}

// A newer one is durable: what is older than the newest `keep_last` goes.
void Engine::retain(policy::HistoryId history, Version version) {
  std::set<Version>& kept = histories_[history].kept;
  kept.insert(version);
  if (setup_.keep_last == 0) return;
  const auto spared = [&](Version v) {
    return setup_.keep_every > 0 && v % static_cast<Version>(setup_.keep_every) == 0;
  };
  while (kept.size() > setup_.keep_last) {
    const Version oldest = *kept.begin();
    kept.erase(kept.begin());
    const auto there = histories_[history].versions.find(oldest);
    if (spared(oldest) || there == histories_[history].versions.end()) continue;
    histories_[history].versions.erase(there);
    policy::Event event;
    event.kind = policy::EventKind::drop;
    event.history = history;
    event.version = oldest;
    feed(event);
  }
}

// All of it lies on the file tier; now until it is kept as the store promises.
Result<void> Engine::await_kept(Lock& lock, policy::HistoryId history, std::optional<Version> version,
                                std::string_view level, const Timer& timer, const Interrupt& interrupted) {
  std::vector<policy::CheckpointRef> waited;
  for (const auto& [object, checkpoint] : keeping_) {
    const Record* const record = find_record(checkpoint);
    if (record != nullptr && record->history == history && (!version || record->version == *version)) {
      waited.push_back(checkpoint);
    }
  }
  const auto pending = [&](const policy::CheckpointRef& checkpoint) {
    const Record* const record = find_record(checkpoint);
    return record != nullptr && record->kept == Record::Kept::pending &&
           planner_->find(record->history, record->version) == checkpoint;
  };
  bool stop = false;
  const auto over = [&] {
    while (!waited.empty() && !pending(waited.back())) {
      if (const Record* const record = find_record(waited.back()); record != nullptr && record->not_kept) return true;
      waited.pop_back();
    }
    return waited.empty() || closed_ || broken_ || timer.fired || stop;
  };
  if (!waited.empty()) machinery_->kept->commit();
  while (!over()) {
    if (wants_pump()) machinery_->pump.notify_one();
    if (!interrupted) {
      EBB_WAIT(kept_awaited, machinery_->ended.wait(lock.native(), over));
      break;
    }
    bool woken = false;
    EBB_WAIT(kept_polled, woken = machinery_->ended.wait_for(lock.native(), kInterruptEvery, over));
    if (!woken) {
      lock.unlock();
      const bool asked = [&]() noexcept { return interrupted(); }();
      lock.lock();
      stop = stop || asked;
    }
  }
  if (broken_) throw std::logic_error(*broken_);
  // What failed is said to whoever waits, also when it failed before.
  for (const Record& record : records_) {
    if (record.used && record.not_kept && record.history == history && (!version || record.version == *version) &&
        planner_->find(record.history, record.version) == record.checkpoint) {
      return *record.not_kept;
    }
  }
  if (waited.empty()) return {};
  if (closed_) return closed_error();
  const Record* const record = find_record(waited.back());
  return Error{Errc::timed_out, "the time limit passed, or the call was interrupted, before " +
                                    (record ? key_text(history, record->version) : "everything written") + " was kept (\"" +
                                    std::string(level) + "\"): the files in " + setup_.directory.string() +
                                    " have not answered yet"};
}

// Before a kept store closes.
Result<void> Engine::drain(Lock& lock) {
  if (machinery_->kept == nullptr || setup_.readonly || broken_) return {};
  const std::string_view level = name_of(setup_.durability);
  Result<void> result;
  const policy::Time until = setup_.close_timeout ? later(now(), *setup_.close_timeout) : policy::kNever;
  for (policy::HistoryId history = 0; history < histories_.size() && result; ++history) {
    std::optional<Seconds> left;
    if (until != policy::kNever) left = Seconds(static_cast<double>(std::max<policy::Time>(0, until - now())) * 1e-9);
    result = wait_locked(lock, history, {}, level, left, {});
  }
  return result;
}

// --- coming back ---------------------------------------------------------------------------------------------------

Result<std::optional<Version>> Engine::latest(policy::HistoryId history, std::optional<Version> at_most) {
  if (auto error = forked()) return *error;
  Lock lock(*this);
  if (closed_) return closed_error();
  if (machinery_->kept == nullptr) {
    return Error{Errc::unsupported,
                 "latest() is not supported: this store's durability is \"ephemeral\", and no process left it anything"};
  }
  refresh(lock);
  std::optional<Version> below = at_most;
  bool inclusive = true;
  for (;;) {
    if (closed_) return closed_error();
    std::optional<Version> newest;
    for (const auto& [version, checkpoint] : histories_[history].versions) {
      const bool low = !below || version < *below || (inclusive && version == *below);
      if (low && (!newest || version > *newest) && planner_->find(history, version) == checkpoint) newest = version;
    }
    if (!newest) return newest;
    below = newest;
    inclusive = false;
    Record* record = find_record(history, *newest);
    if (record == nullptr || record->checked) return newest;
    const policy::CheckpointRef checkpoint = record->checkpoint;
    const storage::ObjectId object = record->adopted;
    ++under_way_;
    lock.native().unlock();
    const Result<void> intact = machinery_->kept->verify(object);
    if (!intact && setup_.log) {
      setup_.log("warning: version " + std::to_string(*newest) + " is passed over: " + intact.error().message);
    }
    lock.native().lock();
    --under_way_;
    if (closed_) machinery_->drained.notify_all();
    if (!intact && intact.error().code == Errc::io_error) return intact.error();
    record = find_record(checkpoint);
    if (!intact || record == nullptr) continue;
    record->checked = true;
    return newest;
  }
}

}  // namespace ebb::runtime
