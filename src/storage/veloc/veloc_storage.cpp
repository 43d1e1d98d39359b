#include "storage/veloc/veloc_storage.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ranges>
#include <stdexcept>
#include <utility>

#include "storage/file_io.hpp"
#include "storage/format/hasher.hpp"

namespace ebb::storage {
namespace {

using os::round_up;
using Path = std::filesystem::path;

constexpr unsigned kMovers = 4;
constexpr std::size_t kReadAtOnce = std::size_t{4} << 20;
constexpr std::string_view kUnfinished = ".new", kPending = ".mark";
constexpr std::int64_t kTick = 1'000'000'000;  // ns: two changes of a directory may have one time

VelocFileState state_of(const os::FileStatus& status) { return {status.bytes, status.changed_ns}; }

std::string mark_name(std::string_view name, Version version) {
  return std::string(name) + "-" + std::to_string(version);
}

// "heat-2" of "heat-2.7.mark".
std::string mark_of_file(std::string_view name, std::string_view suffix) {
  name.remove_suffix(suffix.size());
  return std::string(name.substr(0, name.rfind('.')));
}

// Whatever the working directory is later.
Path absolute_path_of(const Path& given) {
  std::error_code failed;
  const auto path = std::filesystem::absolute(given, failed).lexically_normal();
  if (failed) return given;
  return path.has_filename() ? path : path.parent_path();
}

// At most so many bytes from its front. Error by errno.
os::SysResult read_file(os::Files& files, const Path& path, std::size_t at_most, std::vector<std::byte>& out) {
  const os::SysResult opened = files.open(path, os::Open::read, false);
  if (!opened) return opened;
  const os::File file(files, static_cast<int>(opened.value), path.string(), false);
  os::FileStatus status;
  if (const auto asked = files.status(file.fd(), status); !asked) return asked;
  out.resize(std::min<std::uint64_t>(status.bytes, at_most));
  const auto got = read_whole(files, file.fd(), out, 0);
  if (got) out.resize(static_cast<std::size_t>(got.value));
  return got;
}

Result<VelocMarkBegin> read_mark_begin(os::Files& files, const Path& path) {
  std::vector<std::byte> bytes;
  if (const auto got = read_file(files, path, kVelocMarkBegin, bytes); !got)
    return file_error(path, "reading it", got.error);
  auto begin = parse_veloc_mark_begin(bytes);
  if (!begin) return Error{begin.error().code, path.string() + ": " + begin.error().message};
  return begin;
}

}  // namespace

struct VelocStorage::Object {
  ObjectId id = 0;
  VelocName name;
  std::uint64_t bytes = 0;  // of the payload
  std::uint64_t sequence = 0;
  std::shared_ptr<const Description> description;  // of a found one with a mark: null until that was read
  VelocLayout layout;                              // with the description
  std::vector<Checksum> blocks;                    // none: what is read is believed
  VelocFileState file{};                           // once it is whole
  Path path;                                       // where its bytes are
  Path mark;                                       // of a found one that has one
  bool counted = false, put = false, named = false, gone = false;
  bool missed = false;  // somebody else has removed its file, or written it anew
  std::weak_ptr<const os::File> reading;
  std::size_t in_flight = 0;
  // While it is written.
  std::mutex opening;
  SharedFile writing;  // by opening, as the next
  bool created = false;
  std::vector<Checksum> raw;     // as VelocMarkOf::raw
  std::vector<bool> there;       // by block
  std::size_t missing = 0;       // blocks
  std::vector<std::byte> small;  // the payload, of one that fits a compact record
};

/// What a rank's own folder has.
struct VelocStorage::OwnFiles {
  std::map<std::string, std::vector<std::string>> marks;  // by `<name>-<version>`: files that may be its mark
  std::vector<std::string> pending, unfinished;
};

Path veloc_own_directory(const Path& directory, int rank) {
  return directory / ".ebbtide" / ("rank-" + std::to_string(rank));
}

VelocStorage::VelocStorage(os::Files& files, PersistentOptions options, int rank, Done done, Persisted persisted)
    : files_(files),
      options_(std::move(options)),
      rank_(rank),
      directory_(absolute_path_of(options_.directory)),
      own_(veloc_own_directory(directory_, rank)),
      done_(std::move(done)),
      persisted_(std::move(persisted)),
      movers_(kMovers) {}

// --- what is there -------------------------------------------------------------------------------------------------

Result<void> VelocStorage::start() {
  if (!options_.readonly) {
    for (const Path& path : {directory_, own_.parent_path()}) {
      const auto made = files_.make_directory(path);
      if (!made && made.error != EEXIST) return file_error(path, "making it", made.error);
      if (made) made_.push_back(path);
      if (const auto synced = files_.sync_directory(path.parent_path()); !synced)
        return file_error(path.parent_path(), "syncing the directory", synced.error);
    }
    auto store = open_store_directory(files_, own_, {});
    if (!store) return store.error();
    store_ = std::move(*store);
    const Path kind = own_ / kVelocFile;
    const auto opened = files_.open_write(kind);
    if (!opened) return file_error(kind, "making it", opened.error);
    static_cast<void>(files_.close(static_cast<int>(opened.value)));
  }
  auto own = list_own();
  if (!own) return own.error();
  if (!options_.readonly)
    if (auto settled = settle_interrupted(*own); !settled) return settled;
  auto found = look(&damages_, *own);
  if (!found) return found.error();
  found_ = std::move(*found);
  return {};
}

Result<VelocStorage::OwnFiles> VelocStorage::list_own() const {
  OwnFiles own;
  std::vector<std::string> names;
  const auto listed = files_.list(own_, names);
  if (!listed && (!options_.readonly || listed.error != ENOENT)) return file_error(own_, "listing it", listed.error);
  for (const std::string& name : names) {
    if (name.find('-') == name.npos) continue;
    if (name.ends_with(kUnfinished)) {
      own.unfinished.push_back(name);
    } else if (name.ends_with(kPending)) {
      own.pending.push_back(name);
    } else {
      own.marks[name].insert(own.marks[name].begin(), name);
    }
  }
  for (const std::string& name : own.pending) own.marks[mark_of_file(name, kPending)].push_back(name);
  return own;
}

// What an earlier process had begun.
Result<void> VelocStorage::settle_interrupted(OwnFiles& own) {
  for (const std::string& name : own.pending) {
    const std::string mark = mark_of_file(name, kPending);
    const auto dash = mark.rfind('-');
    const Path file = directory_ / (mark.substr(0, dash) + "-" + std::to_string(rank_) + mark.substr(dash) + ".dat");
    os::FileStatus status;
    const auto begin = read_mark_begin(files_, own_ / name);
    if (!begin && begin.error().code != Errc::damaged) return begin.error();  // it may be readable the next time
    const auto asked = files_.status(file, status);
    if (!asked && asked.error != ENOENT) return file_error(file, "asking for its status", asked.error);
    if (begin && asked && begin->file == state_of(status)) {
      if (auto renamed = rename(own_ / name, own_ / mark); !renamed) return renamed;
    } else {
      static_cast<void>(files_.remove(own_ / name));
    }
  }
  for (const std::string& name : own.unfinished) {
    const Path mark = own_ / mark_of_file(name, kUnfinished);
    os::FileStatus status;
    const auto begin = read_mark_begin(files_, mark);
    if (!begin && files_.status(mark, status)) continue;  // without it nothing tells what was meant
    if (begin && files_.status(own_ / name, status) && begin->file == state_of(status)) {
      static_cast<void>(files_.remove(mark));
      if (const auto synced = files_.sync_directory(own_); !synced)
        return file_error(own_, "syncing the directory", synced.error);
    }
    static_cast<void>(files_.remove(own_ / name));
  }
  auto left = list_own();
  if (!left) return left.error();
  own = std::move(*left);
  return {};
}

std::uint64_t VelocStorage::unused_sequence(std::uint64_t wanted) {
  while (!sequences_.insert(wanted).second) ++wanted;
  return wanted;
}

VelocStorage::Times VelocStorage::times() const {
  os::FileStatus directory, own;
  if (!files_.status(directory_, directory)) return {};
  static_cast<void>(files_.status(own_, own));
  const std::int64_t now = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  const Times times{directory.changed_ns, own.changed_ns};
  return std::max(times.directory, times.own) + kTick < now ? times : Times{};
}

// The files of this rank that no object has. `damages`: those that are no checkpoints are added, at the first look.
Result<std::vector<Found>> VelocStorage::look(std::vector<Damage>* damages, const OwnFiles& own) {
  std::vector<std::string> names;
  const Times before = times();
  if (const auto listed = files_.list(directory_, names); !listed && listed.error != ENOENT)
    return file_error(directory_, "listing it", listed.error);
  std::map<std::string, VelocFileState> known;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, id] : named_)
      if (const auto one = objects_.find(id); one != objects_.end() && !one->second->missed)
        known.emplace(name, one->second->file);
  }
  std::vector<Seen> seen;
  std::set<std::string> there;
  std::vector<std::string> marked;  // by the names of their marks: files that are there, whatever they are
  for (const std::string& name : names) {
    const auto parsed = parse_file_name(name);
    if (!parsed || parsed->rank != rank_) continue;
    os::FileStatus status;
    const auto asked = files_.status(directory_ / name, status);
    if (!asked && asked.error == ENOENT) continue;
    if (!asked) return file_error(directory_ / name, "asking for its status", asked.error);
    marked.push_back(mark_name(parsed->name, parsed->version));
    if (status.kind != os::FileStatus::Kind::file) continue;
    if (const auto same = known.find(name); same != known.end() && same->second == state_of(status)) {
      there.insert(name);
      continue;
    }
    auto one = find_object(*parsed, status, own);
    if (one)
      seen.push_back(std::move(*one));
    else if (damages != nullptr)
      damages->push_back({directory_ / name, 0, one.error().message, one.error().code != Errc::damaged});
  }
  if (damages != nullptr) look_for_deleted(own, marked);
  auto found = add_found(std::move(seen), there);
  const std::lock_guard lock(mutex_);
  looked_ = before;
  return found;
}

