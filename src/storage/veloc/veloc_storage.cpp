#include "storage/veloc/veloc_storage.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "storage/file_io.hpp"
#include "storage/format/hasher.hpp"

namespace ebb::storage {
namespace {

using os::round_up;

constexpr unsigned kMovers = 4;
constexpr std::size_t kReadAtOnce = std::size_t{4} << 20;
constexpr std::string_view kUnfinished = ".new";

VelocFileState state_of(const os::FileStatus& status) { return {status.bytes, status.changed_ns}; }

std::string mark_name(std::string_view name, Version version) {
  return std::string(name) + "-" + std::to_string(version);
}

// Whatever the working directory is later.
std::filesystem::path absolute_path_of(const std::filesystem::path& given) {
  std::error_code failed;
  const auto path = std::filesystem::absolute(given, failed).lexically_normal();
  if (failed) return given;
  return path.has_filename() ? path : path.parent_path();
}

// The whole file. Error by errno.
os::SysResult read_file(os::Files& files, const std::filesystem::path& path, std::size_t at_most,
                        std::vector<std::byte>& out) {
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

}  // namespace

struct VelocStorage::Object {
  ObjectId id = 0;
  VelocName name;
  std::uint64_t bytes = 0;  // of the payload
  std::uint64_t sequence = 0;
  std::shared_ptr<const Description> description;  // of a found one with a mark: null until that was read
  VelocLayout layout;                              // with the description
  std::vector<Checksum> blocks;                    // none: what is read is believed
  VelocFileState file{};                           // once it has its name
  bool counted = false, put = false, named = false, gone = false;
  bool missed = false;  // somebody else has removed its file, or written it anew
  std::weak_ptr<const os::File> reading;
  std::size_t in_flight = 0;
  // While it is written.
  Path unfinished;
  SharedFile writing;
  std::vector<Checksum> raw;     // as VelocMarkOf::raw
  std::vector<bool> there;       // by block
  std::size_t missing = 0;       // blocks
  std::vector<std::byte> small;  // the payload, of one that fits a compact record
};

std::filesystem::path veloc_own_directory(const std::filesystem::path& directory, int rank) {
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
      if (const auto synced = files_.sync_directory(path.parent_path()); !synced)
        return file_error(path.parent_path(), "syncing the directory", synced.error);
    }
    auto store = open_store_directory(files_, own_, {});
    if (!store) return store.error();
    store_ = std::move(*store);
    std::vector<std::string> names;
    if (const auto listed = files_.list(own_, names); !listed) return file_error(own_, "listing it", listed.error);
    for (const std::string& name : names)
      if (name.ends_with(kUnfinished)) static_cast<void>(files_.remove(own_ / name));
  }
  found_ = look(true);
  return {};
}

std::uint64_t VelocStorage::unused_sequence(std::uint64_t wanted) {
  while (!sequences_.insert(wanted).second) ++wanted;
  return wanted;
}

