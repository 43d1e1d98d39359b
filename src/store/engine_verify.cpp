// With verify="all" a checkpoint's bytes are hashed as they are given, region by region, and again as they are handed
// out, whatever tier they lay on meanwhile.
#include <algorithm>
#include <cstring>

#include "storage/format/record.hpp"
#include "store/engine.hpp"

namespace ebb::runtime {

// Without the mutex.
std::shared_ptr<const Record::Sums> Engine::sums_of(std::span<const Piece> pieces) const {
  if (!setup_.verify_all) return nullptr;
  auto sums = std::make_shared<Record::Sums>();
  sums->reserve(pieces.size());
  for (const Piece& piece : pieces) sums->push_back(storage::checksum_of({piece.memory, piece.bytes}));
  return sums;
}

// As sums_of(), of a checkpoint that lies in one piece.
std::shared_ptr<const Record::Sums> Engine::sums_of(const CheckpointInfo& info, const std::byte* data) const {
  std::vector<Piece> pieces;
  for (const RegionInfo& region : info.regions) {
    pieces.push_back({region.offset, region.bytes, data ? const_cast<std::byte*>(data) + region.offset : nullptr});
  }
  return sums_of(pieces);
}

// What a call was answered with, before its caller has it. The mutex is given up meanwhile. `mend`: where a cache gave
// wrong bytes, those in the file are put into `pieces`. An ephemeral store has discarded what it handed out: the name
// tells from then on what became of it.
Result<void> Engine::check_handed_out(Locked& locked, Request& request, std::span<const Piece> pieces, bool mend) {
  if (!request.sums || !request.info) return {};
  locked.unlock();
  const auto found = sums_of(pieces);
  locked.lock();
  const auto wrong = std::ranges::mismatch(*found, *request.sums).in1;
  if (wrong == found->end()) return {};
  const auto i = static_cast<std::size_t>(wrong - found->begin());
  const policy::TierIndex on = request.answer.found_on;
  const std::string where =
      on == policy::kNoTier ? "" : " (it lay on \"" + port_.machine().tiers[static_cast<std::size_t>(on)].name + "\")";
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
  if (!lifetime_.closed(locked) && !port_.planner(locked).find(request.history, request.version))
    catalog_.mark_lost(locked, request.history, request.version, error);
  return error;
}

// The copy in a kept store's files is held against its own checksums, and then against those of what was given. Nobody
// but the caller looks at `pieces`. The mutex is given up meanwhile.
bool Engine::take_from_file(Locked& locked, const Request& request, std::span<const Piece> pieces) {
  if (machinery_->kept == nullptr || lifetime_.closed(locked)) return false;
  const Record* const record = catalog_.find(locked, request.history, request.version);
  if (record == nullptr || record->durability != Record::Durability::durable) return false;
  const storage::ObjectId object = record->object.id;
  if (object == 0) return false;
  const InFlight reading(locked, lifetime_);
  const auto read = machinery_->kept->read_payload(object, [&](std::uint64_t at, std::span<const std::byte> bytes) {
    for (const Piece& piece : pieces) {
      const std::uint64_t from = std::max<std::uint64_t>(at, piece.offset);
      const std::uint64_t to = std::min<std::uint64_t>(at + bytes.size(), piece.offset + piece.bytes);
      if (from < to) std::memcpy(piece.memory + (from - piece.offset), bytes.data() + (from - at), to - from);
    }
  });
  return read && *sums_of(pieces) == *request.sums;
}

}  // namespace ebb::runtime
