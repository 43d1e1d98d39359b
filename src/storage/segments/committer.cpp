#include "storage/segments/committer.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <utility>

#include "base/start_thread.hpp"
#include "planner/sync_rule.hpp"
#include "storage/segments/segment_presence.hpp"

namespace ebb::storage {

using os::kBlock;

void Committer::start() {
  thread_ = base::thread([this] { work(); });
}

bool Committer::stop() {
  if (!thread_.joinable()) return false;
  {
    const TableLocked lock = table_.lock();
    wake_.notify_all();
  }
  thread_.join();
  end_unfinished();
  return true;
}

void Committer::add_if_complete(const TableLocked&, const SharedObject& object) {
  if (object->state != ObjectState::writing || object->dropped || object->writing->blocks_missing || object->puts)
    return;
  object->state = ObjectState::ready;
  object->writing->blocks_put = {};
  ready_.push_back(object);
  ready_bytes_ += object->space();
  commit_wanted_ =
      commit_wanted_ || object->writing->commits_when_put != commits_;  // called while its last put was being reported
  wake_.notify_all();
}

void Committer::drop(const TableLocked&, SharedObject object) {
  unreleased_ += object->space();
  drops_.push_back(std::move(object));
  ++drops_so_far_;
  wake_.notify_all();
}

void Committer::abandon(const TableLocked& lock, SharedObject object) {
  // Anything else was never on disk.
  if (object->state != ObjectState::persistent && object->state != ObjectState::committing)
    return drop(lock, std::move(object));
  object->abandoned = true;
  abandoned_.push_back(std::move(object));
}

void Committer::commit_now(const TableLocked&) {
  commit_wanted_ = true;
  ++commits_;
  wake_.notify_all();
}

// A thread that is reporting a completion must not wait, because drops may need it: it only hastens them, and a later
// begin() finds room.
bool Committer::await_drops(TableLocked& lock) {
  if (drops_.empty() && batches_begun_ == batches_ended_) return false;
  if (std::this_thread::get_id() == thread_.get_id()) return false;
  const std::uint64_t next = batches_begun_ + (drops_.empty() ? 0 : 1);
  commit_wanted_ = true;
  wake_.notify_all();
  if (FileTransfers::in_completion()) return false;
  batch_ended_.wait(lock, [&] { return batches_ended_ >= next; });
  return true;
}

planner::Time Committer::due(const TableLocked& lock) const {
  return planner::sync_at({.any = !ready_.empty() || !drops_.empty(),
                           .wanted = table_.is_closed(lock) || commit_wanted_ || !context_.options.synced,
                           .bytes = ready_bytes_},
                          last_commit_, context_.options.sync_interval.count());
}

void Committer::work() {
  TableLocked lock = table_.lock();
  for (;;) {
    const planner::Time due = this->due(lock), now = context_.clock.now();
    if (due <= now) {
      commit_batch(lock);
      continue;
    }
    if (table_.is_closed(lock)) return;
    if (due == planner::kNever) {
      commit_wanted_ = false;
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, std::chrono::nanoseconds(due - now));
    }
  }
}

void Committer::commit_batch(TableLocked& lock) {
  Groups groups;
  for (SharedObject& object : ready_) {
    if (object->dropped || object->state != ObjectState::ready) continue;
    object->state = ObjectState::committing;
    groups[object->segment].push_back(std::move(object));
  }
  Objects drops = std::exchange(drops_, {}), abandoned = std::exchange(abandoned_, {});
  const std::size_t dropped = drops.size();
  std::ranges::move(remover_.take_failed(lock), std::back_inserter(drops));  // for which there may be room by now
  const std::uint64_t released = unreleased_;
  ready_.clear();
  ready_bytes_ = 0;
  commit_wanted_ = false;
  ++batches_begun_;
  lock.unlock();

  if (sync_payloads(groups)) commit_groups(groups, drops, abandoned);
  const bool any = !drops.empty();
  remover_.drop(std::move(drops));
  remover_.trim_closed();
  remover_.remove_empty();
  if (any) context_.directory.announce_change();

  lock.lock();
  abandoned_.insert(abandoned_.end(), abandoned.begin(), abandoned.end());
  last_commit_ = context_.clock.now();
  drops_done_ += dropped;
  ++batches_ended_;
  batch_ended_.notify_all();
  // What could not be dropped takes its room until the store is closed, and is waited for no longer.
  unreleased_ -= released;
  if (released == 0 || !context_.released) return;
  lock.unlock();
  context_.released();
  lock.lock();
}

