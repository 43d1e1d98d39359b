#include "planner/provisioner.hpp"

#include <algorithm>
#include <stdexcept>

#include "planner/growth_model.hpp"

namespace ebb::policy {
namespace {

constexpr double kMemory = 50e6;  // ns of work after which older samples count half
constexpr double kSafety = 1.5;   // production is taken to be so much faster than it was
constexpr int kPinRetries = 2;
constexpr Time kInARow = 4;     // registrations that the program may have to wait for
constexpr Time kSlowRests = 4;  // as long as the registration took

Bytes up(Bytes bytes, Bytes unit) { return (bytes + unit - 1) / unit * unit; }

// The largest of granule, 2 granules, 4 granules ... that is not above `bytes`.
Bytes power_piece(Bytes bytes, Bytes granule) {
  Bytes piece = granule;
  while (piece <= bytes / 2) piece *= 2;
  return piece;
}

void broken(const char* what) { throw std::logic_error(what); }

}  // namespace

Provisioner::Provisioner(const ProvisionSpec& spec) : spec_(spec), later_(spec.pin_deadline, spec.longest_pin) {
  if (spec.granule == 0 || spec.touchers < 1 || spec.longest_pin <= 0 || spec.pin_deadline < 0 || spec.impatience < 0) {
    broken("a cache cannot grow by nothing, by nobody or in no time");
  }
  if (spec.patient_for == 0) broken("nobody is patient for nothing");
  if (spec.rest < 0 || spec.rest_after < 0) broken("nobody rests for less than no time");
  if (spec.faults_in && spec.pinning != Pinning::none) broken("memory that is pinned cannot be used before");
  spec_.touch_piece = std::max(spec.granule, up(spec.touch_piece, spec.granule));
  largest_piece_ = power_piece(spec.largest_piece, spec.granule);
  state_.piece = power_piece(std::min(spec.first_piece, largest_piece_), spec.granule);
  state_.limit = spec.capacity;
  sequential_ = spec.beside == Beside::pause;
  update_ready();
}

// --- what is measured ----------------------------------------------------------------------------------------------

void Provisioner::Rate::add(double more_bytes, double more_time) {
  if (time > kMemory) {
    bytes /= 2;
    time /= 2;
  }
  bytes += more_bytes;
  time += more_time;
}

void Provisioner::advance(Time now) {
  if (now < now_) broken("time went back");
  for (Activity* activity : {&touches_, &copies_}) {
    if (activity->in_flight > 0) activity->busy += now - now_;
  }
  now_ = now;
}

void Provisioner::begin(Activity& activity, const Activity& other) {
  if (activity.in_flight++ > 0) return;
  activity.mark = now_;
  activity.other_busy_at_mark = other.busy;
}

// As with a link, the time since the later of the last end and the begin of the busy period is what the bytes took, for
// several are under way at once; those that end together share it.
void Provisioner::end(Activity& activity, const Activity& other, Bytes bytes, Time took) {
  if (activity.in_flight-- == 0) broken("more transfers have ended than begun");
  const Time since = now_ - activity.mark;
  if (since > 0) {
    const double share = static_cast<double>(other.busy - activity.other_busy_at_mark) / static_cast<double>(since);
    using enum Activity::Sample;
    activity.latest = share <= 0.1 ? alone : share >= 0.9 ? beside : mixed;
  }
  activity.mark = now_;
  activity.other_busy_at_mark = other.busy;
  if (bytes == 0 || activity.latest == Activity::Sample::mixed) return;
  Rate& rate = activity.latest == Activity::Sample::alone ? activity.alone : activity.beside;
  rate.add(static_cast<double>(bytes), static_cast<double>(took > 0 ? std::min(since, took) : since));
}

void Provisioner::on_produced(Bytes bytes) {
  const auto size = static_cast<double>(bytes);
  if (last_produced_) {
    const auto since = static_cast<double>(now_ - *last_produced_);
    // A rest of the program, of whatever length, says little of what comes after it.
    interval_ += interval_ > 0 ? (std::min(since, 4 * interval_) - interval_) / 4 : since;
    bytes_ += (size - bytes_) / 4;
  } else {
    bytes_ = size;
  }
  largest_ = std::max(size, largest_ + (size - largest_) / 8);
  last_produced_ = now_;
}

void Provisioner::update_model() {
  GrowthFigures& f = state_.figures;
  f = {interval_,
       bytes_,
       copies_.alone.per_s(),
       copies_.beside.per_s(),
       touches_.alone.per_s(),
       touches_.beside.per_s(),
       pins_.per_s(),
       token_wait_};
  if (spec_.beside == Beside::model) sequential_ = prefers_sequential(f, sequential_);
  state_.sequential = sequential_;
}

// Ahead of what is placed: a checkpoint, for they come whole and the memory of one should be there when it comes, and
// what will be produced until memory that is asked for now is ready. That takes D at first, and with the supply T
// (touching and pinning) and the production P grows as P (D + lead/T) = lead.
Bytes Provisioner::goal(Time now) const {
  if (spec_.extent == Extent::all) return state_.limit;
  const GrowthFigures& f = state_.figures;
  double supply = f.touch_alone > 0 && f.touch_beside > 0 ? std::min(f.touch_alone, f.touch_beside)
                                                          : std::max(f.touch_alone, f.touch_beside);
  double lead = largest_;
  const Bytes most = std::max(spec_.most_lead, state_.placed / 8);
  if (interval_ > 0 && supply > 0 && last_produced_) {
    double delay = static_cast<double>(spec_.touch_piece) * spec_.touchers / supply * 1e9;
    if (pins() && f.pin > 0) {
      delay += static_cast<double>(state_.piece) / f.pin * 1e9;
      supply = std::min(supply, f.pin);
    }
    const double quiet = static_cast<double>(now - *last_produced_);
    const double production = kSafety * bytes_ / std::max({interval_, quiet, 1.0});  // bytes a nanosecond
    const double left = 1 - production / (supply / 1e9);
    lead = left > 0 ? lead + production * delay / left : static_cast<double>(most);
  }
  const Bytes wanted = lead < static_cast<double>(most) ? static_cast<Bytes>(lead) : most;
  // By whole registrations, so that a goal that moves little by little does not end in many small ones.
  const Bytes unit = pins() ? state_.piece : spec_.granule;
  return std::min(state_.limit, up(state_.placed + std::max(wanted, spec_.least_lead), unit));
}

// --- events --------------------------------------------------------------------------------------------------------

void Provisioner::on(const ProvisionEvent& event, ProvisionCommands& out) {
  out.clear();
  advance(event.now);
  switch (event.kind) {
    case ProvisionEvent::tick: break;
    case ProvisionEvent::placed: state_.placed = std::max(state_.placed, std::min(event.length, spec_.capacity)); break;
    case ProvisionEvent::produced: on_produced(event.length); break;
    case ProvisionEvent::copy_begun: begin(copies_, touches_); break;
    case ProvisionEvent::copy_ended: end(copies_, touches_, event.length, event.took); break;
    case ProvisionEvent::touched: on_touched(event, false); break;
    case ProvisionEvent::touch_failed: on_touched(event, true); break;
    case ProvisionEvent::granted:
      if (token_ != Token::asked) broken("a token came that nobody asked for");
      token_ = Token::ours;
      token_wait_ += (static_cast<double>(now_ - asked_at_) - token_wait_) / 4;
      if (waiting_since_) turn_waited_ += now_ - std::max(asked_at_, *waiting_since_);
      if (next_pin_ahead()) pins_.add(0, static_cast<double>(now_ - asked_at_));
      break;
    case ProvisionEvent::pinned: on_pinned(event); break;
    case ProvisionEvent::pin_failed: on_pin_failed(event); break;
    case ProvisionEvent::pin_busy: on_pin_busy(event); break;
    case ProvisionEvent::refused: on_refused(event.offset); break;
  }
  update_model();
  decide_touches(out);
  decide_pins(out);
  decide_patience(out);
  state_.touching = static_cast<std::uint32_t>(outstanding_.size());
}

void Provisioner::on_touched(const ProvisionEvent& event, bool failed) {
  const ByteRange range{event.offset, event.length};
  const auto found = std::ranges::find(outstanding_, range);
  if (found == outstanding_.end()) broken("memory was touched that nobody asked for");
  outstanding_.erase(found);
  end(touches_, copies_, failed ? 0 : range.length, event.took);
  if (failed) {
    state_.touch_failed = true;
    // What is placed may be in use already where pages come by themselves.
    state_.limit = std::min(state_.limit, spec_.faults_in ? std::max(range.offset, state_.placed) : range.offset);
    std::erase_if(ahead_, [&](const ByteRange& r) { return r.offset > range.offset; });
  } else {
    ahead_.insert(std::ranges::upper_bound(ahead_, range.offset, {}, &ByteRange::offset), range);
    auto next = ahead_.begin();
    for (; next != ahead_.end() && next->offset == state_.touched; ++next) state_.touched += next->length;
    ahead_.erase(ahead_.begin(), next);
  }
  update_ready();
}

void Provisioner::on_refused(Bytes offset) {
  if (!spec_.faults_in) broken("memory was refused that is not used before it is touched");
  state_.touch_failed = true;
  state_.limit = std::min(state_.limit, std::max(offset, state_.touched));
  update_ready();
}

void Provisioner::on_pinned(const ProvisionEvent& event) {
  const ByteRange range{event.offset, event.length};
  if (pinning_ != range) broken("memory was pinned that nobody asked for");
  end_pinning(range.length, event.took);
  pin_failures_ = 0;
  later_.pinned(range, now_);
  settled_ = std::max(settled_, range.end());
  state_.pinned += range.length;
  ++state_.pieces;
  const Time took = std::max<Time>(event.took, 1);
  pins_.add(static_cast<double>(range.length), static_cast<double>(took));
  if (took > spec_.longest_pin) {
    shrink_piece(range.length);
  } else if (range.length == state_.piece && took <= spec_.longest_pin / 2) {
    state_.piece = std::min(2 * state_.piece, largest_piece_);
  }
  const auto share = static_cast<double>(range.length) / static_cast<double>(spec_.patient_for);
  const Time since_asked = now_ - asked_at_;
  const auto allowed = static_cast<double>(pin_deadline(since_asked, since_asked - took));
  late_ = late_ && static_cast<double>(since_asked) > share * allowed;
  update_ready();
}

void Provisioner::on_pin_failed(const ProvisionEvent& event) {
  const ByteRange range{event.offset, event.length};
  if (pinning_ != range) broken("the pinning of memory failed that nobody asked for");
  end_pinning(range.length, event.took);
  if (spec_.pinning == Pinning::pieces && range.length > spec_.granule && pin_failures_++ < kPinRetries) {
    shrink_piece(range.length);
    largest_piece_ = state_.piece;
  } else {
    state_.pin_failed = true;
  }
  update_ready();
}

void Provisioner::on_pin_busy(const ProvisionEvent& event) {
  const ByteRange range{event.offset, event.length};
  if (pinning_ != range || range.offset >= settled_) broken("memory was busy that is not in use");
  pinning_.reset();
  later_.busy(range, now_);
}

void Provisioner::end_pinning(Bytes length, Time took) {
  pinning_.reset();
  pin_ended_ = now_;
  in_a_row_ += took;
  const bool slow = took > kInARow * spec_.longest_pin && length <= spec_.granule;
  if (slow) later_.slow(took, now_);
  if (spec_.rest == 0 || (in_a_row_ < spec_.rest_after && !slow)) return;
  in_a_row_ = 0;
  rest_until_ = now_ + (slow ? std::max(spec_.rest, kSlowRests * took) : spec_.rest);
}

// Below `length`, if that can be.
void Provisioner::shrink_piece(Bytes length) {
  while (state_.piece >= length && state_.piece > spec_.granule) state_.piece /= 2;
}

void Provisioner::update_ready() {
  if (spec_.faults_in) {
    state_.ready = state_.limit;
  } else {
    if (!pins()) settled_ = std::max(settled_, state_.touched);
    state_.ready = settled_;
  }
}

// --- decisions -----------------------------------------------------------------------------------------------------

bool Provisioner::pins() const { return spec_.pinning != Pinning::none && !state_.pin_failed; }

Bytes Provisioner::needed() const { return std::min(state_.placed, state_.limit); }

Bytes Provisioner::wanted_touched() const { return std::min(state_.touched, up(needed(), spec_.granule)); }

// A copy runs that goes first. Nobody pauses for it who works for bytes that another transfer is waiting for.
bool Provisioner::copy_first() const { return copies_.in_flight > 0 && sequential_; }

// The same for registering.
bool Provisioner::pauses() const { return copy_first() && state_.ready >= needed(); }

bool Provisioner::touching_rests() const {
  if (spec_.faults_in && state_.touch_failed) return true;
  return state_.asked >= goal(now_) || (copy_first() && state_.asked >= needed());
}

bool Provisioner::finished() const {
  const bool touched = state_.asked >= state_.limit || (spec_.faults_in && state_.touch_failed);
  return touched && outstanding_.empty() && !pinning_ && token_ == Token::none && state_.ready == state_.limit &&
         !next_pin_ahead() && !pins_later();
}

void Provisioner::decide_touches(ProvisionCommands& out) {
  while (static_cast<int>(outstanding_.size()) < spec_.touchers && !touching_rests()) {
    const Bytes length = std::min(spec_.touch_piece, goal(now_) - state_.asked);
    const ByteRange range{state_.asked, length};
    state_.asked += length;
    begin(touches_, copies_);
    outstanding_.push_back(range);
    out.touch.push_back(range);
  }
}

bool Provisioner::pins_later() const { return pins() && !later_.empty(); }

// What should be registered next, if anything should.
std::optional<ByteRange> Provisioner::next_pin() const {
  if (const auto ahead = next_pin_ahead(); ahead && !pauses()) return ahead;
  const bool later = pins_later() && wanted_touched() <= settled_ && now_ >= later_.when(copies_.in_flight > 0);
  return later ? std::optional(later_.next(state_.piece)) : std::nullopt;
}

std::optional<ByteRange> Provisioner::next_pin_ahead() const {
  if (!pins() || state_.limit == 0) return {};
  if (spec_.pinning == Pinning::whole) {
    if (state_.pinned > 0 || state_.touched < state_.limit) return {};
    return ByteRange{0, state_.limit};
  }
  const Bytes touched = state_.touched - settled_;
  if (touched >= state_.piece) return ByteRange{settled_, state_.piece};
  // Less than a piece waits for the rest of it while that is being touched.
  if (touched == 0 || !outstanding_.empty() || !touching_rests()) return {};
  return ByteRange{settled_, touched};
}

void Provisioner::decide_pins(ProvisionCommands& out) {
  if (pinning_) return;
  const auto next = next_pin();
  if (token_ == Token::ours) {
    // One registration for each turn, which is used though a copy has begun meanwhile.
    const auto use = next ? next : next_pin_ahead();
    if (use && !used_turn_) {
      if (now_ - pin_ended_ >= spec_.rest) in_a_row_ = 0;
      used_turn_ = true;
      pinning_ = out.pin = use;
      return;
    }
    if (!used_turn_ && asked_for_later_) later_.in_vain(now_);
    out.give_back = true;
    token_ = Token::none;
    used_turn_ = false;
  }
  if (token_ != Token::none || !next) {
    resting_since_.reset();
    const bool later = token_ == Token::none && pins_later() && wanted_touched() <= settled_;
    if (later) out.wakeup = std::min(out.wakeup, later_.when(copies_.in_flight > 0));
  } else if (now_ < rest_until_) {
    if (!resting_since_) resting_since_ = now_;
    out.wakeup = std::min(out.wakeup, rest_until_);
  } else {
    // However late it is over, so long nothing was registered.
    if (resting_since_) pins_.add(0, static_cast<double>(now_ - *resting_since_));
    resting_since_.reset();
    out.ask = true;
    asked_for_later_ = next != next_pin_ahead();
    token_ = Token::asked;
    asked_at_ = now_;
  }
}

// How long turns may take for `patient_for` bytes.
Time Provisioner::turn_patience() const {
  if (spec_.pin_deadline == kNever || spec_.impatience >= spec_.pin_deadline || interval_ <= 0 || bytes_ <= 0) {
    return spec_.pin_deadline;
  }
  const double produced_in = static_cast<double>(spec_.patient_for) / bytes_ * interval_;
  if (produced_in >= static_cast<double>(spec_.pin_deadline)) return spec_.pin_deadline;
  return std::max(spec_.impatience, static_cast<Time>(produced_in));
}

// Whether that is what was waited for.
bool Provisioner::mostly(Time turns, Time total) { return turns > 0 && 2 * turns >= total; }

// The same for a wait of `total` so far, that for turns among it.
Time Provisioner::pin_deadline(Time total, Time turns) const {
  return mostly(turns, total) ? turn_patience() : spec_.pin_deadline;
}

// Touched memory that is needed, and waits.
void Provisioner::decide_patience(ProvisionCommands& out) {
  if (!pins()) return;
  const Bytes usable = wanted_touched();
  if (usable <= settled_) {
    waiting_since_.reset();
    return;
  }
  // What came to it later waits for as long at least, and for twice as long at most.
  if (!waiting_since_ || settled_ >= waiting_end_) {
    waiting_since_ = now_;
    turn_waited_ = 0;
    waiting_end_ = std::min(usable, settled_ + spec_.patient_for);
  }
  if (spec_.pin_deadline == kNever || pinning_) return;  // what is being registered is not used meanwhile
  const bool asked = token_ == Token::asked;
  const Time total = now_ - *waiting_since_;
  const Time turns = turn_waited_ + (asked ? now_ - std::max(asked_at_, *waiting_since_) : 0);
  if (!late_ && total < pin_deadline(total, turns)) {
    // Until then for turns alone if it goes on as it is.
    const Time turns_end = turn_patience() - total;
    Time left = spec_.pin_deadline - total;
    if (asked) {
      left = std::min(left, std::max(turns_end, total - 2 * turns));
    } else if (turns_end > 0 && 2 * turns >= turn_patience()) {
      left = std::min(left, turns_end);
    }
    out.wakeup = std::min(out.wakeup, now_ + std::max<Time>(left, 1));
    return;
  }
  if (!late_ && spec_.pinning == Pinning::pieces) (mostly(turns, total) ? state_.token_late : state_.pin_late) = true;
  late_ = true;
  if (spec_.pinning == Pinning::pieces) later_.add({settled_, usable - settled_}, now_);
  settled_ = usable;
  update_ready();
}

}  // namespace ebb::policy