std::vector<Found> VelocStorage::add_found(std::vector<Seen> seen, const std::set<std::string>& there) {
  std::vector<Found> found;
  const std::lock_guard lock(mutex_);
  bool changed = !seen.empty();
  for (const auto& [name, id] : named_)
    if (const auto one = objects_.find(id); one != objects_.end() && !there.contains(name))
      changed |= !std::exchange(one->second->missed, true);
  if (changed) ++changes_;
  for (Seen& one : seen) {
    const SharedObject& object = one.object;
    if (!one.marked) object->sequence = unused_sequence(object->sequence);
    next_sequence_ = std::max(next_sequence_, object->sequence + 1);
    object->id = ++last_found_;
    found.push_back({object->id, object->name.name, object->name.version, object->bytes, object->sequence, one.body});
    named_[file_name(object->name)] = object->id;
    objects_[object->id] = object;
    used_ += round_up(object->bytes);
    ++counted_;
  }
  std::ranges::sort(found, {}, [](const Found& one) { return std::pair(one.history, one.version); });
  return found;
}

Result<VelocStorage::Seen> VelocStorage::find_object(const VelocName& name, const os::FileStatus& status,
                                                     const OwnFiles& own) {
  auto object = std::make_shared<Object>();
  object->name = name;
  object->path = path_of(*object);
  object->file = state_of(status);
  object->counted = object->put = object->named = true;
  std::optional<Error> unreadable;
  if (const auto marks = own.marks.find(mark_name(name.name, name.version)); marks != own.marks.end()) {
    for (const std::string& mark : marks->second) {
      const auto begin = read_mark_begin(files_, own_ / mark);
      if (begin && begin->file == object->file) {
        object->bytes = begin->head.payload_bytes;
        object->sequence = begin->head.sequence;
        object->mark = own_ / mark;
        return Seen{std::move(object), begin->body, true};
      }
      if (!begin && !unreadable) unreadable = begin.error();
    }
  }
  if (unreadable)
    return Error{unreadable->code, unreadable->message +
                                       ": without it nothing tells whether this file is as it was "
                                       "written; remove it to believe the file"};
  std::vector<std::byte> bytes;
  auto got = read_file(files_, object->path, sizeof(std::uint64_t), bytes);
  const std::uint64_t header = veloc_header_bytes(bytes, status.bytes);
  if (got && header > 0) got = read_file(files_, object->path, header, bytes);
  if (!got) return file_error(object->path, "reading it", got.error);
  auto info = parse_veloc_header(bytes, status.bytes);
  if (!info) return info.error();
  object->layout = VelocLayout::of(*info);
  object->bytes = info->bytes;
  // A later write by somebody else counts as newer than all of ours before it.
  object->sequence = static_cast<std::uint64_t>(std::max<std::int64_t>(status.touched_ns, 1));
  object->description = std::make_shared<const Description>(Description{name.name, name.version, std::move(*info), 0});
  return Seen{std::move(object), {}, false};
}

