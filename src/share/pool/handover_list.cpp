#include "share/pool/handover_list.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>

namespace ebb::share {
namespace {

// Words of an entry: the sequence, what it says, and the checksum of both.
constexpr std::size_t kSummed = 11, kWords = 13;
static_assert(kWords * 8 <= kEntryBytes);
using Words = std::array<std::uint64_t, kWords>;

void put_sum(std::uint64_t* to, const storage::Checksum& sum) { std::memcpy(to, sum.data(), sum.size()); }

storage::Checksum sum_of(const Words& words) {
  return storage::checksum_of(std::as_bytes(std::span(words).first(kSummed)));
}

Words encode(const HandedOver& entry, Member of) {
  Words words{entry.sequence,
              of.generation,
              entry.object,
              entry.at,
              std::uint64_t{entry.part.slab} << 32 | entry.description.slab,
              entry.part.offset,
              entry.part.bytes,
              entry.description.offset,
              entry.description.bytes};
  put_sum(&words[9], entry.description_sum);
  put_sum(&words[kSummed], sum_of(words));
  return words;
}

std::optional<HandedOver> decode(const Words& words, Member of) {
  const storage::Checksum sum = sum_of(words);
  if (words[1] != of.generation || std::memcmp(&words[kSummed], sum.data(), sum.size()) != 0) return {};
  HandedOver entry;
  entry.sequence = words[0];
  entry.object = words[2];
  entry.at = words[3];
  entry.part = {static_cast<std::uint32_t>(words[4] >> 32), words[5], words[6]};
  entry.description = {static_cast<std::uint32_t>(words[4]), words[7], words[8]};
  std::memcpy(entry.description_sum.data(), &words[9], entry.description_sum.size());
  return entry;
}

bool fits(const SlabBytes& bytes, const PoolShape& shape) {
  return bytes.slab < shape.slabs() && bytes.offset <= shape.slab_bytes() &&
         bytes.bytes <= shape.slab_bytes() - bytes.offset;
}

}  // namespace

SharedWords::Word HandoverList::mark(std::uint64_t sequence) const noexcept {
  return word_(shape_.marks_at() + (sequence - 1) % shape_.list_entries * 8);
}

bool HandoverList::is_finished(std::uint64_t sequence) const noexcept {
  // A later entry of the same place may be finished since.
  const std::uint64_t found = mark(sequence).load(std::memory_order_acquire);
  return found >= sequence && (found - sequence) % shape_.list_entries == 0;
}

Result<std::uint64_t> HandoverList::add(const HandedOver& given) {
  if (!fits(given.part, shape_) || !fits(given.description, shape_)) {
    throw std::logic_error("a part of an object that is not in a slab");
  }
  HandedOver entry = given;
  entry.sequence = next_;
  if (next_ > shape_.list_entries && !is_finished(next_ - shape_.list_entries)) {
    return Error{Errc::no_space, "the pool's list is full: the node's agent has not finished any of its " +
                                     std::to_string(shape_.list_entries) + " entries"};
  }
  const Words words = encode(entry, of_);
  const std::uint64_t at = (next_ - 1) % shape_.list_entries * kEntryBytes;
  for (std::size_t i = 1; i < kWords; ++i) word_(at + 8 * i).store(words[i], std::memory_order_relaxed);
  word_(at).store(words[0], std::memory_order_release);
  return next_++;
}

void HandoverList::finish(std::uint64_t sequence) noexcept {
  mark(sequence).store(sequence, std::memory_order_release);
}

bool HandoverList::belongs(const SlabBytes& bytes) const {
  if (!fits(bytes, shape_)) return false;
  const auto slab = tables_.slab(bytes.slab);
  return slab && slab->state != SlabState::free && slab->owner == of_;
}

std::optional<HandedOver> HandoverList::entry(std::uint64_t place) const {
  const std::uint64_t at = place * kEntryBytes;
  Words words{word_(at).load(std::memory_order_acquire)};
  if (words[0] == 0 || (words[0] - 1) % shape_.list_entries != place) return {};
  for (std::size_t i = 1; i < kWords; ++i) words[i] = word_(at + 8 * i).load(std::memory_order_relaxed);
  auto found = decode(words, of_);
  if (!found || is_finished(found->sequence)) return {};
  if (found->part.bytes != 0 && !belongs(found->part)) return {};
  if (found->description.bytes != 0 && !belongs(found->description)) return {};
  return found;
}

std::vector<HandedOver> HandoverList::unfinished() const {
  // Whoever sees an entry sees those before it: the newest one first, then those up to it.
  std::uint64_t newest = 0;
  for (std::uint64_t place = 0; place < shape_.list_entries; ++place) {
    newest = std::max(newest, word_(place * kEntryBytes).load(std::memory_order_acquire));
  }
  std::vector<HandedOver> all;
  for (std::uint64_t place = 0; place < shape_.list_entries; ++place) {
    if (auto found = entry(place); found && found->sequence <= newest) all.push_back(*found);
  }
  std::ranges::sort(all, {}, &HandedOver::sequence);
  return all;
}

const HandedOver& WholeObject::last() const {
  return *std::ranges::find_if(parts, [](const HandedOver& part) { return part.description.bytes != 0; });
}

std::vector<WholeObject> whole_objects(std::span<const HandedOver> unfinished) {
  std::map<std::uint64_t, std::vector<HandedOver>> begun;
  std::vector<WholeObject> whole;
  for (const HandedOver& part : unfinished) {
    begun[part.object].push_back(part);
    if (part.description.bytes == 0) continue;
    std::vector<HandedOver> parts = std::move(begun[part.object]);
    begun.erase(part.object);
    std::ranges::stable_sort(parts, {}, &HandedOver::at);
    std::uint64_t end = 0;
    bool contiguous = true;
    for (const HandedOver& each : parts) {
      contiguous = contiguous && each.at == end && each.part.bytes <= UINT64_MAX - end;
      end += each.part.bytes;
    }
    if (contiguous) whole.push_back({std::move(parts)});
  }
  return whole;
}

Result<std::vector<std::byte>> read_description(const HandedOver& last, std::span<const std::byte> slab) {
  if (last.description.offset <= slab.size() && last.description.bytes <= slab.size() - last.description.offset) {
    const auto found = slab.subspan(last.description.offset, last.description.bytes);
    std::vector<std::byte> copy(found.begin(), found.end());
    if (storage::checksum_of(copy) == last.description_sum) return copy;
  }
  return Error{Errc::damaged, "the description of an object in the pool does not match its checksum"};
}

}  // namespace ebb::share
