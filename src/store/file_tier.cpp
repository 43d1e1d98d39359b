#include "store/file_tier.hpp"

#include <algorithm>
#include <chrono>

#include "base/start_thread.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/scratch/scratch_file.hpp"
#include "storage/veloc/veloc_storage.hpp"
#include "store/lifetime.hpp"

namespace ebb::store {
namespace {

constexpr std::uint64_t kMostBlock = 64 << 10;

transfer::FileEngineOptions::Kind kind_of(Io io) {
  using Kind = transfer::FileEngineOptions::Kind;
  return io == Io::uring ? Kind::uring : io == Io::threads ? Kind::threads : Kind::automatic;
}

// The longest power of two that every range put to a file is a multiple of.
std::uint32_t block_of(const planner::Machine& machine) {
  std::uint64_t all = kMostBlock | machine.ring_slot;
  for (const planner::LinkSpec& link : machine.links) all |= link.chunk;
  return static_cast<std::uint32_t>(std::min(kMostBlock, all & ~(all - 1)));
}

std::uint64_t capacity_of(const options::EngineSetup& setup, const FileTier& tier) {
  return setup.machine.tiers.at(static_cast<std::size_t>(tier.index())).capacity;
}

}  // namespace

storage::PersistentOptions persistent_options(const options::EngineSetup& setup, const FileTier& tier) {
  storage::PersistentOptions options;
  const bool local = tier.number() == 0;
  options.directory = tier.directory();
  // As the pool's agent names them, so that a record is the same in both directories.
  if (!local && setup.pool) options.prefix = std::to_string(setup.pool->rank) + "/";
  options.capacity = local && setup.pool && setup.pool->disk > 0 ? setup.pool->disk : capacity_of(setup, tier);
  options.synced = !local || setup.durability != Durability::process;
  options.readonly = setup.readonly;
  options.paired = setup.shared.has_value();
  options.direct = local ? setup.direct_io : setup.shared->direct_io;
  options.checksums = setup.checksums;
  options.block_bytes = block_of(setup.machine);
  if (!local) options.sync_interval = std::chrono::nanoseconds(planner::kSharedSyncInterval);
  options.engine = {.kind = kind_of(setup.io)};
  return options;
}

Result<void> FileTier::open_scratch(os::Files& files, const options::EngineSetup& setup, const Reports& reports) {
  if (auto refused = refuse_persistent_store(files); !refused) return refused;
  auto storage = storage::open_scratch_file(
      files, {directory_, capacity_of(setup, *this), setup.direct_io, {.kind = kind_of(setup.io)}}, reports.done);
  if (!storage) return storage.error();
  storage_ = std::move(*storage);
  return {};
}

Result<void> FileTier::open_segments(const options::Seams& seams, const options::EngineSetup& setup,
                                     const Reports& reports) {
  if (const auto own = seams.storages.find(index_); own != seams.storages.end()) {
    storage_ = own->second(reports.done, reports.persisted);
    return {};
  }
  storage::PersistentOptions options = persistent_options(setup, *this);
  const bool last = static_cast<std::size_t>(index_) + 1 == setup.machine.tiers.size();
  if (setup.veloc && last) {
    options.directory = setup.veloc->directory;
    auto files = storage::open_veloc_storage(*seams.files, options, setup.veloc->of, reports.done, reports.persisted);
    if (!files) return files.error();
    storage_ = std::move(*files);
    return {};
  }
  auto storage = storage::open_persistent_storage(*seams.files, *seams.clock, options, reports.done, reports.persisted,
                                                  reports.carried, reports.released);
  if (!storage) return storage.error();
  storage_ = std::move(*storage);
  return {};
}

// A program that lost its `durability` fails on its first run, and not when it looks for what it wrote.
Result<void> FileTier::refuse_persistent_store(os::Files& files) const {
  const auto store = storage::find_store(files, directory_);
  if (!store) return store.error();
  if (!*store) return {};
  const std::string level(name_of(Result<std::optional<storage::StoreHead>>(store).value()->level));
  return Error{Errc::invalid_argument, "directory=\"" + directory_.string() + "\" is a store of durability \"" + level +
                                           "\": give durability=\"" + level +
                                           "\" to add to it, readonly to look at it, or "
                                           "another directory for a store that keeps nothing"};
}

void FileTier::warn_of_damage(const base::Log& log) const {
  if (persistent() == nullptr || !log) return;
  for (const storage::Damage& damage : persistent()->damages()) {
    log.warning(damage.file.string() + ", offset " + std::to_string(damage.offset) + ": " + damage.what);
  }
}

void FileTier::release(const FileObject& object, bool failed) {
  if (object.id == 0) return;  // none of its chunks was handed over
  if ((failed || object.leave) && persistent() != nullptr)
    persistent()->abandon(object.id);
  else
    storage_->drop(object.id);
}

void FileTier::stop_now() {
  if (apart_) apart_->stop();
  storage_->stop();
}

bool FileTier::stop(planner::Time until, PlannerPort& port, Lifetime& lifetime, const base::Log& log) {
  if (!storage_) return true;
  if (until != planner::kNever) {
    auto stopping = base::start_thread([this, &port, &lifetime] {
      stop_now();
      const Locked locked = port.lock();
      stopped_ = true;
      lifetime.wake(locked);
    });
    if (stopping) {  // else it stops here, for as long as that takes
      stopping_ = std::move(*stopping);
      Locked locked = port.lock();
      if (!lifetime.await(locked, until, [&] { return stopped_; })) return false;
      locked.unlock();
      stopping_.join();
    }
  }
  stop_now();
  for (const std::string& name :
       persistent() != nullptr && log ? persistent()->failed_drops() : std::vector<std::string>()) {
    log.warning(name +
                " was dropped, and is there again when the store is opened next: its mark could not be "
                "written to the files in " +
                directory_.string());
  }
  return true;
}

}  // namespace ebb::store
