#include "share/agent/object_writer.hpp"

#include <algorithm>
#include <utility>

#include "planner/sync_rule.hpp"
#include "share/pool/description_text.hpp"

namespace ebb::share {
namespace {

// Another attempt may succeed.
bool is_of_the_disk(const Error& error) { return error.code == Errc::no_space || error.code == Errc::io_error; }

std::vector<std::uint64_t> entries_of(const WholeObject& object) {
  std::vector<std::uint64_t> entries;
  for (const HandedOver& part : object.parts) entries.push_back(part.sequence);
  return entries;
}

}  // namespace

Result<void> ObjectWriter::open(os::Files& files, storage::PersistentOptions options) {
  block_bytes_ = options.block_bytes;
  options.early_heads = true;
  auto storage = storage::open_persistent_storage(
      files, clock_, options,
      [this](transfer::Token token, const Result<void>& result) { report({false, token, result}); },
      [this](ObjectId id, const Result<void>& result) { report({true, id, result}); });
  if (!storage) return storage.error();
  storage_ = std::move(*storage);
  for (const storage::Found& found : storage_->found())
    newest_[{found.history, found.version}] = {found.object, found.sequence};
  return {};
}

void ObjectWriter::report(Report report) {
  {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(report));
  }
  wake_();
}

// An object's bytes in the pool, in order: parts that follow each other in memory are one extent.
Result<std::vector<ObjectWriter::Extent>> ObjectWriter::extents_of(const WholeObject& object) const {
  std::vector<Extent> extents;
  for (const HandedOver& part : object.parts) {
    if (part.part.bytes == 0) continue;
    const std::byte* const at = slabs_ + part.part.slab * shape_.slab_bytes() + part.part.offset;
    if (!extents.empty() && extents.back().memory + extents.back().bytes == at) {
      extents.back().bytes += part.part.bytes;
    } else if (part.part.offset % os::kBlock != 0 || (!extents.empty() && extents.back().bytes % block_bytes_ != 0)) {
      return Error{Errc::damaged, "a checkpoint in the pool is in pieces that no process hands over"};
    } else {
      extents.push_back({at, part.part.bytes});
    }
  }
  return extents;
}

void ObjectWriter::add(Member member, const WholeObject& object) {
  try_again();  // what has waited for room comes first
  Object made;
  made.member = member;
  made.number = object.last().object;
  made.whole = object;
  for (const HandedOver& part : object.parts) made.total += part.part.bytes;
  const auto fail = [&](const Error& error) {
    ++lost_;
    failed_.push_back({member, made.number, entries_of(object), error});
  };
  const std::byte* const slab = slabs_ + object.last().description.slab * shape_.slab_bytes();
  auto text = read_description(object.last(), {slab, shape_.slab_bytes()});
  if (!text) return fail(text.error());
  auto description = parse_description(*text);
  if (!description) return fail(description.error());
  if (description->info.bytes != made.total) return fail({Errc::damaged, "a checkpoint in the pool has another size"});
  if (auto extents = extents_of(object); !extents) return fail(extents.error());
  made.description = std::make_shared<const storage::Description>(std::move(*description));
  end_delayed(*made.description, failed_);
  begin(std::move(made));
}

void ObjectWriter::begin(Object object) {
  const ObjectId id = next_++;
  object.extents = extents_of(object.whole).value();
  object.given = 0;
  object.error = {};
  object.delayed = false;
  const auto begun = begin_in_store(id, object, waiting_of(object.member) + object.total);
  if (begun && object.total > 0) turns_.add(bits(object.member), id);
  objects_.emplace(id, std::move(object));
  if (!begun) end(id, begun, failed_);
}

