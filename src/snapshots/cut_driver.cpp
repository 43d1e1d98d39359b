#include "snapshots/cut_driver.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "os/files.hpp"
#include "snapshots/memory_read.hpp"

namespace ebb::snapshots {

using platform::PageRange;
using platform::WatchEvent;
using policy::SnapshotTrouble;

namespace {

constexpr std::size_t kCommands = 4096;
constexpr std::uint32_t kSampled = 32;            // zones of a body
constexpr std::uint32_t kLongestGap = 256 << 10;  // bytes between two ranges that are armed in one call

}  // namespace

CutDriver::CutDriver(CutList& cuts, Setup setup) : cuts_(cuts), board_(*cuts.board()), setup_(std::move(setup)) {
  copies_.reserve(kCommands);
  drains_.reserve(kSlots);
  zones_in_.resize(std::size_t{kSlots} * setup_.slot_zones);
}

CutDriver::~CutDriver() = default;

Result<void> CutDriver::start() {
  auto buffer = OwnMemory::make(std::size_t{kSlots} * setup_.slot_zones * setup_.zone_bytes);
  if (!buffer) return buffer.error();
  buffer_ = std::move(*buffer);
  copier_ = std::thread([this] { run_copies(); });
  drainer_ = std::thread([this] { run_drains(); });
  return {};
}

void CutDriver::stop(const Error& why) {
  const auto error = std::make_shared<const Error>(why);
  {
    const std::lock_guard lock(board_.mutex);
    if (plan_) fail(SnapshotTrouble::watch_failed);
    failures_ += cuts_.fail(SnapshotTrouble::watch_failed, true);
    carry_out_all();
    cuts_.explain(error);
    disarm_all();
    stopping_ = true;
    copies_wake_.notify_all();
    drains_wake_.notify_all();
    cuts_.stop();
  }
  if (copier_.joinable()) copier_.join();
  if (drainer_.joinable()) drainer_.join();
  std::array<std::shared_ptr<WatchThread>, 2> watches;  // their threads end without the mutex
  const std::lock_guard lock(board_.mutex);
  watches_.swap(watches);
}

void CutDriver::begin(std::shared_ptr<const ProtectedMemory> memory, std::shared_ptr<WatchThread> faults,
                      std::shared_ptr<WatchThread> notes) {
  // Made before, and the old ones freed after, the mutex is held.
  const std::uint32_t zones = memory->host_zones();
  auto plan = std::make_unique<Plan>(
      policy::SnapshotSpec{.zones = zones,
                           .slots = kSlots,
                           .slot_zones = setup_.slot_zones,
                           .reserve = static_cast<std::uint32_t>(policy::kReserveOfStore * setup_.slot_zones),
                           .duplicate = setup_.duplicate,
                           .hints = setup_.hints,
                           .longest_wait = setup_.longest_wait});
  if (zones > 0) static_cast<void>(plan->on({.kind = Event::protect, .now = now(), .zone = 0, .count = zones}));
  std::vector<std::uint8_t> armed(memory->bodies().size());
  std::vector<Gone> gone(memory->bodies().size(), Gone::no);
  std::vector<std::uint32_t> to_arm;
  to_arm.reserve(zones);
  std::vector<Sample> sample(zones, Sample::no);
  std::vector<Command> commands;
  commands.reserve(zones + kCommands);
  std::array<std::shared_ptr<WatchThread>, 2> watches{std::move(faults), std::move(notes)};
  {
    std::unique_lock lock(board_.mutex);
    disarm_all();
    idle_wake_.wait(lock, [&] { return idle(); });
    if (plan_) {
      const policy::SnapshotCounters last = plan_->counters();
      before_.faults += last.faults;
      before_.duplicates += last.duplicates;
      before_.blocked += last.blocked;
      before_.gathered += last.gathered;
    }
    for (std::size_t b = 0; b < gone.size(); ++b)
      for (std::size_t before = 0; before < gone_.size(); ++before)
        if (memory_->bodies()[before].same_memory(memory->bodies()[b])) gone[b] = gone_[before];
    memory_.swap(memory);
    plan_.swap(plan);
    armed_.swap(armed);
    gone_.swap(gone);
    to_arm_.swap(to_arm);
    sample_.swap(sample);
    commands_.swap(commands);
    next_command_ = 0;
    wakeup_ = policy::kNever;
    watches_.swap(watches);
    // One that fails from now on tells it of this memory.
    for (const auto& watch : watches_)
      if (watch != nullptr && watch->failed()) std::ranges::fill(gone_, Gone::unseen);
  }
}

Result<bool> CutDriver::cut(const std::shared_ptr<Cut>& cut, bool full, std::span<const ProtectedMemory::Zones> touched,
                            std::span<const std::uint8_t> armed, std::optional<std::uint64_t> unless) {
  std::optional<GoneBody> gone;
  platform::WatchResult good;
  {
    const std::lock_guard lock(board_.mutex);
    if (unless && failures_ != *unless) return false;
    gone = gone_body();
    if (!gone) {
      for (const ProtectedMemory::Zones& zones : touched) touch_locked(zones);
      good = arm(full, armed);
      if (good && !(gone = copy_edges(*cut))) {
        ++snapshots_;
        no_mappings_ = false;
        cuts_.add(cut);
        on({.kind = full ? Event::full_cut : Event::cut});
        cut->index = plan_->last_cut();
      } else {
        fail(SnapshotTrouble::watch_failed);
      }
      carry_out_all();
    }
  }
  if (gone) return error_of(*gone);
  if (!good) return good.error();
  return true;
}

std::optional<CutDriver::GoneBody> CutDriver::copy_edges(Cut& cut) const {
  std::byte* to = cut.edges.data();
  for (const Part& part : memory_->parts()) {
    if (part.first) continue;
    if (!read_memory(to, part.memory, part.bytes)) return GoneBody{Gone::unreadable, part.region};
    to += part.bytes;
  }
  return {};
}

platform::WatchResult CutDriver::arm(bool full, std::span<const std::uint8_t> armed) {
  std::ranges::copy(armed, armed_.begin());
  if (watches_[0] == nullptr) return {};
  platform::WriteWatch& watch = watches_[0]->watch();
  const std::span<const Body> bodies = memory_->bodies();
  if (full) {
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      if (!armed_[b]) continue;
      if (auto good = watch.arm(bodies[b].pages()); !good) return good;
    }
    return {};
  }
  to_arm_.clear();
  plan_->for_each_dirty([&](std::uint32_t zone) { to_arm_.push_back(zone); });
  std::ranges::sort(to_arm_);
  const Body* body = bodies.data();
  const std::uint32_t gap = kLongestGap / setup_.zone_bytes;  // zones
  for (std::size_t i = 0; i < to_arm_.size();) {
    const std::uint32_t first = to_arm_[i];
    while (first >= body->first + body->zones) ++body;
    const std::uint32_t end = body->first + body->zones;
    // The zones between are armed already, and walking over them costs less than another call.
    std::uint32_t count = 0;
    for (; i < to_arm_.size() && to_arm_[i] < end && to_arm_[i] - first <= count + gap; ++i)
      count = to_arm_[i] - first + 1;
    if (!armed_[static_cast<std::size_t>(body - bodies.data())]) continue;
    if (auto good = watch.arm(memory_->range_of(first, count)); !good) return good;
  }
  return {};
}

