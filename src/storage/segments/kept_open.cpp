// A kept store from its opening, where it is found as a crash may have left it, to its close.
#include <algorithm>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "os/processors.hpp"
#include "storage/file_io.hpp"
#include "storage/scan/unreadable.hpp"
#include "storage/segments/kept_store.hpp"

namespace ebb::storage {

using platform::kBlock;
using State = KeptObject::State;

namespace {

// One hashes 10 GB/s; on few cores a second would only stand in the way of the transfers.
unsigned checksum_threads() { return std::clamp(platform::usable_processors() / 4, 1u, 4u); }

// What lies in memory does not outlive a loss of power. A directory that is not there yet will be on its parent's disk.
std::optional<Error> refuse_memory(platform::Files& files, const KeptOptions& options) {
  if (!options.synced || options.readonly) return {};
  platform::FileSystem found;
  auto described = files.describe(options.directory, found);
  if (described.error == ENOENT) {
    std::error_code ignored;
    described =
        files.describe(std::filesystem::absolute(options.directory, ignored).lexically_normal().parent_path(), found);
  }
  if (!described || !found.in_memory) return {};
  return Error{Errc::unsupported, "cannot keep checkpoints on stable storage in the directory '" +
                                      options.directory.string() + "' (" + found.kind +
                                      "): it lies in memory; name a directory on a disk, or "
                                      "durability \"process\""};
}

bool is_of(const Damage& damage, const std::filesystem::path& segment) { return damage.file == segment; }

}  // namespace

KeptStore::KeptStore(platform::Files& files, platform::Clock& clock, const KeptOptions& options,
                     StoreDirectory directory, std::string where, Done done, Kept kept, Carried carried)
    : files_(files),
      clock_(clock),
      options_(options),
      capacity_(options.capacity / kBlock * kBlock),
      directory_(std::move(directory)),
      where_(std::move(where)),
      done_(std::move(done)),
      kept_(std::move(kept)),
      carried_(std::move(carried)),
      segments_files_(files, directory_, options.direct, options.readonly),
      last_commit_(clock.now()),
      mark_(files, directory_.path()),
      workers_(checksum_threads()) {}

Result<void> KeptStore::start() {
  // What a process wrote that was killed may not be on the disk, and from now on it is called durable. Where there is
  // an index, the store was closed, and all of it was synced.
  if (options_.readonly) static_cast<void>(mark_.changed());  // before it is read: what comes meanwhile is looked for
  auto scanned = scan_store(files_, directory_.path(), true, options_.synced && !options_.readonly);
  if (!scanned) return scanned.error();
  damages_ = scanned->damages;
  next_segment_ = scanned->next_segment;
  next_sequence_ = scanned->next_sequence;
  if (auto started = transfers_.start(files_, options_.engine); !started) return started;
  Newest newest;
  {
    std::lock_guard lock(mutex_);
    hides_ = may_come_back(damages_);
    for (const ScannedSegment& segment : scanned->segments) {
      const std::vector<Found> some = adopt_locked(segment, damages_);
      found_.insert(found_.end(), some.begin(), some.end());
      newest.meet(segment);
    }
  }
  found_ = take_newest(std::move(found_), newest);
  if (options_.readonly) {
    newest_ = std::move(newest);
    return {};
  }
  if (auto tidied = tidy(*scanned); !tidied) return tidied;
  committer_ = std::thread([this] { work(); });
  return {};
}

// What is new in a segment that was read, as objects.
std::vector<Found> KeptStore::adopt_locked(const ScannedSegment& scanned, const std::vector<Damage>& damages) {
  Segment& segment = segments_[scanned.segment];
  if (!segment) {
    segment = std::make_shared<KeptSegment>();
    segment->number = scanned.segment;
    segment->closed = true;
  }
  segment->bytes = scanned.bytes;
  segment->end = std::max(segment->end, scanned.end);
  // What is committed later may lie before what is there already.
  std::uint64_t& seen = seen_[scanned.segment];
  seen = scanned.gaps.empty() ? scanned.end : scanned.gaps.front().offset;
  for (const ScannedSegment::Place& place : scanned.damaged) seen = std::min(seen, place.offset);
  for (const Damage& damage : damages) {  // some lie within a record: nothing begins there
    segment->suspect = segment->suspect || is_of(damage, segments_files_.path(scanned.segment));
  }
  std::vector<Found> found;
  for (const ScannedRecord& record : scanned.records) {
    Object& object = segment->records[record.head.place.offset];
    if (object) continue;
    object = std::make_shared<KeptObject>();
    object->state = State::kept;
    object->marked = true;
    object->id = next_found_++;
    object->history = record.history;
    object->head = record.head;
    object->segment = segment;
    used_ += object->space();
    objects_.emplace(object->id, object);
    found.push_back({object->id, record.history, record.head.version, record.head.payload_bytes});
  }
  return found;
}

// Those that count, ascending by name and version. The others are dropped.
std::vector<Found> KeptStore::take_newest(std::vector<Found> found, const Newest& newest) {
  const auto sequence = [&](const Found& one) { return find(one.object)->head.sequence; };
  std::sort(found.begin(), found.end(), [&](const Found& a, const Found& b) {
    if (std::tie(a.history, a.version) != std::tie(b.history, b.version)) {
      return std::tie(a.history, a.version) < std::tie(b.history, b.version);
    }
    return sequence(a) > sequence(b);
  });
  std::vector<Found> out;
  for (Found& one : found) {
    const bool again = !out.empty() && out.back().history == one.history && out.back().version == one.version;
    if (again || !newest.counts(find(one.object)->head, one.history)) {
      drop(one.object);
    } else {
      out.push_back(std::move(one));
    }
  }
  return out;
}

// What a crash left half done. The index goes first, for from here on it does not say what there is.
Result<void> KeptStore::tidy(const ScannedStore& scanned) {
  if (auto removed = remove_index(); !removed) return removed;
  // Older writings go before the newer ones are offered: were the mark of one of those to rot, its old bytes must not
  // come back. They are marked, whatever becomes of their segment, before one goes that holds a drop which hides them.
  carry_out(std::exchange(drops_, {}), true);
  for (const ScannedSegment& segment : scanned.segments) {
    const Segment& ours = segments_.at(segment.segment);
    find_lost_heads(segment, *ours);
    if (ours->suspect || (segment.records.empty() && goes_locked(*ours)))
      continue;  // left as it is; or it goes as a whole
    close_gaps(segment);
    if (segment.end >= segment.bytes) continue;
    auto file = segments_files_.open(segment.segment);
    if (file) static_cast<void>(files_.truncate((*file)->fd(), segment.end));  // only space is lost otherwise
  }
  remove_empty();
  directory_.tell_change();
  return {};
}

// A header is written as one: where its first sector is zeros and another one is not, the head was there, or a loss of
// power has torn it. What lies behind it is not taken away.
void KeptStore::find_lost_heads(const ScannedSegment& segment, KeptSegment& ours) {
  if (ours.suspect) return;
  std::vector<ScannedSegment::Gap> places = segment.gaps;
  if (segment.end < segment.bytes) places.push_back({segment.end, segment.bytes - segment.end});
  for (const auto& [offset, length] : places) {
    AlignedBytes block(kBlock);
    std::fill_n(block.data(), kBlock, std::byte{0});
    auto file = segments_files_.open(segment.segment);
    const auto got = file ? read_blocks(files_, **file, block.first(kBlock), offset) : platform::SysResult::of(0);
    if (got && std::all_of(block.data(), block.data() + kBlock, [](std::byte b) { return b == std::byte{0}; }))
      continue;
    ours.suspect = true;
    hides_ = hides_ || !got;
    damages_.push_back({segments_files_.path(segment.segment), offset,
                        !got ? unreadable()
                             : "a record seems to have lost its first sector: " + std::to_string(length) +
                                   " bytes are left as they are"});
  }
}

// It stays under another name: after a crash it tells which heads were there once.
Result<void> KeptStore::remove_index() {
  const auto index = directory_.path() / kIndexFile, beside = directory_.path() / kNewIndexFile;
  const auto renamed = files_.rename(index, directory_.path() / kOldIndexFile);
  if (!renamed && renamed.error != ENOENT) return file_error(index, "renaming it", renamed.error);
  const auto removed = files_.remove(beside);
  if (!removed && removed.error != ENOENT) return file_error(beside, "removing it", removed.error);
  if (!renamed && !removed) return {};
  const auto synced = files_.sync_directory(directory_.path());
  if (!synced) return file_error(directory_.path(), "syncing it", synced.error);
  return {};
}

// Places that were given and never filled: from now on a scan steps over them. Where it cannot be written a scan looks
// there again, and no more is lost than time.
void KeptStore::close_gaps(const ScannedSegment& segment) {
  if (segment.gaps.empty()) return;
  auto file = segments_files_.open(segment.segment);
  if (!file) return;
  for (const auto& [offset, length] : segment.gaps) {
    const RecordHead head{.kind = RecordHead::Kind::nothing,
                          .place = {directory_.head().store, segment.segment, offset},
                          .record_bytes = length};
    AlignedBytes block(kBlock);
    std::fill_n(block.data(), kBlock, std::byte{0});
    std::ranges::copy(encode(head), block.data());
    if (!write_blocks(files_, **file, block.first(kBlock), offset)) continue;
    if (length > kBlock) static_cast<void>(files_.punch((*file)->fd(), offset + kBlock, length - kBlock));
  }
}

void KeptStore::stop() {
  {
    Lock lock(mutex_);
    if (phase_ == Phase::closed) return;
    phase_ = Phase::closing;
    idle_.wait(lock, [&] { return under_way_ == 0; });
    phase_ = Phase::closed;
    wake_.notify_all();
  }
  if (committer_.joinable()) {
    committer_.join();
    end_unfinished();
    if (!failed_) write_index();
    directory_.tell_change();
  }
  workers_.stop();
  transfers_.stop();
}

// What was never complete gives its place up, and so does what was reported lost though its mark may be on the disk:
// the next process would take it for durable. The current segment ends.
void KeptStore::end_unfinished() {
  std::vector<Object> unfinished, lost;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, object] : objects_) {
      if (object->state == State::failed && object->marked) lost.push_back(object);
      if (object->state != State::writing) continue;
      object->state = State::failed;
      object->error = {Errc::closed, name_of(*object) + ": the store was closed before all of it was written"};
      unfinished.push_back(object);
    }
    if (const Segment current = current_locked()) current->closed = true;
  }
  for (const Object& object : unfinished) kept_(object->id, object->error);
  std::vector<Object> drops;
  {
    std::lock_guard lock(mutex_);
    drops = std::exchange(drops_, {});
    for (const Object& object : unfinished) {
      if (!object->dropped) drops.push_back(object);
    }
    for (const Object& object : lost) {
      if (!object->dropped) drops.push_back(object);
    }
  }
  // A disk that failed once may not do so again.
  for (int tries = 2; tries > 0; --tries) {
    {
      std::lock_guard lock(mutex_);
      drops.insert(drops.end(), undone_.begin(), undone_.end());
      undone_.clear();
    }
    carry_out(std::exchange(drops, {}));
    cut_closed();
    remove_empty();
  }
  std::lock_guard lock(mutex_);
  failed_ = failed_ || !undone_.empty() || std::ranges::any_of(segments_, [&](const auto& one) {
              return one.second->records.empty() && goes_locked(*one.second);
            });
}