// A mark without its file: somebody deleted that, so copies elsewhere go too.
void VelocStorage::look_for_deleted(const OwnFiles& own, const std::vector<std::string>& files) {
  const std::set<std::string> there(files.begin(), files.end());
  std::set<std::string> moved;  // back, by a process that is removing them
  for (const std::string& name : own.unfinished) moved.insert(mark_of_file(name, kUnfinished));
  for (const auto& [name, marks] : own.marks) {
    if (marks.front() != name || there.contains(name) || moved.contains(name)) continue;
    const auto begin = read_mark_begin(files_, own_ / name);
    if (!begin) continue;
    const auto history = std::as_bytes(std::span(name.data(), name.rfind('-')));
    gone_.push_back({checksum_of(history), begin->head.version, begin->head.sequence + 1, {}});
    next_sequence_ = std::max(next_sequence_, begin->head.sequence + 2);
    if (!options_.readonly) orphans_.push_back(own_ / name);
  }
}

std::vector<Found> VelocStorage::refresh() {
  if (const Times now = times(); now != Times{}) {
    const std::lock_guard lock(mutex_);
    if (now == looked_) return {};
  }
  const auto own = list_own();
  if (!own) return {};
  auto found = look(nullptr, *own);
  return found ? std::move(*found) : std::vector<Found>();
}

