#pragma once
// The storage behind open_persistent_storage(): passes each call on to the part that implements it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/segments/committer.hpp"
#include "storage/segments/object_reader.hpp"
#include "storage/segments/object_table.hpp"
#include "storage/segments/recovery.hpp"
#include "storage/segments/segment_presence.hpp"
#include "storage/segments/segment_writer.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

/// Thread safety: as PersistentStorage.
/// 1. drop(), abandon(), commit() and use() take only the table's lock and never wait for the disk.
/// 2. The mutexes of SegmentWriter and Recovery are taken before others; no other two locks are held together.
/// 3. A part uses only parts declared before it.
class SegmentStore final : public PersistentStorage {
 public:
  SegmentStore(os::Files& files, os::Clock& clock, const PersistentOptions& options, StoreDirectory directory,
               std::string where, Done done, Persisted persisted, BytesRead bytes_read, DropsReleased released);
  ~SegmentStore() override { SegmentStore::stop(); }

  // Second half of construction, because it can fail: reads the store and, unless read only, repairs it.
  Result<void> start();

  void unmake() override { unmade_ = true; }
  Result<void> begin(ObjectId object, std::shared_ptr<const Description> description) override {
    return begin(object, std::move(description), false);
  }
  Result<void> begin_cached(ObjectId object, std::shared_ptr<const Description> description) override {
    return begin(object, std::move(description), true);
  }
  Result<void> put(Token token, ObjectId object, std::uint64_t total, std::uint64_t offset, const std::byte* memory,
                   std::size_t bytes) override {
    return writer_.put(token, object, total, offset, memory, bytes);
  }
  Result<void> get(Token token, ObjectId object, std::uint64_t offset, std::byte* memory, std::size_t bytes) override {
    return reader_.get(token, object, offset, memory, bytes);
  }
  void drop(ObjectId object) override;
  void abandon(ObjectId object) override;
  void commit() override { committer_.commit_now(table_.lock()); }
  std::uint64_t drops() const override { return committer_.drops(table_.lock()); }
  std::uint64_t drops_done() const override { return committer_.drops_done(table_.lock()); }
  std::uint64_t unreleased() const override { return committer_.unreleased(table_.lock()); }
  Durability level() const override { return context_.directory.head().level; }
  std::vector<Found> found() const override { return found_; }
  std::vector<Found> take_found() override { return std::exchange(found_, {}); }
  std::vector<Gone> gone() const override { return gone_; }
  std::vector<Found> refresh() override { return without_prefix(recovery_.refresh()); }
  std::uint64_t changes_seen() const override { return recovery_.changes_seen(); }
  bool was_dropped(ObjectId object) override { return reader_.was_dropped(object); }
  std::uint64_t sequence(ObjectId object) override { return reader_.sequence(object); }
  std::uint64_t surviving(ObjectId object) override { return writer_.surviving(object); }
  std::uint64_t next_sequence() override { return table_.next(table_.lock()).sequence; }
  Result<void> check_files_exist() override { return check_presence(context_, table_); }
  Result<std::shared_ptr<const Description>> load_description(ObjectId object) override;
  Result<void> verify(ObjectId object, const std::function<bool()>& ended) override {
    return reader_.verify(object, ended);
  }
  Result<void> read_payload(ObjectId object, const Sink& sink) override { return reader_.read_payload(object, sink); }
  Result<std::vector<Checksum>> region_checksums(ObjectId object) override { return reader_.region_checksums(object); }
  std::vector<Damage> damages() const override { return damages_; }
  std::vector<std::string> failed_drops() const override { return committer_.remover().failed_names(); }
  StorageUse use() const override { return table_.use(table_.lock()); }
  std::string describe() const override;
  void stop() override;

 private:
  Result<void> begin(ObjectId object, std::shared_ptr<const Description> description, bool cached);
  std::vector<Found> without_prefix(std::vector<Found> found) const;

  StoreContext context_;
  ObjectTable table_;
  Committer committer_;
  SegmentWriter writer_;
  ObjectReader reader_;
  Recovery recovery_;
  std::vector<Found> found_;  // constant after start() but for take_found()
  std::vector<Gone> gone_;    // constant after start(), like damages_
  std::vector<Damage> damages_;
  bool unmade_ = false;  // by one thread, before stop()
};

}  // namespace ebb::storage
