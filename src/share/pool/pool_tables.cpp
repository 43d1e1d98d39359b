#include "share/pool/pool_tables.hpp"

#include <limits>
#include <string>

namespace ebb::share {
namespace {

// Of the agent's line, after which agent it is.
constexpr std::uint64_t kWritten = 8, kSettled = 16, kBeside = 24, kLost = 32;

// Of a slot, in words.
constexpr std::uint64_t kGeneration = 0, kPid = 8, kStart = 16, kShare = 24, kRank = 32;

constexpr std::uint64_t kBegins = 0x100;  // of a slab's state

// A slab's word: the generation in the lower half, then 16 bits of slot, then the state. A free one is 0.
std::uint64_t word_of(const Slab& slab) {
  if (slab.state == SlabState::free) return 0;
  const std::uint64_t state = static_cast<std::uint64_t>(slab.state) | (slab.begins ? kBegins : 0);
  return state << 48 | std::uint64_t{slab.owner.slot} << 32 | slab.owner.generation;
}

}  // namespace

std::uint64_t PoolTables::agent() const noexcept { return word_(os::kBlock).load(std::memory_order_acquire); }

std::uint64_t PoolTables::take_over() noexcept { return word_(os::kBlock).fetch_add(1, std::memory_order_acq_rel) + 1; }

PoolProgress PoolTables::progress() const noexcept {
  const auto at = [this](std::uint64_t word) { return word_(os::kBlock + word).load(std::memory_order_acquire); };
  return {at(kWritten), at(kSettled), at(kBeside), at(kLost)};
}

void PoolTables::set_progress(const PoolProgress& progress) noexcept {
  word_(os::kBlock + kLost).store(progress.lost, std::memory_order_release);  // who sees it settled sees this too
  word_(os::kBlock + kWritten).store(progress.written, std::memory_order_release);
  word_(os::kBlock + kSettled).store(progress.settled, std::memory_order_release);
  word_(os::kBlock + kBeside).store(progress.beside, std::memory_order_release);
}

std::optional<PoolProcess> PoolTables::process(std::uint32_t slot) const noexcept {
  const std::uint64_t at = shape_.process_at(slot);
  const std::uint64_t generation = word_(at + kGeneration).load(std::memory_order_acquire);
  const std::uint64_t pid = word_(at + kPid).load(std::memory_order_acquire);
  const std::uint64_t start = word_(at + kStart).load(std::memory_order_acquire);
  const std::uint64_t share = word_(at + kShare).load(std::memory_order_acquire);
  const std::uint64_t rank = word_(at + kRank).load(std::memory_order_acquire);
  if (word_(at + kGeneration).load(std::memory_order_relaxed) != generation) return {};
  if (generation % 2 == 0 || generation > std::numeric_limits<std::uint32_t>::max()) return {};
  if (pid == 0 || pid > std::numeric_limits<pid_t>::max() || share > shape_.budget) return {};
  return PoolProcess{{slot, static_cast<std::uint32_t>(generation)}, {static_cast<pid_t>(pid), start}, share, rank};
}

Result<Member> PoolTables::next_member() const {
  for (std::uint32_t slot = 0; slot < shape_.processes; ++slot) {
    const std::uint64_t generation = word_(shape_.process_at(slot) + kGeneration).load(std::memory_order_acquire);
    if (generation % 2 == 0 && generation < std::numeric_limits<std::uint32_t>::max()) {
      return Member{slot, static_cast<std::uint32_t>(generation + 1)};
    }
  }
  return Error{Errc::no_space, "the node's pool has room for " + std::to_string(shape_.processes) +
                                   " processes, and as many have joined"};
}

void PoolTables::admit(const PoolProcess& process) noexcept {
  const std::uint64_t at = shape_.process_at(process.member.slot);
  word_(at + kPid).store(static_cast<std::uint64_t>(process.process.pid), std::memory_order_release);
  word_(at + kStart).store(process.process.start, std::memory_order_release);
  word_(at + kShare).store(process.share, std::memory_order_release);
  word_(at + kRank).store(process.rank, std::memory_order_release);
  word_(at + kGeneration).store(process.member.generation, std::memory_order_release);
}

void PoolTables::leave(Member member) noexcept {
  if (const auto now = process(member.slot); now && now->member == member)
    word_(shape_.process_at(member.slot) + kStart).store(0, std::memory_order_release);
}

bool PoolTables::has_left(Member member) const noexcept {
  const auto now = process(member.slot);
  return !now || now->member != member || now->process.start == 0;
}

bool PoolTables::dismiss(Member member) noexcept {
  std::uint64_t expected = member.generation;
  return member.slot < shape_.processes && member.generation % 2 == 1 &&
         word_(shape_.process_at(member.slot) + kGeneration)
             .compare_exchange_strong(expected, expected + 1, std::memory_order_acq_rel);
}

std::optional<Slab> PoolTables::slab(std::uint32_t index) const noexcept {
  const std::uint64_t found = word_(shape_.slab_word_at(index)).load(std::memory_order_acquire);
  if (found == 0) return Slab{};
  const std::uint64_t state = found >> 48 & ~kBegins;
  if (state != static_cast<std::uint64_t>(SlabState::lent) &&
      state != static_cast<std::uint64_t>(SlabState::recalled)) {
    return {};
  }
  const Slab slab{static_cast<SlabState>(state),
                  {static_cast<std::uint32_t>(found >> 32 & 0xffff), static_cast<std::uint32_t>(found)},
                  (found >> 48 & kBegins) != 0};
  if (slab.owner.slot >= shape_.processes) return {};
  const auto owner = process(slab.owner.slot);
  if (!owner || owner->member != slab.owner) return {};
  return slab;
}

bool PoolTables::change(std::uint32_t index, const Slab& from, const Slab& to) noexcept {
  std::uint64_t expected = word_of(from);
  return word_(shape_.slab_word_at(index)).compare_exchange_strong(expected, word_of(to), std::memory_order_acq_rel);
}

bool PoolTables::lend(std::uint32_t index, Member to, bool begins) noexcept {
  return change(index, {}, {SlabState::lent, to, begins});
}

bool PoolTables::recall(std::uint32_t index, Member from) noexcept {
  const auto now = slab(index);
  return now && now->state == SlabState::lent && now->owner == from &&
         change(index, *now, {SlabState::recalled, from, now->begins});
}

bool PoolTables::take_back(std::uint32_t index, Member from) noexcept {
  const auto now = slab(index);
  return now && now->state != SlabState::free && now->owner == from && change(index, *now, {});
}

}  // namespace ebb::share