std::uint64_t VelocStorage::changes_seen() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

bool VelocStorage::was_dropped(ObjectId id) {
  const SharedObject object = find(id);
  if (!object) return true;
  os::FileStatus status;
  const auto asked = files_.status(path_of(*object), status);
  const bool gone = asked ? state_of(status) != object->file : asked.error == ENOENT;
  const std::lock_guard lock(mutex_);
  if (gone) looked_ = {};
  return gone;
}

// --- writing -------------------------------------------------------------------------------------------------------

std::filesystem::path VelocStorage::path_of(const Object& object) const { return directory_ / file_name(object.name); }
std::filesystem::path VelocStorage::mark_of(const Object& object) const {
  return own_ / mark_name(object.name.name, object.name.version);
}

VelocStorage::SharedObject VelocStorage::find(ObjectId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second;
}

VelocStorage::SharedObject VelocStorage::must_find(ObjectId id) const {
  SharedObject object = find(id);
  if (!object) throw std::logic_error("an object that the storage does not have was used");
  return object;
}

Result<void> VelocStorage::begin(ObjectId id, std::shared_ptr<const Description> description) {
  if (auto named = check_veloc_name(description->history, description->version); !named) return named;
  if (auto fits = check(*description, options_.block_bytes); !fits) return fits;
  auto object = std::make_shared<Object>();
  object->id = id;
  object->name = {description->history, rank_, description->version};
  object->bytes = description->info.bytes;
  object->layout = VelocLayout::of(description->info);
  object->description = std::move(description);
  object->missing = block_count(object->bytes, options_.block_bytes);
  object->there.resize(object->missing);
  if (options_.checksums) object->blocks.resize(object->missing), object->raw.resize(object->missing);
  if (compact_bytes(*object->description) > 0) object->small.resize(object->bytes);
  object->path = mark_of(*object).string() + "." + std::to_string(id) + std::string(kUnfinished);
  const bool whole = object->missing == 0;
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw std::logic_error("an object was begun in a stopped storage");
    if (!objects_.emplace(id, object).second) throw std::logic_error("an object was begun twice");
    if (whole) object->counted = object->put = true, ++counted_;
  }
  if (whole) namer_.post([this, object] { complete(object); });
  return {};
}

// With mutex_ held.
Result<void> VelocStorage::take_room(Object& object) {
  if (object.counted) return {};
  const std::uint64_t needed = round_up(object.bytes), capacity = options_.capacity / os::kBlock * os::kBlock;
  if (needed > capacity - std::min(capacity, used_)) {
    return Error{Errc::no_space, directory_.string() + " has no room for " + std::to_string(object.bytes) + " bytes: " +
                                     std::to_string(used_) + " of " + std::to_string(capacity) + " are used"};
  }
  used_ += needed;
  ++counted_;
  object.counted = true;
  return {};
}

Result<void> VelocStorage::put(Token token, ObjectId id, std::uint64_t total, std::uint64_t offset,
                               const std::byte* memory, std::size_t bytes) {
  const SharedObject object = must_find(id);
  const std::uint64_t block = options_.block_bytes;
  if (total != object->bytes || offset % block != 0 || offset > total || bytes > total - offset ||
      (bytes % block != 0 && offset + bytes != total)) {
    throw std::logic_error("a range was put that is not of whole blocks of its object");
  }
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw std::logic_error("a range was put to a stopped storage");
    if (auto room = take_room(*object); !room) return room;
    ++object->in_flight;
    object->put = true;
  }
  movers_.post([=, this] {
    Result<void> written = write(*object, offset, memory, bytes);
    bool whole = written && count_put(*object, offset, bytes, true);
    if (whole) {
      written = finish(*object);
      if (!written) whole = count_put(*object, offset, bytes, false);  // to be put again
    }
    {
      const std::lock_guard lock(mutex_);
      --object->in_flight;
    }
    done_(token, std::move(written));
    if (whole) namer_.post([this, object] { complete(object); });
  });
  return {};
}

// Whether all of it is there for the first time.
bool VelocStorage::count_put(Object& object, std::uint64_t offset, std::size_t bytes, bool there) {
  const std::lock_guard lock(mutex_);
  bool whole = false;
  for (std::uint64_t at = offset; at < offset + bytes; at += options_.block_bytes) {
    const std::uint64_t block = at / options_.block_bytes;
    if (object.there[block] == there) continue;
    object.there[block] = there;
    object.missing += there ? std::size_t(-1) : 1;
    whole = object.missing == 0;
  }
  return whole;
}

