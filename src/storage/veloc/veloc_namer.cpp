#include "storage/veloc/veloc_namer.hpp"

#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "storage/file_io.hpp"

namespace ebb::storage {

using Path = std::filesystem::path;

// --- naming ----------------------------------------------------------------------------------------------------------

void VelocNamer::complete(const SharedVelocObject& object) {
  thread_.post([this, object] { name(*object); });
}

void VelocNamer::name(VelocObject& object) {
  {
    const auto held = objects_.lock();
    if (object.gone) return;
  }
  Result<void> named = object.bytes == 0 ? writer_.finish(object) : Result<void>();
  if (named) named = give_name(object);
  {
    const auto held = objects_.lock();
    object.small.clear();
    object.raw.clear();
    object.there.clear();
    if (object.gone) return;
  }
  persisted_(object.id, named);
}

Result<void> VelocNamer::give_name(VelocObject& object) try {
  objects_.give_sequence(object);
  const Path pending = folders_.pending_of(object.name, object.id);
  const bool taken = objects_.is_taken(object);
  // The mark of what has the name is not pending then, by which an opening tells the editions apart.
  Result<void> named = taken ? folders_.sync(folders_.own()) : Result<void>();
  if (named) named = write_mark(pending, object);
  if (named) named = folders_.sync(folders_.own());
  if (named) named = taken ? await_name(object) : take_name(object);
  if (!named && !object.kept()) static_cast<void>(files_.remove(pending));
  if (!named) return named;
  return folders_.rename(pending, folders_.mark_of(object.name));
} catch (const std::bad_alloc&) {
  return no_memory_for(object);
}

Result<void> VelocNamer::await_name(VelocObject& object) {
  const Path waiting = folders_.waiting_of(object.name);
  if (auto renamed = folders_.rename(object.path, waiting); !renamed) return renamed;
  objects_.await_name(object, waiting);
  return folders_.sync(folders_.own());
}

Result<void> VelocNamer::take_name(VelocObject& object) {
  const Path file = folders_.path_of(object.name);
  if (sums_.wanted() && object.sum == Sha256Sum{}) {  // an earlier process wrote it
    const auto opened = files_.open(object.path, os::Open::read, false);
    if (!opened) return file_error(object.path, "opening it", opened.error);
    const os::File written(files_, static_cast<int>(opened.value), object.path.string(), false);
    const auto sum = sums_.sum_of(written, object.part);
    if (!sum) return sum.error();
    object.sum = *sum;
  }
  if (object.waits)  // its mark is not pending then
    if (auto synced = folders_.sync(folders_.own()); !synced) return synced;
  auto renamed = sums_.wanted() ? sums_.write(object.name, object.sum) : sums_.remove(object.name);
  if (renamed) renamed = folders_.rename(object.path, file);
  if (!renamed) return renamed;
  objects_.name(object, file);
  {
    const std::lock_guard lock(mutex_);
    std::erase(failed_drops_, file.string());
  }
  for (const Path& directory : {folders_.own(), folders_.directory()})
    if (auto synced = folders_.sync(directory); !synced) return synced;
  return {};
}

// A checksum file that is made of wrong bytes would vouch for them.
Result<void> VelocNamer::take_name_of_found(const SharedVelocObject& object) {
  if (sums_.wanted() && object->sum == Sha256Sum{})  // an earlier process wrote it
    if (auto right = reader_.read_all(object, {}, {}); !right) return right;
  return take_name(*object);
}

void VelocNamer::name_waiting() {
  thread_.post([this] {
    for (const SharedVelocObject& object : objects_.to_name())  // what fails waits for the next opening
      static_cast<void>(static_cast<bool>(take_name_of_found(object)));
  });
}

Result<void> VelocNamer::write_mark(const Path& path, const VelocObject& object) {
  const auto bytes =
      encode_veloc_mark({*object.description, object.file, object.blocks.empty() ? 0 : block_bytes_, object.sequence,
                         std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count(),
                         object.blocks, object.raw, object.small, folders_.prefix()});
  const auto opened = files_.open_write(path);
  if (!opened) return file_error(path, "making it", opened.error);
  const os::File file(files_, static_cast<int>(opened.value), path.string(), false);
  if (const auto put = write_whole(files_, file.fd(), bytes, 0); !put) return file_error(path, "writing it", put.error);
  if (const auto synced = files_.sync(file.fd()); !synced) return file_error(path, "syncing it", synced.error);
  return {};
}

// --- removing --------------------------------------------------------------------------------------------------------

void VelocNamer::forget(ObjectId id, bool remove) {
  const auto held = objects_.lock();
  const SharedVelocObject object = objects_.take(held, id);
  if (!object || folders_.readonly() || objects_.stopped(held)) return;
  if (!remove && object->kept()) {  // what could not be read stays
    objects_.unname(held, *object);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ++drops_;
  }
  thread_.post([this, object] { remove_files(*object); });
}

// After all that was named before the drop.
void VelocNamer::remove_files(VelocObject& object) {
  const bool last = objects_.unname(objects_.lock(), object);
  if (!object.kept()) {
    {
      const std::lock_guard lock(object.opening);
      object.writing.reset();
    }
    static_cast<void>(files_.remove(object.path));
  }
  const SharedVelocObject next = last ? objects_.next_of(object.name) : nullptr;
  bool left = false;
  if (object.waits) {
    left = !remove_waiting(object);
  } else if (next && object.name.rank != kAllRanks) {
    left = !replace(object, next);
  } else if (last) {
    left = !move_back(object);
    if (next && !left) left = !take_name_of_found(next);
  }
  const std::lock_guard lock(mutex_);
  if (left) failed_drops_.push_back(folders_.path_of(object.name).string());
  ++drops_done_;
}

// At no moment is there neither. False: the older one is still there.
bool VelocNamer::replace(const VelocObject& object, const SharedVelocObject& next) {
  if (!take_name_of_found(next)) return false;
  static_cast<void>(files_.remove(folders_.mark_of(object.name)));
  static_cast<void>(static_cast<bool>(folders_.sync(folders_.own())));  // the mark is of no file now
  return true;
}

// As move_back(), of one that never had its name. False: it is still there.
bool VelocNamer::remove_waiting(const VelocObject& object) {
  const Path back = folders_.unfinished_of(object.name, object.id);
  os::FileStatus status;
  if (!folders_.rename(object.path, back) && files_.status(object.path, status).error != ENOENT) return false;
  if (!folders_.sync(folders_.own())) return true;  // the next opening goes on from here
  static_cast<void>(files_.remove(folders_.mark_of(object.name)));
  if (!folders_.sync(folders_.own())) return true;
  static_cast<void>(files_.remove(back));
  return true;
}

// Takes its file out of VELOC's sight, and removes it; another's that is there now stays. False: it is still there.
bool VelocNamer::move_back(const VelocObject& object) {
  const Path path = folders_.path_of(object.name), mark = folders_.mark_of(object.name);
  const Path back = folders_.unfinished_of(object.name, object.id);
  os::FileStatus status;
  VelocFolders::FileAt place;
  const auto asked = folders_.find(object.name, place, status);
  if (!asked && asked.error != ENOENT) return false;
  const bool others = asked && (state_of(status) != object.file || place.linked != object.linked);
  if (asked && !others && object.linked) {  // the program's file stays
    if (const auto removed = files_.remove(path); !removed && removed.error != ENOENT) return false;
  } else if (asked && !others) {
    // Another rank may have taken an aggregated file away meanwhile.
    if (!folders_.rename(path, back) && folders_.find(object.name, place, status).error != ENOENT) return false;
    for (const Path& directory : {folders_.directory(), folders_.own()})
      if (!folders_.sync(directory)) return true;  // the next opening goes on from here
  }
  if (!others && !sums_.remove(object.name)) return true;
  static_cast<void>(files_.remove(mark));
  if (!others && object.name.rank == kAllRanks)
    static_cast<void>(files_.remove(folders_.meta() / file_name(object.name)));
  if (!folders_.sync(folders_.own())) return true;
  static_cast<void>(files_.remove(back));
  return true;
}

std::uint64_t VelocNamer::drops() const {
  const std::lock_guard lock(mutex_);
  return drops_;
}

std::uint64_t VelocNamer::drops_done() const {
  const std::lock_guard lock(mutex_);
  return drops_done_;
}

std::vector<std::string> VelocNamer::failed_drops() const {
  const std::lock_guard lock(mutex_);
  return failed_drops_;
}

}  // namespace ebb::storage