Result<void> ObjectWriter::begin_in_store(ObjectId id, Object& object, std::uint64_t waiting) {
  take_off_dropped();
  const bool gone = gone_.contains(bits(object.member));
  if (!gone && planner::through_page_cache({object.total, waiting, room_of(object.member)}, beside_)) {
    auto begun = storage_->begin_cached(id, object.description);
    if (begun) beside_.bytes += object.beside = object.total;
    // The page cache has segments of its own: on a full disk those past it may have room still.
    if (begun || begun.error().code != Errc::no_space) return begun;
  }
  return storage_->begin(id, object.description);
}

// In the order in which they were handed over.
void ObjectWriter::try_again() {
  if (!planner::try_again(try_now_, tried_at_, clock_.now())) return;
  try_now_ = false;
  tried_at_ = clock_.now();
  std::vector<Object> again;
  for (auto at = objects_.begin(); at != objects_.end();) {
    const auto next = std::next(at);
    if (at->second.delayed) again.push_back(std::move(objects_.extract(at).mapped()));
    at = next;
  }
  for (Object& object : again) begin(std::move(object));
}

// The process hears of it in a later round: by then all is read that it had sent before, and drops among that make
// room.
void ObjectWriter::delay(Object& object, const Error& error, std::vector<Ended>& ended) {
  object.delayed = true;
  object.error = error;
  object.extents.clear();
  if (object.round == 0) object.round = round_;
  if (object.round == round_) return;
  object.told = true;
  ended.push_back({object.member, object.number, {}, error, 0, {}, true});
}

ObjectWriter::Object* ObjectWriter::find_piecewise(Member member, std::uint64_t number, ObjectId& id) {
  for (auto& [one, object] : objects_) {
    if (!object.in_pieces || object.member != member || object.number != number) continue;
    id = one;
    return &object;
  }
  return nullptr;
}

void ObjectWriter::add_piece(Member member, const message::Staged& piece, const std::byte* memory) {
  const auto fail = [&](const Error& error) { failed_.push_back({member, piece.object, {}, error, 0, piece.offset}); };
  ObjectId id = 0;
  Object* object = find_piecewise(member, piece.object, id);
  if (object == nullptr) {
    auto description = parse_description(std::as_bytes(std::span(piece.description)));
    if (!description) {
      return fail({Errc::io_error,
                   "the agent of the node's pool does not have the checkpoint's first part: it has taken "
                   "over from another one since"});
    }
    Object made;
    made.member = member;
    made.number = piece.object;
    made.total = description->info.bytes;
    made.in_pieces = true;
    made.description = std::make_shared<const storage::Description>(std::move(*description));
    id = next_++;
    // An object in pieces is larger than the share: without room there all of it waits.
    if (auto begun = begin_in_store(id, made, room_of(member)); !begun) return fail(begun.error());
    object = &objects_.emplace(id, std::move(made)).first->second;
  }
  const bool inside = piece.offset <= object->total && piece.bytes <= object->total - piece.offset;
  const bool whole = piece.offset + piece.bytes == object->total || piece.bytes % block_bytes_ == 0;
  if (!inside || !whole || piece.bytes == 0 || piece.offset % block_bytes_ != 0) {
    return fail({Errc::damaged, "a piece of a checkpoint is not one that a process makes"});
  }
  const std::uint64_t token = next_token_++;
  if (auto put = storage_->put(token, id, object->total, piece.offset, memory, piece.bytes); !put) {
    object->error = put.error();
    fail(put.error());
    if (object->puts == 0) report({true, id, put});
    return;
  }
  note_put(token, {id, piece.offset, piece.bytes}, *object);
  object->given += piece.bytes;
  turns_.serve(bits(member), piece.bytes);
}

void ObjectWriter::end_member(Member member) {
  gone_.insert(bits(member));
  const Error gone{Errc::lost, "the process ended before all of the checkpoint was handed over"};
  for (auto& [id, object] : objects_) {
    if (!object.in_pieces || object.member != member || object.given >= object.total) continue;
    object.error = gone;
    if (object.puts == 0) report({true, id, gone});
  }
}

void ObjectWriter::commit(Member member) {
  turns_.hurry(bits(member));
  try_now_ = true;
  if (storage_) ask_for_commit();
}

