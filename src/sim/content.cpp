#include "sim/content.hpp"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace ebb::sim {

using planner::Command;
using planner::Endpoint;
using planner::Place;

// --- Stamps ---------------------------------------------------------------------------------------------------------

void Stamps::split(Bytes at) {
  auto it = runs_.upper_bound(at);
  if (it == runs_.begin()) return;
  --it;
  if (it->first == at || it->second.end <= at) return;
  const Run tail{it->second.end, it->second.serial, it->second.first + (at - it->first)};
  it->second.end = at;
  runs_.emplace(at, tail);
}

void Stamps::erase(Bytes begin, Bytes length) {
  if (length == 0) return;
  split(begin);
  split(begin + length);
  runs_.erase(runs_.lower_bound(begin), runs_.lower_bound(begin + length));
}

void Stamps::put(Bytes begin, Bytes length, std::uint64_t serial, Bytes first) {
  if (length == 0) return;
  erase(begin, length);
  Bytes end = begin + length;
  if (const auto after = runs_.find(end);
      after != runs_.end() && after->second.serial == serial && after->second.first == first + length) {
    end = after->second.end;
    runs_.erase(after);
  }
  if (auto before = runs_.lower_bound(begin); before != runs_.begin()) {
    --before;
    if (before->second.end == begin && before->second.serial == serial &&
        before->second.first + (begin - before->first) == first) {
      before->second.end = end;
      return;
    }
  }
  runs_.emplace(begin, Run{end, serial, first});
}

std::uint64_t Stamps::whose(Bytes begin, Bytes length, Bytes first) const {
  std::uint64_t serial = 0;
  auto it = runs_.upper_bound(begin);
  if (it == runs_.begin()) return 0;
  --it;
  for (Bytes at = begin; at < begin + length; ++it) {
    if (it == runs_.end() || it->first > at || it->second.end <= at) return 0;
    if (it->second.first + (at - it->first) != first + (at - begin)) return 0;
    if (serial != 0 && it->second.serial != serial) return 0;
    serial = it->second.serial;
    at = it->second.end;
  }
  return serial;
}

// --- Content --------------------------------------------------------------------------------------------------------

Content::Content(const planner::Machine& machine) {
  for (const planner::TierSpec& tier : machine.tiers) {
    arenas_.push_back({{}, {}, (tier.capacity + tier.granule - 1) / tier.granule * tier.granule});
    file_.push_back(tier.medium == planner::Medium::file);
  }
  files_.resize(machine.tiers.size());
  for (const planner::NodeSpec& node : machine.nodes)
    rings_.push_back({{}, {}, 2 * machine.ring_slot * static_cast<Bytes>(node.staging)});
}

void Content::wrong(const std::string& what, const Command& c) {
  throw std::logic_error("content: command " + std::to_string(c.id) + " of checkpoint slot " +
                         std::to_string(c.checkpoint.slot) + " bytes " + std::to_string(c.offset) + "+" +
                         std::to_string(c.length) + ": " + what);
}

Content::Memory* Content::memory(const Place& place, planner::CheckpointRef ref, bool create) {
  if (place.at.kind == Endpoint::application) return nullptr;
  if (place.at.kind == Endpoint::ring) return &rings_.at(static_cast<std::size_t>(place.at.index));
  const auto t = static_cast<std::size_t>(place.at.index);
  if (!file_.at(t)) return &arenas_[t];
  if (create) return &files_[t].try_emplace(key(ref), Memory{{}, {}, planner::kNever}).first->second;
  const auto it = files_[t].find(key(ref));
  if (it == files_[t].end()) throw std::logic_error("content: a file object is read that does not exist");
  return &it->second;
}

void Content::use(Memory& memory, const Access& use, const char* what) {
  if (use.begin < planner::kAdopted && use.begin + use.length > memory.capacity)
    throw std::logic_error(std::string("content: beyond the end, ") + what);
  for (const Access& other : memory.uses)
    if ((use.writes || other.writes) && use.begin < other.begin + other.length && other.begin < use.begin + use.length)
      throw std::logic_error(std::string("content: two live uses overlap, one of them a write: ") + what);
  memory.uses.push_back(use);
}

void Content::end_use(Memory& memory, std::uint64_t id) {
  const auto it = std::find_if(memory.uses.begin(), memory.uses.end(), [&](const Access& u) { return u.id == id; });
  if (it == memory.uses.end()) throw std::logic_error("content: a use ends that never began");
  *it = memory.uses.back();
  memory.uses.pop_back();
}

void Content::begin_write(std::uint64_t request) { writes_.emplace(request, true); }

void Content::begin_restore(std::uint64_t request, std::uint64_t serial, Bytes bytes) {
  landings_.emplace(request, Landing{serial, bytes, {}});
}

void Content::end_restore(std::uint64_t request) {
  const Landing& landing = landings_.at(request);
  if (landing.bytes > 0 && landing.got.whose(0, landing.bytes, 0) != landing.serial)
    throw std::logic_error("content: restore " + std::to_string(request) + " was answered without all of its bytes");
}

void Content::forget(std::uint64_t request) {
  writes_.erase(request);
  landings_.erase(request);
}

