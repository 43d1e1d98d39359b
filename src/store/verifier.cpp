#include "store/verifier.hpp"

#include <algorithm>

#include "options/defaults.hpp"
#include "os/memory_guard.hpp"
#include "storage/format/record.hpp"
#include "store/cache_memory.hpp"
#include "store/lifetime.hpp"
#include "store/persistence.hpp"

namespace ebb::store {
namespace {

// The first region whose sum is not that of its piece; how many there are: none. `found`: by piece.
std::size_t first_wrong(const CheckpointInfo& info, std::span<const PlacedRegion> pieces, const Record::Sums& found,
                        const Record::Sums& right) {
  std::size_t region = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i, ++region)
    if (region = region_index(info, pieces[i], region); found[i] != right[region]) return region;
  return info.regions.size();
}

}  // namespace

std::vector<PlacedRegion> pieces_in(const CheckpointInfo& info, std::byte* data) {
  std::vector<PlacedRegion> pieces;
  pieces.reserve(info.regions.size());
  for (const RegionInfo& region : info.regions) {
    pieces.push_back({region.offset, region.bytes, data ? data + region.offset : nullptr});
  }
  return pieces;
}

// --- checksums -----------------------------------------------------------------------------------------------------

Result<Verifier::Sums> Verifier::sums_of(const CheckpointInfo& info, std::span<const PlacedRegion> pieces) const {
  if (!setup_.verify_all) return Sums();
  auto sums = std::make_shared<Record::Sums>(pieces.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const auto sum = [&] { (*sums)[i] = storage::checksum_of({pieces[i].memory, pieces[i].bytes}); };
    if (!os::try_touch(sum)) return unusable_memory(info.regions[region_index(info, pieces[i])].id, true);
  }
  return Sums(std::move(sums));
}

Verifier::Sums Verifier::sums_of(const CheckpointInfo& info, const std::byte* data) const {
  if (!setup_.verify_all) return nullptr;
  return sums_of(info, pieces_in(info, const_cast<std::byte*>(data))).value();
}

Result<void> Verifier::check_handed_out(Locked& locked, CallRow& request, std::span<const PlacedRegion> pieces,
                                        bool mend) {
  if (!request.sums || !request.info) return {};
  locked.unlock();
  const auto found = sums_of(*request.info, pieces);
  locked.lock();
  if (!found) return prefixed(catalog_.key_text(locked, request.history, request.version), found.error());
  const auto i = first_wrong(*request.info, pieces, **found, *request.sums);
  if (i == request.info->regions.size()) return {};
  const planner::TierIndex on = request.answer.found_on;
  const std::string where =
      on == planner::kNoTier ? "" : " (it lay on \"" + port_.machine().tiers[static_cast<std::size_t>(on)].name + "\")";
  const std::string what = catalog_.key_text(locked, request.history, request.version) +
                           " is damaged: the bytes of region " + std::to_string(request.info->regions[i].id) +
                           " are not those that were given" + where;
  if (mend && take_from_file(locked, request, pieces)) {
    const auto log = setup_.log;
    locked.unlock();
    log.warning(what + "; it was restored from the files in " + setup_.directory.string());
    locked.lock();
    return {};
  }
  const Error error{Errc::damaged, what};
  if (!lifetime_.closed(locked) && !port_.planner(locked).find(request.history, request.version)) {
    catalog_.mark_lost(locked, request.history, request.version, error);
  }
  return error;
}