bool ObjectWriter::awaits_commit(ObjectId id, const Object& object) const {
  return !object.delayed && object.given == object.total && object.puts == 0 && !held_.contains(id);
}

void ObjectWriter::ask_for_commit() {
  ++commits_;
  for (auto& [id, object] : objects_)
    if (object.commit == 0 && awaits_commit(id, object)) object.commit = commits_;
  storage_->commit();
}

// The object's entries leave the list, so nothing that was handed over before it may come back as a newer record
// (invariant 5).
void ObjectWriter::end_memory(ObjectId id, Object& object, std::vector<Ended>& ended) {
  if (object.written != 0 || object.drop || object.given < object.total || object.puts > 0) return;
  if (gone_.contains(bits(object.member))) return;
  const std::uint64_t sequence = storage_->surviving(id);
  if (sequence == 0 || replaces_another(id)) return;
  object.written = ++written_;
  ended.push_back({object.member, object.number, entries_of(object.whole), {}, sequence, {}, false, true});
  object.whole = {};
}

void ObjectWriter::drop(Member member, const message::Drop& drop) {
  const auto newest = newest_.find({drop.history, drop.version});
  const bool there = newest != newest_.end() && drop.sequence != 0 && newest->second.sequence == drop.sequence;
  for (auto& [id, object] : objects_) {
    if (drop.object == 0 || object.member != member || object.number != drop.object) continue;
    try_now_ = true;
    if (there && !drop.abandon) {  // an agent before this one wrote it, and it is written again
      storage_->drop(newest->second.object);
      newest_.erase(newest);
    }
    if (object.delayed) return end(id, Error{Errc::dropped, "it was dropped"}, failed_);
    object.drop = drop.abandon;
    const bool outside = object.in_pieces || object.written != 0;     // it is in no list
    if (outside && (object.given < object.total || !drop.abandon)) {  // no more of it comes; it gives up its room now
      object.error = {Errc::dropped, "it was dropped"};
      if (object.puts == 0) end(id, {}, failed_);  // the storage does not report what was dropped
    }
    return;
  }
  const auto known = known_.find({bits(member), drop.object});
  ObjectId id = 0;
  if (known != known_.end()) {
    id = known->second;
    known_.erase(known);
  } else if (there) {
    id = newest->second.object;  // an agent before this one wrote it
  }
  if (id == 0) return;
  if (newest != newest_.end() && newest->second.object == id) newest_.erase(newest);
  drop.abandon ? storage_->abandon(id) : storage_->drop(id);
  try_now_ = true;
}

void ObjectWriter::forget(Member member) {
  gone_.erase(bits(member));
  rooms_.erase(bits(member));
  turns_.forget(bits(member));
  known_.erase(known_.lower_bound({bits(member), 0}), known_.upper_bound({bits(member), UINT64_MAX}));
}

std::uint64_t ObjectWriter::waiting_of(Member member) const {
  std::uint64_t bytes = 0;
  for (const auto& [id, object] : objects_)
    if (object.member == member && object.written == 0) bytes += object.total;
  return bytes;
}

void ObjectWriter::note_put(std::uint64_t token, const Transfer& transfer, Object& object) {
  tokens_[token] = transfer;
  ++object.puts;
  if (object.beside != 0) {
    ++copies_;
  } else {
    disk_.issued(clock_.now());
  }
}

// False: as many transfers of its kind are under way as may be.
bool ObjectWriter::give(ObjectId id) {
  Object& object = objects_.at(id);
  Extent& extent = object.extents.front();
  const std::uint64_t bytes = std::min(extent.bytes, kPutBytes / block_bytes_ * block_bytes_);
  const bool cached = object.beside != 0;
  if (cached ? copies_ >= kMostCopies : tokens_.size() - copies_ >= kMostPuts) return false;
  const std::uint64_t token = next_token_++;
  const auto put = storage_->put(token, id, object.total, object.given, extent.memory, bytes);
  if (put) {
    note_put(token, {id, object.given, bytes}, object);
    turns_.serve(bits(object.member), bytes);
    object.given += bytes;
    extent.memory += bytes;
    extent.bytes -= bytes;
    if (extent.bytes == 0) object.extents.erase(object.extents.begin());
  } else {
    object.error = put.error();
    object.extents.clear();
  }
  if (object.extents.empty()) turns_.remove(bits(object.member), id);
  if (!put && object.puts == 0) report({true, id, put});
  return true;
}

