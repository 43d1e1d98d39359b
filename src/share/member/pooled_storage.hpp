#pragma once
// The storage of a process in a node's pool: hands over, hears from the agent, and reads.
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/own_descriptors.hpp"
#include "share/member/handover.hpp"
#include "share/member/pieces.hpp"
#include "share/member/pool_member.hpp"
#include "share/member/pool_memory.hpp"
#include "share/member/rank_records.hpp"
#include "share/node_storage.hpp"

namespace ebb::share {

/// Thread safety: as PersistentStorage. mutex_ guards what is not constant; the records, the memory and the member have
/// their own, and may be called with it held. No callback is made with it held; telling_ puts the calls of `listed` in
/// order.
/// 1. The storage's thread alone receives messages, and makes all callbacks but `listed`.
/// 2. Of an object's transfers all but the last are done at once; the last one when the object is written, or has
///    failed. So the caller keeps the whole replica until the agent has read it. What is written is read once it is
///    durable.
/// 3. An object is handed over when its last transfer came, whole: a dead process leaves nothing half done.
/// 4. What the disk refuses, or is left when no agent can be started, stays in the list, and its last transfer under
///    way, until it is written or withdrawn: its memory is not used meanwhile.
/// 5. What is not in the pool, since it is larger than the process's share, passes through the stage piece by piece,
///    and is in the store or nowhere. Once it has failed, no more of it is passed: another object has to begin anew.
class PooledStorage final : public NodeStorage {
 public:
  /// `reader`: the store, read only.
  PooledStorage(std::shared_ptr<PoolMember> member, std::unique_ptr<storage::PersistentStorage> reader,
                const NodeStorageOptions& options, storage::Done done, storage::Persisted persisted, Listed listed,
                Delayed delayed);
  ~PooledStorage() override { PooledStorage::stop(); }

  Result<void> start();

  Result<void> begin(storage::ObjectId object, std::shared_ptr<const storage::Description> description) override;
  Result<void> put(storage::Token token, storage::ObjectId object, std::uint64_t total, std::uint64_t offset,
                   const std::byte* memory, std::size_t bytes) override;
  Result<void> get(storage::Token token, storage::ObjectId object, std::uint64_t offset, std::byte* memory,
                   std::size_t bytes) override;
  void drop(storage::ObjectId object) override { remove(object, false); }
  void abandon(storage::ObjectId object) override { remove(object, true); }
  void commit() override;
  Durability level() const override { return records_.reader().level(); }
  std::vector<storage::Found> found() const override { return records_.found(); }
  std::vector<storage::Found> refresh() override { return {}; }
  std::uint64_t changes_seen() const override { return 0; }
  bool was_dropped(storage::ObjectId) override { return false; }
  std::uint64_t sequence(storage::ObjectId object) override;
  Result<void> check_files_exist() override {
    records_.refresh();
    return records_.reader().check_files_exist();
  }
  Result<std::shared_ptr<const storage::Description>> load_description(storage::ObjectId object) override;
  Result<void> verify(storage::ObjectId object, const std::function<bool()>& ended) override;
  Result<void> read_payload(storage::ObjectId object, const Sink& sink) override;
  Result<std::vector<storage::Checksum>> region_checksums(storage::ObjectId object) override;
  std::vector<storage::Damage> damages() const override { return records_.reader().damages(); }
  std::uint64_t drops() const override;
  std::uint64_t drops_done() const override;
  std::vector<std::string> failed_drops() const override;
  storage::StorageUse use() const override { return records_.reader().use(); }
  std::string describe() const override { return records_.reader().describe() + ", " + member_->describe(); }
  void stop() override;

  NodeMemory& memory() override { return memory_; }
  NodeCounters counters() const override;
  void withdraw(storage::ObjectId object) override;
  void leave() override;

 private:
  struct Object {
    RecordKey key;
    std::unique_ptr<const storage::Description> description;  // with the rank; null: it is durable
    std::uint64_t total = 0;
    std::vector<Handover::SlabRange> parts;
    std::uint64_t covered = 0;             // bytes of its parts, or of its pieces that the agent has read
    std::optional<storage::Token> last;    // the transfer that is held back
    std::unique_ptr<const Error> failure;  // of one in pieces
    std::unique_ptr<const Error> delayed;  // why the last try to write it failed
    bool in_pieces = false;                // and not in the pool
    bool listed = false, withdrawn = false;
    std::uint64_t written = 0;      // the sequence of its record, which is not durable yet; 0: it is not written
    std::uint64_t sequence = 0;     // of its record; 0: it is not durable
    std::uint64_t begun_after = 0;  // newest_sequence_ then: earlier records of its version have no higher one
    bool durable() const { return sequence != 0; }
    bool coming_in_pieces() const { return in_pieces && !durable() && !failure; }
    bool comes_later() const { return coming_in_pieces() || (written != 0 && !durable()); }
  };
  using Lock = std::unique_lock<std::mutex>;

  void run();
  bool broken() const;
  void ring() const;
  void hand_over_waiting(Lock& lock);
  void tell_listed(storage::ObjectId id);
  Result<void> put_piece(Object& object, Pieces::StagedPiece piece);
  void send_pieces();
  void on(const message::Moved& moved);
  void on(const message::Delayed& delayed);
  void on(const message::Written& written);
  void end_delayed();
  void on(const message::Any& message);
  void end(storage::ObjectId object, const Error& error, std::uint64_t sequence = 0);
  void reconnect();
  std::vector<message::Any> drops_to_say_again();
  void remove(storage::ObjectId object, bool abandon);
  Result<storage::ObjectId> reader_id(storage::ObjectId object);

  const std::shared_ptr<PoolMember> member_;
  const std::uint32_t block_bytes_;
  const storage::Done done_;
  const storage::Persisted persisted_;
  const Listed listed_;
  const Delayed delayed_;
  const os::OwnDescriptor bell_;
  RankRecords records_;
  // By mutex_: the highest sequence that was heard of, and whether a dropped object may have a higher one.
  std::uint64_t newest_sequence_;
  bool unsure_ = false;

  mutable std::mutex mutex_;
  std::map<storage::ObjectId, Object> objects_;
  struct Get {
    storage::Token token = 0;
    storage::ObjectId object = 0;
    std::uint64_t offset = 0;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Get> gets_;  // of objects that come later
  Pieces pieces_;
  std::deque<storage::ObjectId> waiting_;                         // whole, and not in the list for lack of room
  std::deque<std::pair<storage::Token, Result<void>>> done_now_;  // to be reported
  std::map<std::uint64_t, message::Drop> dropping_;               // not answered yet
  std::uint64_t next_drop_ = 1;
  PoolMemory memory_;
  Handover handover_;
  std::optional<Error> broken_;  // there is no agent, and none can be started
  bool leaving_ = false, stopping_ = false;
  NodeCounters counters_;
  std::mutex telling_;  // held while `listed` is called
  std::thread thread_;
};

}  // namespace ebb::share
