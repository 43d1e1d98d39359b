#include "node/node_storage.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "node/description_text.hpp"
#include "node/handover.hpp"
#include "node/pieces.hpp"
#include "node/pool_member.hpp"

namespace ebb::node {
namespace {

using storage::Description;
using storage::Found;
using storage::ObjectId;

using Key = std::pair<std::string, Version>;  // as in the store, with the rank

/// Thread safety: as PersistentStorage. mutex_ guards what is not constant after open(); the reader and the member have
/// their own. No callback is made with it held; telling_ puts the calls of `listed` in order.
/// 1. The storage's thread alone receives messages, and makes all callbacks but `listed`.
/// 2. Of an object's transfers all but the last are done at once; the last one when the object is durable, or has
///    failed. So the caller keeps the whole replica until the agent has read it.
/// 3. An object is handed over when its last transfer came, whole: a dead process leaves nothing half done.
/// 4. What is not in the pool, since it is larger than the process's share, passes through the stage piece by piece,
///    and is in the store or nowhere. Once it has failed, no more of it is passed: another object has to begin anew.
class PooledStorage final : public NodeStorage {
 public:
  PooledStorage(std::shared_ptr<PoolMember> member, const NodeStorageOptions& options, storage::Done done,
                storage::Persisted persisted, Listed listed)
      : member_(std::move(member)),
        prefix_(std::to_string(options.pool.rank) + "/"),
        block_bytes_(options.store.block_bytes),
        done_(std::move(done)),
        persisted_(std::move(persisted)),
        listed_(std::move(listed)),
        bell_([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }),
        pieces_(*member_, options.piece_bytes),
        handover_(*member_) {}
  ~PooledStorage() override { PooledStorage::stop(); }

  Result<void> start(std::unique_ptr<storage::PersistentStorage> reader);

  Result<void> begin(ObjectId object, std::shared_ptr<const Description> description) override;
  Result<void> put(storage::Token token, ObjectId object, std::uint64_t total, std::uint64_t offset,
                   const std::byte* memory, std::size_t bytes) override;
  Result<void> get(storage::Token token, ObjectId object, std::uint64_t offset, std::byte* memory,
                   std::size_t bytes) override;
  void drop(ObjectId object) override { remove(object, false); }
  void abandon(ObjectId object) override { remove(object, true); }
  void commit() override { member_->send(message::Commit{}); }
  Durability level() const override { return reader_->level(); }
  std::vector<Found> found() const override { return found_; }
  std::vector<Found> refresh() override { return {}; }
  std::uint64_t changes_seen() const override { return 0; }
  bool was_dropped(ObjectId) override { return false; }
  Result<void> check_files_exist() override {
    refresh_reader();
    return reader_->check_files_exist();
  }
  Result<std::shared_ptr<const Description>> load_description(ObjectId object) override;
  Result<void> verify(ObjectId object, const std::function<bool()>& ended) override;
  Result<void> read_payload(ObjectId object, const Sink& sink) override;
  Result<std::vector<storage::Checksum>> region_checksums(ObjectId object) override;
  std::vector<storage::Damage> damages() const override { return reader_->damages(); }
  std::vector<std::string> failed_drops() const override;
  storage::StorageUse use() const override { return reader_->use(); }
  std::string describe() const override { return reader_->describe() + ", " + member_->describe(); }
  void stop() override;

  std::shared_ptr<std::byte> cache_memory() const override {
    return {member_, member_->memory() + handover_.description_bytes()};
  }
  std::uint64_t cache_bytes() const override {
    return member_->slabs() * member_->slab_bytes() - handover_.description_bytes();
  }
  Result<void> claim(std::uint64_t end) override;
  NodeCounters counters() const override;

 private:
  struct Object {
    std::shared_ptr<const Description> description;  // with the rank
    std::uint64_t total = 0;
    std::vector<Handover::Part> parts;
    std::uint64_t covered = 0;           // bytes of its parts, or of its pieces that the agent has read
    std::optional<storage::Token> last;  // the transfer that is held back
    bool in_pieces = false;              // and not in the pool
    std::optional<Error> failure;        // of one in pieces
    bool listed = false, durable = false;
    bool coming_in_pieces() const { return in_pieces && !durable && !failure; }
  };
  using Lock = std::unique_lock<std::mutex>;

