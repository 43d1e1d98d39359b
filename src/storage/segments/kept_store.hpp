#pragma once
// The storage behind open_kept_storage(). Its parts: kept_write.cpp (a place, ranges, drops), kept_commit.cpp,
// kept_drops.cpp and kept_names.cpp (what the committer does), kept_read.cpp, kept_open.cpp (opening and closing).
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>

#include "storage/kept_storage.hpp"
#include "storage/scan/change_mark.hpp"
#include "storage/scan/newest.hpp"
#include "storage/scan/record_reader.hpp"
#include "storage/scan/segment_scan.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/segments/kept_checksums.hpp"
#include "storage/segments/kept_segment.hpp"
#include "storage/segments/kept_transfers.hpp"

namespace ebb::storage {

struct KeptGet;

/// An object and its record. Guarded by the store's mutex, but for `sums` (see KeptStore 4).
///
///   writing --all ranges reported--> ready --taken by the committer--> committing --header durable--> kept
///   writing, ready, committing --its segment broke, or the store closed--> failed
struct KeptObject {
  enum class State : std::uint8_t { writing, ready, committing, kept, failed } state = State::writing;
  ObjectId id = 0;
  std::string history;
  std::shared_ptr<const Description> description;  // none: on the disk, or handed out
  RecordHead head;
  std::shared_ptr<KeptSegment> segment;
  std::shared_ptr<std::vector<Checksum>> sums;     // none: on the disk
  std::vector<bool> put;                           // which blocks were reported well
  std::size_t missing = 0;                         // how many were not
  std::size_t puts = 0;                            // under way, or being reported
  std::uint64_t commits = 0;                       // calls of commit() before all of it was put
  std::size_t under_way = 0;                       // puts and gets not reported
  std::vector<std::shared_ptr<KeptGet>> awaiting;  // gets: the first of them is having the header read
  bool described = false;                          // its description was asked for
  bool marked = false;                             // its header may be on the disk
  bool dropped = false;
  bool forgotten = false;  // its bytes could not be read: it is left until it is written anew
  Error error;             // of one that failed

  std::uint64_t payload_place() const { return head.place.offset + head.header_bytes; }
  std::uint64_t space() const { return platform::round_up(head.payload_bytes); }
};

/// Thread safety: as KeptStorage.
/// 1. mutex_ guards all that is mutable here and every object and segment, but for 4. No file call, `done`, `kept` or
///    `carried` is made with it held; drop(), forget(), commit() and use() take nothing else and never wait for the
///    disk.
/// 2. begin_mutex_ is held through begin(), so that one segment is made at a time; it is taken before mutex_.
/// 3. The committer alone (the thread, and after it has ended stop()) writes headers and drops, breaks, cuts and
/// removes
///    segments, and moves an object on from ready. What it has taken stays in a segment's records until it is dead.
/// 4. An object's `sums` are written by the puts of their ranges, before those are reported, and never again when the
///    object is ready. Those of one that was found are set once, under mutex_, when the first get of it has read them.
/// 5. A record's place is nobody else's for ever: the end of a segment only grows.
/// 6. Of a segment that is broken no object becomes kept; it is written by drops alone and synced only for those.
class KeptStore final : public KeptStorage {
 public:
  KeptStore(platform::Files& files, platform::Clock& clock, const KeptOptions& options, StoreDirectory directory,
            std::string where, Done done, Kept kept, Carried carried);
  ~KeptStore() override {
    KeptStore::stop();
    for (auto& [number, segment] : segments_) segment->records.clear();  // they hold each other
  }

  // Second half of the construction, for it can fail: reads what is there and, unless read only, tidies it up.
  Result<void> start();

