#include "node/pooled_storage.hpp"

#include <algorithm>
#include <stdexcept>
#include <sys/eventfd.h>
#include <unistd.h>

#include "node/description_text.hpp"

namespace ebb::node {

using storage::Description;
using storage::ObjectId;

PooledStorage::PooledStorage(std::shared_ptr<PoolMember> member, std::unique_ptr<storage::PersistentStorage> reader,
                             const NodeStorageOptions& options, storage::Done done, storage::Persisted persisted,
                             Listed listed)
    : member_(std::move(member)),
      block_bytes_(options.store.block_bytes),
      done_(std::move(done)),
      persisted_(std::move(persisted)),
      listed_(std::move(listed)),
      bell_([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }),
      records_(options.pool.rank, std::move(reader)),
      pieces_(*member_, options.piece_bytes),
      handover_(*member_) {}

Result<void> PooledStorage::start() {
  if (!bell_) return Error{Errc::io_error, "an eventfd cannot be opened"};
  thread_ = std::thread([this] { run(); });
  return {};
}

void PooledStorage::ring() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(bell_.fd(), &one, sizeof one));
}

Result<void> PooledStorage::begin(ObjectId object, std::shared_ptr<const Description> description) {
  auto own = std::make_shared<Description>(*description);
  own->history = records_.in_store(own->history);
  if (auto fits = storage::check(*own, block_bytes_); !fits) return fits;
  records_.begin({own->history, own->version});
  Lock lock(mutex_);
  if (broken_) return *broken_;
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
  std::map<ObjectId, RecordKey> marked, cut;
  std::vector<message::Any> again;
  std::vector<Pieces::Piece> lost;
  {
    const Lock lock(mutex_);
    lost = pieces_.take_moving();
    for (auto& [id, object] : objects_)
      if (object.coming_in_pieces()) cut[id] = object.key();
    if (!joined) {
      broken_ = Error{joined.error().code, "the node's pool cannot be used any more: " + joined.error().message};
      dropping_.clear();
    } else {
      for (const auto& [id, object] : objects_)
        if (object.listed && handover_.finish_marked(id)) marked[id] = object.key();
      if (wanted_ > claimed_) again.push_back(message::Claim{wanted_});
      std::erase_if(dropping_, [this](const auto& one) { return written_anew(one.second); });
      for (const auto& [number, drop] : dropping_) again.push_back(drop);
    }
    changed_.notify_all();
  }
  for (const message::Any& message : again) member_->send(message);
  member_->send(message::Look{});
  std::map<ObjectId, Error> ended;
  const auto ends = [&](const std::map<ObjectId, RecordKey>& objects, const char* lost) {
    for (const auto& [id, key] : objects) ended[id] = records_.find(key) ? Error{} : Error{Errc::io_error, lost};
  };
  ends(cut, "the agent ended while the checkpoint was handed over");
  for (const Pieces::Piece& piece : lost) {
    const auto found = ended.find(piece.object);
    const bool there = found != ended.end() && found->second.code == Errc::ok;
    done_(piece.token, there ? Result<void>() : Result<void>(Error{Errc::io_error, "the agent ended"}));
  }
  ends(marked, "the agent ended before it could say what became of it");
  for (const auto& [id, error] : ended) end(id, error);
}

// A later object has this version: the newest record of it is not the one to be dropped.
bool PooledStorage::written_anew(const message::Drop& drop) const {
  return std::ranges::any_of(objects_, [&](const auto& one) {
    return one.first > drop.object && one.second.description->history == drop.history &&
           one.second.description->version == drop.version;
  });
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
  records_.reader().stop();
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
      const auto one = std::ranges::find(records_.found(), id, &storage::Found::object);
      if (one == records_.found().end()) return;  // never put
      drop.history = records_.in_store(one->history);
      drop.version = one->version;
    }
    records_.drop({drop.history, drop.version});
    drop.abandon = abandon;
    drop.number = next_drop_++;
    if (broken_) return;
    dropping_.emplace(drop.number, drop);
  }
  member_->send(drop);
}

std::vector<std::string> PooledStorage::failed_drops() const {
  const Lock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [number, drop] : dropping_) {
    names.push_back("version " + std::to_string(drop.version) + " of \"" + records_.without_rank(drop.history) + "\"");
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

}  // namespace ebb::node