std::uint64_t Content::source_serial(const Command& c) {
  if (c.from.at.kind == Endpoint::application) {
    if (!writes_.contains(c.request)) wrong("reads memory of a call that is over", c);
    return c.request;
  }
  const std::uint64_t serial = memory(c.from, c.checkpoint, false)->stamps.whose(c.from.offset, c.length, c.offset);
  if (serial == 0) wrong("its source does not hold these bytes", c);
  return serial;
}

bool Content::has_source(const Command& c) {
  return memory(c.from, c.checkpoint, false)->stamps.whose(c.from.offset, c.length, c.offset) != 0;
}

void Content::start(const Command& c) {
  if (c.length == 0 || c.offset + c.length > c.total) wrong("a range that is no part of its checkpoint", c);
  const std::uint64_t serial = source_serial(c);
  if (c.to.at.kind == Endpoint::application) {
    const auto it = landings_.find(c.request);
    if (it == landings_.end()) wrong("writes memory of a call that is over", c);
    if (it->second.serial != serial) wrong("restores what another write wrote", c);
  }
  moving_.emplace(c.id, serial);
  const std::uint64_t id = 2 * c.id;
  if (Memory* from = memory(c.from, c.checkpoint, false)) use(*from, {id, c.from.offset, c.length, false}, "source");
  if (Memory* to = memory(c.to, c.checkpoint, true)) {
    use(*to, {id, c.to.offset, c.length, true}, "target");
    to->stamps.erase(c.to.offset, c.length);
  }
}

void Content::finish(const Command& c) {
  const std::uint64_t serial = moving_.at(c.id), id = 2 * c.id;
  if (source_serial(c) != serial) wrong("its source changed on the way", c);
  moving_.erase(c.id);
  if (Memory* from = memory(c.from, c.checkpoint, false)) end_use(*from, id);
  if (Memory* to = memory(c.to, c.checkpoint, true)) {
    end_use(*to, id);
    to->stamps.put(c.to.offset, c.length, serial, c.offset);
  } else {
    const auto it = landings_.find(c.request);
    if (it == landings_.end()) wrong("wrote memory of a call that is over", c);
    it->second.got.put(c.to.offset, c.length, serial, c.offset);
  }
}

void Content::fail(const Command& c) {
  moving_.erase(c.id);
  if (Memory* from = memory(c.from, c.checkpoint, false)) end_use(*from, 2 * c.id);
  if (Memory* to = memory(c.to, c.checkpoint, true)) end_use(*to, 2 * c.id);
}

void Content::spoil(const Command& c) {
  if (const auto it = landings_.find(c.request); it != landings_.end()) it->second.got.erase(c.to.offset, c.length);
}

void Content::add_recovered(planner::CheckpointRef checkpoint, TierIndex tier, Bytes bytes, std::uint64_t serial) {
  memory({{Endpoint::tier, tier}, 0}, checkpoint, true)->stamps.put(0, bytes, serial, 0);
}

void Content::freed(const planner::Freed& f) {
  const auto t = static_cast<std::size_t>(f.tier);
  if (file_.at(t)) {
    const auto it = files_[t].find(key(f.checkpoint));
    if (it == files_[t].end()) return;  // space was allocated, and freed before any write
    if (!it->second.uses.empty()) throw std::logic_error("content: a file object in use was freed");
    files_[t].erase(it);
    return;
  }
  for (const Access& u : arenas_[t].uses)
    if (u.begin < f.offset + f.length && f.offset < u.begin + u.length)
      throw std::logic_error("content: memory in use was freed");
  arenas_[t].stamps.erase(f.offset, f.length);
}

void Content::extend(TierIndex tier, Bytes bytes) { arenas_.at(static_cast<std::size_t>(tier)).capacity += bytes; }

void Content::scribble(TierIndex tier, Bytes offset, Bytes bytes) {
  if (bytes > 0) arenas_.at(static_cast<std::size_t>(tier)).stamps.erase(offset, bytes);
  for (auto& [id, loan] : loans_)
    if (loan.place.at == Endpoint{Endpoint::tier, tier} && loan.place.offset < offset + bytes &&
        offset < loan.place.offset + loan.bytes)
      loan.lost = true;
}

void Content::lend(std::uint64_t loan, const Place& place, Bytes bytes, std::uint64_t serial, bool to_write) {
  Memory& arena = *memory(place, {}, true);
  if (bytes > 0) {
    if (!to_write && arena.stamps.whose(place.offset, bytes, 0) != serial)
      throw std::logic_error("content: borrowed memory does not hold the checkpoint");
    use(arena, {2 * loan + 1, place.offset, bytes, to_write}, "loan");
    if (to_write) arena.stamps.erase(place.offset, bytes);
  }
  loans_.emplace(loan, Loan{place, bytes, serial, to_write});
}

void Content::commit(std::uint64_t id) {
  const Loan loan = loans_.at(id);
  give_back(id);
  if (loan.lost) return;
  memory(loan.place, {}, true)->stamps.put(loan.place.offset, loan.bytes, loan.serial, 0);
}

void Content::give_back(std::uint64_t id) {
  const Loan loan = loans_.at(id);
  loans_.erase(id);
  if (loan.bytes == 0) return;
  Memory& arena = *memory(loan.place, {}, true);
  end_use(arena, 2 * id + 1);
  if (!loan.writes && !loan.lost && arena.stamps.whose(loan.place.offset, loan.bytes, 0) != loan.serial)
    throw std::logic_error("content: borrowed memory changed");
}

}  // namespace ebb::sim