// After their payloads have been synced.
void Committer::commit_groups(Groups& groups, Objects& drops, Objects& abandoned) {
  std::erase_if(groups, [&](const auto& group) {
    const auto written = write_headers(group.first, group.second);
    if (!written) remover_.fail(group.first, written.error());
    return !written;
  });
  sync_all(groups);
  for (const auto& [segment, objects] : groups) {  // what is on the disk takes no memory: it is seldom read soon
    if (context_.options.direct && !segment->file->direct()) {
      static_cast<void>(context_.files.drop_cached(segment->file->fd()));  // a failure only takes memory
    }
  }
  const Objects missing = refuse_missing(groups);
  Objects complete;
  for (auto& [segment, objects] : groups) complete.insert(complete.end(), objects.begin(), objects.end());
  remover_.drop(replaced_by(complete, drops), true);
  remover_.drop(replaced_by(complete, abandoned), true);
  const Objects refused = refuse_beside_old(complete);
  context_.directory.announce_change();
  report(complete);
  report_refused(refused);
  report_refused(missing);
}

// Moves out of `drops` the versions that have been written again. They are dropped before the new records are reported:
// if one of those were damaged later, the old bytes must not reappear under its name.
Committer::Objects Committer::replaced_by(const Objects& complete, Objects& drops) {
  if (drops.empty()) return {};
  std::set<std::pair<std::string_view, Version>> names;
  for (const SharedObject& object : complete) names.emplace(object->history, object->head.version);
  const auto others = std::stable_partition(drops.begin(), drops.end(), [&](const SharedObject& object) {
    return !names.contains({object->history, object->head.version});
  });
  Objects out(std::make_move_iterator(others), std::make_move_iterator(drops.end()));
  drops.erase(others, drops.end());
  return out;
}

// Objects in segments whose file is missing fail. The other objects of the batch are refused, so that a program that
// waits only for them learns of the loss.
Committer::Objects Committer::refuse_missing(Groups& groups) {
  if (groups.empty()) return {};
  if (auto same = context_.directory.in_place(); !same) {
    for (const auto& [segment, objects] : groups) remover_.fail(segment, same.error());
    groups.clear();
    return {};
  }
  std::vector<SharedSegment> written;
  for (const auto& [segment, objects] : groups) written.push_back(segment);
  const std::vector<SharedSegment> missing = find_missing(context_, table_, written);
  if (missing.empty()) return {};
  for (const SharedSegment& segment : missing) {
    remover_.fail(segment, missing_error(context_, table_, segment));
    groups.erase(segment);
  }
  Objects others;
  for (const auto& [segment, objects] : groups) others.insert(others.end(), objects.begin(), objects.end());
  groups.clear();
  const Error error = missing_error(context_, table_, missing.front());
  return refuse(table_.lock(), others, error);
}

// Objects whose older record could not be dropped, except one that never was on the disk, and one that was abandoned:
// its bytes would never be returned.
Committer::Objects Committer::refuse_beside_old(const Objects& complete) {
  Objects beside;
  const TableLocked lock = table_.lock();
  std::ranges::copy_if(complete, std::back_inserter(beside), [&](const SharedObject& object) {
    return std::ranges::any_of(remover_.failed(lock), [&](const SharedObject& old) {
      return old->may_be_on_disk && !old->abandoned && old->head.version == object->head.version &&
             old->history == object->history;
    });
  });
  return refuse(
      lock, beside,
      {Errc::io_error, "what was written under this name before could not be dropped from " + context_.where});
}

