#include "storage/veloc/veloc_objects.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "os/files.hpp"

namespace ebb::storage {

using os::round_up;

Error no_memory_for(const VelocObject& object) {
  return {Errc::out_of_memory, "version " + std::to_string(object.name.version) + " of \"" + object.name.name +
                                   "\": there is no memory to write or read its file"};
}

VelocObjects::VelocObjects(std::filesystem::path directory, int rank, std::uint64_t capacity)
    : directory_(std::move(directory)), rank_(rank), capacity_(capacity / os::kBlock * os::kBlock) {}

SharedVelocObject VelocObjects::find(ObjectId id) const {
  const Lock held = lock();
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second;
}

SharedVelocObject VelocObjects::must_find(ObjectId id) const {
  SharedVelocObject object = find(id);
  if (!object) throw std::logic_error("an object that the storage does not have was used");
  return object;
}

// --- what is found ---------------------------------------------------------------------------------------------------

std::map<std::string, VelocObjects::File> VelocObjects::files() const {
  const Lock held = lock();
  std::map<std::string, File> files;
  const auto add = [&](std::string name, ObjectId id) {
    if (const auto one = objects_.find(id); one != objects_.end() && !one->second->missed)
      files.emplace(std::move(name), File{one->second->file, one->second->name.version});
  };
  for (const auto& [name, id] : named_) add(name, id);
  for (const auto& [name, editions] : waiting_)
    for (const auto& [version, id] : editions)
      if (const auto one = objects_.find(id); one != objects_.end()) add(one->second->path.filename().string(), id);
  return files;
}

std::vector<Found> VelocObjects::add_found(std::vector<VelocSeen> seen, const std::set<std::string>& there,
                                           VelocFolders::Times looked) {
  std::vector<Found> found;
  const Lock held = lock();
  looked_ = looked;
  bool changed = !seen.empty();
  const auto miss = [&](const std::string& name, ObjectId id) {
    if (const auto one = objects_.find(id); one != objects_.end() && !there.contains(name))
      changed |= !std::exchange(one->second->missed, true);
  };
  for (const auto& [name, id] : named_) miss(name, id);
  for (const auto& [name, editions] : waiting_)
    for (const auto& [version, id] : editions)
      if (const auto one = objects_.find(id); one != objects_.end()) miss(one->second->path.filename().string(), id);
  if (changed) ++changes_;
  for (VelocSeen& one : seen) {
    const SharedVelocObject& object = one.object;
    if (!one.marked)
      while (!sequences_.insert(object->sequence).second) ++object->sequence;
    next_sequence_ = std::max(next_sequence_, object->sequence + 1);
    object->id = ++last_found_;
    found.push_back({object->id, object->name.name, object->name.version, object->bytes, object->sequence, one.body});
    if (object->waits)
      waiting_[file_name(object->name)][object->name.version] = object->id;
    else
      named_[file_name(object->name)] = object->id;
    objects_[object->id] = object;
    used_ += round_up(object->bytes);
    ++counted_;
  }
  std::ranges::sort(found, {}, [](const Found& one) { return std::pair(one.history, one.version); });
  return found;
}

bool VelocObjects::looked_at(VelocFolders::Times times) const {
  const Lock held = lock();
  return times != VelocFolders::Times{} && times == looked_;
}

void VelocObjects::look_again() {
  const Lock held = lock();
  looked_ = {};
}

std::uint64_t VelocObjects::changes() const {
  const Lock held = lock();
  return changes_;
}

// --- transfers -------------------------------------------------------------------------------------------------------

void VelocObjects::begin(const SharedVelocObject& object) {
  const Lock held = lock();
  if (stopped_) throw std::logic_error("an object was begun in a stopped storage");
  if (!objects_.emplace(object->id, object).second) throw std::logic_error("an object was begun twice");
  if (object->missing == 0) object->counted = object->put = true, ++counted_;
}

Result<void> VelocObjects::take_room(const Lock&, VelocObject& object) {
  if (object.counted) return {};
  const std::uint64_t needed = round_up(object.bytes);
  if (needed > capacity_ - std::min(capacity_, used_)) {
    return Error{Errc::no_space, directory_.string() + " has no room for " + std::to_string(object.bytes) + " bytes: " +
                                     std::to_string(used_) + " of " + std::to_string(capacity_) + " are used"};
  }
  used_ += needed;
  ++counted_;
  object.counted = true;
  return {};
}

Result<void> VelocObjects::begin_put(VelocObject& object) {
  const Lock held = lock();
  if (stopped_) throw std::logic_error("a range was put to a stopped storage");
  if (auto room = take_room(held, object); !room) return room;
  ++object.in_flight;
  object.put = true;
  return {};
}

void VelocObjects::begin_get(VelocObject& object, std::uint64_t offset, std::size_t bytes) {
  const Lock held = lock();
  if (stopped_) throw std::logic_error("a range was read from a stopped storage");
  if (!object.put || offset > object.bytes || bytes > object.bytes - offset)
    throw std::logic_error("a range was read that was never put");
  ++object.in_flight;
}

void VelocObjects::end_transfer(VelocObject& object) {
  const Lock held = lock();
  --object.in_flight;
}

// --- sequences -------------------------------------------------------------------------------------------------------

std::uint64_t VelocObjects::sequence(ObjectId id) const {
  const Lock held = lock();
  const auto found = objects_.find(id);
  return found != objects_.end() && found->second->kept() ? found->second->sequence : 0;
}

std::uint64_t VelocObjects::next_sequence() const {
  const Lock held = lock();
  return next_sequence_;
}

void VelocObjects::give_sequence(VelocObject& object) {
  const Lock held = lock();
  object.sequence = object.description->sequence != 0 ? object.description->sequence : next_sequence_;
  next_sequence_ = std::max(next_sequence_, object.sequence + 1);
}

void VelocObjects::skip_sequences(std::uint64_t below) {
  const Lock held = lock();
  next_sequence_ = std::max(next_sequence_, below);
}

// --- names -----------------------------------------------------------------------------------------------------------

void VelocObjects::name(VelocObject& object, std::filesystem::path path) {
  const Lock held = lock();
  object.path = std::move(path);
  object.named = true;
  if (std::exchange(object.waits, false)) stop_waiting(held, object);
  named_[file_name(object.name)] = object.id;
}

void VelocObjects::await_name(VelocObject& object, std::filesystem::path path) {
  const Lock held = lock();
  object.path = std::move(path);
  object.waits = true;
  waiting_[file_name(object.name)][object.name.version] = object.id;
}

bool VelocObjects::is_taken(const VelocObject& object) const { return is_taken(lock(), object); }

bool VelocObjects::is_taken(const Lock&, const VelocObject& object) const {
  for (const int rank : {object.name.rank, kAllRanks}) {
    const auto of = named_.find(file_name({object.name.name, rank, object.name.version}));
    if (of == named_.end() || of->second == object.id) continue;
    const auto there = objects_.find(of->second);
    if (there == objects_.end() || there->second->name.version != object.name.version) return true;
  }
  return false;
}

SharedVelocObject VelocObjects::next_of(const VelocName& name) const {
  return next_of(lock(), file_name({name.name, rank_, name.version}));
}

SharedVelocObject VelocObjects::next_of(const Lock&, const std::string& file) const {
  const auto editions = waiting_.find(file);
  if (editions == waiting_.end()) return nullptr;
  for (const auto& [version, id] : editions->second)  // one that was dropped is on its way
    if (const auto one = objects_.find(id); one != objects_.end()) return one->second;
  return nullptr;
}

std::vector<SharedVelocObject> VelocObjects::to_name() const {
  const Lock held = lock();
  std::vector<SharedVelocObject> all;
  for (const auto& [file, editions] : waiting_)
    if (auto next = next_of(held, file); next && !is_taken(held, *next)) all.push_back(std::move(next));
  return all;
}

void VelocObjects::stop_waiting(const Lock&, const VelocObject& object) {
  const auto editions = waiting_.find(file_name(object.name));
  if (editions == waiting_.end()) return;
  const auto one = editions->second.find(object.name.version);
  if (one != editions->second.end() && one->second == object.id) editions->second.erase(one);
  if (editions->second.empty()) waiting_.erase(editions);
}

bool VelocObjects::unname(const Lock& held, const VelocObject& object) {
  stop_waiting(held, object);
  const auto last = named_.find(file_name(object.name));
  if (last == named_.end() || last->second != object.id) return false;
  named_.erase(last);
  return true;
}

SharedVelocObject VelocObjects::take(const Lock&, ObjectId id) {
  const auto found = objects_.find(id);
  if (found == objects_.end()) return nullptr;
  const SharedVelocObject object = found->second;
  if (object->in_flight > 0) throw std::logic_error("an object with transfers in flight was dropped");
  objects_.erase(found);
  object->gone = true;
  if (object->counted) used_ -= round_up(object->bytes), --counted_;
  return object;
}

// --- the whole -------------------------------------------------------------------------------------------------------

StorageUse VelocObjects::use() const {
  const Lock held = lock();
  return {capacity_, used_, counted_, counted_, capacity_ - std::min(capacity_, used_)};
}

bool VelocObjects::stop() {
  const Lock held = lock();
  return !std::exchange(stopped_, true);
}

std::vector<std::filesystem::path> VelocObjects::unnamed() const {
  const Lock held = lock();
  std::vector<std::filesystem::path> paths;
  for (const auto& [id, object] : objects_)
    if (!object->kept()) paths.push_back(object->path);
  return paths;
}

}  // namespace ebb::storage