PoolProgress ObjectWriter::progress() const {
  std::uint64_t settled = written_;
  for (const auto& [id, object] : objects_)
    if (object.written != 0) settled = std::min(settled, object.written - 1);
  return {written_, settled, beside_.bytes, lost_};
}

void ObjectWriter::end(ObjectId id, const Result<void>& result, std::vector<Ended>& ended) {
  const auto found = objects_.find(id);
  if (found == objects_.end()) return;
  Object& object = found->second;
  if (object.puts > 0) {  // its bytes are still being read
    if (!result && object.error.code == Errc::ok) object.error = result.error();
    object.extents.clear();
    turns_.remove(bits(object.member), id);
    return;
  }
  if (result && object.error.code == Errc::ok) {
    end_delayed(*object.description, ended);
    if (replaces_another(id)) {
      held_.insert(id);
      return;
    }
  }
  const std::uint64_t beside = std::exchange(object.beside, 0);
  const bool was_delayed = std::exchange(object.delayed, false);
  Error error = object.error.code != Errc::ok && !was_delayed ? object.error : result ? Error{} : result.error();
  const std::uint64_t sequence = error.code == Errc::ok ? storage_->sequence(id) : 0;
  const bool dropped = error.code != Errc::ok || object.drop == false;
  if (!dropped) beside_.bytes -= beside;
  if (dropped) {
    storage_->drop(id);
    dropped_beside_.push_back({storage_->drops(), beside});
    if (is_of_the_disk(error) && !object.in_pieces && object.written == 0 && !object.drop) {
      return delay(object, error, ended);
    }
  } else if (object.drop == true) {
    storage_->abandon(id);
  } else {
    known_[{bits(object.member), object.number}] = id;
    // A drop of what it replaces may have been lost with the agent or the process, so drop it now.
    Newest& newest = newest_[{object.description->history, object.description->version}];
    const Newest made{id, sequence};
    const bool replaces = newest.object != 0;
    if (replaces) storage_->drop(std::min(newest, made).object);
    newest = std::max(newest, made);
  }
  const bool handed_over = !object.in_pieces || object.written != 0;
  if (handed_over && error.code != Errc::ok && error.code != Errc::dropped) ++lost_;
  ended.push_back({object.member, object.number, entries_of(object.whole), std::move(error), sequence});
  objects_.erase(found);
  for (const ObjectId one : std::exchange(held_, {})) end(one, {}, ended);
}

// What is delayed of a version that is written anew was dropped meanwhile: the later record must be the newer one's.
void ObjectWriter::end_delayed(const storage::Description& version, std::vector<Ended>& ended) {
  std::vector<ObjectId> replaced;
  for (const auto& [id, other] : objects_) {
    const storage::Description& its = *other.description;
    if (other.delayed && its.version == version.version && its.history == version.history) replaced.push_back(id);
  }
  for (const ObjectId id : replaced) end(id, Error{Errc::dropped, "it was written anew"}, ended);
}

// One of the same version that was handed over before it has not ended.
bool ObjectWriter::replaces_another(ObjectId id) const {
  const storage::Description& mine = *objects_.at(id).description;
  for (auto other = objects_.begin(); other->first != id; ++other) {
    const storage::Description& its = *other->second.description;
    if (its.version == mine.version && its.history == mine.history) return true;
  }
  return false;
}

