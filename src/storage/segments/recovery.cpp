#include "storage/segments/recovery.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ebb::storage {

Recovery::Recovery(StoreContext& context, ObjectTable& table)
    : context_(context), table_(table), mark_(context.files, context.directory.path()) {}

Result<Recovery::Opened> Recovery::open() {
  // Records of a killed process may not be synced, and from now on they count as persistent: so the scan syncs them. If
  // there is an index, the store was closed, and everything was synced.
  const PersistentOptions& options = context_.options;
  const std::lock_guard turn(refresh_mutex_);
  if (options.readonly) static_cast<void>(mark_.changed());  // before the scan, so that no later change is missed
  auto scanned = scan_store(context_.files, context_.directory.path(), true, options.synced && !options.readonly);
  if (!scanned) return scanned.error();
  {
    const TableLocked lock = table_.lock();
    table_.next(lock).segment = scanned->next_segment;
    table_.next(lock).sequence = scanned->next_sequence;
  }
  std::size_t many = 0;
  for (ScannedSegment& segment : scanned->segments) {
    leave_others_out(segment);
    many += segment.records.size();
  }
  {
    const TableLocked lock = table_.lock();
    table_.reserve(lock, many);
  }
  Objects all;
  all.reserve(many);
  // An index lists what counts, and nothing that was dropped: only a later look needs to know what there is.
  for (ScannedSegment& segment : scanned->segments) {
    if (!scanned->from_index) newest_.add(segment);
    register_segment(segment, scanned->damages, all);
    if (scanned->from_index) segment.records = {};  // of which nothing more is asked
  }
  knows_index_ = !scanned->from_index;
  Opened out;
  out.found = select_newest(std::move(all), out.outdated);
  out.scanned = std::move(*scanned);
  if (!options.readonly) newest_ = {};
  return out;
}

// What the index listed, for the first look again: most readers need no more than the index.
void Recovery::add_index() {
  if (std::exchange(knows_index_, true)) return;
  Objects all;
  {
    const TableLocked lock = table_.lock();
    for (const auto& [id, object] : table_.objects(lock)) all.push_back(object);
  }
  for (const SharedObject& object : all) newest_.add(object->record_head(), object->history);  // both are constant
}

// A reader has nothing to do with records of other histories than its own.
void Recovery::leave_others_out(ScannedSegment& segment) const {
  if (!context_.options.readonly) return;
  std::erase_if(segment.records, [prefix = std::string_view(context_.options.prefix)](const ScannedRecord& record) {
    return !record.history.starts_with(prefix);
  });
}

// Adds the new objects of a scanned segment.
void Recovery::register_segment(const ScannedSegment& scanned, const std::vector<Damage>& damages, Objects& added) {
  // A record committed later may precede those already there.
  std::uint64_t& seen = scan_from_[scanned.segment];
  seen = scanned.gaps.empty() ? scanned.end : scanned.gaps.front().offset;
  for (const ScannedSegment::Stretch& place : scanned.damaged) seen = std::min(seen, place.offset);

  const TableLocked lock = table_.lock();
  SharedSegment& segment = table_.segments(lock)[scanned.segment];
  if (!segment) {
    segment = std::make_shared<SegmentState>();
    segment->store = context_.directory.head().store;
    segment->number = scanned.segment;
    segment->closed = true;
  }
  segment->bytes = scanned.bytes;
  segment->end = std::max(segment->end, scanned.end);
  segment->sequence = std::max(segment->sequence, scanned.last_sequence);
  for (const Damage& damage : damages) {  // some is inside a record
    segment->suspect = segment->suspect || damage.file == context_.segment_files.path(scanned.segment);
  }
  for (const Drop& drop : scanned.drops) {  // of records that an earlier look has found
    if (const SharedObject found = segment->records.find(drop.offset)) found->dropped = true;
  }
  for (const ScannedRecord& record : scanned.records) {
    const auto object = std::make_shared<StoredObject>();
    if (!segment->records.add(record.head.place.offset, object)) continue;
    object->state = ObjectState::persistent;
    object->may_be_on_disk = true;
    object->id = table_.next(lock).recovered++;
    object->history = record.history;
    object->head = StoredHead(record.head);
    object->segment = segment;
    table_.add(lock, object);
    added.push_back(object);
  }
}

// Ascending by name and version. The other objects are removed from the table.
std::vector<Found> Recovery::select_newest(Objects objects, Objects& outdated) {
  const auto name = [](const SharedObject& one) { return std::tie(one->history, one->head.version); };
  const auto before = [&](const SharedObject& a, const SharedObject& b) {
    if (name(a) != name(b)) return name(a) < name(b);
    return a->head.sequence > b->head.sequence;
  };
  if (!std::ranges::is_sorted(objects, before)) std::ranges::sort(objects, before);  // mostly they are
  std::vector<Found> out;
  out.reserve(objects.size());
  const SharedObject* last = nullptr;
  for (const SharedObject& one : objects) {
    if ((last && name(*last) == name(one)) || !newest_.is_newest(one->record_head(), one->history)) {
      outdated.push_back(table_.remove(table_.lock(), one->id));
    } else {
      out.push_back(
          {one->id, one->history, one->head.version, one->head.payload_bytes, one->head.sequence, one->head.body});
      last = &one;
    }
  }
  return out;
}

std::vector<Found> Recovery::refresh() {
  if (!context_.options.readonly) return {};
  const std::lock_guard turn(refresh_mutex_);
  if (!mark_.changed()) return {};
  ++changes_seen_;
  add_index();
  const auto numbers = list_segments(context_.files, context_.directory.path());
  if (!numbers) {
    mark_.forget();
    return {};
  }
  Objects all;
  for (const std::uint64_t number : *numbers) {
    const auto seen = scan_from_.find(number);
    std::vector<Damage> damages;  // perhaps a record being written: it is scanned again
    auto segment = scan_segment(context_.files, context_.directory.path(), context_.directory.head().store, number,
                                seen == scan_from_.end() ? 0 : seen->second, damages);
    if (!segment) {  // retried next time
      mark_.forget();
      continue;
    }
    leave_others_out(*segment);
    newest_.add(*segment);
    register_segment(*segment, damages, all);
  }
  Objects outdated;
  return select_newest(std::move(all), outdated);
}

}  // namespace ebb::storage
