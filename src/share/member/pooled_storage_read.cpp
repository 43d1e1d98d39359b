// A pool's storage: reads, from the segment files.
#include <stdexcept>

#include "share/member/pooled_storage.hpp"

namespace ebb::share {

using storage::Description;
using storage::ObjectId;

// The reader's number of an object: of the record that the agent named when it was durable.
Result<ObjectId> PooledStorage::reader_id(ObjectId id) {
  if (id < storage::kFirstObject) return id;
  RecordKey key;
  std::uint64_t sequence = 0;
  {
    const Lock lock(mutex_);
    const auto found = objects_.find(id);
    if (found == objects_.end()) throw std::logic_error("an object that was never put");
    if (broken_ && found->second.comes_later()) return *broken_;
    key = found->second.key;
    sequence = found->second.sequence;
  }
  return records_.find(key, sequence);
}

Result<void> PooledStorage::get(storage::Token token, ObjectId object, std::uint64_t offset, std::byte* memory,
                                std::size_t bytes) {
  {  // what is written is durable a little later, if asked for at once; it may be this thread that hears
    const Lock lock(mutex_);
    const auto found = objects_.find(object);
    if (found != objects_.end() && found->second.comes_later() && !broken_) {
      gets_.push_back({token, object, offset, memory, bytes});
      member_->send(message::Commit{});
      return {};
    }
  }
  const auto id = reader_id(object);
  if (!id) return id.error();
  return records_.reader().get(token, *id, offset, memory, bytes);
}

Result<std::shared_ptr<const Description>> PooledStorage::load_description(ObjectId object) {
  const auto id = reader_id(object);
  if (!id) return id.error();
  return records_.reader().load_description(*id);
}

Result<void> PooledStorage::verify(ObjectId object, const std::function<bool()>& ended) {
  const auto id = reader_id(object);
  return id ? records_.reader().verify(*id, ended) : Result<void>(id.error());
}

Result<void> PooledStorage::read_payload(ObjectId object, const Sink& sink) {
  const auto id = reader_id(object);
  return id ? records_.reader().read_payload(*id, sink) : Result<void>(id.error());
}

Result<std::vector<storage::Checksum>> PooledStorage::region_checksums(ObjectId object) {
  const auto id = reader_id(object);
  if (!id) return id.error();
  return records_.reader().region_checksums(*id);
}

}  // namespace ebb::share
