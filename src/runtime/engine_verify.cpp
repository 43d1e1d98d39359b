// With verify="all" a checkpoint's bytes are hashed as they are given, region by region, and again as they are handed out,
// whatever tier they lay on meanwhile.
#include "runtime/engine.hpp"
#include "storage/record.hpp"

namespace ebb::runtime {

// Without the mutex.
std::shared_ptr<const Engine::Sums> Engine::sums_of(std::span<const Piece> pieces) const {
  if (!setup_.verify_all) return nullptr;
  auto sums = std::make_shared<Sums>();
  sums->reserve(pieces.size());
  for (const Piece& piece : pieces) sums->push_back(storage::checksum_of({piece.memory, piece.bytes}));
  return sums;
}

// As sums_of(), of a checkpoint that lies in one piece.
std::shared_ptr<const Engine::Sums> Engine::sums_of(const CheckpointInfo& info, const std::byte* data) const {
  std::vector<Piece> pieces;
  for (const RegionInfo& region : info.regions) {
    pieces.push_back({region.offset, region.bytes, data ? const_cast<std::byte*>(data) + region.offset : nullptr});
  }
  return sums_of(pieces);
}

// What a call was answered with, before its caller has it. The mutex is given up meanwhile. An ephemeral store has discarded
// what it handed out: the name tells from then on what became of it.
Result<void> Engine::check_handed_out(Lock& lock, Request& request, std::span<const Piece> pieces) {
  if (!request.sums || !request.info) return {};
  lock.unlock();
  const auto found = sums_of(pieces);
  lock.lock();
  for (std::size_t i = 0; i < found->size(); ++i) {
    if ((*found)[i] == (*request.sums)[i]) continue;
    const policy::TierIndex on = request.answer.found_on;
    const std::string where = on == policy::kNoTier ? "" : " (it lay on \"" + planner_->machine().tiers[static_cast<std::size_t>(on)].name + "\")";
    const Error error{Errc::damaged, key_text(request.history, request.version) + " is damaged: the bytes of region " +
                                         std::to_string(request.info->regions[i].id) + " are not those that were given" + where};
    if (!closed_ && !planner_->find(request.history, request.version)) lose(request.history, request.version, error);
    return error;
  }
  return {};
}

}  // namespace ebb::runtime
