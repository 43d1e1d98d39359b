#include "storage/segments/object_table.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ebb::storage {

bool RecordRow::add(std::uint64_t offset, SharedObject object) {
  const bool last = row_.empty() || row_.back().offset < offset;
  const auto at = last ? row_.end() : std::ranges::lower_bound(row_, offset, {}, &RowEntry::offset);
  if (last || at->offset != offset) {
    row_.insert(at, {offset, std::move(object)});
  } else {
    if (at->object) return false;
    row_[static_cast<std::size_t>(at - row_.begin())].object = std::move(object);
  }
  ++many_;
  return true;
}

SharedObject RecordRow::find(std::uint64_t offset) const {
  const auto at = std::ranges::lower_bound(row_, offset, {}, &RowEntry::offset);
  return at == row_.end() || at->offset != offset ? nullptr : at->object;
}

void RecordRow::erase(std::uint64_t offset) {
  const auto at = std::ranges::lower_bound(row_, offset, {}, &RowEntry::offset);
  if (at == row_.end() || at->offset != offset || !at->object) return;
  at->object = nullptr;
  --many_;
  if (many_ < row_.size() / 2) std::erase_if(row_, [](const RowEntry& one) { return !one.object; });
}

StoredHead::StoredHead(const RecordHead& head)
    : offset(head.place.offset),
      header_bytes(head.header_bytes),
      payload_bytes(head.payload_bytes),
      record_bytes(head.record_bytes),
      sequence(head.sequence),
      version(head.version),
      written_ns(head.written_ns),
      name_bytes(head.name_bytes),
      regions(head.regions),
      metadata_bytes(head.metadata_bytes),
      block_bytes(head.block_bytes),
      body(head.body) {}

RecordHead StoredObject::record_head() const {
  return {.place = place(),
          .header_bytes = head.header_bytes,
          .payload_bytes = head.payload_bytes,
          .record_bytes = head.record_bytes,
          .sequence = head.sequence,
          .version = head.version,
          .written_ns = head.written_ns,
          .name_bytes = head.name_bytes,
          .regions = head.regions,
          .metadata_bytes = head.metadata_bytes,
          .block_bytes = head.block_bytes,
          .body = head.body};
}

SharedObject ObjectTable::find(const TableLocked&, ObjectId id) const {
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second;
}

void ObjectTable::add(const TableLocked&, const SharedObject& object) {
  used_ += object->space();
  objects_.emplace(object->id, object);
}

SharedObject ObjectTable::remove(const TableLocked&, ObjectId id) {
  const auto found = objects_.find(id);
  if (found == objects_.end()) return nullptr;
  if (found->second->in_flight) throw std::logic_error("an object with transfers in flight was dropped");
  SharedObject object = std::move(found->second);
  objects_.erase(found);
  used_ -= object->space();
  object->dropped = true;
  return object;
}

StorageUse ObjectTable::use(const TableLocked&) const {
  return {capacity_, used_, objects_.size(), objects_.size(), capacity_ > used_ ? capacity_ - used_ : 0};
}

void ObjectTable::set_current(const TableLocked&, SharedSegment segment, bool cached) {
  SharedSegment& current = current_.at(cached);
  if (current) current->closed = true;
  current = std::move(segment);
  segments_.emplace(current->number, current);
}

void ObjectTable::begin_transfer(const TableLocked&, StoredObject& object) {
  ++object.in_flight;
  ++in_flight_;
}

void ObjectTable::end_transfer(const TableLocked&) {
  if (--in_flight_ == 0) idle_.notify_all();
}

bool ObjectTable::close() {
  TableLocked lock(mutex_);
  if (phase_ == Phase::closed) return false;
  phase_ = Phase::closing;
  idle_.wait(lock, [&] { return in_flight_ == 0; });
  phase_ = Phase::closed;
  return true;
}

}  // namespace ebb::storage