// Returns those that failed; they have not been reported yet.
Committer::Objects Committer::refuse(const TableLocked&, const Objects& objects, const Error& why) {
  Objects refused;
  for (const SharedObject& object : objects) {
    if (object->dropped || object->state != ObjectState::committing) continue;
    object->fail(why);
    refused.push_back(object);
  }
  return refused;
}

// Refused objects' headers are withdrawn first. If that sync fails, writes of other objects to the segment may be lost
// too.
void Committer::report_refused(const Objects& refused) {
  Groups groups;
  for (const SharedObject& object : refused) groups[object->segment].push_back(object);
  for (const auto& [segment, objects] : groups) {
    if (const auto synced = remover_.withdraw(segment, segment->file, objects); !synced) {
      remover_.fail(segment, synced.error());
    }
  }
  for (const SharedObject& object : refused) context_.persisted(object->id, *object->writing->error);
}

// Compact records have their payloads in their headers, and only the segment's own head comes before them.
bool Committer::sync_payloads(Groups& groups) {
  std::erase_if(groups, [&](const auto& group) {
    const auto& [segment, objects] = group;
    const bool all_compact = std::ranges::all_of(objects, [](const auto& one) { return one->head.compact(); });
    return !(all_compact && segment->head_synced) && !sync(segment);
  });
  return !groups.empty();
}

void Committer::sync_all(Groups& groups) {
  std::erase_if(groups, [&](const auto& group) { return !sync(group.first); });
}

// False: it failed, and its segment with it.
bool Committer::sync(const SharedSegment& segment) {
  const auto synced = context_.sync(segment->number, *segment->file);
  if (!synced) remover_.fail(segment, synced.error());
  segment->head_synced = static_cast<bool>(synced);
  return segment->head_synced;
}

Result<void> Committer::write_headers(const SharedSegment& segment, const Objects& objects) {
  const std::int64_t now = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  Objects large, small;
  std::ranges::partition_copy(objects, std::back_inserter(small), std::back_inserter(large),
                              [](const SharedObject& one) { return one->head.compact(); });
  place_compact(segment, small);
  if (auto written = write_compact(segment, small, now); !written) return written;
  return write_large(segment, large, now);
}

// One behind the other. None reaches into a second block, so that a power loss tears none of two blocks; the last of a
// block has the rest of it.
void Committer::place_compact(const SharedSegment& segment, const Objects& objects) {
  const TableLocked lock = table_.lock();
  StoredObject* before = nullptr;
  for (const SharedObject& object : objects) {
    if (before != nullptr && segment->end % kBlock + object->head.header_bytes > kBlock) end_block(*segment, *before);
    object->head.offset = segment->end;
    segment->end += object->head.record_bytes;
    segment->unplaced.erase(object->id);
    segment->records.add(object->head.offset, object);
    before = object.get();
  }
  if (before != nullptr) end_block(*segment, *before);
}

void Committer::end_block(SegmentState& segment, StoredObject& last) {
  const std::uint64_t end = os::round_up(segment.end);
  last.head.record_bytes += end - std::exchange(segment.end, end);
}

Result<void> Committer::write_compact(const SharedSegment& segment, const Objects& objects, std::int64_t now) {
  for (auto first = objects.begin(); first != objects.end();) {
    const std::uint64_t begin = (*first)->head.offset;
    auto last = std::find_if(first, objects.end(), [&](const SharedObject& one) {
      return one->head.offset + one->head.record_bytes - begin > kSlab;
    });
    const StoredHead& end = (*std::prev(last))->head;
    const auto slab = AlignedBytes::make(end.offset + end.record_bytes - begin);
    if (!slab) return Error{Errc::out_of_memory, "there is no memory for its header"};
    std::ranges::fill(slab->first(slab->size()), std::byte{});
    for (; first != last; ++first) {
      StoredObject& object = **first;
      RecordHead head = object.record_head();
      head.written_ns = now;
      const auto& held = object.writing->held;  // constant by now; null: there are no bytes
      const auto payload = held ? std::span(*held) : std::span<const std::byte>();
      const std::vector<std::byte> record = encode_compact(head, *object.loaded->description, payload);
      std::ranges::copy(record, slab->data() + (head.place.offset - begin));
      set_written(object, head);
    }
    const transfer::Piece piece{begin, slab->data(), slab->size()};
    if (auto written = context_.transfers.move(transfer::Direction::write, segment->file, {&piece, 1}); !written) {
      return written;
    }
  }
  return {};
}