// Written beside, then named. Whatever goes wrong, there is none, and all is found by reading the segments.
void KeptStore::write_index() {
  if (!directory_.in_place()) return;
  ScannedStore store;
  store.head = directory_.head();
  store.damages = damages_;
  std::erase_if(store.damages, [&](const Damage& damage) { return damage.file == directory_.path() / kIndexFile; });
  store.next_sequence = next_sequence_;
  for (const auto& [number, segment] : segments_) {
    ScannedSegment& out = store.segments.emplace_back();
    platform::FileStatus status;
    const auto known = files_.status(segments_files_.path(number), status);
    if (!known && known.error != ENOENT) return;
    out.segment = number;
    out.bytes = known ? status.bytes : segment->bytes;  // one that somebody removed is missed by the next process
    out.end = segment->end;
    std::uint64_t living = 0;
    for (const auto& [offset, object] : segment->records) {
      out.records.push_back({object->head, object->history});
      living += object->head.record_bytes;
    }
    out.dead = out.end - std::min(out.end, kBlock + living);
  }
  const auto beside = directory_.path() / kNewIndexFile;
  const std::vector<std::byte> bytes = encode_index(store);
  const auto opened = files_.open(beside, platform::Open::create, false);
  if (!opened) return;
  platform::SysResult written;
  {
    const platform::File file(files_, static_cast<int>(opened.value), beside.string(), false);
    written = write_whole(files_, file.fd(), bytes, 0);
    if (written && options_.synced) written = files_.sync(file.fd());
  }
  // Its name need not be on stable storage: where it is lost with the power, the segments say the same.
  if (written) written = files_.rename(beside, directory_.path() / kIndexFile);
  static_cast<void>(files_.remove(written ? directory_.path() / kOldIndexFile : beside));
}

Result<std::unique_ptr<KeptStorage>> open_kept_storage(platform::Files& files, platform::Clock& clock,
                                                       const KeptOptions& options, Done done, Kept kept,
                                                       Carried carried) {
  if (options.block_bytes == 0 || options.block_bytes % kBlock) {
    throw std::logic_error("payloads are checked in blocks of a multiple of 4096 bytes");
  }
  // Refused before anything is made there.
  if (auto refused = refuse_memory(files, options); refused) return *refused;
  auto directory = open_store_directory(
      files, options.directory,
      {.readonly = options.readonly, .level = options.synced ? Durability::storage : Durability::process});
  if (!directory) return directory.error();
  std::string where = "the directory '" + directory->path().string() + "'";
  platform::FileSystem file_system;
  if (const auto found = files.describe(directory->path(), file_system); !found) {
    return file_error(directory->path(), "asking for its file system", found.error);
  }
  where.append(" (").append(file_system.kind).append(")");
  auto store = std::make_unique<KeptStore>(files, clock, options, std::move(*directory), std::move(where),
                                           std::move(done), std::move(kept), std::move(carried));
  if (auto started = store->start(); !started) return started.error();
  return std::unique_ptr<KeptStorage>(std::move(store));
}

}  // namespace ebb::storage