Result<SharedFile> VelocStorage::open_to_write(Object& object) {
  const std::lock_guard lock(object.opening);
  if (object.writing) return object.writing;
  const auto opened = files_.open(object.path, object.created ? os::Open::write : os::Open::create, false);
  if (!opened) return file_error(object.path, "making it", opened.error);
  object.created = true;
  object.writing =
      std::make_shared<const os::File>(files_, static_cast<int>(opened.value), object.path.string(), false);
  return object.writing;
}

Result<void> VelocStorage::write(Object& object, std::uint64_t offset, const std::byte* memory, std::size_t bytes) {
  const auto file = open_to_write(object);
  if (!file) return file.error();
  const std::span<const std::byte> all(memory, bytes);
  Result<void> written;
  object.layout.for_each(offset, bytes, [&](std::uint64_t from, std::uint64_t length, std::uint64_t at) {
    if (!written) return;
    const auto put = write_whole(files_, (*file)->fd(), all.subspan(from, length), at);
    if (!put) written = file_error(object.path, "writing it", put.error);
  });
  if (!object.small.empty()) std::ranges::copy(all, object.small.begin() + static_cast<std::ptrdiff_t>(offset));
  if (!written || object.blocks.empty()) return written;
  const std::uint32_t block = options_.block_bytes;
  const std::size_t first = offset / block;
  const std::span<Checksum> raw = std::span(object.raw).subspan(first, block_count(bytes, block));
  checksums_of(all, block, raw);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const std::uint64_t at = i * block, length = std::min<std::uint64_t>(block, bytes - at);
    object.blocks[first + i] = raw[i];
    if (!object.layout.has_gaps(offset + at, length)) continue;
    std::vector<std::byte> clean(all.begin() + static_cast<std::ptrdiff_t>(at),
                                 all.begin() + static_cast<std::ptrdiff_t>(at + length));
    object.layout.clear_gaps(offset + at, clean);
    object.blocks[first + i] = checksum_of(clean);
  }
  return written;
}

// All of its bytes are written: the table of regions, and on the disk. Its descriptor is closed before its last put is
// reported, so that files do not pile up that wait for their names.
Result<void> VelocStorage::finish(Object& object) {
  auto file = open_to_write(object);
  if (!file) return file.error();
  const int fd = (*file)->fd();
  const auto failed = [&](const char* what, int error) { return file_error(object.path, what, error); };
  const auto header = encode_veloc_header(object.description->info);
  if (const auto put = write_whole(files_, fd, header, 0); !put) return failed("writing it", put.error);
  if (const auto synced = files_.sync(fd); !synced) return failed("syncing it", synced.error);
  os::FileStatus status;
  if (const auto asked = files_.status(fd, status); !asked) return failed("asking for its status", asked.error);
  {
    const std::lock_guard lock(object.opening);
    object.writing.reset();
  }
  const std::lock_guard lock(mutex_);
  object.file = state_of(status);
  return {};
}

// On the naming thread.
void VelocStorage::complete(const SharedObject& object) {
  {
    const std::lock_guard lock(mutex_);
    if (object->gone) return;
  }
  Result<void> named = object->bytes == 0 ? finish(*object) : Result<void>();
  if (named) named = give_name(*object);
  {
    const std::lock_guard lock(mutex_);
    object->small.clear();
    object->raw.clear();
    object->there.clear();
    if (object->gone) return;
  }
  persisted_(object->id, named);
}

Result<void> VelocStorage::give_name(Object& object) {
  {
    const std::lock_guard lock(mutex_);
    object.sequence = object.description->sequence != 0 ? object.description->sequence : next_sequence_;
    next_sequence_ = std::max(next_sequence_, object.sequence + 1);
  }
  const Path mark = mark_of(object), pending = mark.string() + "." + std::to_string(object.id) + std::string(kPending);
  const auto sync = [&](const Path& directory) -> Result<void> {
    if (const auto synced = files_.sync_directory(directory); !synced)
      return file_error(directory, "syncing the directory", synced.error);
    return {};
  };
  Result<void> renamed = write_mark(pending, object);
  if (renamed) renamed = sync(own_);
  if (renamed) renamed = rename(object.path, path_of(object));
  if (!renamed) {
    static_cast<void>(files_.remove(pending));
    return renamed;
  }
  {
    const std::lock_guard lock(mutex_);
    object.path = path_of(object);
    object.named = true;
    const std::string name = file_name(object.name);
    named_[name] = object.id;
    std::erase(failed_drops_, object.path.string());
  }
  for (const Path& directory : {own_, directory_})
    if (auto synced = sync(directory); !synced) return synced;
  return rename(pending, mark);
}

