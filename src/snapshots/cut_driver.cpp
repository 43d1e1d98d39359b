#include "snapshots/cut_driver.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/start_thread.hpp"
#include "os/files.hpp"
#include "snapshots/memory_read.hpp"

namespace ebb::snapshots {

using os::PageRange;
using os::WatchEvent;
using planner::SnapshotTrouble;

namespace {

constexpr std::size_t kCommands = 4096;

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
  copier_ = base::thread([this] { run_copies(); });
  drainer_ = base::thread([this] { run_drains(); });
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
    watched_.disarm_all();
    stopping_ = true;
    copies_wake_.notify_all();
    drains_wake_.notify_all();
    cuts_.stop();
  }
  if (copier_.joinable()) copier_.join();
  if (drainer_.joinable()) drainer_.join();
  WatchedMemory::Watches watches;  // their threads end without the mutex
  const std::lock_guard lock(board_.mutex);
  watches = watched_.take_watches();
}

void CutDriver::begin(std::shared_ptr<const ProtectedMemory> memory, std::shared_ptr<WatchThread> faults,
                      std::shared_ptr<WatchThread> notes) {
  // The new ones are made before the mutex is taken, and the old ones freed after it is released.
  const std::uint32_t zones = memory->host_zones();
  auto plan = std::make_unique<Plan>(
      planner::SnapshotSpec{.zones = zones,
                            .slots = kSlots,
                            .slot_zones = setup_.slot_zones,
                            .reserve = static_cast<std::uint32_t>(planner::kReserveOfStore * setup_.slot_zones),
                            .duplicate = setup_.duplicate,
                            .hints = setup_.hints,
                            .longest_wait = setup_.longest_wait});
  if (zones > 0) static_cast<void>(plan->on({.kind = Event::protect, .now = now(), .zone = 0, .count = zones}));
  std::vector<Command> commands;
  commands.reserve(zones + kCommands);
  const bool faults_end = faults == nullptr;
  WatchedMemory watched(std::move(memory), {std::move(faults), std::move(notes)});
  std::unique_lock lock(board_.mutex);
  if (!faults_end) watched_.disarm_all();  // else the end of the watch does so, in one call
  idle_wake_.wait(lock, [&] { return idle(); });
  if (plan_) {
    const planner::SnapshotCounters last = plan_->counters();
    before_.faults += last.faults;
    before_.duplicates += last.duplicates;
    before_.blocked += last.blocked;
    before_.gathered += last.gathered;
  }
  watched.take_over_lost(watched_);
  std::swap(watched_, watched);
  plan_.swap(plan);
  commands_.swap(commands);
  next_command_ = 0;
  wakeup_ = planner::kNever;
}

