#include "storage/segments/object_table.hpp"

#include <stdexcept>
#include <utility>

namespace ebb::storage {

SharedObject ObjectTable::find(const Locked&, ObjectId id) const {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second;
}

void ObjectTable::add(const Locked&, const SharedObject& object) {
  used_ += object->space();
  objects_.emplace(object->id, object);
}

SharedObject ObjectTable::remove(const Locked&, ObjectId id) {
  const auto found = objects_.find(id);
  if (found == objects_.end()) return nullptr;
  if (found->second->in_flight) throw std::logic_error("an object with transfers in flight was dropped");
  SharedObject object = std::move(found->second);
  objects_.erase(found);
  used_ -= object->space();
  object->dropped = true;
  return object;
}

StorageUse ObjectTable::use(const Locked&) const {
  return {capacity_, used_, objects_.size(), objects_.size(), capacity_ > used_ ? capacity_ - used_ : 0};
}

void ObjectTable::set_current(const Locked&, SharedSegment segment, bool cached) {
  SharedSegment& current = current_.at(cached);
  if (current) current->closed = true;
  current = std::move(segment);
  segments_.emplace(current->number, current);
}

void ObjectTable::begin_transfer(const Locked&, StoredObject& object) {
  ++object.in_flight;
  ++in_flight_;
}

void ObjectTable::end_transfer(const Locked&) {
  if (--in_flight_ == 0) idle_.notify_all();
}

bool ObjectTable::close() {
  Locked lock(mutex_);
  if (phase_ == Phase::closed) return false;
  phase_ = Phase::closing;
  idle_.wait(lock, [&] { return in_flight_ == 0; });
  phase_ = Phase::closed;
  return true;
}

}  // namespace ebb::storage
