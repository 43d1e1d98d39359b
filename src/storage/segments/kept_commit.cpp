// The committer: what is complete becomes kept, many objects with one sync.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <utility>

#include "storage/file_io.hpp"
#include "storage/segments/kept_store.hpp"

namespace ebb::storage {

using State = KeptObject::State;

bool KeptStore::due_locked() const {
  if (ready_.empty() && drops_.empty()) return false;
  return phase_ == Phase::closed || commit_wanted_ || !options_.synced || ready_bytes_ >= kMostWaiting ||
         clock_.now() - last_commit_ >= options_.sync_interval.count();
}

void KeptStore::work() {
  Lock lock(mutex_);
  for (;;) {
    if (due_locked()) {
      commit_batch(lock);
      continue;
    }
    if (phase_ == Phase::closed) return;
    if (ready_.empty() && drops_.empty()) {
      commit_wanted_ = false;
      wake_.wait(lock);
    } else {
      const std::int64_t left = options_.sync_interval.count() - (clock_.now() - last_commit_);
      wake_.wait_for(lock, std::chrono::nanoseconds(std::max<std::int64_t>(left, 1)));
    }
  }
}

void KeptStore::commit_batch(Lock& lock) {
  std::map<Segment, std::vector<Object>> groups;
  for (Object& object : ready_) {
    if (object->dropped || object->state != State::ready) continue;
    object->state = State::committing;
    groups[object->segment].push_back(std::move(object));
  }
  std::vector<Object> drops = std::exchange(drops_, {}), forgotten = std::exchange(forgotten_, {});
  ready_.clear();
  ready_bytes_ = 0;
  commit_wanted_ = false;
  ++batches_begun_;
  lock.unlock();

  if (sync_all(groups)) {
    for (auto at = groups.begin(); at != groups.end();) {
      if (const auto written = write_headers(at->first, at->second); !written) {
        fail(at->first, written.error());
        at = groups.erase(at);
      } else {
        ++at;
      }
    }
    sync_all(groups);
    const std::vector<Object> unnamed = refuse_unnamed(groups);
    std::vector<Object> kept;
    for (auto& [segment, objects] : groups) kept.insert(kept.end(), objects.begin(), objects.end());
    carry_out(replaced_by(kept, drops), true);
    carry_out(replaced_by(kept, forgotten), true);
    const std::vector<Object> refused = refuse_beside_old(kept);
    directory_.tell_change();
    tell(kept);
    tell_refused(refused);
    tell_refused(unnamed);
  }
  const bool any = !drops.empty();
  carry_out(std::move(drops));
  cut_closed();
  remove_empty();
  if (any) directory_.tell_change();

  lock.lock();
  forgotten_.insert(forgotten_.end(), forgotten.begin(), forgotten.end());
  last_commit_ = clock_.now();
  ++batches_ended_;
  idle_.notify_all();
}

// Which of the drops, taken out of them, are of versions that were written anew. They go before the new ones are
// reported: were one of those damaged one day, the old bytes must not come back under its name.
std::vector<KeptStore::Object> KeptStore::replaced_by(const std::vector<Object>& kept, std::vector<Object>& drops) {
  if (drops.empty()) return {};
  std::set<std::pair<std::string_view, Version>> names;
  for (const Object& object : kept) names.emplace(object->history, object->head.version);
  const auto others = std::stable_partition(drops.begin(), drops.end(), [&](const Object& object) {
    return !names.contains({object->history, object->head.version});
  });
  std::vector<Object> out(std::make_move_iterator(others), std::make_move_iterator(drops.end()));
  drops.erase(others, drops.end());
  return out;
}

// Where the old one could not be dropped; but for one whose bytes could not be read: nothing of it would ever be given
// out.
std::vector<KeptStore::Object> KeptStore::refuse_beside_old(const std::vector<Object>& kept) {
  return refuse(kept, [&](const KeptObject& object) -> std::optional<Error> {
    const bool beside = std::ranges::any_of(undone_, [&](const Object& old) {
      return !old->forgotten && old->head.version == object.head.version && old->history == object.history;
    });
    if (!beside) return {};
    return Error{Errc::io_error, "what was written under this name before could not be dropped from " + where_};
  });
}

// Those of them that `why`, which is asked with the lock held, has a reason against. They are still to be told.
std::vector<KeptStore::Object> KeptStore::refuse(const std::vector<Object>& objects,
                                                 const std::function<std::optional<Error>(const KeptObject&)>& why) {
  std::vector<Object> refused;
  std::lock_guard lock(mutex_);
  for (const Object& object : objects) {
    if (object->dropped || object->state != State::committing) continue;
    const auto error = why(*object);
    if (!error) continue;
    object->state = State::failed;
    object->error = {error->code, name_of(*object) + ": " + error->message};
    refused.push_back(object);
  }
  return refused;
}

// Their marks go first. Others are being written to their segments: a sync that fails may have been theirs.
void KeptStore::tell_refused(const std::vector<Object>& refused) {
  std::map<Segment, std::vector<Object>> groups;
  for (const Object& object : refused) groups[object->segment].push_back(object);
  for (const auto& [segment, objects] : groups) {
    if (const auto synced = take_marks_back(segment->file, objects); !synced) {
      fail(segment, file_error(segments_files_.path(segment->number), "syncing it", synced.error));
    }
  }
  for (const Object& object : refused) kept_(object->id, object->error);
}

// Segments whose sync fails break, and are left out from then on. Whether there are others.
bool KeptStore::sync_all(std::map<Segment, std::vector<Object>>& groups) {
  for (auto at = groups.begin(); options_.synced && at != groups.end();) {
    const auto synced = files_.sync(at->first->file->fd());
    if (synced) {
      ++at;
      continue;
    }
    fail(at->first, file_error(segments_files_.path(at->first->number), "syncing it", synced.error));
    at = groups.erase(at);
  }
  return !groups.empty();
}

Result<void> KeptStore::write_headers(const Segment& segment, const std::vector<Object>& objects) {
  const std::int64_t now = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  for (auto first = objects.begin(); first != objects.end();) {
    std::size_t bytes = 0;
    auto last = first;
    while (last != objects.end() && (last == first || bytes + (*last)->head.header_bytes <= kSlab)) {
      bytes += (*last++)->head.header_bytes;
    }
    const std::optional<AlignedBytes> slab = AlignedBytes::make(bytes);
    if (!slab) return Error{Errc::out_of_memory, "there is no memory to write its header from"};
    std::vector<transfer::Piece> pieces;
    std::byte* at = slab->data();
    for (; first != last; ++first) {
      KeptObject& object = **first;
      RecordHead head = object.head;
      head.written_ns = now;
      const std::vector<std::byte> header = encode(head, *object.description, *object.sums);
      std::copy(header.begin(), header.end(), at);
      pieces.push_back({head.place.offset, at, header.size()});
      at += header.size();
      std::lock_guard lock(mutex_);
      object.head.written_ns =
          head.written_ns;  // all else of it is constant from begin() on, and read without the lock
      object.head.name_bytes = head.name_bytes;
      object.head.regions = head.regions;
      object.head.metadata_bytes = head.metadata_bytes;
      object.head.body = head.body;
      object.marked = true;
    }
    if (auto written = transfers_.move(transfer::Direction::write, segment->file, pieces); !written) return written;
  }
  return {};
}

// Of what is about to be told lost, for this process may be killed before it closes. If this fails too: once more when
// the store closes. Their bytes stay until then, for the caller may ask for them. How the sync of that went.
platform::SysResult KeptStore::take_marks_back(const SharedFile& file, const std::vector<Object>& marked) {
  if (!file || marked.empty() || !write_heads(file, marked) || !options_.synced) return platform::SysResult::of(0);
  return files_.sync(file->fd());
}

// For good. All in it that is not durable never will be, and its callers are told.
void KeptStore::fail(const Segment& segment, const Error& error) {
  std::vector<Object> lost, marked;
  SharedFile file;
  {
    std::lock_guard lock(mutex_);
    segment->broken = segment->closed = true;
    failed_ = failed_ || !segment->unnamed;  // one that is not there is missed by the index
    for (auto& [offset, object] : segment->records) {
      if (object->dropped || object->state == State::kept || object->state == State::failed) continue;
      object->state = State::failed;
      object->error = {error.code, name_of(*object) + ": " + error.message};
      lost.push_back(object);
      if (object->marked) marked.push_back(object);
    }
    file = segment->file;
  }
  static_cast<void>(take_marks_back(file, marked));
  for (const Object& object : lost) kept_(object->id, object->error);
}

void KeptStore::tell(const std::vector<Object>& objects) {
  std::vector<ObjectId> ids;
  {
    std::lock_guard lock(mutex_);
    for (const Object& object : objects) {
      if (object->state != State::committing) continue;  // its segment broke by a drop, and it was told
      object->state = State::kept;
      object->description = nullptr;  // it can be read
      if (!object->dropped) ids.push_back(object->id);
    }
  }
  for (const ObjectId id : ids) kept_(id, {});
}

}  // namespace ebb::storage
