#include "share/member/handover.hpp"

#include <algorithm>
#include <cstring>

#include "share/pool/description_text.hpp"

namespace ebb::share {

SlabBytes Handover::place(std::uint64_t at, std::uint64_t bytes) const {
  return {static_cast<std::uint32_t>(at / member_.slab_bytes()), at % member_.slab_bytes(), bytes};
}

Result<void> Handover::add(storage::ObjectId object, const storage::Description& description,
                           std::vector<SlabRange> parts) {
  const std::vector<std::byte> text = encode_description(description);
  const auto gap = std::ranges::find_if(gaps_, [&](const auto& one) { return one.second >= text.size(); });
  if (gap == gaps_.end()) {
    return Error{Errc::no_space, "a description of " + std::to_string(text.size()) +
                                     " bytes does not fit in a slab of " + std::to_string(member_.slab_bytes()) +
                                     " bytes of the node's pool: expected a "
                                     "larger node_chunk, or fewer regions and metadata"};
  }
  // Split at the borders of slabs, in ascending order.
  std::ranges::sort(parts, {}, &SlabRange::offset);
  std::vector<HandedOver> entries;
  for (const SlabRange& part : parts) {
    for (std::uint64_t done = 0; done < part.bytes;) {
      const std::uint64_t at = part.at + done;
      const std::uint64_t bytes = std::min(part.bytes - done, member_.slab_bytes() - at % member_.slab_bytes());
      HandedOver* const last = entries.empty() ? nullptr : &entries.back();
      const SlabBytes where = place(at, bytes);
      if (last && last->part.slab == where.slab && last->part.offset + last->part.bytes == where.offset) {
        last->part.bytes += bytes;
      } else {
        entries.push_back({.object = object, .at = part.offset + done, .part = where});
      }
      done += bytes;
    }
  }
  if (entries.empty()) entries.push_back({.object = object});
  HandoverList& list = member_.list();
  const std::uint64_t places = list.places();
  const std::uint64_t first = added_ + 1, last = added_ + entries.size();
  for (std::uint64_t sequence = first; sequence <= last; ++sequence) {
    if (entries.size() > places || (sequence > places && !list.is_finished(sequence - places))) {
      return Error{Errc::no_space, "the pool's list of " + std::to_string(places) + " entries is full"};
    }
  }
  const std::uint64_t at = gap->first, left = gap->second - text.size();
  gaps_.erase(gap);
  if (left > 0) gaps_[at + text.size()] = left;
  std::memcpy(member_.memory() + at, text.data(), text.size());
  entries.back().description = place(begin() + at, text.size());
  entries.back().description_sum = storage::checksum_of(text);
  Entered& entered = entered_[object];
  entered = {at, text.size(), {}};
  for (const HandedOver& entry : entries) {
    entered.sequences.push_back(list.add(entry).value());
    ++added_;
  }
  return {};
}

bool Handover::finish_marked(storage::ObjectId object) {
  const auto found = entered_.find(object);
  if (found == entered_.end()) return false;
  HandoverList& list = member_.list();
  const auto& sequences = found->second.sequences;
  if (std::ranges::none_of(sequences, [&](std::uint64_t one) { return list.is_finished(one); })) return false;
  for (const std::uint64_t one : sequences)
    if (!list.is_finished(one)) list.finish(one);
  return true;
}

void Handover::withdraw(storage::ObjectId object) {
  const auto found = entered_.find(object);
  if (found == entered_.end() || !member_.is_member()) return;
  for (const std::uint64_t one : found->second.sequences) member_.list().finish(one);
}

void Handover::finish(storage::ObjectId object) {
  const auto found = entered_.find(object);
  if (found == entered_.end()) return;
  auto [at, bytes, sequences] = found->second;
  entered_.erase(found);
  const auto next = gaps_.lower_bound(at);
  if (next != gaps_.end() && next->first == at + bytes) {
    bytes += next->second;
    gaps_.erase(next);
  }
  const auto before = gaps_.lower_bound(at);
  if (before != gaps_.begin() && std::prev(before)->first + std::prev(before)->second == at) {
    std::prev(before)->second += bytes;
  } else {
    gaps_[at] = bytes;
  }
}

}  // namespace ebb::share
