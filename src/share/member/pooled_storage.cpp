#include "share/member/pooled_storage.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/start_thread.hpp"
#include "share/pool/description_text.hpp"

namespace ebb::share {

using storage::Description;
using storage::ObjectId;

PooledStorage::PooledStorage(std::shared_ptr<PoolMember> member, std::unique_ptr<storage::PersistentStorage> reader,
                             const NodeStorageOptions& options, storage::Done done, storage::Persisted persisted,
                             Listed listed, Delayed delayed)
    : member_(std::move(member)),
      block_bytes_(options.store.block_bytes),
      done_(std::move(done)),
      persisted_(std::move(persisted)),
      listed_(std::move(listed)),
      delayed_(std::move(delayed)),
      bell_([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); }),
      records_(options.pool.rank, std::move(reader)),
      newest_sequence_(records_.highest_sequence()),
      pieces_(*member_, options.piece_bytes),
      memory_(member_),
      handover_(*member_) {}

Result<void> PooledStorage::start() {
  if (!bell_) return Error{Errc::io_error, "an eventfd cannot be opened"};
  auto thread = base::start_thread([this] { run(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return {};
}

void PooledStorage::ring() const {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(bell_.fd(), &one, sizeof one));
}

Result<void> PooledStorage::begin(ObjectId object, std::shared_ptr<const Description> description) {
  auto own = std::make_unique<Description>(*description);
  own->history = records_.in_store(own->history);
  if (auto fits = storage::check(*own, block_bytes_); !fits) return fits;
  Lock lock(mutex_);
  if (broken_) return *broken_;
  if (objects_.contains(object)) throw std::logic_error("an object that was begun before");
  Object& made = objects_[object];
  made.total = own->info.bytes;
  made.begun_after = newest_sequence_;
  made.key = {own->history, own->version};
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
  const bool inside = total == object.total && offset <= total && bytes <= total - offset;
  if (!inside || offset % block_bytes_ != 0 || (bytes % block_bytes_ != 0 && offset + bytes != total)) {
    throw std::logic_error("a put of what is no row of blocks of its object");
  }
  const auto place = object.in_pieces ? std::nullopt : memory_.place_of(memory, bytes);
  if (!place) return put_piece(object, {token, id, offset, memory, bytes});
  const std::uint64_t at = *place;
  const auto again = std::ranges::find(object.parts, offset, &Handover::SlabRange::offset);
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
    listed = found->second.listed || found->second.durable();
  }
  listed_(id, listed);
}

// --- pieces, with mutex_ held ----------------------------------------------------------------------------------------

Result<void> PooledStorage::put_piece(Object& object, Pieces::StagedPiece piece) {
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

// --- the thread ------------------------------------------------------------------------------------------------------

void PooledStorage::run() {
  for (;;) {
    if (auto message = member_->receive(); !message) {
      if (!broken()) reconnect();
    } else if (*message) {
      on(**message);
      continue;
    }
    std::deque<std::pair<storage::Token, Result<void>>> done;
    std::map<ObjectId, Error> refused, delayed;
    bool over = false;
    {
      Lock lock(mutex_);
      send_pieces();
      pieces_.rest();
      refused = handover_.take_refused();
      if (broken_) {
        for (auto& [id, object] : objects_) {
          if (object.listed && !object.delayed) {
            object.delayed = std::make_unique<const Error>(*broken_);
            delayed.emplace(id, *broken_);
          }
          if (!object.listed && object.last) refused.emplace(id, *broken_);
        }
        waiting_.clear();
      }
      if (leaving_) end_delayed();
      done = std::exchange(done_now_, {});
      // Of what is in pieces, the rest may never be put.
      const bool written = std::ranges::none_of(objects_, [](const auto& one) {
        return (one.second.listed && !one.second.delayed) ||
               (one.second.coming_in_pieces() && one.second.covered == one.second.total);
      });
      over =
          stopping_ && done.empty() && refused.empty() && (broken_ || (written && dropping_.empty() && pieces_.idle()));
      if (!waiting_.empty()) hand_over_waiting(lock);
    }
    for (const auto& [token, result] : done) done_(token, result);
    for (const auto& [id, error] : refused) end(id, error);
    for (const auto& [id, error] : delayed) delayed_(id, error);
    if (over) return;
    member_->wait(bell_.fd(), std::chrono::milliseconds{200});
    std::uint64_t rung = 0;
    static_cast<void>(!::read(bell_.fd(), &rung, sizeof rung));
  }
}

bool PooledStorage::broken() const {
  const Lock lock(mutex_);
  return broken_.has_value();
}

void PooledStorage::on(const message::Any& message) {
  if (const auto* finished = std::get_if<message::Finished>(&message)) {
    return end(finished->object, finished->error, finished->sequence);
  }
  if (const auto* moved = std::get_if<message::Moved>(&message)) return on(*moved);
  if (const auto* delayed = std::get_if<message::Delayed>(&message)) return on(*delayed);
  if (const auto* written = std::get_if<message::Written>(&message)) return on(*written);
  if (memory_.hear(message)) return;
  if (const auto* dropped = std::get_if<message::Dropped>(&message)) {
    const Lock lock(mutex_);
    dropping_.erase(dropped->number);
  }
}

void PooledStorage::on(const message::Moved& moved) {
  const bool ok = moved.error.code == Errc::ok;
  std::optional<Pieces::StagedPiece> piece;
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

void PooledStorage::on(const message::Delayed& delayed) {
  {
    const Lock lock(mutex_);
    const auto found = objects_.find(delayed.object);
    if (found == objects_.end() || !found->second.listed) return;
    found->second.delayed = std::make_unique<const Error>(delayed.error);
  }
  tell_listed(delayed.object);  // the agent may have looked before the thread that handed it over could say so
  delayed_(delayed.object, delayed.error);
}

// The files have it: it counts as listed, and its memory is the caller's again.
void PooledStorage::on(const message::Written& written) {
  std::optional<storage::Token> token;
  {
    Lock lock(mutex_);
    const auto found = objects_.find(written.object);
    if (found == objects_.end() || found->second.durable() || found->second.failure) return;
    Object& object = found->second;
    handover_.finish(written.object);
    object.written = written.sequence;
    object.listed = true;
    object.delayed.reset();
    object.parts = {};
    token = std::exchange(object.last, {});
    if (!waiting_.empty()) hand_over_waiting(lock);
  }
  tell_listed(written.object);
  if (token) done_(*token, {});
}

// With mutex_ held. What waits for room in the list has it when some of the list is written, which is not to be seen.
void PooledStorage::end_delayed() {
  bool any = false, writing = false;
  for (auto& [id, object] : objects_) {
    any = any || object.delayed;
    writing = writing || (object.listed && !object.delayed);
    if (object.delayed && object.last) done_now_.emplace_back(*std::exchange(object.last, {}), *object.delayed);
  }
  if (!any || writing) return;
  for (const ObjectId id : std::exchange(waiting_, {}))
    handover_.refuse(id, {Errc::no_space, "the node's pool is full of what its store has no room for"});
}

// The agent has finished it, one way or the other.
void PooledStorage::end(ObjectId id, const Error& error, std::uint64_t sequence) {
  Result<void> result = error.code == Errc::ok ? Result<void>() : Result<void>(error);
  std::optional<storage::Token> token;
  std::vector<storage::Token> not_to_send;
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
    if (object.delayed && !result) result = *object.delayed;  // that is why it was withdrawn, and not written
    object.delayed.reset();
    object.written = 0;
    object.sequence = result ? sequence : 0;
    newest_sequence_ = std::max(newest_sequence_, object.sequence);
    const auto later = std::ranges::stable_partition(gets_, [&](const Get& get) { return get.object != id; });
    gets.assign(later.begin(), later.end());
    gets_.erase(later.begin(), later.end());
    if (result) {
      ++counters_.objects_written;
      counters_.bytes_written += object.total;
      object.parts = {};
      object.description.reset();
      not_to_send = pieces_.take_waiting(id);  // sent to an agent that did not say so
    } else if (object.in_pieces) {
      object.failure = std::make_unique<const Error>(error);
      not_to_send = pieces_.take_waiting(id);
    } else if (!object.parts.empty()) {  // its last part may be put again
      object.covered -= object.parts.back().bytes;
      object.parts.pop_back();
    }
    if (!waiting_.empty()) hand_over_waiting(lock);
  }
  if (unlisted) tell_listed(id);
  for (const storage::Token one : not_to_send) done_(one, result);
  if (token) done_(*token, result);
  if (result || !token) persisted_(id, result);
  for (const Get& one : gets) {
    const Result<void> begun = result ? get(one.token, id, one.offset, one.memory, one.bytes) : result;
    if (!begun) done_(one.token, begun);
  }
}

// What the agent before had finished, but not told, is in the store: its entries have marks. An object in pieces is
// there too, or is put again from its first piece; it is lost if the agent before had answered some of its pieces.
void PooledStorage::reconnect() {
  const auto stopping = [this] {
    const Lock lock(mutex_);
    return stopping_;
  };
  std::set<ObjectId> sent;
  {  // before the next agent: it could be given pieces as soon as it has admitted this process
    const Lock lock(mutex_);
    sent = pieces_.lose_agent();
  }
  auto joined = member_->rejoin();
  while (!joined && joined.error().code == Errc::timed_out && !stopping()) joined = member_->rejoin();
  struct Unknown {
    RecordKey key;
    std::optional<std::uint64_t> after;  // its record, if it has one, has a higher sequence than this
    const char* lost;                    // if it has none; null: it is put again
  };
  std::map<ObjectId, Unknown> unknown;
  {
    const Lock lock(mutex_);
    const auto ask = [&](ObjectId id, const Object& object, const char* lost) {
      unknown[id] = {object.key, unsure_ ? std::nullopt : std::optional(object.begun_after), lost};
    };
    for (const auto& [id, object] : objects_) {
      const bool lost = object.covered > 0 || !joined;
      if (object.written != 0) {  // the next agent has made it durable before it admitted this process
        if (joined) unknown[id] = {object.key, object.written - 1, "what the agent had written is not in the store"};
      } else if (object.coming_in_pieces() && (lost || sent.contains(id)))
        ask(id, object, lost ? "the agent ended while the checkpoint was handed over" : nullptr);
    }
    if (!joined) {
      broken_ = Error{joined.error().code, "the node's pool cannot be used any more: " + joined.error().message};
      memory_.close(*broken_);
    } else {
      for (const auto& [id, object] : objects_)
        if (object.listed && object.written == 0 && handover_.finish_marked(id))
          ask(id, object, "the agent ended before it could say what became of it");
    }
  }
  if (joined) memory_.ask_again();
  for (const message::Any& message : drops_to_say_again()) member_->send(message);
  member_->send(message::Look{});
  for (const auto& [id, one] : unknown) {
    const std::uint64_t sequence = one.after ? records_.newest_after(one.key, *one.after) : 0;
    if (sequence != 0) {
      end(id, {}, sequence);
    } else if (one.lost) {
      end(id, {Errc::io_error, one.lost});
    }
  }
  std::vector<Get> gets;
  {
    const Lock lock(mutex_);
    pieces_.resume();
    send_pieces();
    if (!joined) gets = std::exchange(gets_, {});  // nothing comes any more
  }
  for (const Get& one : gets) done_(one.token, *broken_);
}

// The next agent knows an object that is in no list by the sequence of its record alone, which the one before may have
// written and not told. Without one of the same version that was begun since, it is the newest.
std::vector<message::Any> PooledStorage::drops_to_say_again() {
  std::vector<message::Drop> again;
  {
    const Lock lock(mutex_);
    for (const auto& [number, drop] : dropping_) again.push_back(drop);
  }
  for (message::Drop& drop : again) {
    if (drop.sequence != 0) continue;
    const RecordKey key{drop.history, drop.version};
    const auto begun_since = [&] {
      const Lock lock(mutex_);
      return std::ranges::any_of(objects_,
                                 [&](const auto& one) { return one.first != drop.object && one.second.key == key; });
    };
    if (begun_since()) continue;  // it replaces what there is
    const std::uint64_t newest = records_.newest_after(key, 0);
    if (!begun_since()) drop.sequence = newest;
  }
  return {again.begin(), again.end()};
}

void PooledStorage::stop() {
  {
    const Lock lock(mutex_);
    if (!thread_.joinable()) return;
    leaving_ = stopping_ = true;
  }
  memory_.close({Errc::closed, "the store is closed"});
  member_->send(message::Commit{});
  ring();
  thread_.join();
  records_.reader().stop();
}

// --- objects ---------------------------------------------------------------------------------------------------------

// The agent tries what was delayed again, and says anew what becomes of it. Without an agent the thread does.
void PooledStorage::commit() {
  {
    const Lock lock(mutex_);
    for (auto& [id, object] : objects_) object.delayed.reset();
    if (broken_) return ring();
  }
  member_->send(message::Commit{});
}

void PooledStorage::leave() {
  const Lock lock(mutex_);
  leaving_ = true;
  ring();
}

void PooledStorage::withdraw(ObjectId id) {
  message::Drop drop;
  {
    const Lock lock(mutex_);
    const auto found = objects_.find(id);
    if (found == objects_.end() || found->second.durable() || found->second.written != 0) return;
    Object& object = found->second;
    if (broken_ && object.listed) {
      handover_.withdraw(id);
      handover_.refuse(id, {Errc::dropped, "it was dropped"});
      return ring();
    }
    if (!object.listed) {
      if (std::erase(waiting_, id) == 0) return;  // not whole yet: its transfers end by themselves
      handover_.refuse(id, {Errc::dropped, "it was dropped"});
      return ring();
    }
    if (std::exchange(object.withdrawn, true)) return;
    unsure_ = true;
    drop = {next_drop_++, id, 0, false, object.key.first, object.key.second};
    dropping_.emplace(drop.number, drop);
  }
  member_->send(drop);
}

void PooledStorage::remove(ObjectId id, bool abandon) {
  message::Drop drop;
  {
    const Lock lock(mutex_);
    const auto found = objects_.find(id);
    if (found != objects_.end()) {
      if (found->second.last) throw std::logic_error("a drop of an object with a transfer in flight");
      const bool known = found->second.listed || found->second.durable() || found->second.in_pieces;
      unsure_ = unsure_ || (known && !found->second.durable());  // it may be a record, or become one yet
      drop.object = id;
      drop.sequence = std::max(found->second.sequence, found->second.written);
      drop.history = found->second.key.first;
      drop.version = found->second.key.second;
      if (broken_ && found->second.listed) handover_.withdraw(id);
      std::erase(waiting_, id);
      objects_.erase(found);
      if (!known) return;
    } else {
      const auto one = std::ranges::find(records_.found(), id, &storage::Found::object);
      if (one == records_.found().end()) return;  // never put
      drop.sequence = one->sequence;
      drop.history = records_.in_store(one->history);
      drop.version = one->version;
    }
    if (broken_ && drop.sequence == 0) return;
    drop.abandon = abandon;
    drop.number = next_drop_++;
    dropping_.emplace(drop.number, drop);
    if (broken_) return;
  }
  member_->send(drop);
}

std::uint64_t PooledStorage::sequence(ObjectId id) {
  if (id < storage::kFirstObject) return records_.reader().sequence(id);
  const Lock lock(mutex_);
  const auto found = objects_.find(id);
  return found == objects_.end() ? 0 : found->second.sequence;
}

std::uint64_t PooledStorage::drops() const {
  const Lock lock(mutex_);
  return next_drop_ - 1;
}

std::uint64_t PooledStorage::drops_done() const {
  const Lock lock(mutex_);
  return (dropping_.empty() ? next_drop_ : dropping_.begin()->first) - 1;
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
  NodeCounters now = memory_.counters();
  now.bytes_handed_over = counters_.bytes_handed_over;
  now.bytes_written = counters_.bytes_written;
  now.objects_handed_over = counters_.objects_handed_over;
  now.objects_written = counters_.objects_written;
  return now;
}

}  // namespace ebb::share