Result<bool> CutDriver::cut(const std::shared_ptr<Cut>& cut, bool full, std::span<const ProtectedMemory::Zones> touched,
                            std::span<const std::uint8_t> armed, std::optional<std::uint64_t> unless) {
  std::optional<LostBody> lost;
  os::WatchResult good;
  {
    const std::lock_guard lock(board_.mutex);
    if (unless && failures_ != *unless) return false;
    lost = watched_.lost();
    if (!lost) {
      for (const ProtectedMemory::Zones& zones : touched) touch_locked(zones);
      good = watched_.arm(*plan_, full, armed);
      if (good && !(lost = copy_edges(*cut))) {
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
  if (lost) return lost->error();
  if (!good) return good.error();
  return true;
}

std::optional<LostBody> CutDriver::copy_edges(Cut& cut) const {
  std::byte* to = cut.edges.data();
  for (const MapRegion& part : memory().parts()) {
    if (!part.is_edge()) continue;
    if (!read_memory(to, part.memory, part.bytes)) return LostBody{LostBody::How::unreadable, part.region};
    to += part.bytes;
  }
  return {};
}

// Leaves out the zones that a cut has yet to copy: until then, nothing can write to them.
void CutDriver::touch_locked(ProtectedMemory::Zones zones) {
  const auto free = [&](std::uint32_t zone) { return !planner::pending(plan_->state(zone)); };
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

std::shared_ptr<const ProtectedMemory> CutDriver::protected_memory() {
  const std::lock_guard lock(board_.mutex);
  return watched_.memory();
}

void CutDriver::restored(ProtectedMemory::Zones zones, bool arm) {
  const std::lock_guard lock(board_.mutex);
  if (watched_.lost() || (arm && !watched_.arm(zones))) return;
  on({.kind = Event::restored, .zone = zones.first, .count = zones.count});
  carry_out_all();
}

void CutDriver::disarm(const Body& body) {
  const std::lock_guard lock(board_.mutex);
  watched_.disarm(body.pages());
}

void CutDriver::sample(const Body& body) {
  const std::lock_guard lock(board_.mutex);
  watched_.sample(body);
}

double CutDriver::sampled(const Body& body) {
  const std::lock_guard lock(board_.mutex);
  return watched_.sampled(body);
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

planner::Time CutDriver::now() const {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

void CutDriver::on(Event event) {
  event.now = now();
  for (planner::SnapshotCommands got = plan_->on(event);; got = plan_->on({.kind = Event::tick, .now = event.now})) {
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
    case Command::answer: answer(memory().range_of(command.zone)); break;
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
      cut->tickets = watched_.ask();
      confirm();
      board_.changed.notify_all();
      break;
    }
    case Command::drained:
      if (const std::shared_ptr<Cut> cut = cuts_.find(command.cut)) cut->drained = true;
      board_.changed.notify_all();
      break;
    case Command::failed:
      watched_.disarm_all();
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
  const PageRange from = memory().range_of(command.zone);
  const std::span<std::byte> to = place_of(command.slot, command.place);
  zones_in_[std::size_t{command.slot} * setup_.slot_zones + command.place] = command.zone;
  if (!read_memory(to.data(), from.begin, from.bytes)) return false;
  if (from.bytes < to.size()) std::memset(to.data() + from.bytes, 0, to.size() - from.bytes);
  return true;
}

void CutDriver::end_copy(const Command& command, bool copied) {
  if (!copied) {
    watched_.lose(memory().body_of(command.zone), LostBody::How::unreadable);
    fail(SnapshotTrouble::copy_failed);
  }
  on({.kind = Event::copied,
      .zone = command.zone,
      .slot = command.slot,
      .bytes = memory().range_of(command.zone).bytes});
}

// Makes no text of the error, which would allocate: failure_of() does.
void CutDriver::fail(SnapshotTrouble trouble) {
  const bool already = plan_->failed();  // then it says nothing, and memory may have been armed for the next cut
  on({.kind = Event::failed, .trouble = trouble});
  if (already) watched_.disarm_all();
}

// Lets the writers to a range go on, even where that makes snapshots fail.
void CutDriver::answer(PageRange range) {
  if (watched_.answer(range)) return;
  no_mappings_ = true;
  fail(SnapshotTrouble::watch_failed);
}

// --- what the watches tell -------------------------------------------------------------------------------------------

void CutDriver::told(const Result<WatchEvent>& event) {
  const std::lock_guard lock(board_.mutex);
  if (!plan_) return;
  if (!event) {
    watched_.lose_watches();
    fail(SnapshotTrouble::watch_failed);
    failures_ += cuts_.fail(SnapshotTrouble::watch_failed, true);
  } else if (event->kind == WatchEvent::Kind::written) {
    if (const auto zone = memory().zone_at(event->range.begin)) {
      watched_.written(*zone);
      on({.kind = Event::fault, .zone = *zone});
    } else {
      answer(event->range);
    }
  } else {
    const LostBody::How how = event->kind == WatchEvent::Kind::removed    ? LostBody::How::removed
                              : event->kind == WatchEvent::Kind::unmapped ? LostBody::How::unmapped
                                                                          : LostBody::How::moved;
    // What is copied does not need it.
    if (watched_.lose(event->range, how) && cuts_.any_uncopied()) {
      fail(SnapshotTrouble::watch_failed);
      failures_ += cuts_.fail(SnapshotTrouble::watch_failed, true);
    }
  }
  carry_out_all();
}

void CutDriver::confirmed() {
  const std::lock_guard lock(board_.mutex);
  confirm();
  board_.changed.notify_all();
}

void CutDriver::confirm() {
  cuts_.confirm([&](const Cut& cut) { return watched_.confirmed(cut.tickets); });
}

std::optional<Error> CutDriver::lost() {
  std::optional<LostBody> lost;
  {
    const std::lock_guard lock(board_.mutex);
    lost = watched_.lost();
  }
  return lost ? std::optional(lost->error()) : std::nullopt;
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
  if (auto error = lost()) return error;
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

void CutDriver::lose(const Body& body) {
  const std::lock_guard lock(board_.mutex);
  watched_.lose(body, LostBody::How::unreadable);
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
      if (wakeup_ == planner::kNever) {
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
  const WatchedMemory::Tickets tickets = watched_.ask();
  board_.changed.wait(lock, [&] { return watched_.confirmed(tickets); });
}

SnapshotStats CutDriver::stats() {
  const std::lock_guard lock(board_.mutex);
  SnapshotStats out;
  out.snapshots = snapshots_;
  out.failures = failures_;
  const planner::SnapshotCounters now = plan_ ? plan_->counters() : planner::SnapshotCounters{};
  out.zones = memory().zones() + memory().edges();
  out.dirty = now.dirty;
  out.faults = before_.faults + now.faults;
  out.duplicates = before_.duplicates + now.duplicates;
  out.blocked_s = static_cast<double>(before_.blocked + now.blocked) * 1e-9;
  out.bytes_gathered = before_.gathered + now.gathered;
  return out;
}

}  // namespace ebb::snapshots