// What a cut is owed was not written: it is left out.
void CutDriver::touch_locked(ProtectedMemory::Zones zones) {
  const auto free = [&](std::uint32_t zone) { return !policy::pending(plan_->state(zone)); };
  for (std::uint32_t zone = zones.first, end = zone + zones.count; zone < end;) {
    std::uint32_t count = 0;
    while (zone + count < end && free(zone + count)) ++count;
    if (count > 0) on({.kind = Event::touch, .zone = zone, .count = count});
    zone += count + 1;
  }
}

void CutDriver::touch(ProtectedMemory::Zones zones) {
  const std::lock_guard lock(board_.mutex);
  touch_locked(zones);
  carry_out_all();
}

std::shared_ptr<const ProtectedMemory> CutDriver::memory() {
  const std::lock_guard lock(board_.mutex);
  return memory_;
}

void CutDriver::restored(ProtectedMemory::Zones zones, bool arm) {
  const std::lock_guard lock(board_.mutex);
  if (gone_body()) return;
  if (arm && (watches_[0] == nullptr || !watches_[0]->watch().arm(memory_->range_of(zones.first, zones.count)))) return;
  on({.kind = Event::restored, .zone = zones.first, .count = zones.count});
  carry_out_all();
}

void CutDriver::disarm(const Body& body) {
  const std::lock_guard lock(board_.mutex);
  disarm(body.pages());
}