  Result<void> begin(ObjectId object, std::shared_ptr<const Description> description) override;
  Result<void> put(Token token, ObjectId object, std::uint64_t total, std::uint64_t offset, const std::byte* memory,
                   std::size_t bytes) override;
  Result<void> get(Token token, ObjectId object, std::uint64_t offset, std::byte* memory, std::size_t bytes) override;
  void drop(ObjectId object) override;
  void forget(ObjectId object) override;
  void commit() override;
  Durability level() const override { return directory_.head().level; }
  std::vector<Found> found() const override { return found_; }
  std::vector<Found> refresh() override;
  std::uint64_t looks() const override { return looks_; }
  bool gone(ObjectId object) override;
  Result<void> check_names() override;
  Result<std::shared_ptr<const Description>> read(ObjectId object) override;
  Result<void> verify(ObjectId object, const std::function<bool()>& ended) override;
  Result<void> read_payload(ObjectId object, const Sink& sink) override;
  Result<std::vector<Checksum>> region_sums(ObjectId object) override;
  std::vector<Damage> damages() const override { return damages_; }
  std::vector<std::string> undropped() const override;
  StorageUse use() const override;
  std::string describe() const override;
  void stop() override;

 private:
  using Object = std::shared_ptr<KeptObject>;
  using Segment = std::shared_ptr<KeptSegment>;
  using Lock = std::unique_lock<std::mutex>;
  struct Put;
  using Get = KeptGet;
  static constexpr std::uint64_t kMostWaiting = 64ull << 20;  // bytes of payload that wait for a sync
  static constexpr std::uint64_t kSmall = 256 << 10;          // a record of at most that is written in one transfer
  static constexpr std::size_t kSlab = 4 << 20;               // bytes of headers, or of drops, in one transfer

  std::string name_of(const KeptObject& object) const;  // 'version 3 of "adjoint"'
  std::filesystem::path path_of(const KeptObject& object) const {
    return segments_files_.path(object.head.place.segment);
  }

  // kept_write.cpp
  bool closed_locked() const { return phase_ != Phase::open && under_way_ == 0; }
  Segment current_locked() const;
  Result<Segment> room_for(Lock& lock, std::uint64_t record_bytes);
  Result<Segment> new_segment(Lock& lock, std::uint64_t record_bytes);
  bool await_drops(Lock& lock);
  void begin_put(const std::shared_ptr<Put>& put);
  static void hash(const Put& put);
  void write(const std::shared_ptr<Put>& put, const transfer::Piece& piece);
  void write_small(const std::shared_ptr<Put>& put);
  void finish(const std::shared_ptr<Put>& put);
  void ready_locked(const Object& object);
  Object take_locked(ObjectId id);
  void end_locked();

  // kept_commit.cpp
  bool due_locked() const;
  void work();
  void commit_batch(Lock& lock);
  static std::vector<Object> replaced_by(const std::vector<Object>& kept, std::vector<Object>& drops);
  std::vector<Object> refuse_beside_old(const std::vector<Object>& kept);
  std::vector<Object> refuse(const std::vector<Object>& objects,
                             const std::function<std::optional<Error>(const KeptObject&)>& why);
  void tell_refused(const std::vector<Object>& refused);
  bool sync_all(std::map<Segment, std::vector<Object>>& groups);
  Result<void> write_headers(const Segment& segment, const std::vector<Object>& objects);
  platform::SysResult take_marks_back(const SharedFile& file, const std::vector<Object>& marked);
  void fail(const Segment& segment, const Error& error);
  void tell(const std::vector<Object>& objects);

  // kept_drops.cpp
  void carry_out(std::vector<Object> drops, bool at_once = false);
  void carry_out(const Segment& segment, const std::vector<Object>& drops);
  std::vector<Object> bury(const Segment& segment, const std::vector<Object>& drops);
  Result<void> check_place(const KeptObject& object, std::span<const std::byte> block) const;
  Result<void> write_heads(const SharedFile& file, const std::vector<Object>& objects);
  void cut_closed();
  bool hides_locked() const { return hides_ || !undone_.empty(); }
  bool goes_locked(const KeptSegment& segment) const;
  void remove_empty();