// No commit covers them: their pages go when the storage carries the drops out.
void ObjectWriter::take_off_dropped() {
  for (; !dropped_beside_.empty() && dropped_beside_.front().drops <= drops_done(); dropped_beside_.pop_front())
    beside_.bytes -= dropped_beside_.front().bytes;
}

std::vector<ObjectWriter::Ended> ObjectWriter::run() {
  take_off_dropped();
  try_again();
  std::vector<Ended> ended = std::exchange(failed_, {});
  std::vector<Report> reports;
  bool moved = false;
  do {
    {
      const std::lock_guard lock(mutex_);
      reports = std::exchange(inbox_, {});
    }
    for (const Report& one : reports) {
      if (one.persisted) {
        end(one.which, one.result, ended);
        continue;
      }
      const auto token = tokens_.find(one.which);
      if (token == tokens_.end()) continue;
      const auto [id, offset, bytes] = token->second;
      tokens_.erase(token);
      moved = true;
      Object& object = objects_.at(id);
      --object.puts;
      if (object.beside != 0) {
        --copies_;
      } else {
        one.result ? disk_.finished(clock_.now(), bytes) : disk_.failed(clock_.now());
      }
      if (object.in_pieces) {
        ended.push_back({object.member, object.number, {}, one.result ? Error{} : one.result.error(), 0, offset});
      }
      if (!one.result && object.error.code == Errc::ok) {
        object.error = one.result.error();
        object.extents.clear();
        turns_.remove(bits(object.member), id);
      }
      if (object.error.code == Errc::ok) {
        end_memory(id, object, ended);
      } else if (object.puts == 0) {
        end(id, {}, ended);
      }
    }
    for (auto next = turns_.next(); next && give(*next); next = turns_.next()) {
    }
  } while (!reports.empty());
  if (moved || !tokens_.empty()) moved_at_ = clock_.now();
  planner::PoolWrites writes{
      .moving = !tokens_.empty(), .moved = moved_at_, .held = beside_.bytes > 0 ? planner::most_beside(beside_) : 0};
  std::set<std::uint64_t> commits;
  for (const auto& [id, object] : objects_) {
    if (!awaits_commit(id, object)) continue;
    if (object.commit != 0) {
      commits.insert(object.commit);
    } else {
      writes.bytes += object.total;
      writes.any = true;
    }
  }
  writes.commits = static_cast<int>(commits.size());
  commit_at_ = planner::commit_pool_at(writes, shape_.budget);
  if (commit_at_ <= clock_.now()) {
    ask_for_commit();
    commit_at_ = planner::kNever;
  }
  turns_.end_hurries([this](std::uint64_t member) {
    return std::ranges::none_of(objects_, [&](const auto& one) { return bits(one.second.member) == member; });
  });
  for (const auto& [id, object] : objects_) {
    if (!object.delayed || object.told) continue;
    try_now_ = true;
    wake_();
    break;
  }
  ++round_;
  return ended;
}

bool ObjectWriter::has(Member member, storage::ObjectId number) const {
  return std::ranges::any_of(
      objects_, [&](const auto& one) { return one.second.member == member && one.second.number == number; });
}

bool ObjectWriter::has_pieces() const {
  return std::ranges::any_of(objects_, [](const auto& one) { return one.second.in_pieces; });
}

bool ObjectWriter::idle(Member member) const {
  return std::ranges::none_of(objects_, [&](const auto& one) { return one.second.member == member; });
}

bool ObjectWriter::idle() const {
  return std::ranges::all_of(objects_, [](const auto& one) { return one.second.delayed; });
}

const Error* ObjectWriter::stuck(Member member) const {
  const Error* why = nullptr;
  for (const auto& [id, object] : objects_) {
    if (object.member != member) continue;
    if (!object.delayed || !object.told) return nullptr;
    if (why == nullptr) why = &object.error;
  }
  return why;
}

void ObjectWriter::stop() {
  if (storage_) storage_->stop();
  storage_.reset();
}

}  // namespace ebb::share