Result<void> VelocStorage::write_mark(const Path& path, const Object& object) {
  const auto bytes = encode_veloc_mark(
      {*object.description, object.file, object.blocks.empty() ? 0 : options_.block_bytes, object.sequence,
       std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(), object.blocks, object.raw,
       object.small});
  const auto opened = files_.open_write(path);
  if (!opened) return file_error(path, "making it", opened.error);
  const os::File file(files_, static_cast<int>(opened.value), path.string(), false);
  if (const auto put = write_whole(files_, file.fd(), bytes, 0); !put) return file_error(path, "writing it", put.error);
  if (const auto synced = files_.sync(file.fd()); !synced) return file_error(path, "syncing it", synced.error);
  return {};
}

// A rename whose reply was lost has happened.
Result<void> VelocStorage::rename(const Path& from, const Path& to) {
  os::FileStatus before, there;
  const auto known = files_.status(from, before);
  const auto renamed = files_.rename(from, to);
  if (renamed || (renamed.error == ENOENT && known && files_.status(to, there) && there.is(before))) return {};
  return file_error(to, "renaming it", renamed.error);
}

// --- removing ------------------------------------------------------------------------------------------------------

void VelocStorage::forget(ObjectId id, bool remove) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(id);
  if (found == objects_.end()) return;
  const SharedObject object = found->second;
  if (object->in_flight > 0) throw std::logic_error("an object with transfers in flight was dropped");
  objects_.erase(found);
  object->gone = true;
  if (object->counted) used_ -= round_up(object->bytes), --counted_;
  if (options_.readonly || stopped_) return;
  const bool is_named = object->named;
  if (!remove && is_named) {  // what could not be read stays
    const auto last = named_.find(file_name(object->name));
    if (last != named_.end() && last->second == id) named_.erase(last);
    return;
  }
  ++drops_;
  namer_.post([this, object] { remove_files(object); });
}

// On the naming thread, after all that was named before the drop.
void VelocStorage::remove_files(const SharedObject& object) {
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = named_.find(file_name(object->name));
    last = found != named_.end() && found->second == object->id;
    if (last) named_.erase(found);
  }
  if (!object->named) {
    {
      const std::lock_guard lock(object->opening);
      object->writing.reset();
    }
    static_cast<void>(files_.remove(object->path));
  }
  const bool left = last && !move_back(*object);
  const std::lock_guard lock(mutex_);
  if (left) failed_drops_.push_back(path_of(*object).string());
  ++drops_done_;
}

// Takes its file out of VELOC's sight, and removes it; another's that is there now stays. False: it is still there.
bool VelocStorage::move_back(const Object& object) {
  const Path path = path_of(object), mark = mark_of(object);
  const Path back = mark.string() + "." + std::to_string(object.id) + std::string(kUnfinished);
  os::FileStatus status;
  const auto asked = files_.status(path, status);
  if (!asked && asked.error != ENOENT) return false;
  if (asked && state_of(status) == object.file) {
    if (!rename(path, back)) return false;
    for (const Path& directory : {directory_, own_})
      if (!files_.sync_directory(directory)) return true;  // the next opening goes on from here
  }
  static_cast<void>(files_.remove(mark));
  if (!files_.sync_directory(own_)) return true;
  static_cast<void>(files_.remove(back));
  return true;
}

std::uint64_t VelocStorage::drops() const {
  const std::lock_guard lock(mutex_);
  return drops_;
}
std::uint64_t VelocStorage::drops_done() const {
  const std::lock_guard lock(mutex_);
  return drops_done_;
}
std::vector<std::string> VelocStorage::failed_drops() const {
  const std::lock_guard lock(mutex_);
  return failed_drops_;
}

// --- reading -------------------------------------------------------------------------------------------------------

Result<void> VelocStorage::get(Token token, ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes) {
  const SharedObject object = must_find(id);
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) throw std::logic_error("a range was read from a stopped storage");
    if (!object->put || offset > object->bytes || bytes > object->bytes - offset)
      throw std::logic_error("a range was read that was never put");
    ++object->in_flight;
  }
  movers_.post([=, this] {
    Result<void> how = read(object, offset, {memory, bytes});
    {
      const std::lock_guard lock(mutex_);
      --object->in_flight;
    }
    done_(token, std::move(how));
  });
  return {};
}

