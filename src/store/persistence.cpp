#include "store/persistence.hpp"

#include <algorithm>
#include <cerrno>
#include <ranges>
#include <stdexcept>

#include "base/wait_points.hpp"
#include "store/lifetime.hpp"
#include "store/on_the_way.hpp"
#include "store/timers.hpp"

namespace ebb::store {
namespace {

// The longest range that a command puts to a file at once.
std::uint64_t longest_put(const planner::Machine& machine) {
  std::uint64_t longest = 0;
  for (const planner::LinkSpec& link : machine.links) {
    if (planner::on_file(machine, link.to)) longest = std::max(longest, link.chunk);
  }
  return longest;
}

}  // namespace

// --- opening and closing -------------------------------------------------------------------------------------------

Result<void> Persistence::open(const Reports& reports) {
  if (tiers_.empty())
    if (auto made = tiers_.make(); !made) return made;
  const auto of = [&](std::size_t file) {
    return FileTier::Reports{
        .done = reports.done,
        .carried = reports.carried,
        .persisted = [this, file](storage::ObjectId id, const Result<void>& result) { on_durable(file, id, result); },
        .released = [this] { on_released(); }};
  };
  if (auto opened = tiers_.open(of); !opened) return opened;
  return {};
}

Result<void> Persistence::join_pool(const Reports& reports) {
  if (!setup_.pool) return {};
  options::PoolSetup& pool = *setup_.pool;
  const share::NodeSeams seams = seams_.node ? *seams_.node : share::NodeSeams::usual();
  const share::PoolOptions options{pool.job,         pool.rank,    setup_.local_ranks, pool.budget,
                                   pool.chunk_bytes, pool.program, pool.overflow};
  if (setup_.durability == Durability::ephemeral) {
    auto memory = share::open_node_memory(seams, *seams_.files, *seams_.clock, options);
    if (!memory) return memory.error();
    pool_.join(std::move(*memory));
    setup_.settings += ", " + pool_.memory()->describe();
    return {};
  }
  if (auto made = tiers_.make(); !made) return made;
  FileTier& tier = tiers_.fastest();
  if (auto refused = storage::refuse_half_a_pair(*seams_.files, tier.directory()); !refused) return refused;
  auto storage = share::open_node_storage(
      seams, *seams_.files, *seams_.clock, {options, persistent_options(setup_, tier), longest_put(setup_.machine)},
      reports.done, [this](storage::ObjectId id, const Result<void>& result) { on_durable(0, id, result); },
      [this](storage::ObjectId id, bool listed) { on_listed(id, listed); },
      [this](storage::ObjectId id, const Error& error) { on_delayed(id, error); }, reports.carried);
  if (!storage) return storage.error();
  pool_.join(**storage);
  tier.take(std::move(*storage));
  return {};
}

void Persistence::on_released() {
  Locked locked = port_.lock();
  try {
    report_unreleased(locked);
  } catch (const std::exception& error) {
    port_.poison(locked, error);
  }
}

void Persistence::note_failure(const Locked& locked, const planner::Failure& failure) {
  if (failure.lost || failure.tier <= port_.first_file() || tiers_.empty()) return;
  const FileTier& tier = tiers_.at(failure.tier);
  const Record* const record = catalog_.find(locked, failure.checkpoint);
  if (record != nullptr && record->files[tier.number()].not_durable)
    trouble_.note_failure(locked, tier, *record->files[tier.number()].not_durable);
}

std::string Persistence::missing_below(const Locked& locked) {
  const std::size_t file = tiers_.size() - 1;
  const planner::TierIndex tier = tiers_[file]->index();
  std::string first;
  std::size_t more = 0;
  for (const Record& record : catalog_.records(locked)) {
    if (!record.used || record.reserved || !catalog_.live(locked, record) || record.durable_in(file)) continue;
    if (!port_.planner(locked).sent_to(record.checkpoint, tier)) continue;
    first.empty() ? void(first = catalog_.key_text(locked, record.history, record.version)) : void(++more);
  }
  return first + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

void Persistence::drop_unreferenced(const Locked& locked) {
  if (!tiers_.persistent()) return;
  for (Record& record : catalog_.records(locked)) {
    for (const auto& tier : tiers_) {
      FileObject& object = record.files[tier->number()].object;
      if (object.id != 0 && !object.leave && !catalog_.live(locked, record)) tier->storage().drop(object.id);
      object = {};
    }
  }
}

bool Persistence::stop(planner::Time until, planner::Time below) {
  if (!tiers_.stop(until, below)) return false;
  Locked locked = port_.lock();
  pool_.stop(locked);
  locked.unlock();
  tiers_.close();
  pool_.close();
  return true;
}

// --- objects -------------------------------------------------------------------------------------------------------

void Persistence::release(const Locked& locked, const planner::Freed& freed) {
  FileTier& tier = tiers_.at(freed.tier);
  tier.release(objects_.take(locked, freed.checkpoint, tier.number()), freed.failed);
  if (held_back_.empty(locked) || !lifetime_.running(locked)) return;  // what is gone is not waited for
  lifetime_.begin(locked, 1);
  tiers_.slowest().apart()->post([this] {
    for (std::size_t file = 1; file < tiers_.size(); ++file) settle_held_back(file, {});
    lifetime_.end(port_.lock());
  });
}

// The planner counts all that was freed; the storage says how much of that is on the disk still.
void Persistence::report_unreleased(const Locked& locked) {
  if (!port_.machine().releases_later || !tiers_.persistent() || !lifetime_.running(locked)) return;
  for (const auto& tier : tiers_) {
    const planner::Bytes bytes = tier->persistent()->unreleased();
    if (port_.planner(locked).use(tier->index()).unreleased != bytes)
      port_.submit(locked, 0, planner::event::Unreleased{bytes, tier->index()});
  }
}

// --- durability ----------------------------------------------------------------------------------------------------

void Persistence::on_listed(storage::ObjectId object, bool listed) {
  const Locked locked = port_.lock();
  objects_.set_listed(locked, object, listed);
  port_.ended().notify_all();
}

// A delayed write stays pending: a later attempt may succeed.
void Persistence::on_delayed(storage::ObjectId object, const Error& error) {
  Locked locked = port_.lock();
  const auto checkpoint = objects_.find_pending(locked, object);
  Record* const record = checkpoint ? catalog_.find(locked, *checkpoint) : nullptr;
  if (record == nullptr) return;
  if (!catalog_.live(locked, *record)) return pool_.storage()->withdraw(object);
  set_not_durable(locked, *record, 0, error);
  try {
    submit_durable(locked, *checkpoint, 0, false);
  } catch (const std::exception& broken) {
    port_.poison(locked, broken);
  }
  port_.ended().notify_all();
}

void Persistence::set_not_durable(const Locked& locked, Record& record, std::size_t file, const Error& error) {
  InFile& there = record.files[file];
  there.durability = InFile::Durability::failed;
  there.not_durable = std::make_unique<const Error>(Error{
      error.code, catalog_.key_text(locked, record.history, record.version) + " is not durable: " + error.message});
  const auto future = record.future.lock();
  if (future && file == 0) future->error = *there.not_durable;
}

void Persistence::on_durable(std::size_t file, storage::ObjectId object, const Result<void>& result) {
  if (file > 0 && result) {
    const Locked locked = port_.lock();
    if (held_back_.take(locked, file, object)) return;
  }
  set_durable(file, object, result);
  if (file > 0) settle_held_back(file, result);
}

// Where a piece could not be written, what needs it is written again as well.
void Persistence::settle_held_back(std::size_t file, const Result<void>& result) {
  const auto next = [&] { return held_back_.next(port_.lock(), file, !result); };
  while (const storage::ObjectId held = next()) set_durable(file, held, result);
}

void Persistence::set_durable(std::size_t file, storage::ObjectId object, const Result<void>& result) {
  Locked locked = port_.lock();
  const auto checkpoint = objects_.take_pending(locked, object);
  if (!checkpoint) return;  // dropped
  std::string part;
  if (Record* const record = catalog_.find(locked, *checkpoint)) {
    if (const std::string& name = catalog_.name_of(locked, record->history);
        result && on_part_durable_ && name.find(kReservedInNames) != std::string::npos)
      part = name;
    InFile& there = record->files[file];
    if (result) there.durability = InFile::Durability::durable;
    const auto future = record->future.lock();
    if (!future) record->future.reset();  // which keeps the memory of what nobody holds any more
    if (result && future) future->durable |= 1u << file;
    pool_.note_durable(locked);
    if (result && there.not_durable) {  // of an earlier attempt
      there.not_durable.reset();
      if (future && file == 0) future->error.reset();
    }
    if (!result) set_not_durable(locked, *record, file, result.error());
    if (file > 0 && result) trouble_.note_success(locked);
    if (file > 0 && !result && result.error().code != Errc::closed)
      trouble_.note_failure(locked, *tiers_[file], result.error());
    try {
      submit_durable(locked, *checkpoint, file, static_cast<bool>(result));
    } catch (const std::exception& error) {
      port_.poison(locked, error);
    }
  }
  port_.ended().notify_all();
  trouble_.write(locked);
  if (part.empty()) return;
  const auto& act = on_part_durable_;
  locked.unlock();
  try {
    act(part);
  } catch (const std::exception& error) {
    port_.poison(locked, error);
  }
}

void Persistence::submit_durable(const Locked& locked, planner::CheckpointRef checkpoint, std::size_t file,
                                 bool durable) {
  const Record* const record = catalog_.find(locked, checkpoint);
  if (!lifetime_.running(locked)) return;
  if (record == nullptr || !catalog_.live(locked, *record)) return;
  const planner::TierIndex tier = tiers_[file]->index();
  if (durable)
    port_.submit(locked, record->history, planner::event::Durable{record->version, tier});
  else
    port_.submit(locked, record->history, planner::event::NotDurable{record->version, tier});
}

Result<void> Persistence::await(Locked& locked, planner::HistoryId history, std::optional<Version> version,
                                std::string_view level, planner::TierIndex tier, const Timer& timer,
                                const Interrupt& interrupted) {
  const bool listed = level == "node";
  const std::size_t file = listed ? 0 : port_.file_number(tier);
  // What newer versions make up for there may be kept above, as what does not go there is: a wait that a kill follows
  // has waited for that too.
  const bool all_go = file == 0 || port_.machine().tiers[static_cast<std::size_t>(tier)].every <= 1;
  if (file > 0 && (pool_.storage() == nullptr || !all_go)) {
    const auto above = await(locked, history, version, level, tiers_[file - 1]->index(), timer, interrupted);
    if (!above && (above.error().code == Errc::timed_out || above.error().code == Errc::closed)) return above;
    const auto stays = [&](const Record& record) { return !port_.planner(locked).sent_to(record.checkpoint, tier); };
    for (std::size_t each = 0; each < file; ++each)
      if (const auto error = objects_.not_durable(locked, history, version, each, false, stays)) return *error;
  }
  empty_.store_again(locked, history, version, *tiers_[file]);
  std::vector<planner::CheckpointRef> waited = objects_.pending(locked, history, version, file);
  if (listed) {  // also what has not been handed over yet
    waited.clear();
    catalog_.for_each_written(locked, history, [&](Version one, planner::CheckpointRef checkpoint) {
      if (!version || one == *version) waited.push_back(checkpoint);
    });
  }
  if (waited.empty() && !version && !listed && !lifetime_.closing(locked)) {
    // What was reported durable, also long ago, is to be there.
    if (const auto error = objects_.not_durable(locked, history, version, file)) return *error;
    return tiers_.check_names(locked, file);
  }
  const auto pending = [&](const planner::CheckpointRef& checkpoint) {
    const Record* const record = catalog_.find(locked, checkpoint);
    if (record == nullptr) return false;
    const InFile& there = record->files[file];
    if (there.object.id == 0 && !listed) return false;  // newer versions make up for it there
    return there.durability == InFile::Durability::pending && !(listed && there.listed) && !record->durable_in(file) &&
           catalog_.live(locked, *record);
  };
  const auto failed = [&](const Record* record) {
    return record != nullptr && record->files[file].not_durable && !(listed && record->files[file].listed);
  };
  const std::vector<planner::CheckpointRef> all = listed ? waited : std::vector<planner::CheckpointRef>();
  OnTheWay way(port_, lifetime_, calls_, locked);
  bool stop = false;
  const auto over = [&] {
    while (!waited.empty()) {
      const bool on_its_way = pending(waited.back());
      // The storage may be without an agent: what it refuses, it never lists.
      if ((listed || !on_its_way) && failed(catalog_.find(locked, waited.back()))) return true;
      if (on_its_way) break;
      waited.pop_back();
      if (waited.empty() && listed) std::ranges::copy_if(all, std::back_inserter(waited), pending);
    }
    return waited.empty() || !lifetime_.running(locked) || timer.fired() || stop || way.never(waited.back());
  };
  if (!waited.empty() && !listed)
    for (std::size_t each = 0; each <= file; ++each) tiers_[each]->commit();
  while (!over()) {
    if (listed && way.ask(history, catalog_.find(locked, waited.back())->version, waited.back())) continue;
    const auto changed = [&] { return over() || (listed && !way.asked(waited.back())); };
    locked.wake_pump();
    if (!interrupted) {
      EBB_WAIT(kept_awaited, port_.ended().wait(locked.native(), changed));
      continue;
    }
    bool woken = false;
    EBB_WAIT(kept_polled, woken = port_.ended().wait_for(locked.native(), kInterruptEvery, changed));
    if (!woken) stop = asked_to_stop(locked, interrupted) || stop;
  }
  port_.throw_if_poisoned(locked);
  if (const auto error = objects_.not_durable(locked, history, version, file, listed)) return *error;
  if (waited.empty()) return {};
  if (lifetime_.closed(locked)) return lifetime_.closed_error();
  if (way.never(waited.back())) return way.why_never(catalog_);
  return pool_.with_agent({Errc::timed_out, "the time limit passed, or the call was interrupted, before " +
                                                waited_for(locked, history, version, file) + " was kept (\"" +
                                                std::string(level) + "\"): the files in " +
                                                tiers_[file]->directory().string() + " have not answered yet"});
}

// Which checkpoints a wait is still for: "version 3", "version 3 and 5 more".
std::string Persistence::waited_for(const Locked& locked, planner::HistoryId history, std::optional<Version> version,
                                    std::size_t file) {
  if (version) return catalog_.key_text(locked, history, *version);
  const planner::Planner& planner = port_.planner(locked);
  const planner::TierIndex tier = tiers_[file]->index();
  std::optional<Version> first;
  std::size_t more = 0;
  for (const Record& record : catalog_.records(locked)) {
    if (!record.used || record.reserved || record.history != history || !catalog_.live(locked, record)) continue;
    const bool there = planner.bytes_of(record.checkpoint) == 0 || planner.lowest_complete(record.checkpoint) >= tier;
    if (there && record.durable_in(file)) continue;
    if (first) ++more;
    first = first ? std::min(*first, record.version) : record.version;
  }
  if (!first) return "everything written";
  return catalog_.key_text(locked, history, *first) + (more ? " and " + std::to_string(more) + " more" : "");
}

}  // namespace ebb::store
