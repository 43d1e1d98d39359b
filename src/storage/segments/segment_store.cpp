#include "storage/segments/segment_store.hpp"

#include <cerrno>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/start_thread.hpp"
#include "storage/scan/unreadable.hpp"
#include "storage/segments/crash_repair.hpp"

namespace ebb::storage {

using os::kBlock;

namespace {

// A file system in memory does not survive a power loss. A missing directory will be on its parent's file system.
std::optional<Error> refuse_memory(os::Files& files, const PersistentOptions& options) {
  if (!options.synced || options.readonly) return {};
  os::FileSystem found;
  auto described = files.describe(options.directory, found);
  if (described.error == ENOENT) {
    std::error_code ignored;
    described =
        files.describe(std::filesystem::absolute(options.directory, ignored).lexically_normal().parent_path(), found);
  }
  if (!described || !found.in_memory) return {};
  return Error{Errc::unsupported, "cannot keep checkpoints on stable storage in the directory '" +
                                      options.directory.string() + "' (" + found.kind +
                                      "): it is in memory; name a directory on a disk, or "
                                      "durability \"process\""};
}

std::vector<Gone> gone_of(const ScannedStore& scanned) {
  std::vector<Gone> out;
  for (const ScannedSegment& segment : scanned.segments)
    for (const ScannedSegment::Stretch& place : segment.waste)
      if (place.head && place.head->history != Checksum{})
        out.push_back({place.head->history, place.head->version, place.head->sequence, place.head->body});
  return out;
}

}  // namespace

SegmentStore::SegmentStore(os::Files& files, os::Clock& clock, const PersistentOptions& options,
                           StoreDirectory directory, std::string where, Done done, Persisted persisted,
                           BytesRead bytes_read, DropsReleased released)
    : context_{files,
               clock,
               options,
               std::move(directory),
               std::move(where),
               std::move(done),
               std::move(persisted),
               std::move(bytes_read),
               std::move(released)},
      table_(options.capacity / kBlock * kBlock),
      committer_(context_, table_),
      writer_(context_, table_, committer_),
      reader_(context_, table_),
      recovery_(context_, table_) {}

Result<void> SegmentStore::start() {
  auto opened = recovery_.open();
  if (!opened) return opened.error();
  damages_ = opened->scanned.damages;
  found_ = without_prefix(std::move(opened->found));
  if (context_.options.paired) gone_ = gone_of(opened->scanned);
  context_.workers.start(ChecksumWorkers::usual_threads());
  if (auto started = context_.transfers.start(context_.files, context_.options.engine); !started) return started;
  if (context_.options.readonly) return {};
  RecordRemover& remover = committer_.remover();
  if (may_come_back(damages_)) remover.retain_segments(table_.lock());
  auto repaired = repair_after_crash(context_, table_, remover, opened->scanned, std::move(opened->outdated));
  if (!repaired) return repaired.error();
  damages_.insert(damages_.end(), repaired->begin(), repaired->end());
  if (!repaired->empty()) std::erase_if(found_, [&](const Found& one) { return !table_.find(one.object); });
  committer_.start();
  return {};
}

Result<void> SegmentStore::begin(ObjectId object, std::shared_ptr<const Description> description, bool cached) {
  if (context_.options.prefix.empty()) return writer_.begin(object, std::move(description), cached);
  auto named = std::make_shared<Description>(*description);
  named->history = context_.options.prefix + named->history;
  return writer_.begin(object, std::move(named), cached);
}

Result<std::shared_ptr<const Description>> SegmentStore::load_description(ObjectId object) {
  auto loaded = reader_.load_description(object);
  if (!loaded || context_.options.prefix.empty()) return loaded;
  auto named = std::make_shared<Description>(**loaded);
  named->history.erase(0, context_.options.prefix.size());
  return std::shared_ptr<const Description>(std::move(named));
}

// Objects that another program has written under other names stay as they are.
std::vector<Found> SegmentStore::without_prefix(std::vector<Found> found) const {
  const std::string& prefix = context_.options.prefix;
  if (prefix.empty()) return found;
  std::erase_if(found, [&](const Found& one) { return !one.history.starts_with(prefix); });
  for (Found& one : found) one.history.erase(0, prefix.size());
  return found;
}

void SegmentStore::drop(ObjectId id) {
  const TableLocked lock = table_.lock();
  SharedObject object = table_.remove(lock, id);
  if (object && !context_.options.readonly) committer_.drop(lock, std::move(object));
}

void SegmentStore::abandon(ObjectId id) {
  const TableLocked lock = table_.lock();
  SharedObject object = table_.remove(lock, id);
  if (object && !context_.options.readonly) committer_.abandon(lock, std::move(object));
}

std::string SegmentStore::describe() const {
  const TableLocked lock = table_.lock();
  const std::size_t left = committer_.remover().failed(lock).size();
  return std::to_string(table_.segments(lock).size()) + " segments in " + context_.where + ", " +
         (context_.options.direct ? "O_DIRECT" : "buffered") + ", " + std::string(context_.transfers.name()) + ", " +
         (context_.options.readonly ? "read only"
          : context_.options.synced ? "synced"
                                    : "handed to the system") +
         (left == 0 ? "" : ", " + std::to_string(left) + " drops not carried out");
}

void SegmentStore::stop() {
  if (!table_.close()) return;
  if (committer_.stop()) {
    const bool valid = table_.is_index_valid(table_.lock());
    if (valid) write_index(context_, table_, damages_);
    context_.directory.announce_change();
  }
  context_.workers.stop();
  context_.transfers.stop();
  if (unmade_) context_.directory.unmake();
}

Result<std::unique_ptr<PersistentStorage>> open_persistent_storage(os::Files& files, os::Clock& clock,
                                                                   const PersistentOptions& options, Done done,
                                                                   Persisted persisted, BytesRead bytes_read,
                                                                   DropsReleased released) {
  if (options.block_bytes == 0 || options.block_bytes % kBlock) {
    throw std::logic_error("payloads are checked in blocks of a multiple of 4096 bytes");
  }
  // Refused before anything is created.
  if (auto refused = refuse_memory(files, options); refused) return *refused;
  if (os::FileStatus status; files.status(options.directory / "veloc", status)) {
    return Error{Errc::not_a_store, options.directory.string() +
                                        " has the marks of VELOC's files: name the directory of the files (shared=, "
                                        "the one above .ebbtide) and the rank (veloc_rank=)"};
  }
  auto directory = open_store_directory(
      files, options.directory,
      {.readonly = options.readonly, .level = options.synced ? Durability::storage : Durability::process});
  if (!directory) return directory.error();
  std::string where = "the directory '" + directory->path().string() + "'";
  os::FileSystem file_system;
  if (const auto found = files.describe(directory->path(), file_system); !found) {
    return file_error(directory->path(), "asking for its file system", found.error);
  }
  where.append(" (").append(file_system.kind).append(")");
  auto store =
      std::make_unique<SegmentStore>(files, clock, options, std::move(*directory), std::move(where), std::move(done),
                                     std::move(persisted), std::move(bytes_read), std::move(released));
  const auto start = [&]() -> Result<void> {
    try {
      return store->start();
    } catch (const base::ThreadRefused& refused) {
      return base::no_thread(refused);
    }
  };
  if (auto started = start(); !started) {
    store->unmake();
    return started.error();
  }
  return std::unique_ptr<PersistentStorage>(std::move(store));
}

}  // namespace ebb::storage