// The copy in a persistent store's files is held against its own checksums, and then against those of what was given.
// Only the caller looks at `pieces`.
bool Verifier::take_from_file(Locked& locked, const CallRow& request, std::span<const PlacedRegion> pieces) {
  if (!files_.persistent() || lifetime_.closed(locked)) return false;
  const Record* const record = catalog_.find(locked, request.history, request.version);
  const auto file = record == nullptr ? std::nullopt : record->durable_in();
  const storage::ObjectId object = file ? record->files[*file].object.id : 0;
  if (object == 0) return false;
  const InFlight reading(locked, lifetime_);
  bool writable = true;
  storage::PersistentStorage& storage = *files_.tiers()[*file]->persistent();
  const auto read = storage.read_payload(object, [&](std::uint64_t at, std::span<const std::byte> bytes) {
    for (const PlacedRegion& piece : pieces) {
      const std::uint64_t from = std::max<std::uint64_t>(at, piece.offset);
      const std::uint64_t to = std::min<std::uint64_t>(at + bytes.size(), piece.offset + piece.bytes);
      if (from >= to) continue;
      writable = writable && os::try_copy(piece.memory + (from - piece.offset), bytes.data() + (from - at), to - from);
    }
  });
  if (!read || !writable) return false;
  const auto sums = sums_of(*request.info, pieces);
  return sums && first_wrong(*request.info, pieces, **sums, *request.sums) == request.info->regions.size();
}

// --- digests -------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<Check>> Verifier::take_digest(const Hold& hold, const std::optional<device::StreamId>& stream) {
  auto check = std::make_shared<Check>();
  check->data = hold.data;
  check->bytes = static_cast<std::size_t>(hold.info->bytes);
  auto taken_at = place();
  if (!taken_at) return taken_at.error();
  check->place = std::move(*taken_at);
  const auto taken =
      streams_.device().digest(stream.value_or(device::kInlineStream), check->data, check->bytes, check->place.get());
  if (!taken) return taken.error();
  return check;
}

std::shared_ptr<const Check> Verifier::check_of(const Locked& locked, const planner::Command& command) const {
  if (command.from.at.kind != planner::Endpoint::tier || !port_.in_memory(command.from.at.index)) return nullptr;
  const Record* const record = catalog_.find(locked, command.checkpoint);
  if (record == nullptr || !record->check) return nullptr;
  return memory_.tiers().at(command.from) - command.offset == record->check->data ? record->check : nullptr;
}

Result<void> Verifier::compared(const Check& check, const DigestPlace& digest) {
  if (device::sum_of(digest.get()) == check.taken) return {};
  return Error{Errc::damaged,
               "its memory in the device cache was written to after it had been committed (its digest is not "
               "that of the commit)"};
}

Result<void> Verifier::compare(const Check& check, device::StreamId stream) {
  auto taken_at = place();
  if (!taken_at) return taken_at.error();
  device::Device& device = streams_.device();
  if (auto asked = device.digest(stream, check.data, check.bytes, taken_at->get()); !asked) return asked;
  if (stream != device::kInlineStream) {
    const auto event = device.create_event();
    Result<void> done = event ? device.record(*event, stream) : Result<void>(event.error());
    if (done)
      done = device.wait(*event);
    else
      streams_.finish_everything();
    if (event) device.destroy_event(*event);
    if (!done) return done;
  }
  return compared(check, *taken_at);
}

Result<void> Verifier::compare_source(CallRow& request, const Check& check, bool in_order) {
  if (in_order) return compare(check, *request.stream);
  if (streams_.host_memory()) return compare(check, device::kInlineStream);
  const Result<void> made = request.stream ? streams_.make(request.own) : streams_.come_after_legacy(request.own);
  return made ? compare(check, request.own.made->stream) : made;
}

Result<void> Verifier::check_lent(Locked& locked, CallRow& request) {
  const Record* const record = catalog_.find(locked, request.answer.checkpoint);
  if (record == nullptr || !record->check || request.bytes == 0) return {};
  const auto check = record->check;
  if (memory_.tiers().at(request.answer.place) != check->data) return {};
  streams_.take(locked, request.own);
  Result<void> result;
  {
    const InFlight comparing(locked, lifetime_);
    if (!streams_.host_memory()) result = streams_.come_after_legacy(request.own);
    if (result) result = compare(*check, request.own.made ? request.own.made->stream : device::kInlineStream);
  }
  if (result || result.error().code != Errc::damaged) return result;
  return Error{Errc::damaged,
               catalog_.key_text(locked, request.history, request.version) + " is damaged: " + result.error().message};
}

}  // namespace ebb::store
