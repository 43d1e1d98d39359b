#include "storage/veloc/veloc_storage.hpp"

#include <cerrno>
#include <stdexcept>
#include <utility>

#include "storage/file_io.hpp"

namespace ebb::storage {
namespace {

constexpr unsigned kMovers = 4;

}  // namespace

VelocStorage::VelocStorage(os::Files& files, PersistentOptions options, const VelocOf& of, Done done,
                           Persisted persisted)
    : files_(files),
      options_(std::move(options)),
      done_(std::move(done)),
      folders_(files, options_.directory, of, options_.readonly, options_.prefix),
      sums_(files, {of.rank, folders_.meta(), of.sums}),
      objects_(folders_.directory(), of.rank, options_.capacity),
      writer_(folders_, sums_, objects_, options_.block_bytes, options_.checksums),
      reader_(folders_, sums_, objects_, options_.block_bytes),
      namer_(folders_, sums_, objects_, writer_, reader_, options_.block_bytes, std::move(persisted)),
      movers_(kMovers) {}

Result<void> VelocStorage::start() {
  if (auto made = sums_.make(options_.readonly); !made) return made;
  if (auto made = folders_.make(); !made) return made;
  auto own = list_own_files(folders_);
  if (own && !options_.readonly) own = settle_interrupted(folders_, *own);
  if (!own) return own.error();
  auto seen = look(folders_, objects_, *own);
  if (!seen) return seen.error();
  damages_ = std::move(seen->damages);
  for (VelocDeleted& one : find_deleted(folders_, *own, seen->marks)) {
    objects_.skip_sequences(one.gone.sequence + 1);
    gone_.push_back(one.gone);
    if (!options_.readonly) orphans_.push_back(std::move(one.mark));
  }
  found_ = objects_.add_found(std::move(seen->seen), seen->there, seen->before);
  if (!options_.readonly) namer_.name_waiting();
  return {};
}

Result<void> VelocStorage::forget_gone() {
  if (orphans_.empty()) return {};
  for (const auto& orphan : orphans_)
    if (const auto removed = files_.remove(orphan); !removed && removed.error != ENOENT)
      return file_error(orphan, "removing it", removed.error);
  if (auto synced = folders_.sync(folders_.own()); !synced) return synced;
  orphans_.clear();
  return {};
}

std::vector<Found> VelocStorage::refresh() {
  if (objects_.looked_at(folders_.times())) return {};
  const auto own = list_own_files(folders_);
  if (!own) return {};
  auto seen = look(folders_, objects_, *own);
  return seen ? objects_.add_found(std::move(seen->seen), seen->there, seen->before) : std::vector<Found>();
}

bool VelocStorage::was_dropped(ObjectId id) {
  const SharedVelocObject object = objects_.find(id);
  if (!object) return true;
  os::FileStatus status;
  VelocFolders::FileAt place;
  if (object->waits && files_.status(object->path, status)) return false;
  const auto asked = folders_.find(object->name, place, status);
  const bool gone = asked ? state_of(status) != object->file : asked.error == ENOENT;
  if (gone) objects_.look_again();
  return gone;
}

Result<void> VelocStorage::begin(ObjectId id, std::shared_ptr<const Description> description) {
  if (auto named = check_veloc_name(description->history, description->version); !named) return named;
  if (auto fits = check(*description, options_.block_bytes); !fits) return fits;
  const SharedVelocObject object = writer_.make(id, std::move(description));
  const bool whole = object->missing == 0;
  objects_.begin(object);
  if (whole) namer_.complete(object);
  return {};
}

Result<void> VelocStorage::put(Token token, ObjectId id, std::uint64_t total, std::uint64_t offset,
                               const std::byte* memory, std::size_t bytes) {
  const SharedVelocObject object = objects_.must_find(id);
  const std::uint64_t block = options_.block_bytes;
  if (total != object->bytes || offset % block != 0 || offset > total || bytes > total - offset ||
      (bytes % block != 0 && offset + bytes != total)) {
    throw std::logic_error("a range was put that is not of whole blocks of its object");
  }
  if (auto begun = objects_.begin_put(*object); !begun) return begun;
  movers_.post([=, this] {
    const auto whole = writer_.put(*object, offset, {memory, bytes});
    objects_.end_transfer(*object);
    done_(token, whole ? Result<void>() : whole.error());
    if (whole && *whole) namer_.complete(object);
  });
  return {};
}

Result<void> VelocStorage::get(Token token, ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes) {
  const SharedVelocObject object = objects_.must_find(id);
  objects_.begin_get(*object, offset, bytes);
  movers_.post([=, this] {
    Result<void> how = reader_.read(object, offset, {memory, bytes});
    objects_.end_transfer(*object);
    done_(token, std::move(how));
  });
  return {};
}

Result<std::shared_ptr<const Description>> VelocStorage::load_description(ObjectId id) {
  const SharedVelocObject object = objects_.must_find(id);
  if (auto loaded = reader_.load(*object); !loaded) return loaded.error();
  const auto held = objects_.lock();
  return object->description;
}

Result<void> VelocStorage::verify(ObjectId id, const std::function<bool()>& ended) {
  return reader_.read_all(objects_.must_find(id), {}, ended);
}

Result<void> VelocStorage::read_payload(ObjectId id, const Sink& sink) {
  return reader_.read_all(objects_.must_find(id), sink, {});
}

Result<std::vector<Checksum>> VelocStorage::region_checksums(ObjectId id) {
  return reader_.region_checksums(objects_.must_find(id));
}

std::string VelocStorage::describe() const {
  return "VELOC's files of rank " + std::to_string(folders_.rank()) + " in " + folders_.directory().string() +
         (options_.readonly ? ", read only" : ", synced");
}

void VelocStorage::stop() {
  if (!objects_.stop()) return;
  movers_.stop();
  namer_.stop();
  if (options_.readonly) return;
  for (const auto& path : objects_.unnamed()) static_cast<void>(files_.remove(path));
  if (unmade_) folders_.unmake();
}

Result<std::unique_ptr<PersistentStorage>> open_veloc_storage(os::Files& files, const PersistentOptions& options,
                                                              const VelocOf& of, Done done, Persisted persisted) {
  if (of.rank < 0) {
    return Error{Errc::invalid_argument,
                 "veloc_rank=" + std::to_string(of.rank) + " is not valid: expected a rank from 0"};
  }
  auto storage = std::make_unique<VelocStorage>(files, options, of, std::move(done), std::move(persisted));
  if (auto started = storage->start(); !started) {
    storage->unmake();
    return started.error();
  }
  return std::unique_ptr<PersistentStorage>(std::move(storage));
}

}  // namespace ebb::storage