void Committer::set_written(StoredObject& object, const RecordHead& head) {
  const TableLocked lock = table_.lock();
  object.set_written(head);
}

Result<void> Committer::write_large(const SharedSegment& segment, const Objects& objects, std::int64_t now) {
  for (auto first = objects.begin(); first != objects.end();) {
    std::size_t bytes = 0;
    auto last = first;
    while (last != objects.end() && (last == first || bytes + (*last)->head.header_bytes <= kSlab)) {
      bytes += (*last++)->head.header_bytes;
    }
    const std::optional<AlignedBytes> slab = AlignedBytes::make(bytes);
    if (!slab) return Error{Errc::out_of_memory, "there is no memory for its header"};
    std::vector<transfer::Piece> pieces;
    std::byte* at = slab->data();
    for (; first != last; ++first) {
      StoredObject& object = **first;
      RecordHead head = object.record_head();
      if (!object.early_head) head.written_ns = now;
      const std::vector<std::byte> header = encode(head, *object.loaded->description, *object.loaded->sums);
      std::copy(header.begin(), header.end(), at);
      pieces.push_back({head.place.offset, at, header.size()});
      at += header.size();
      set_written(object, head);
    }
    if (auto written = context_.transfers.move(transfer::Direction::write, segment->file, pieces); !written) {
      return written;
    }
  }
  return {};
}

void Committer::report(const Objects& objects) {
  std::vector<ObjectId> ids;
  {
    const TableLocked lock = table_.lock();
    for (const SharedObject& object : objects) {
      if (object->state != ObjectState::committing) continue;  // a drop failed its segment, and it was reported
      object->state = ObjectState::persistent;
      object->note_found();
      object->loaded->description = nullptr;  // it can be read from disk now
      if (!object->loaded->sums && object->loaded->awaiting_header.empty()) object->loaded = nullptr;
      object->writing = nullptr;
      if (!object->dropped) ids.push_back(object->id);
    }
  }
  for (const ObjectId id : ids) context_.persisted(id, {});
}

// Incomplete objects are dropped, and so are failed ones whose header may be on disk: the next process would take them
// for persistent. The current segment is closed.
void Committer::end_unfinished() {
  Objects unfinished, lost;
  {
    const TableLocked lock = table_.lock();
    for (const auto& [id, object] : table_.objects(lock)) {
      if (object->state == ObjectState::failed && object->may_be_on_disk) lost.push_back(object);
      if (object->state != ObjectState::writing) continue;
      object->fail({Errc::closed, "the store was closed before all of it was written"});
      unfinished.push_back(object);
    }
    for (const bool cached : {false, true})
      if (const SharedSegment current = table_.current(lock, cached)) current->closed = true;
  }
  for (const SharedObject& object : unfinished) context_.persisted(object->id, *object->writing->error);
  Objects drops;
  {
    const TableLocked lock = table_.lock();
    drops = std::exchange(drops_, {});
    for (const Objects& some : {unfinished, lost}) {
      std::ranges::copy_if(some, std::back_inserter(drops), [](const SharedObject& one) { return !one->dropped; });
    }
  }
  // A disk that failed once may not fail again.
  for (int tries = 2; tries > 0; --tries) {
    {
      const TableLocked lock = table_.lock();
      const Objects failed = remover_.take_failed(lock);
      drops.insert(drops.end(), failed.begin(), failed.end());
    }
    remover_.drop(std::exchange(drops, {}));
    remover_.trim_closed();
    remover_.remove_empty();
  }
  const TableLocked lock = table_.lock();
  const bool left = std::ranges::any_of(table_.segments(lock), [&](const auto& one) {
    return one.second->records.empty() && remover_.is_removable(lock, *one.second);
  });
  if (left || !remover_.failed(lock).empty()) table_.invalidate_index(lock);
}

}  // namespace ebb::storage