  // kept_names.cpp
  std::vector<Object> refuse_unnamed(std::map<Segment, std::vector<Object>>& groups);
  std::vector<Segment> find_unnamed(const std::vector<Segment>& written);
  bool is_named(const Segment& segment, const std::set<std::uint64_t>* listed) const;
  Error unnamed_error(const Segment& segment) const;

  // kept_read.cpp
  Result<void> begin_get(const std::shared_ptr<Get>& get);
  bool await_header(const std::shared_ptr<Get>& get);
  void read_header_beside(const Object& object, const SharedFile& file);
  void take_header(const Object& object, Result<Header> header);
  std::optional<Header> parse_again(const KeptObject& object, std::span<const std::byte> bytes);
  void check(const std::shared_ptr<Get>& get);
  void finish(const std::shared_ptr<Get>& get, Result<void> how);
  Result<std::shared_ptr<const Header>> read_header(const Object& object);
  bool is_gone(const KeptObject& object);
  Object find(ObjectId id) const;
  Error blame(const KeptObject& object, const Error& error);
  Result<RecordReader> reader_of(const Object& object);
  Result<void> hand_out(const KeptObject& object, RecordReader& reader, const Sink& sink,
                        const std::function<bool()>& ended = {});

  // kept_open.cpp
  std::vector<Found> adopt_locked(const ScannedSegment& segment, const std::vector<Damage>& damages);
  std::vector<Found> take_newest(std::vector<Found> found, const Newest& newest);
  Result<void> tidy(const ScannedStore& scanned);
  Result<void> remove_index();
  void find_lost_heads(const ScannedSegment& segment, KeptSegment& ours);
  void close_gaps(const ScannedSegment& segment);
  void end_unfinished();
  void write_index();

  platform::Files& files_;
  platform::Clock& clock_;
  const KeptOptions options_;
  const std::uint64_t capacity_;
  const StoreDirectory directory_;
  const std::string where_;  // "the directory '/scratch' (ext4)"
  const Done done_;
  const Kept kept_;
  const Carried carried_;
  SegmentFiles segments_files_;
  std::vector<Found> found_;  // constant after start(), as damages_
  std::vector<Damage> damages_;

  std::mutex begin_mutex_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;  // the committer: something is due
  std::condition_variable idle_;  // something ended: a transfer, a batch
  std::unordered_map<ObjectId, Object> objects_;
  std::map<std::uint64_t, Segment> segments_;
  std::vector<Object> ready_, drops_;
  std::vector<Object> undone_;     // drops that failed
  std::vector<Object> forgotten_;  // dropped before one of their name is reported
  std::uint64_t ready_bytes_ = 0, used_ = 0;
  std::uint64_t next_segment_ = 1, next_sequence_ = 1;
  std::uint64_t commits_ = 0;  // calls of commit()
  std::uint64_t batches_begun_ = 0, batches_ended_ = 0;
  ObjectId next_found_ = 1;
  std::size_t under_way_ = 0;
  std::int64_t last_commit_ = 0;
  bool commit_wanted_ = false;
  enum class Phase : std::uint8_t { open, closing, closed } phase_ = Phase::open;  // closing: until no transfer is left
  bool failed_ = false;  // something on the disk may not be as it stands here: no index
  bool hides_ = false;   // there may be records that are not known, and one day are met again

  std::mutex refresh_mutex_;  // one refresh() at a time; guards newest_ and mark_
  ChangeMark mark_;           // read only, as the next one
  std::atomic<std::uint64_t> looks_{0};
  Newest newest_;                                // read only: of all that was met
  std::map<std::uint64_t, std::uint64_t> seen_;  // of each segment, from where there may be something new

  KeptTransfers transfers_;
  ChecksumWorkers workers_;
  std::thread committer_;
};

}  // namespace ebb::storage
