#pragma once
// How the memory of one tier is provisioned: which pages are touched next, what is registered with the device (pinned)
// next, and when memory is used unpinned. Decides only: a driver touches, pins, waits in the pin queue and reports.
#include <deque>
#include <optional>
#include <vector>

#include "planner/ids.hpp"

namespace ebb::planner {

struct ByteRange {
  Bytes offset = 0, length = 0;
  Bytes end() const { return offset + length; }
  bool operator==(const ByteRange&) const = default;
};

enum class UsedWhen : std::uint8_t {
  pinned,   // or after the deadline
  touched,  // memory that is mapped piece by piece
  always,   // ordinary memory: a write makes its page, and touching only saves the write that time
};

inline constexpr Bytes kAllAhead = Bytes{1} << 63;

struct ProvisionSpec {
  Bytes capacity = 0;
  UsedWhen used_when = UsedWhen::pinned;
  int touchers = 6;       // pieces touched at once: with 4 the pinning waits for them, 8 hold it up
  Bytes piece = 4 << 20;  // touched at once; also the first and the smallest registration
  Bytes largest_piece = 64 << 20;
  // Touched ahead of what is placed: two checkpoints, at most this and at least an eighth of it; more if it is expected
  // and has to be pinned.
  Bytes lead = 256 << 20;
  // A registration holds up every operation of the process on its GPU. Several may follow one another before one of the
  // program's gets through: this is a quarter of the 3 ms that the program may be held up.
  Time longest_pin = 700'000;
  Time cooldown = 50'000;  // without a registration, whenever they took three times longest_pin in a row
  // Of 128 MiB that are touched and needed: then they are used unpinned, and pinned later. Provisioner::on_pinned()
  // says what counts.
  Time pin_deadline = 100'000'000;
};

struct ProvisionEvent {
  enum Kind : std::uint8_t {
    tick,          // only the time. The first event of all starts the work
    placed,        // length: replicas have been given bytes up to here, counted from the first
    produced,      // length: the program wrote a checkpoint of so many bytes
    expected,      // length: so much may come at once, beside what is placed: what others lent, if they want it back
    touched,       // offset, length of a touch command
    touch_failed,  // offset, length: there is not enough memory, and there will be none
    refused,       // offset: there is no memory for what is placed behind it (UsedWhen::always)
    called,        // the ticket
    pinned,        // offset, length, took
    pin_failed,    // offset, length, took
    pin_busy,      // offset, length: a copy that began earlier uses this memory
  } kind = tick;
  Time now = 0;
  Bytes offset = 0, length = 0;
  Time took = 0;  // as measured by the driver
};

// Each touch ends with one `touched` or `touch_failed`, in any order; a ticket with `called`; a pin with `pinned`,
// `pin_failed` or `pin_busy`.
struct ProvisionCommands {
  std::vector<ByteRange> touch;  // each for one thread
  bool take_ticket = false;      // in the pin queue
  std::optional<ByteRange> pin;  // only in answer to `called`. After it, or without one, the queue is left
  Time wakeup = kNever;          // send a `tick` then, unless another event comes first
};

struct ProvisionState {
  Bytes ready = 0;    // usable, from the first byte on. Never falls, except with limit
  Bytes limit = 0;    // what will ever be usable; falls when memory runs out
  Bytes touched = 0;  // from the first byte on
  Bytes asked = 0;    // touched or being touched
  Bytes placed = 0;
  Bytes pinned = 0;          // in all
  Bytes piece = 0;           // that the next registration takes at most
  std::uint32_t pieces = 0;  // pinned
  bool touching = false;
  // Troubles. Each is set once and stays.
  bool touch_failed = false;  // memory ran out
  bool pin_failed = false;    // nothing more is pinned
  bool queue_late = false;    // memory was used unpinned, first while a ticket was waited for ...
  bool pin_late = false;      // ... or because registrations are slow
};

// Not thread-safe; deterministic.
// 1. Touched in ascending order. Pinned only when touched, once, in ascending order but for what is in use unpinned.
// 2. What is ready is a prefix, and it only grows (unless `limit` falls).
// 3. Whatever is placed below the limit becomes ready, if every command ends; a ticket that is never called is waited
//    for no longer than the deadline.
// 4. One registration a ticket, and no ticket for what is not touched: processes take turns.
// 5. Commands follow from the time alone only at `wakeup`.
class Provisioner {
 public:
  explicit Provisioner(const ProvisionSpec& spec);  // std::logic_error for one that cannot be

  // Time does not go back. An event that nothing asked for is a std::logic_error.
  ProvisionCommands on(const ProvisionEvent& event);

  const ProvisionState& state() const { return state_; }
  const ProvisionSpec& spec() const { return spec_; }
  // Whether no event can lead to another command.
  bool finished() const;

 private:
  void on_produced(Bytes bytes);
  void on_touched(ByteRange range, bool failed);
  void on_pinned(ByteRange range, Time took);
  void on_pin_failed(ByteRange range, Time took);
  void on_pin_busy(ByteRange range);
  Time end_pin(ByteRange range, Time took);
  void add_in_use(ByteRange range);
  void touch(ProvisionCommands& out);
  void use();
  void begin_pin(ProvisionCommands& out);
  void take_ticket(ProvisionCommands& out);
  bool pins() const { return spec_.used_when == UsedWhen::pinned && !state_.pin_failed; }
  Bytes goal() const;
  Bytes needed() const;
  std::optional<ByteRange> next_pin() const;
  double queue_deadline() const;
  Time late_at() const;

  ProvisionSpec spec_;
  ProvisionState state_;
  Time now_ = 0;
  // Running averages of the program's checkpoints; 0: not known.
  double interval_ = 0, bytes_ = 0;
  Bytes expected_ = 0;
  std::optional<Time> produced_at_;

  std::vector<ByteRange> touching_;
  Bytes failed_at_ = UINT64_MAX;  // the first that could not be touched
  Bytes settled_ = 0;             // up to here memory is pinned, or in use unpinned
  std::deque<ByteRange> in_use_;  // unpinned; the first is pinned next
  Time in_use_at_ = 0;            // not before
  std::optional<ByteRange> pinning_;
  bool ticket_ = false;             // and not called yet
  Time taken_at_ = 0, waited_ = 0;  // the ticket; for the last one
  double late_ = 0;                 // how far pinning is behind; from 1 on memory is used unpinned
  std::optional<Time> needed_at_;   // since then memory is needed that is not settled
  bool slow_before_ = false;        // the last registration took long, though it was small
  Time in_a_row_ = 0;               // that registrations took since the last pause
  Time pin_ended_ = 0, cooldown_until_ = 0;
};

}  // namespace ebb::planner