  void run();
  void ring() const {
    const std::uint64_t one = 1;
    static_cast<void>(!::write(bell_.fd(), &one, sizeof one));
  }
  void hand_over_waiting(Lock& lock);
  void tell_listed(ObjectId id);
  Result<void> put_piece(Object& object, Pieces::Piece piece);
  void send_pieces();
  void on(const message::Moved& moved);
  void on(const message::Any& message);
  void end(ObjectId object, const Error& error);
  Error found_or(ObjectId object, const char* lost);
  void reconnect();
  bool written_anew(const message::Drop& drop) const;
  void remove(ObjectId object, bool abandon);
  void refresh_reader();
  Result<ObjectId> reader_id(ObjectId object);
  std::string strip(const std::string& history) const { return history.substr(prefix_.size()); }

  const std::shared_ptr<PoolMember> member_;
  const std::string prefix_;
  const std::uint32_t block_bytes_;
  const storage::Done done_;
  const storage::Persisted persisted_;
  const Listed listed_;
  const platform::OwnDescriptor bell_;
  std::unique_ptr<storage::PersistentStorage> reader_;
  std::vector<Found> found_;  // constant after start()

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ObjectId, Object> objects_;
  struct Get {
    storage::Token token = 0;
    ObjectId object = 0;
    std::uint64_t offset = 0;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Get> gets_;  // of objects in pieces that are not durable yet
  Pieces pieces_;
  std::deque<ObjectId> waiting_;                                  // whole, and not in the list for lack of room
  std::deque<std::pair<storage::Token, Result<void>>> done_now_;  // to be reported
  std::map<Key, ObjectId> readable_;                              // objects of the reader, the newest of each version
  std::set<Key> dropped_;                                         // and not begun again since
  std::map<std::uint64_t, message::Drop> dropping_;               // not answered yet
  std::uint64_t next_drop_ = 1;
  std::uint32_t claimed_ = 1, wanted_ = 1;  // slabs
  Error claim_error_;
  Handover handover_;
  std::optional<Error> broken_;  // there is no agent, and none can be started
  bool stopping_ = false;
  NodeCounters counters_;
  std::mutex reader_mutex_;  // one refresh at a time
  std::mutex telling_;       // held while `listed` is called
  std::thread thread_;
};

Result<void> PooledStorage::start(std::unique_ptr<storage::PersistentStorage> reader) {
  if (!bell_) return Error{Errc::io_error, "an eventfd cannot be opened"};
  reader_ = std::move(reader);
  for (Found found : reader_->found()) {
    readable_[{found.history, found.version}] = found.object;
    if (!found.history.starts_with(prefix_)) continue;
    found.history = strip(found.history);
    found_.push_back(std::move(found));
  }
  thread_ = std::thread([this] { run(); });
  return {};
}

Result<void> PooledStorage::begin(ObjectId object, std::shared_ptr<const Description> description) {
  auto own = std::make_shared<Description>(*description);
  own->history = prefix_ + own->history;
  if (auto fits = storage::check(*own, block_bytes_); !fits) return fits;
  const Key key{own->history, own->version};
  Lock lock(mutex_);
  if (broken_) return *broken_;
  if (dropped_.erase(key) > 0) {  // written anew: no older record of it is offered later
    lock.unlock();
    refresh_reader();
    lock.lock();
    readable_.erase(key);
  }
  Object& made = objects_[object];
  made.total = own->info.bytes;
  made.description = std::move(own);
  if (made.total > 0) return {};
  waiting_.push_back(object);
  hand_over_waiting(lock);
  return {};
}

Result<void> PooledStorage::put(storage::Token token, ObjectId id, std::uint64_t total, std::uint64_t offset,
                                const std::byte* memory, std::size_t bytes) {
  Lock lock(mutex_);
  if (stopping_) throw std::logic_error("a put after stop()");
  if (broken_) return *broken_;
  const auto found = objects_.find(id);
  if (found == objects_.end()) throw std::logic_error("a put before begin()");
  Object& object = found->second;
  object.total = total;
  const std::byte* const end = member_->memory() + member_->slabs() * member_->slab_bytes();
  if (object.in_pieces || memory < member_->memory() || memory + bytes > end) {
    return put_piece(object, {token, id, offset, memory, bytes});
  }
  const auto at = static_cast<std::uint64_t>(memory - member_->memory());
  const auto again = std::ranges::find(object.parts, offset, &Handover::Part::offset);
  if (again != object.parts.end()) {
    *again = {offset, at, bytes};
  } else {
    object.parts.push_back({offset, at, bytes});
    object.covered += bytes;
  }
  if (object.covered < object.total) {
    done_now_.emplace_back(token, Result<void>());
    lock.unlock();
    ring();
    return {};
  }
  object.last = token;
  waiting_.push_back(id);
  hand_over_waiting(lock);
  return {};
}

// In the order in which they became whole. Calls back with the lock released.
void PooledStorage::hand_over_waiting(Lock& lock) {
  std::vector<ObjectId> listed;
  while (!waiting_.empty()) {
    const ObjectId id = waiting_.front();
    Object& object = objects_.at(id);
    const auto added = handover_.add(id, *object.description, object.parts);
    if (!added && added.error().code == Errc::no_space && !handover_.empty())
      break;  // until the agent has finished some
    waiting_.pop_front();
    if (!added) {
      handover_.refuse(id, added.error());
      continue;
    }
    object.listed = true;
    ++counters_.objects_handed_over;
    counters_.bytes_handed_over += object.total;
    listed.push_back(id);
  }
  const bool refused = !handover_.refused().empty();
  lock.unlock();
  if (!listed.empty()) member_->send(message::Look{});
  for (const ObjectId id : listed) tell_listed(id);
  if (refused) ring();
}

// Two threads may have news of one object: the one that speaks last says what is so.
void PooledStorage::tell_listed(ObjectId id) {
  const std::lock_guard turn(telling_);
  bool listed = false;
  {
    const Lock lock(mutex_);
    const auto found = objects_.find(id);
    if (found == objects_.end()) return;
    listed = found->second.listed || found->second.durable;
  }
  listed_(id, listed);
}

// --- pieces, with mutex_ held ----------------------------------------------------------------------------------------

Result<void> PooledStorage::put_piece(Object& object, Pieces::Piece piece) {
  if (object.failure) return *object.failure;
  if (!object.parts.empty()) throw std::logic_error("a part of an object in the pool that is not in the pool");
  if (!std::exchange(object.in_pieces, true)) {
    const auto text = encode_description(*object.description);
    piece.description.assign(reinterpret_cast<const char*>(text.data()), text.size());
  }
  pieces_.add(std::move(piece));
  send_pieces();
  return {};
}

void PooledStorage::send_pieces() {
  if (broken_) return;
  if (const auto refused = pieces_.send()) {  // the thread ends it
    handover_.refuse(refused->object, refused->error);
    ring();
  }
}

Result<void> PooledStorage::claim(std::uint64_t end) {
  const std::uint64_t slab = member_->slab_bytes();
  const auto slabs = static_cast<std::uint32_t>((end + handover_.description_bytes() + slab - 1) / slab);
  Lock lock(mutex_);
  if (slabs > member_->slabs()) throw std::logic_error("a claim beyond the share of the pool");
  if (slabs > wanted_ || (slabs > claimed_ && claim_error_.code != Errc::ok)) {
    claim_error_ = {};
    wanted_ = std::max(wanted_, slabs);
    lock.unlock();
    member_->send(message::Claim{slabs});
    lock.lock();
  }
  changed_.wait(lock, [&] { return claimed_ >= slabs || claim_error_.code != Errc::ok || broken_ || stopping_; });
  if (claimed_ >= slabs) return {};
  if (broken_) return *broken_;
  if (stopping_) return Error{Errc::closed, "the store is closed"};
  return claim_error_;
}

// --- the thread ------------------------------------------------------------------------------------------------------

void PooledStorage::run() {
  for (;;) {
    auto message = member_->receive();
    if (!message) {
      {
        const Lock lock(mutex_);
        if (broken_ && stopping_ && done_now_.empty()) return;
      }
      reconnect();
    } else if (*message) {
      on(**message);
      continue;
    }
    std::deque<std::pair<storage::Token, Result<void>>> done;
    std::map<ObjectId, Error> refused;
    bool over = false;
    {
      Lock lock(mutex_);
      send_pieces();
      pieces_.rest();
      refused = handover_.take_refused();
      if (broken_) {
        for (const auto& [id, object] : objects_)
          if (object.listed || object.last) refused.emplace(id, *broken_);
        waiting_.clear();
      }
      done = std::exchange(done_now_, {});
      // Of what is in pieces, the rest may never be put.
      const bool written = std::ranges::none_of(objects_, [](const auto& one) {
        return one.second.listed || (one.second.coming_in_pieces() && one.second.covered == one.second.total);
      });
      over = stopping_ && done.empty() && refused.empty() && (broken_ || (written && dropping_.empty()));
      if (!waiting_.empty()) hand_over_waiting(lock);
    }
    for (const auto& [token, result] : done) done_(token, result);
    for (const auto& [id, error] : refused) end(id, error);
    if (over) return;
    member_->wait(bell_.fd(), std::chrono::milliseconds{200});
    std::uint64_t rung = 0;
    static_cast<void>(!::read(bell_.fd(), &rung, sizeof rung));
  }
}

void PooledStorage::on(const message::Any& message) {
  if (const auto* finished = std::get_if<message::Finished>(&message)) return end(finished->object, finished->error);
  if (const auto* moved = std::get_if<message::Moved>(&message)) return on(*moved);
  Lock lock(mutex_);
  if (const auto* claimed = std::get_if<message::Claimed>(&message)) {
    claimed_ = std::max(claimed_, claimed->slabs);
    claim_error_ = claimed->error;
    if (claimed_ < wanted_ && claim_error_.code != Errc::ok) wanted_ = claimed_;
    changed_.notify_all();
  } else if (const auto* dropped = std::get_if<message::Dropped>(&message)) {
    dropping_.erase(dropped->number);
    changed_.notify_all();
  }
}

void PooledStorage::on(const message::Moved& moved) {
  const bool ok = moved.error.code == Errc::ok;
  std::optional<Pieces::Piece> piece;
  {
    const Lock lock(mutex_);
    piece = pieces_.end(moved.object, moved.offset);
    if (!piece) return;
    const auto found = objects_.find(moved.object);
    if (found != objects_.end() && ok) found->second.covered += piece->bytes;
    send_pieces();
  }
  if (!ok) end(moved.object, moved.error);  // first, so that it is not put again
  done_(piece->token, ok ? Result<void>() : Result<void>(moved.error));
}

// The agent has finished it, one way or the other.
void PooledStorage::end(ObjectId id, const Error& error) {
  const Result<void> result = error.code == Errc::ok ? Result<void>() : Result<void>(error);
  std::optional<storage::Token> token;
  std::vector<storage::Token> never_sent;
  std::vector<Get> gets;
  bool unlisted = false;
  {
    Lock lock(mutex_);
    handover_.finish(id);
    const auto found = objects_.find(id);
    if (found == objects_.end() || found->second.failure) return;
    Object& object = found->second;
    token = std::exchange(object.last, {});
    unlisted = std::exchange(object.listed, false) && !result;
    object.durable = static_cast<bool>(result);
    const auto later = std::ranges::stable_partition(gets_, [&](const Get& get) { return get.object != id; });
    gets.assign(later.begin(), later.end());
    gets_.erase(later.begin(), later.end());
    changed_.notify_all();
    if (object.durable) {
      ++counters_.objects_written;
      counters_.bytes_written += object.total;
      object.parts.clear();
    } else if (object.in_pieces) {
      object.failure = error;
      never_sent = pieces_.take_waiting(id);
    } else if (!object.parts.empty()) {  // its last part may be put again
      object.covered -= object.parts.back().bytes;
      object.parts.pop_back();
    }
    if (!waiting_.empty()) hand_over_waiting(lock);
  }
  if (unlisted) tell_listed(id);
  for (const storage::Token one : never_sent) done_(one, result);
  if (token) done_(*token, result);
  if (result || !token) persisted_(id, result);
  for (const Get& one : gets) {
    const Result<void> begun = result ? get(one.token, id, one.offset, one.memory, one.bytes) : result;
    if (!begun) done_(one.token, begun);
  }
}

// What the agent before had finished, but not told, is in the store: its entries have marks.
void PooledStorage::reconnect() {
  const auto joined = member_->rejoin();
  std::vector<ObjectId> marked, cut;
  std::vector<message::Any> again;
  std::vector<Pieces::Piece> lost;
  {
    const Lock lock(mutex_);
    lost = pieces_.take_moving();
    for (auto& [id, object] : objects_)
      if (object.coming_in_pieces()) cut.push_back(id);
    if (!joined) {
      broken_ = Error{joined.error().code, "the node's pool cannot be used any more: " + joined.error().message};
      dropping_.clear();
    } else {
      for (const auto& [id, object] : objects_)
        if (object.listed && handover_.finish_marked(id)) marked.push_back(id);
      if (wanted_ > claimed_) again.push_back(message::Claim{wanted_});
      std::erase_if(dropping_, [this](const auto& one) { return written_anew(one.second); });
      for (const auto& [number, drop] : dropping_) again.push_back(drop);
    }
    changed_.notify_all();
  }
  for (const message::Any& message : again) member_->send(message);
  member_->send(message::Look{});
  std::map<ObjectId, Error> ended;
  for (const ObjectId id : cut) ended[id] = found_or(id, "the agent ended while the checkpoint was handed over");
  for (const Pieces::Piece& piece : lost) {
    const auto found = ended.find(piece.object);
    const bool there = found != ended.end() && found->second.code == Errc::ok;
    done_(piece.token, there ? Result<void>() : Result<void>(Error{Errc::io_error, "the agent ended"}));
  }
  for (const ObjectId id : marked) ended[id] = found_or(id, "the agent ended before it could say what became of it");
  for (const auto& [id, error] : ended) end(id, error);
}

// A later object has this version: the newest record of it is not the one to be dropped.
bool PooledStorage::written_anew(const message::Drop& drop) const {
  return std::ranges::any_of(objects_, [&](const auto& one) {
    return one.first > drop.object && one.second.description->history == drop.history &&
           one.second.description->version == drop.version;
  });
}

// No error: an agent that is gone has completed it.
Error PooledStorage::found_or(ObjectId id, const char* lost) {
  return reader_id(id) ? Error{} : Error{Errc::io_error, lost};
}

void PooledStorage::stop() {
  {
    const Lock lock(mutex_);
    if (!thread_.joinable()) return;
    stopping_ = true;
    changed_.notify_all();
  }
  member_->send(message::Commit{});
  ring();
  thread_.join();
  reader_->stop();
}

// --- objects ---------------------------------------------------------------------------------------------------------

void PooledStorage::remove(ObjectId id, bool abandon) {
  message::Drop drop;
  {
    const Lock lock(mutex_);
    const auto found = objects_.find(id);
    if (found != objects_.end()) {
      if (found->second.last) throw std::logic_error("a drop of an object with a transfer in flight");
      const bool known = found->second.listed || found->second.durable || found->second.in_pieces;
      drop.object = id;
      drop.history = found->second.description->history;
      drop.version = found->second.description->version;
      std::erase(waiting_, id);
      objects_.erase(found);
      if (!known) return;
    } else {
      const auto one = std::ranges::find(found_, id, &Found::object);
      if (one == found_.end()) return;  // never put
      drop.history = prefix_ + one->history;
      drop.version = one->version;
    }
    readable_.erase({drop.history, drop.version});
    dropped_.insert({drop.history, drop.version});
    drop.abandon = abandon;
    drop.number = next_drop_++;
    if (broken_) return;
    dropping_.emplace(drop.number, drop);
  }
  member_->send(drop);
}

void PooledStorage::refresh_reader() {
  const std::lock_guard turn(reader_mutex_);
  const std::vector<Found> found = reader_->refresh();
  const Lock lock(mutex_);
  for (const Found& one : found) readable_[{one.history, one.version}] = one.object;
}

// The reader's number of an object. What the reader offers for its version since it was begun is the object's own.
Result<ObjectId> PooledStorage::reader_id(ObjectId id) {
  if (id < storage::kFirstObject) return id;
  Key key;
  {
    const Lock lock(mutex_);
    const auto found = objects_.find(id);
    if (found == objects_.end()) throw std::logic_error("an object that was never put");
    key = {found->second.description->history, found->second.description->version};
    const auto known = readable_.find(key);
    if (known != readable_.end()) return known->second;
  }
  refresh_reader();
  const Lock lock(mutex_);
  const auto known = readable_.find(key);
  if (known != readable_.end()) return known->second;
  return Error{Errc::damaged, "version " + std::to_string(key.second) + " of \"" + key.first +
                                  "\" is not in the store, where the node's agent has written it"};
}

Result<void> PooledStorage::get(storage::Token token, ObjectId object, std::uint64_t offset, std::byte* memory,
                                std::size_t bytes) {
  {  // what passed through the stage is complete a little later than its last piece; it may be this thread that hears
    const Lock lock(mutex_);
    const auto found = objects_.find(object);
    if (found != objects_.end() && found->second.coming_in_pieces() && !broken_) {
      gets_.push_back({token, object, offset, memory, bytes});
      member_->send(message::Commit{});
      return {};
    }
  }
  const auto id = reader_id(object);
  if (!id) return id.error();
  return reader_->get(token, *id, offset, memory, bytes);
}

Result<std::shared_ptr<const Description>> PooledStorage::load_description(ObjectId object) {
  const auto id = reader_id(object);
  if (!id) return id.error();
  auto loaded = reader_->load_description(*id);
  if (!loaded) return loaded;
  auto own = std::make_shared<Description>(**loaded);
  own->history = strip(own->history);
  return std::shared_ptr<const Description>(std::move(own));
}

Result<void> PooledStorage::verify(ObjectId object, const std::function<bool()>& ended) {
  const auto id = reader_id(object);
  return id ? reader_->verify(*id, ended) : Result<void>(id.error());
}

Result<void> PooledStorage::read_payload(ObjectId object, const Sink& sink) {
  const auto id = reader_id(object);
  return id ? reader_->read_payload(*id, sink) : Result<void>(id.error());
}

Result<std::vector<storage::Checksum>> PooledStorage::region_checksums(ObjectId object) {
  const auto id = reader_id(object);
  if (!id) return id.error();
  return reader_->region_checksums(*id);
}

std::vector<std::string> PooledStorage::failed_drops() const {
  const Lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [number, drop] : dropping_) {
    names.push_back("version " + std::to_string(drop.version) + " of \"" + strip(drop.history) + "\"");
  }
  return names;
}

NodeCounters PooledStorage::counters() const {
  const Lock lock(mutex_);
  NodeCounters now = counters_;
  now.agents = member_->agents();
  now.program = member_->program();
  return now;
}

}  // namespace

Result<std::unique_ptr<NodeStorage>> open_node_storage(const NodeSeams& seams, platform::Files& files,
                                                       platform::Clock& clock, const NodeStorageOptions& options,
                                                       storage::Done done, storage::Persisted persisted, Listed listed,
                                                       storage::BytesRead bytes_read) {
  auto member = PoolMember::join(seams, files, clock, options);
  if (!member) return member.error();
  storage::PersistentOptions reading = options.store;
  reading.readonly = true;
  auto reader = storage::open_persistent_storage(
      files, clock, reading, done, [](ObjectId, const Result<void>&) {}, std::move(bytes_read));
  if (!reader) return reader.error();
  auto storage = std::make_unique<PooledStorage>(std::move(*member), options, std::move(done), std::move(persisted),
                                                 std::move(listed));
  if (auto started = storage->start(std::move(*reader)); !started) return started.error();
  return std::unique_ptr<NodeStorage>(std::move(storage));
}

}  // namespace ebb::node