Result<void> VelocStorage::read(const SharedObject& object, std::uint64_t offset, std::span<std::byte> memory) {
  if (memory.empty()) return {};
  if (auto loaded = load(*object); !loaded) return loaded;
  const auto file = open_to_read(object);
  if (!file) return file.error();
  if (auto got = read_extents(*object, *file, offset, memory); !got) return got;
  if (!object->blocks.empty()) return check_blocks(*object, *file, offset, memory);
  os::FileStatus status;
  if (const auto asked = files_.status((*file)->fd(), status); !asked)
    return file_error((*file)->name(), "asking for its status", asked.error);
  const std::lock_guard lock(mutex_);
  if (object->named && state_of(status) != object->file)
    return Error{Errc::damaged, (*file)->name() + ": it was changed while it was read"};
  return {};
}

Result<void> VelocStorage::read_extents(const Object& object, const SharedFile& file, std::uint64_t offset,
                                        std::span<std::byte> memory) {
  Result<void> how;
  object.layout.for_each(offset, memory.size(), [&](std::uint64_t from, std::uint64_t length, std::uint64_t at) {
    if (!how) return;
    const auto got = read_whole(files_, file->fd(), memory.subspan(from, length), at);
    if (!got)
      how = file_error(file->name(), "reading it", got.error);
    else if (static_cast<std::uint64_t>(got.value) < length)
      how = Error{Errc::damaged, file->name() + ": it ends before its regions do"};
  });
  object.layout.clear_gaps(offset, memory);
  return how;
}

// Those at either end may begin before the memory, or end after it.
Result<void> VelocStorage::check_blocks(const Object& object, const SharedFile& file, std::uint64_t offset,
                                        std::span<const std::byte> memory) {
  const std::uint64_t block = options_.block_bytes, end = offset + memory.size();
  std::vector<std::byte> beyond;
  for (std::uint64_t number = offset / block; number * block < end; ++number) {
    const std::uint64_t from = number * block, length = std::min(block, object.bytes - from);
    std::span<const std::byte> bytes;
    if (from >= offset && from + length <= end) {
      bytes = memory.subspan(from - offset, length);
    } else {
      beyond.resize(length);
      if (auto got = read_extents(object, file, from, beyond); !got) return got;
      bytes = beyond;
    }
    if (checksum_of(bytes) == object.blocks[number]) continue;
    return Error{Errc::damaged, file->name() + ": bytes " + std::to_string(from) + " to " +
                                    std::to_string(from + length) + " of version " +
                                    std::to_string(object.name.version) + " of \"" + object.name.name +
                                    "\" do not match their checksum"};
  }
  return {};
}

Result<SharedFile> VelocStorage::open_to_read(const SharedObject& object) {
  Path path;
  bool named = false;
  {
    const std::lock_guard lock(mutex_);
    if (SharedFile open = object->reading.lock()) return open;
    path = object->path;
    named = object->named;
  }
  os::SysResult opened = files_.open(path, os::Open::read, false);
  if (!opened && opened.error == ENOENT && !named) {  // it has got its name meanwhile
    path = path_of(*object);
    opened = files_.open(path, os::Open::read, false);
  }
  if (!opened && opened.error == ENOENT) {
    return Error{options_.readonly ? Errc::unknown_version : Errc::damaged,
                 path.string() + " is not there any more: somebody removed it"};
  }
  if (!opened) return file_error(path, "opening it", opened.error);
  auto file = std::make_shared<const os::File>(files_, static_cast<int>(opened.value), path.string(), false);
  os::FileStatus status;
  if (const auto asked = files_.status(file->fd(), status); !asked)
    return file_error(path, "asking for its status", asked.error);
  const std::lock_guard lock(mutex_);
  // With checksums, the bytes themselves say whether they are right: a file system may set its times late.
  const bool same = object->blocks.empty() ? state_of(status) == object->file : status.bytes == object->file.bytes;
  if (named && !same) return Error{Errc::damaged, path.string() + ": it was changed after it was found or written"};
  object->reading = file;
  return SharedFile(std::move(file));
}

// Its mark, which was only begun.
Result<void> VelocStorage::load(Object& object) {
  {
    const std::lock_guard lock(mutex_);
    if (object.description) return {};
  }
  std::vector<std::byte> bytes;
  Path path = object.mark;
  auto got = read_file(files_, path, kMaxHeader + kVelocMarkBegin, bytes);
  if (!got && got.error == ENOENT) {  // it has its own name by now
    path = mark_of(object);
    got = read_file(files_, path, kMaxHeader + kVelocMarkBegin, bytes);
  }
  if (!got) return file_error(path, "reading it", got.error);
  auto header = parse_veloc_mark(bytes);
  if (!header) return Error{header.error().code, path.string() + ": " + header.error().message};
  if (header->head.sequence != object.sequence)
    return Error{Errc::unknown_version, path.string() + " is of a later write"};
  const std::lock_guard lock(mutex_);
  if (object.description) return {};
  header->description.sequence = object.sequence;
  object.layout = VelocLayout::of(header->description.info);
  object.blocks = std::move(header->blocks);
  object.description = std::make_shared<const Description>(std::move(header->description));
  return {};
}

