#pragma once
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "storage/persistent_storage.hpp"
#include "storage/segments/checksum_workers.hpp"

namespace ebb::doubles {

/// What a KeptMemory outlives its process with, for as long as a test keeps it: the checkpoints, by name and version.
///
/// Thread safety: its mutex guards the rest.
struct KeptRecords {
  struct Record {
    storage::Description description;
    std::vector<std::byte> bytes;
  };
  std::mutex mutex;
  std::map<std::pair<std::string, Version>, Record> records;
};

/// A file tier in memory: all that a storage has to do to be one, and no more.
///
/// Thread safety: as PersistentStorage. One thread makes all callbacks, with no lock held.
class KeptMemory final : public storage::PersistentStorage {
 public:
  using ObjectId = storage::ObjectId;
  KeptMemory(std::shared_ptr<KeptRecords> kept, storage::Done done, storage::Persisted persisted)
      : kept_(std::move(kept)), done_(std::move(done)), persisted_(std::move(persisted)) {
    ObjectId id = 0;
    for (const auto& [key, record] : kept_->records) {
      const storage::Description& one = record.description;
      found_.push_back({++id, one.history, one.version, one.info.bytes, one.sequence, {}});
      objects_[id] = {record, one.info.bytes};
    }
  }
  ~KeptMemory() override { KeptMemory::stop(); }

  Result<void> begin(ObjectId object, std::shared_ptr<const storage::Description> description) override {
    const std::lock_guard lock(kept_->mutex);
    Object& made = objects_[object];
    made.record = {*description, std::vector<std::byte>(description->info.bytes)};
    if (made.record.bytes.empty()) post_persisted(object);
    return {};
  }
  Result<void> put(storage::Token token, ObjectId object, std::uint64_t, std::uint64_t offset, const std::byte* memory,
                   std::size_t bytes) override {
    thread_.post([=, this] {
      {
        const std::lock_guard lock(kept_->mutex);
        Object& one = objects_.at(object);
        std::memcpy(one.record.bytes.data() + offset, memory, bytes);
        one.put += bytes;
        if (one.put == one.record.bytes.size()) post_persisted(object);
      }
      done_(token, {});
    });
    return {};
  }
  Result<void> get(storage::Token token, ObjectId object, std::uint64_t offset, std::byte* memory,
                   std::size_t bytes) override {
    thread_.post([=, this] {
      {
        const std::lock_guard lock(kept_->mutex);
        std::memcpy(memory, objects_.at(object).record.bytes.data() + offset, bytes);
      }
      done_(token, {});
    });
    return {};
  }
  void drop(ObjectId object) override {
    const std::lock_guard lock(kept_->mutex);
    const auto one = objects_.find(object);
    if (one == objects_.end()) return;
    const storage::Description& name = one->second.record.description;
    const auto there = kept_->records.find({name.history, name.version});
    if (there != kept_->records.end() && there->second.description.sequence == name.sequence)
      kept_->records.erase(there);
    objects_.erase(one);
  }
  void abandon(ObjectId object) override { drop(object); }
  void commit() override {}
  std::uint64_t drops() const override { return 0; }
  std::uint64_t drops_done() const override { return 0; }
  Durability level() const override { return Durability::storage; }
  std::vector<storage::Found> found() const override { return found_; }
  std::vector<storage::Found> refresh() override { return {}; }
  std::uint64_t changes_seen() const override { return 0; }
  bool was_dropped(ObjectId) override { return false; }
  std::uint64_t sequence(ObjectId) override { return 0; }
  Result<void> check_files_exist() override { return {}; }
  Result<std::shared_ptr<const storage::Description>> load_description(ObjectId object) override {
    const std::lock_guard lock(kept_->mutex);
    return std::make_shared<const storage::Description>(objects_.at(object).record.description);
  }
  Result<void> verify(ObjectId, const std::function<bool()>&) override { return {}; }
  Result<void> read_payload(ObjectId object, const Sink& sink) override {
    const std::lock_guard lock(kept_->mutex);
    sink(0, objects_.at(object).record.bytes);
    return {};
  }
  Result<std::vector<storage::Checksum>> region_checksums(ObjectId) override {
    return std::vector<storage::Checksum>();
  }
  std::vector<storage::Damage> damages() const override { return {}; }
  std::vector<std::string> failed_drops() const override { return {}; }
  storage::StorageUse use() const override { return {}; }
  std::string describe() const override { return "kept in memory"; }
  void stop() override { thread_.stop(); }

 private:
  struct Object {
    KeptRecords::Record record;
    std::uint64_t put = 0;
  };
  void post_persisted(ObjectId object) {
    thread_.post([this, object] {
      {
        const std::lock_guard lock(kept_->mutex);
        const auto one = objects_.find(object);
        if (one == objects_.end()) return;  // dropped
        const storage::Description& name = one->second.record.description;
        kept_->records[{name.history, name.version}] = one->second.record;
      }
      persisted_(object, {});
    });
  }

  const std::shared_ptr<KeptRecords> kept_;
  const storage::Done done_;
  const storage::Persisted persisted_;
  std::map<ObjectId, Object> objects_;
  std::vector<storage::Found> found_;
  storage::ChecksumWorkers thread_{1};
};

}  // namespace ebb::doubles