// The files of this rank that no object has yet.
std::vector<Found> VelocStorage::look(bool first) {
  std::vector<std::string> names, own_names;
  std::vector<Found> found;
  if (const auto listed = files_.list(directory_, names); !listed) {
    if (listed.error != ENOENT)
      damages_.push_back({directory_, 0, "it cannot be listed: " + os::describe_errno(listed.error), true});
    return found;
  }
  static_cast<void>(files_.list(own_, own_names));
  Marks marks;
  for (const std::string& name : own_names)
    if (!name.ends_with(kUnfinished)) marks.emplace(name, false);
  const std::lock_guard lock(mutex_);
  std::set<std::string> there;
  for (const std::string& name : names) {
    const auto parsed = parse_file_name(name);
    if (!parsed || parsed->rank != rank_) continue;
    const Path path = directory_ / name;
    os::FileStatus status;
    if (!files_.status(path, status) || status.kind != os::FileStatus::Kind::file) continue;
    const auto known = named_.find(name);
    const auto same = known == named_.end() ? objects_.end() : objects_.find(known->second);
    if (same != objects_.end() && same->second->file == state_of(status)) {
      there.insert(name);
      continue;
    }
    const auto seen = find_object(path, *parsed, status, marks);
    if (!seen) {
      if (first) damages_.push_back({path, 0, seen.error().message, seen.error().code != Errc::damaged});
      continue;
    }
    const SharedObject& one = seen->object;
    found.push_back({one->id, one->name.name, one->name.version, one->bytes, one->sequence, seen->body});
    if (same != objects_.end()) same->second->missed = true;
    named_[name] = one->id;
    there.insert(name);
    objects_[one->id] = one;
    used_ += round_up(one->bytes);
    ++counted_;
  }
  bool changed = !found.empty();
  for (const auto& [name, id] : named_)
    if (const auto one = objects_.find(id); one != objects_.end() && !there.contains(name))
      changed |= !std::exchange(one->second->missed, true);
  if (changed) ++changes_;
  std::ranges::sort(found, {}, [](const Found& one) { return std::pair(one.history, one.version); });
  if (first) look_for_deleted(marks);
  return found;
}

Result<VelocStorage::Seen> VelocStorage::find_object(const Path& path, const VelocName& name,
                                                     const os::FileStatus& status, Marks& marks) {
  auto object = std::make_shared<Object>();
  object->id = ++last_found_;
  object->name = name;
  object->file = state_of(status);
  object->counted = object->put = object->named = true;
  const std::string mark = mark_name(name.name, name.version);
  std::vector<std::byte> bytes;
  if (const auto beside = marks.find(mark); beside != marks.end()) {
    beside->second = true;
    const auto got = read_file(files_, own_ / mark, kVelocMarkBegin, bytes);
    const auto begin = got ? parse_veloc_mark_begin(bytes) : Result<VelocMarkBegin>(Error{});
    if (begin && begin->file == object->file) {
      object->bytes = begin->head.payload_bytes;
      object->sequence = begin->head.sequence;
      next_sequence_ = std::max(next_sequence_, object->sequence + 1);
      return Seen{std::move(object), begin->body};
    }
  }
  bytes.clear();
  auto got = read_file(files_, path, sizeof(std::uint64_t), bytes);
  const std::uint64_t header = veloc_header_bytes(bytes, status.bytes);
  if (got && header > 0) got = read_file(files_, path, header, bytes);
  if (!got) return file_error(path, "reading it", got.error);
  auto info = parse_veloc_header(bytes, status.bytes);
  if (!info) return info.error();
  object->layout = VelocLayout::of(*info);
  object->bytes = info->bytes;
  // A later write by somebody else counts as newer than all of ours before it.
  object->sequence = unused_sequence(static_cast<std::uint64_t>(std::max<std::int64_t>(status.changed_ns, 1)));
  next_sequence_ = std::max(next_sequence_, object->sequence + 1);
  object->description = std::make_shared<const Description>(Description{name.name, name.version, std::move(*info), 0});
  return Seen{std::move(object), {}};
}

// A mark without its file: somebody deleted that, so copies elsewhere go too.
void VelocStorage::look_for_deleted(const Marks& marks) {
  for (const auto& [name, has_file] : marks) {
    const auto dash = name.rfind('-');
    std::vector<std::byte> bytes;
    if (has_file || dash == name.npos || !read_file(files_, own_ / name, kVelocMarkBegin, bytes)) continue;
    const auto begin = parse_veloc_mark_begin(bytes);
    if (!begin) continue;
    const auto history = std::as_bytes(std::span(name.data(), dash));
    gone_.push_back({checksum_of(history), begin->head.version, begin->head.sequence + 1, {}});
    next_sequence_ = std::max(next_sequence_, begin->head.sequence + 2);
  }
}

std::vector<Found> VelocStorage::refresh() { return look(false); }

std::uint64_t VelocStorage::changes_seen() const {
  const std::lock_guard lock(mutex_);
  return changes_;
}

