#include "planner/provisioner.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

namespace ebb::planner {
namespace {

constexpr double kSpan = 128 << 20;  // bytes that the pin deadline is for
constexpr double kSoonest = 0.1;     // of the deadline: copies of unpinned memory are no faster than 13 GB/s
constexpr Time kInARow = 3;          // times longest_pin, before a cooldown
constexpr Time kSlow = 4;            // times longest_pin: it held up the program for too long
constexpr Time kSlowCooldown = 4;    // times what that registration took
constexpr Time kInUseCooldown = 16;  // the same, of memory in use: its copies wait as well

Bytes up(Bytes bytes, Bytes unit) { return (bytes + unit - 1) / unit * unit; }

void promised(bool kept, const char* broken) {
  if (!kept) throw std::logic_error(broken);
}

}  // namespace

Provisioner::Provisioner(const ProvisionSpec& spec) : spec_(spec) {
  promised(spec.piece > 0 && spec.touchers > 0, "memory cannot be provisioned by pieces of 0 bytes or 0 threads");
  promised(spec.longest_pin > 0 && spec.cooldown >= 0 && spec.pin_deadline > 0, "a time is negative, or 0");
  state_.piece = spec.piece;
  state_.limit = spec.capacity;
  use();
}

ProvisionCommands Provisioner::on(const ProvisionEvent& event) {
  promised(event.now >= now_, "time went back");
  now_ = event.now;
  const ByteRange range{event.offset, event.length};
  switch (event.kind) {
    case ProvisionEvent::tick: break;
    case ProvisionEvent::placed: state_.placed = std::max(state_.placed, std::min(event.length, spec_.capacity)); break;
    case ProvisionEvent::produced: on_produced(event.length); break;
    case ProvisionEvent::expected: expected_ = std::min(event.length, spec_.capacity); break;
    case ProvisionEvent::touched: on_touched(range, false); break;
    case ProvisionEvent::touch_failed: on_touched(range, true); break;
    case ProvisionEvent::refused:
      promised(spec_.used_when == UsedWhen::always, "memory was refused that is not used before it is touched");
      state_.touch_failed = true;
      state_.limit = std::min(state_.limit, std::max(event.offset, state_.touched));
      break;
    case ProvisionEvent::called:
      promised(ticket_, "a ticket was called that was not taken");
      ticket_ = false;
      waited_ = now_ - taken_at_;
      break;
    case ProvisionEvent::pinned: on_pinned(range, event.took); break;
    case ProvisionEvent::pin_failed: on_pin_failed(range, event.took); break;
    case ProvisionEvent::pin_busy: on_pin_busy(range); break;
  }
  ProvisionCommands out;
  touch(out);
  if (event.kind == ProvisionEvent::called) begin_pin(out);
  use();
  if (needed() <= settled_) {
    needed_at_.reset();
  } else if (!needed_at_) {
    needed_at_ = now_;
  }
  take_ticket(out);
  return out;
}

void Provisioner::on_produced(Bytes bytes) {
  const auto size = static_cast<double>(bytes);
  if (produced_at_) {
    const auto since = static_cast<double>(now_ - *produced_at_);
    // A pause of the program, of whatever length, says little of what comes after it.
    interval_ += interval_ > 0 ? (std::min(since, 4 * interval_) - interval_) / 4 : since;
    bytes_ += (size - bytes_) / 4;
  } else {
    bytes_ = size;
  }
  produced_at_ = now_;
}

void Provisioner::on_touched(ByteRange range, bool failed) {
  const auto found = std::ranges::find(touching_, range);
  promised(found != touching_.end(), "memory was touched without a command");
  touching_.erase(found);
  if (failed) {
    state_.touch_failed = true;
    failed_at_ = std::min(failed_at_, range.offset);
    // What is placed may be in use already where a write makes its page.
    const Bytes in_use = spec_.used_when == UsedWhen::always ? state_.placed : 0;
    state_.limit = std::min(state_.limit, std::max(range.offset, in_use));
  }
  state_.touched = std::min(state_.asked, failed_at_);
  for (const ByteRange& other : touching_) state_.touched = std::min(state_.touched, other.offset);
}

// --- pinning ---------------------------------------------------------------------------------------------------------

// The queue may take as long for 128 MiB as the program takes to produce so much: flushes then keep up with it.
double Provisioner::queue_deadline() const {
  const auto most = static_cast<double>(spec_.pin_deadline);
  if (interval_ <= 0 || bytes_ <= 0) return most;
  return std::clamp(kSpan / bytes_ * interval_, kSoonest * most, most);
}

// Pinning is late when its delays, less the deadline for each byte that it pinned, add up to the deadline. A
// registration counts while memory that is needed waits for it. The deadline is the queue's if most of the delay was in
// the queue. Otherwise copies of unpinned memory would make registering slower still, until neither gets on.
void Provisioner::on_pinned(ByteRange range, Time took) {
  const bool in_use = range.offset < settled_;
  const Time cooldown = end_pin(range, took);
  const Time delay = waited_ + (needed_at_ ? std::min(took, now_ - *needed_at_) + cooldown : 0);
  const double deadline = waited_ >= took ? queue_deadline() : static_cast<double>(spec_.pin_deadline);
  const double pinned = static_cast<double>(range.length) / kSpan;
  late_ = std::clamp(late_ + static_cast<double>(delay) / deadline - pinned, 0.0, 1.0);
  const bool doubled = range.length == state_.piece && 2 * state_.piece <= spec_.largest_piece;
  if (doubled && took <= spec_.longest_pin / 2) state_.piece *= 2;
  if (!in_use) settled_ = range.end();
  state_.pinned += range.length;
  ++state_.pieces;
}

void Provisioner::on_pin_failed(ByteRange range, Time took) {
  end_pin(range, took);
  if (range.offset < settled_) in_use_.push_front(range);
  while (state_.piece >= range.length && state_.piece > spec_.piece) state_.piece /= 2;
  if (range.length > spec_.piece) return;
  state_.pin_failed = true;
  in_use_.clear();
}

void Provisioner::on_pin_busy(ByteRange range) {
  promised(pinning_ == range && range.offset < settled_, "memory is busy that is not in use");
  pinning_.reset();
  add_in_use(range);
  in_use_at_ = now_ + kInUseCooldown * spec_.longest_pin;
}

// How long none is begun now.
Time Provisioner::end_pin(ByteRange range, Time took) {
  promised(pinning_ == range, "memory was pinned without a command");
  pinning_.reset();
  pin_ended_ = now_;
  in_a_row_ += took;
  if (took > spec_.longest_pin) {
    const Bytes smaller = took > kSlow * spec_.longest_pin ? 0 : range.length;
    while (state_.piece >= smaller && state_.piece > spec_.piece) state_.piece /= 2;
  }
  const bool long_one = took > kSlow * spec_.longest_pin && range.length <= spec_.piece;
  const bool slow = std::exchange(slow_before_, long_one) && long_one;
  if (range.offset < settled_) in_use_at_ = now_ + kInUseCooldown * took;
  if (!slow && in_a_row_ < kInARow * spec_.longest_pin) return 0;
  const Time cooldown = std::max(spec_.cooldown, slow ? kSlowCooldown * took : 0);
  cooldown_until_ = now_ + cooldown;
  return cooldown;
}

void Provisioner::add_in_use(ByteRange range) {
  if (!in_use_.empty() && in_use_.back().end() == range.offset) {
    in_use_.back().length += range.length;
  } else {
    in_use_.push_back(range);
  }
}

// --- decisions -------------------------------------------------------------------------------------------------------

// By whole registrations, so that a goal that moves little by little does not end in many small ones.
Bytes Provisioner::goal() const {
  if (spec_.used_when == UsedWhen::always && state_.touch_failed) return 0;
  const auto two = static_cast<Bytes>(std::min(2 * bytes_, static_cast<double>(spec_.lead)));
  const Bytes ahead = std::max({two, spec_.lead / 8, pins() ? expected_ : 0});
  return std::min(state_.limit, up(state_.placed + ahead, pins() ? state_.piece : spec_.piece));
}

void Provisioner::touch(ProvisionCommands& out) {
  const Bytes end = goal();
  while (touching_.size() < static_cast<std::size_t>(spec_.touchers) && state_.asked < end) {
    const ByteRange range{state_.asked, std::min(spec_.piece, end - state_.asked)};
    state_.asked = range.end();
    touching_.push_back(range);
    out.touch.push_back(range);
  }
}

// Up to where memory is touched and needed.
Bytes Provisioner::needed() const {
  return std::min(state_.touched, up(std::min(state_.placed, state_.limit), spec_.piece));
}

// When memory that is needed is used unpinned, if no registration ends before.
Time Provisioner::late_at() const {
  if (late_ >= 1) return now_;
  const double left = std::ceil((1 - late_) * queue_deadline());
  return ticket_ && left < static_cast<double>(kNever - taken_at_) ? taken_at_ + static_cast<Time>(left) : kNever;
}

void Provisioner::use() {
  if (!pins()) {
    settled_ = std::max(settled_, state_.touched);
  } else if (needed() > settled_ && now_ >= late_at() && !(pinning_ && pinning_->offset == settled_)) {
    if (!state_.queue_late && !state_.pin_late) (ticket_ ? state_.queue_late : state_.pin_late) = true;
    add_in_use({settled_, needed() - settled_});
    settled_ = needed();
  }
  state_.ready = spec_.used_when == UsedWhen::always ? state_.limit : settled_;
  state_.touching = !touching_.empty();
}

// What is waited for first, memory in use last.
std::optional<ByteRange> Provisioner::next_pin() const {
  const Bytes touched = state_.touched - settled_;
  // Less than a piece waits for the rest of it while that is being touched.
  if (touched >= state_.piece || (touched > 0 && touching_.empty())) {
    return ByteRange{settled_, std::min(touched, state_.piece)};
  }
  if (in_use_.empty() || now_ < in_use_at_ || needed() > settled_) return {};
  return ByteRange{in_use_.front().offset, std::min(in_use_.front().length, state_.piece)};
}

void Provisioner::begin_pin(ProvisionCommands& out) {
  const auto next = next_pin();
  if (!next) return;
  if (now_ - pin_ended_ >= spec_.cooldown) in_a_row_ = 0;
  if (next->offset < settled_) {
    ByteRange& first = in_use_.front();
    first = {next->end(), first.end() - next->end()};
    if (first.length == 0) in_use_.pop_front();
  }
  pinning_ = out.pin = next;
}

void Provisioner::take_ticket(ProvisionCommands& out) {
  if (!pins() || pinning_) return;
  const auto next = next_pin();
  if (!ticket_ && next && now_ >= cooldown_until_) {
    out.take_ticket = ticket_ = true;
    taken_at_ = now_;
  }
  if (!ticket_) {
    // Later than that, only an event changes what is pinned next.
    const Time at = std::max(cooldown_until_, next ? 0 : in_use_at_);
    if ((next || !in_use_.empty()) && at > now_) out.wakeup = at;
  } else if (needed() > settled_) {
    out.wakeup = std::max(late_at(), now_ + 1);
  }
}

bool Provisioner::finished() const {
  const bool touched = state_.asked >= state_.limit || (state_.touch_failed && spec_.used_when == UsedWhen::always);
  return touched && touching_.empty() && !pinning_ && in_use_.empty() && state_.ready == state_.limit;
}

}  // namespace ebb::planner