void CutDriver::sample(const Body& body) {
  const std::lock_guard lock(board_.mutex);
  if (watches_[0] == nullptr) return;
  const std::uint32_t step = (body.zones - 1) / kSampled + 1;
  for (std::uint32_t zone = body.first; zone < body.first + body.zones; zone += step) {
    const bool armed = static_cast<bool>(watches_[0]->watch().arm(memory_->range_of(zone)));
    sample_[zone] = armed ? Sample::unwritten : Sample::written;  // unseen counts as written: nothing leans on it
  }
}

double CutDriver::sampled(const Body& body) {
  const std::lock_guard lock(board_.mutex);
  std::uint32_t zones = 0, written = 0;
  for (std::uint32_t zone = body.first; zone < body.first + body.zones; ++zone) {
    zones += sample_[zone] != Sample::no;
    written += sample_[zone] == Sample::written;
    sample_[zone] = Sample::no;
  }
  disarm(body.pages());
  return zones == 0 ? 1 : static_cast<double>(written) / zones;
}

void CutDriver::dirty(std::span<std::uint8_t> out) {
  std::ranges::fill(out, std::uint8_t{0});
  const std::lock_guard lock(board_.mutex);
  if (!cuts_.empty())
    for (std::uint32_t zone = 0; zone < out.size(); ++zone)
      if (plan_->cut_of(zone) >= cuts_.first_index()) out[zone] = 2;
  plan_->for_each_dirty([&](std::uint32_t zone) { out[zone] = 1; });
}

// --- events and commands ---------------------------------------------------------------------------------------------