bool VelocStorage::was_dropped(ObjectId id) {
  const SharedObject object = find(id);
  os::FileStatus status;
  return !object || !files_.status(path_of(*object), status) || state_of(status) != object->file;
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
  object->unfinished = mark_of(*object).string() + "." + std::to_string(id) + std::string(kUnfinished);
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
    bool whole = false;
    {
      const std::lock_guard lock(mutex_);
      --object->in_flight;
      for (std::uint64_t at = offset; written && at < offset + bytes; at += block) {
        if (object->there[at / block]) continue;
        object->there[at / block] = true;
        whole = --object->missing == 0;
      }
    }
    done_(token, std::move(written));
    if (whole) namer_.post([this, object] { complete(object); });
  });
  return {};
}

Result<void> VelocStorage::write(Object& object, std::uint64_t offset, const std::byte* memory, std::size_t bytes) {
  SharedFile file;
  {
    const std::lock_guard lock(mutex_);
    if (!object.writing) {
      const auto opened = files_.open(object.unfinished, os::Open::create, false);
      if (!opened) return file_error(object.unfinished, "making it", opened.error);
      object.writing =
          std::make_shared<const os::File>(files_, static_cast<int>(opened.value), object.unfinished.string(), false);
    }
    file = object.writing;
  }
  const std::span<const std::byte> all(memory, bytes);
  Result<void> written;
  object.layout.for_each(offset, bytes, [&](std::uint64_t from, std::uint64_t length, std::uint64_t at) {
    if (!written) return;
    const auto put = write_whole(files_, file->fd(), all.subspan(from, length), at);
    if (!put) written = file_error(object.unfinished, "writing it", put.error);
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

// All of it is in its file: on the naming thread.
void VelocStorage::complete(const SharedObject& object) {
  {
    const std::lock_guard lock(mutex_);
    if (object->gone) return;
  }
  Result<void> named = give_name(*object);
  {
    const std::lock_guard lock(mutex_);
    object->writing.reset();
    object->small.clear();
    object->raw.clear();
    object->there.clear();
    if (!named) static_cast<void>(files_.remove(object->unfinished));
    if (named) {
      object->named = true;
      named_[file_name(object->name)] = object->id;
    }
    if (object->gone) return;
  }
  persisted_(object->id, named);
}

Result<void> VelocStorage::give_name(Object& object) {
  if (!object.writing) {  // it has no bytes
    const auto opened = files_.open(object.unfinished, os::Open::create, false);
    if (!opened) return file_error(object.unfinished, "making it", opened.error);
    object.writing =
        std::make_shared<const os::File>(files_, static_cast<int>(opened.value), object.unfinished.string(), false);
  }
  const int fd = object.writing->fd();
  const auto failed = [&](const char* what, int error) { return file_error(object.unfinished, what, error); };
  const auto header = encode_veloc_header(object.description->info);
  if (const auto put = write_whole(files_, fd, header, 0); !put) return failed("writing it", put.error);
  if (const auto synced = files_.sync(fd); !synced) return failed("syncing it", synced.error);
  os::FileStatus status;
  if (const auto asked = files_.status(fd, status); !asked) return failed("asking for its status", asked.error);
  {
    const std::lock_guard lock(mutex_);
    object.sequence = object.description->sequence != 0 ? object.description->sequence : next_sequence_;
    next_sequence_ = std::max(next_sequence_, object.sequence + 1);
    object.file = state_of(status);
  }
  if (auto marked = write_mark(object, object.file); !marked) return marked;
  if (auto renamed = rename(object.unfinished, path_of(object)); !renamed) return renamed;
  for (const Path& path : {own_, directory_})
    if (const auto synced = files_.sync_directory(path); !synced)
      return file_error(path, "syncing the directory", synced.error);
  return {};
}

Result<void> VelocStorage::write_mark(Object& object, const VelocFileState& state) {
  const auto bytes = encode_veloc_mark(
      {*object.description, state, object.blocks.empty() ? 0 : options_.block_bytes, object.sequence,
       std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
           .count(),
       object.blocks, object.raw, object.small});
  const Path path = mark_of(object), beside = path.string() + std::string(kUnfinished);
  const auto opened = files_.open_write(beside);
  if (!opened) return file_error(beside, "making it", opened.error);
  {
    const os::File file(files_, static_cast<int>(opened.value), beside.string(), false);
    if (const auto put = write_whole(files_, file.fd(), bytes, 0); !put)
      return file_error(beside, "writing it", put.error);
    if (const auto synced = files_.sync(file.fd()); !synced) return file_error(beside, "syncing it", synced.error);
  }
  return rename(beside, path);
}

// A rename whose reply was lost has happened.
Result<void> VelocStorage::rename(const Path& from, const Path& to) {
  const auto renamed = files_.rename(from, to);
  os::FileStatus there;
  if (renamed || (renamed.error == ENOENT && files_.status(to, there))) return {};
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
    named_.erase(file_name(object->name));
    return;
  }
  ++drops_;
  namer_.post([this, object] { remove_files(object); });
}

// On the naming thread, after all that was named before the drop.
void VelocStorage::remove_files(const SharedObject& object) {
  const std::string name = file_name(object->name);
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = named_.find(name);
    last = found != named_.end() && found->second == object->id;
    if (last) named_.erase(found);
    object->writing.reset();
  }
  if (!object->named) static_cast<void>(files_.remove(object->unfinished));
  if (last) {
    const auto removed = files_.remove(directory_ / name);
    const bool gone = removed || removed.error == ENOENT;
    if (gone) static_cast<void>(files_.remove(mark_of(*object)));
    static_cast<void>(files_.sync_directory(directory_));
    const std::lock_guard lock(mutex_);
    if (!gone) failed_drops_.push_back((directory_ / name).string());
  }
  const std::lock_guard lock(mutex_);
  ++drops_done_;
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
  return check_blocks(*object, *file, offset, memory);
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
  if (object.blocks.empty()) return {};
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
  {
    const std::lock_guard lock(mutex_);
    if (object->writing) return object->writing;
    if (SharedFile open = object->reading.lock()) return open;
  }
  const Path path = path_of(*object);
  const auto opened = files_.open(path, os::Open::read, false);
  if (!opened && opened.error == ENOENT) return Error{Errc::unknown_version, path.string() + " is not there any more"};
  if (!opened) return file_error(path, "opening it", opened.error);
  auto file = std::make_shared<const os::File>(files_, static_cast<int>(opened.value), path.string(), false);
  os::FileStatus status;
  if (const auto asked = files_.status(file->fd(), status); !asked)
    return file_error(path, "asking for its status", asked.error);
  if (state_of(status) != object->file)
    return Error{Errc::damaged, path.string() + ": it was changed after it was found or written"};
  const std::lock_guard lock(mutex_);
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
  const Path path = mark_of(object);
  if (const auto got = read_file(files_, path, kMaxHeader + kVelocMarkBegin, bytes); !got)
    return file_error(path, "reading it", got.error);
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
  for (const auto& [id, object] : objects_)
    if (!object->named && !options_.readonly) static_cast<void>(files_.remove(object->unfinished));
  if (unmade_ && store_) store_->unmake();
}

Result<std::unique_ptr<PersistentStorage>> open_veloc_storage(os::Files& files, const PersistentOptions& options,
                                                              int rank, Done done, Persisted persisted) {
  if (rank < 0) {
    return Error{Errc::invalid_argument,
                 "veloc_rank=" + std::to_string(rank) + " is not valid: expected a rank from 0"};
  }
  auto storage = std::make_unique<VelocStorage>(files, options, rank, std::move(done), std::move(persisted));
  if (auto started = storage->start(); !started) return started.error();
  return std::unique_ptr<PersistentStorage>(std::move(storage));
}

}  // namespace ebb::storage