Result<std::shared_ptr<const Description>> VelocStorage::load_description(ObjectId id) {
  const SharedObject object = must_find(id);
  if (auto loaded = load(*object); !loaded) return loaded.error();
  const std::lock_guard lock(mutex_);
  return object->description;
}

Result<void> VelocStorage::read_checked(const SharedObject& object, const Sink& sink,
                                        const std::function<bool()>& ended) {
  std::vector<std::byte> memory;
  for (std::uint64_t at = 0; at < object->bytes; at += memory.size()) {
    if (ended && ended()) return Error{Errc::timed_out, "checking it was ended"};
    memory.resize(std::min<std::uint64_t>(round_up(kReadAtOnce, options_.block_bytes), object->bytes - at));
    if (auto got = read(object, at, memory); !got) return got;
    if (sink) sink(at, memory);
  }
  return {};
}

Result<void> VelocStorage::verify(ObjectId id, const std::function<bool()>& ended) {
  const SharedObject object = must_find(id);
  if (auto loaded = load(*object); !loaded) return loaded;
  return read_checked(object, {}, ended);
}

Result<void> VelocStorage::read_payload(ObjectId id, const Sink& sink) {
  const SharedObject object = must_find(id);
  if (auto loaded = load(*object); !loaded) return loaded;
  return read_checked(object, sink, {});
}

Result<std::vector<Checksum>> VelocStorage::region_checksums(ObjectId id) {
  const SharedObject object = must_find(id);
  if (auto loaded = load(*object); !loaded) return loaded.error();
  std::vector<Hasher> hashers(object->description->info.regions.size());
  const auto add = [&](std::uint64_t at, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < hashers.size(); ++i) {
      const RegionInfo& region = object->description->info.regions[i];
      const std::uint64_t from = std::max<std::uint64_t>(at, region.offset);
      const std::uint64_t to = std::min<std::uint64_t>(at + bytes.size(), region.offset + region.bytes);
      if (from < to) hashers[i].add(bytes.subspan(from - at, to - from));
    }
  };
  if (auto got = read_checked(object, add, {}); !got) return got.error();
  std::vector<Checksum> sums;
  for (const Hasher& one : hashers) sums.push_back(one.result());
  return sums;
}

// --- the rest ------------------------------------------------------------------------------------------------------

std::uint64_t VelocStorage::sequence(ObjectId id) {
  const std::lock_guard lock(mutex_);
  const auto found = objects_.find(id);
  return found != objects_.end() && found->second->named ? found->second->sequence : 0;
}

std::uint64_t VelocStorage::next_sequence() {
  const std::lock_guard lock(mutex_);
  return next_sequence_;
}

// Files that somebody deletes are gone, and that is right; the directories are ours.
Result<void> VelocStorage::check_files_exist() { return store_ ? store_->in_place() : Result<void>(); }

StorageUse VelocStorage::use() const {
  const std::lock_guard lock(mutex_);
  const std::uint64_t capacity = options_.capacity / os::kBlock * os::kBlock;
  return {capacity, used_, counted_, counted_, capacity - std::min(capacity, used_)};
}

std::string VelocStorage::describe() const {
  return "VELOC's files of rank " + std::to_string(rank_) + " in " + directory_.string() +
         (options_.readonly ? ", read only" : ", synced");
}

void VelocStorage::stop() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  movers_.stop();
  namer_.stop();
  if (options_.readonly) return;
  for (const auto& [id, object] : objects_)
    if (!object->named) static_cast<void>(files_.remove(object->path));
  for (const Path& orphan : orphans_) static_cast<void>(files_.remove(orphan));
  if (!unmade_ || !store_) return;
  static_cast<void>(files_.remove(own_ / kVelocFile));
  store_->unmake();
  for (const Path& path : std::views::reverse(made_)) static_cast<void>(files_.remove(path));
}

Result<std::unique_ptr<PersistentStorage>> open_veloc_storage(os::Files& files, const PersistentOptions& options,
                                                              int rank, Done done, Persisted persisted) {
  if (rank < 0) {
    return Error{Errc::invalid_argument,
                 "veloc_rank=" + std::to_string(rank) + " is not valid: expected a rank from 0"};
  }
  auto storage = std::make_unique<VelocStorage>(files, options, rank, std::move(done), std::move(persisted));
  if (auto started = storage->start(); !started) {
    storage->unmake();
    return started.error();
  }
  return std::unique_ptr<PersistentStorage>(std::move(storage));
}

}  // namespace ebb::storage