policy::Time CutDriver::now() const {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

void CutDriver::on(Event event) {
  event.now = now();
  for (policy::SnapshotCommands got = plan_->on(event);; got = plan_->on({.kind = Event::tick, .now = event.now})) {
    commands_.insert(commands_.end(), got.list.begin(), got.list.end());
    wakeup_ = got.wakeup;
    if (!got.more) break;
  }
}

void CutDriver::carry_out_all() {
  while (next_command_ < commands_.size()) {
    const Command command = commands_[next_command_++];
    carry_out(command);
  }
  commands_.clear();
  next_command_ = 0;
  if (wakeup_ < sleeps_until_) copies_wake_.notify_one();
  if (idle()) idle_wake_.notify_all();
}

void CutDriver::carry_out(const Command& command) {
  switch (command.kind) {
    case Command::wait:
    case Command::begun: break;
    case Command::answer: let_go(memory_->range_of(command.zone)); break;
    case Command::duplicate: end_copy(command, copy(command)); break;
    case Command::copy:
      copies_.push_back(command);
      copies_wake_.notify_one();
      break;
    case Command::drain:
      drains_.push_back(command);
      drains_wake_.notify_one();
      break;
    case Command::copied: {
      const std::shared_ptr<Cut> cut = cuts_.find(command.cut);
      if (!cut) break;
      cut->read = true;
      bool watched = false;
      for (std::size_t w = 0; w < watches_.size(); ++w) {
        if (watches_[w] == nullptr) continue;
        cut->tickets[w] = watches_[w]->ask();
        watched = true;
      }
      cut->copied = !watched && !cut->failed;
      board_.changed.notify_all();
      break;
    }
    case Command::drained:
      if (const std::shared_ptr<Cut> cut = cuts_.find(command.cut)) cut->drained = true;
      board_.changed.notify_all();
      break;
    case Command::failed:
      disarm_all();
      failures_ += cuts_.fail(command.trouble, false);
      board_.changed.notify_all();
      break;
  }
}

std::span<std::byte> CutDriver::place_of(std::uint32_t slot, std::uint32_t place) const {
  const std::size_t zone = setup_.zone_bytes;
  return {buffer_.data() + (std::size_t{slot} * setup_.slot_zones + place) * zone, zone};
}

bool CutDriver::copy(const Command& command) {
  const PageRange from = memory_->range_of(command.zone);
  const std::span<std::byte> to = place_of(command.slot, command.place);
  zones_in_[std::size_t{command.slot} * setup_.slot_zones + command.place] = command.zone;
  if (!read_memory(to.data(), from.begin, from.bytes)) return false;
  if (from.bytes < to.size()) std::memset(to.data() + from.bytes, 0, to.size() - from.bytes);
  return true;
}

void CutDriver::end_copy(const Command& command, bool copied) {
  if (!copied) {
    const Body& body = memory_->body_of(command.zone);
    Gone& gone = gone_[static_cast<std::size_t>(&body - memory_->bodies().data())];
    if (gone == Gone::no) gone = Gone::unreadable;
    fail(SnapshotTrouble::copy_failed);
  }
  on({.kind = Event::copied,
      .zone = command.zone,
      .slot = command.slot,
      .bytes = memory_->range_of(command.zone).bytes});
}

// The text of an error is for archived(), which may allocate.
void CutDriver::fail(SnapshotTrouble trouble) {
  const bool already = plan_->failed();  // then it says nothing, and memory may have been armed for the next cut
  on({.kind = Event::failed, .trouble = trouble});
  if (already) disarm_all();
}

// All of the range that is there still: the watch lets writers of the rest go on.
void CutDriver::disarm(PageRange range) {
  if (watches_[0] == nullptr || watches_[0]->watch().disarm(range) || range.bytes <= platform::kBlock) return;
  const std::size_t half = platform::round_up(range.bytes / 2);
  disarm({range.begin, half});
  disarm({range.begin + half, range.bytes - half});
}

void CutDriver::disarm_all() {
  for (const Body& body : memory_->bodies()) disarm(body.pages());
}

// Its writers go on, whatever becomes of the snapshots. A whole body takes no mappings to disarm.
void CutDriver::let_go(PageRange range) {
  if (watches_[0] == nullptr) return;
  const platform::WatchResult good = watches_[0]->watch().disarm(range);
  if (good.code() == Errc::out_of_memory) {
    no_mappings_ = true;
    fail(SnapshotTrouble::watch_failed);
  } else if (!good) {
    disarm(range);
  }
}

// --- what the watches tell -------------------------------------------------------------------------------------------

void CutDriver::told(const Result<WatchEvent>& event) {
  const std::lock_guard lock(board_.mutex);
  if (!plan_) return;
  if (!event) {
    std::ranges::fill(gone_, Gone::unseen);
    fail(SnapshotTrouble::watch_failed);
    failures_ += cuts_.fail(SnapshotTrouble::watch_failed, true);
  } else if (event->kind == WatchEvent::Kind::written) {
    if (const auto zone = memory_->zone_at(event->range.begin)) {
      if (sample_[*zone] == Sample::unwritten) sample_[*zone] = Sample::written;
      on({.kind = Event::fault, .zone = *zone});
    } else {
      let_go(event->range);
    }
  } else {
    const std::span<const Body> bodies = memory_->bodies();
    bool any = false;
    for (std::size_t b = 0; b < bodies.size(); ++b) {
      if (ProtectedMemory::zones_in(bodies[b], event->range, setup_.zone_bytes).count == 0) continue;
      any = true;
      gone_[b] = event->kind == WatchEvent::Kind::removed    ? Gone::removed
                 : event->kind == WatchEvent::Kind::unmapped ? Gone::unmapped
                                                             : Gone::remapped;
    }
    // What is copied does not need it.
    if (any && cuts_.any_uncopied()) {
      fail(SnapshotTrouble::watch_failed);
      failures_ += cuts_.fail(SnapshotTrouble::watch_failed, true);
    }
  }
  carry_out_all();
}

void CutDriver::confirmed() {
  const std::lock_guard lock(board_.mutex);
  cuts_.confirm([&](const Cut& cut) {
    for (std::size_t w = 0; w < watches_.size(); ++w)
      if (watches_[w] != nullptr && watches_[w]->confirmed() < cut.tickets[w]) return false;
    return true;
  });
  board_.changed.notify_all();
}

std::optional<Error> CutDriver::lost() {
  std::optional<GoneBody> gone;
  {
    const std::lock_guard lock(board_.mutex);
    gone = gone_body();
  }
  return gone ? std::optional(error_of(*gone)) : std::nullopt;
}

std::optional<CutDriver::GoneBody> CutDriver::gone_body() const {
  for (std::size_t b = 0; b < gone_.size(); ++b)
    if (gone_[b] != Gone::no) return GoneBody{gone_[b], memory_->bodies()[b].region};
  return {};
}

Error CutDriver::error_of(const GoneBody& gone) {
  const char* what = gone.how == Gone::removed    ? " was discarded"
                     : gone.how == Gone::unmapped ? " was unmapped"
                     : gone.how == Gone::remapped ? " was moved"
                     : gone.how == Gone::unseen   ? " can no longer be watched"
                                                  : " could not be read";
  return {Errc::lost, "the memory of region " + std::to_string(gone.region) + what +
                          " while it was protected: unprotect it to go on"};
}

std::optional<Error> CutDriver::failure_of(const Cut& cut) {
  bool no_mappings = false;
  {
    const std::lock_guard lock(board_.mutex);
    if (!cut.failed) return {};
    if (cut.error) return *cut.error;
    no_mappings = no_mappings_;
  }
  const std::string failed = "the snapshot of version " + std::to_string(cut.version) + " failed: ";
  if (cut.trouble == SnapshotTrouble::waited_too_long)
    return Error{Errc::timed_out, failed + "a write to protected memory waited too long for the buffer"};
  if (auto gone = lost()) return gone;
  if (no_mappings)
    return Error{Errc::out_of_memory, failed +
                                          "a write to protected memory would have taken more mappings than the kernel "
                                          "allows (vm.max_map_count)"};
  return Error{Errc::lost, failed + name_of(cut.trouble)};
}

void CutDriver::lose_track() {
  const std::lock_guard lock(board_.mutex);
  fail(SnapshotTrouble::watch_failed);
  carry_out_all();
}

void CutDriver::is_gone(const Body& body) {
  const std::lock_guard lock(board_.mutex);
  gone_[static_cast<std::size_t>(&body - memory_->bodies().data())] = Gone::unreadable;
  fail(SnapshotTrouble::copy_failed);
  carry_out_all();
}

// --- threads ---------------------------------------------------------------------------------------------------------

bool CutDriver::idle() const {
  return copies_.empty() && drains_.empty() && !copying_ && !draining_ && (!plan_ || !plan_->in_flight());
}

void CutDriver::run_copies() {
  std::unique_lock lock(board_.mutex);
  for (;;) {
    while (copies_.empty()) {
      if (stopping_) return;
      sleeps_until_ = wakeup_;
      if (wakeup_ == policy::kNever) {
        copies_wake_.wait(lock);
      } else {
        const std::chrono::steady_clock::time_point until{std::chrono::nanoseconds(wakeup_)};
        copies_wake_.wait_until(lock, until);
      }
      sleeps_until_ = 0;
      if (plan_ && wakeup_ <= now()) {
        on({.kind = Event::tick});
        carry_out_all();
      }
    }
    const Command command = copies_.front();
    copies_.erase(copies_.begin());
    copying_ = true;
    lock.unlock();
    const bool copied = copy(command);
    lock.lock();
    copying_ = false;
    end_copy(command, copied);
    carry_out_all();
  }
}

void CutDriver::run_drains() {
  std::unique_lock lock(board_.mutex);
  for (;;) {
    drains_wake_.wait(lock, [&] { return stopping_ || !drains_.empty(); });
    if (drains_.empty()) return;
    const Command command = drains_.front();
    drains_.erase(drains_.begin());
    std::shared_ptr<Cut> cut = cuts_.find(command.cut);
    const bool wanted = cut && !cut->failed;
    draining_ = true;
    lock.unlock();
    std::shared_ptr<const Error> error;
    if (wanted) {
      const std::size_t zone = setup_.zone_bytes;
      try {
        const auto stored =
            setup_.store(*cut, {place_of(command.slot, 0).data(), command.count * zone},
                         std::span(zones_in_).subspan(std::size_t{command.slot} * setup_.slot_zones, command.count));
        if (!stored) error = std::make_shared<const Error>(stored.error());
      } catch (const std::bad_alloc&) {
        error = no_memory_;
      }
    }
    cut.reset();
    lock.lock();
    draining_ = false;
    if (error) fail(SnapshotTrouble::drain_failed);
    on({.kind = Event::drained, .slot = command.slot});
    carry_out_all();
    if (error) cuts_.explain(error);
    lock.unlock();
    error.reset();
    lock.lock();
  }
}

// --- archiving -------------------------------------------------------------------------------------------------------

void CutDriver::archived(const std::shared_ptr<Cut>& cut, Result<Future> map) {
  std::shared_ptr<const Error> error;
  if (!map) error = std::make_shared<const Error>(map.error());
  std::shared_ptr<Cut> mine;  // freed without the mutex
  const std::lock_guard lock(board_.mutex);
  if (map) {
    cut->future = *map;
  } else {
    if (!cut->failed) {  // the later ones lean on it, and so would the next
      failures_ += cuts_.fail_all(SnapshotTrouble::drain_failed);
      cuts_.explain(error);
      fail(SnapshotTrouble::drain_failed);
      carry_out_all();
    }
    if (!cut->error) cut->error = error;
  }
  cut->ended = true;
  mine = cuts_.take_first();
  board_.changed.notify_all();
}

void CutDriver::ask_watches() {
  std::unique_lock lock(board_.mutex);
  for (const std::shared_ptr<WatchThread>& watch : watches_) {
    if (watch == nullptr) continue;
    const std::uint64_t ticket = watch->ask();
    board_.changed.wait(lock, [&] { return watch->confirmed() >= ticket; });
  }
}

SnapshotStats CutDriver::stats() {
  const std::lock_guard lock(board_.mutex);
  SnapshotStats out;
  out.snapshots = snapshots_;
  out.failures = failures_;
  const policy::SnapshotCounters now = plan_ ? plan_->counters() : policy::SnapshotCounters{};
  out.zones = memory_->zones() + memory_->edges();
  out.dirty = now.dirty;
  out.faults = before_.faults + now.faults;
  out.duplicates = before_.duplicates + now.duplicates;
  out.blocked_s = static_cast<double>(before_.blocked + now.blocked) * 1e-9;
  out.bytes_gathered = before_.gathered + now.gathered;
  return out;
}

}  // namespace ebb::snapshots
