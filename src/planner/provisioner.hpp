#pragma once
// How the memory of one host cache comes to be: which bytes are touched next, which are pinned next. Decides only: a
// driver touches, pins, keeps the token and tells what became of it.
#include <optional>
#include <vector>

#include "planner/growth_later.hpp"
#include "planner/growth_range.hpp"
#include "planner/ids.hpp"

namespace ebb::policy {

enum class Extent : std::uint8_t {
  needed,  // what replicas have been placed on, and ahead of it what the measured production will need
  all,     // everything, from the start on (hipc22 sec. IV-A)
};
enum class Pinning : std::uint8_t {
  none,    // touched memory is good for use
  pieces,  // behind the touching, piece by piece
  whole,   // once, when all is touched (hipc22 sec. IV-A)
};
// Touching and copying share the bandwidth of host memory (hipc22 sec. IV-B).
enum class Beside : std::uint8_t {
  model,   // whichever of the other two growth_model.hpp expects to be faster
  pause,   // nothing is touched while a copy runs (the paper's sequential form)
  always,  // touching does not care for copies (its concurrent form)
};

struct ProvisionSpec {
  Bytes capacity = 0;
  Bytes granule = 2 << 20;      // pieces begin at multiples of it, and all but the last are multiples
  int touchers = 6;             // pieces that are touched at once
  Bytes touch_piece = 4 << 20;  // that one of them touches at once
  Extent extent = Extent::needed;
  Pinning pinning = Pinning::pieces;
  Beside beside = Beside::model;
  // Memory that is not touched may be used as well: a write makes its page. Then everything is ready at once, and
  // touching only saves the writes that time. Not together with pinning.
  bool faults_in = false;
  // One registration holds up every operation of the process on its GPU. Several may follow one another before the
  // program's own work has its turn: this is a quarter of what the program may be held up (3 ms). Shorter ones cost the
  // flushes more than they spare the program: 8 MiB take 0.3 ms beside the touching, 16 MiB 0.5.
  Time longest_pin = 700'000;
  // A copy of the program's sleeps at the driver's lock, and may find it taken again when it wakes, as long as
  // registrations follow each other. Whenever they took `rest_after` together, none is begun for `rest`; a pause of
  // that length that came by itself counts. After the shortest piece there is, if that held up the program for more
  // than it may be, the rest is four times as long as it took. 0: they follow each other as they come.
  Time rest = 50'000;
  Time rest_after = 2'000'000;
  Bytes first_piece = 4 << 20;  // pinned, before anything is known of how long it takes
  Bytes largest_piece = 64 << 20;
  Bytes least_lead = 32 << 20;  // touched ahead of what is placed, at least (Extent::needed) ...
  Bytes most_lead = 256 << 20;  // ... and at most, or an eighth of what is placed if that is more
  // How long touched memory that is needed waits for its pinning, `patient_for` bytes at a time, before it is used
  // without. Where registering is what is slow, `pin_deadline` (1.3 GB/s): copies of unpinned memory make it slower
  // still, and once they are many neither gets on. Where it is the turns of others, for half of the time or more, as
  // long as the program takes to produce so much, if that is known, and at least `impatience`: flushes would be slower
  // than the production, and copies of unpinned memory reach 19 GB/s down and 8 up. Then what is needed next waits no
  // more, until a registration with its turn is fast enough again. What is used unpinned is pinned later, behind all
  // else (growth_later.hpp): when no copy runs, or a piece each `pin_deadline`. kNever: it waits.
  Time pin_deadline = 100'000'000;
  Time impatience = 10'000'000;
  Bytes patient_for = 128 << 20;
};

struct ProvisionEvent {
  enum Kind : std::uint8_t {
    tick,          // nothing but the time. The first event of all starts the work
    placed,        // length: replicas have been given bytes up to here, counted from the first
    produced,      // length: the program wrote a checkpoint of so many bytes
    copy_begun,    // a transfer from or to this memory runs from now on
    copy_ended,    // length, took: it does not any more (length 0: it failed)
    touched,       // offset, length of a touch command: done
    touch_failed,  // offset, length: not all of it has memory, and it will get none
    granted,       // the token that was asked for is ours
    pinned,        // offset, length, took of a pin command
    pin_failed,    // offset, length
    pin_busy,      // offset, length: of memory in use; not now, for a transfer that had begun before uses it
    refused,       // offset: memory that faults in has none for what is placed behind it, unless that is touched
  } kind = tick;
  Time now = 0;
  Bytes offset = 0, length = 0;
  Time took = 0;  // as whoever did it measured it
};

// To be carried out in the order of the members. Every touch ends with one `touched` or `touch_failed`, in any order;
// a pin with `pinned`, `pin_failed` or `pin_busy`, an `ask` with `granted`.
struct ProvisionCommands {
  bool give_back = false;        // the token
  bool ask = false;              // for it; once
  std::vector<ByteRange> touch;  // each for one thread
  std::optional<ByteRange> pin;  // only between `granted` and `give_back`, one at a time
  Time wakeup = kNever;          // call again with `tick` then, if nothing comes before
  void clear() { *this = {}; }
};

// Running averages, as they are known so far; 0: not known.
struct GrowthFigures {
  double interval = 0;                                                        // ns between checkpoints
  double bytes = 0;                                                           // of a checkpoint
  double copy_alone = 0, copy_beside = 0, touch_alone = 0, touch_beside = 0;  // bytes a second; beside: the other
  double pin = 0;         // bytes a second, of registrations, their turns and the rests between them
  double token_wait = 0;  // ns
};

struct ProvisionState {
  Bytes ready = 0;    // usable from the first byte on. Never falls, except that it is never above limit
  Bytes limit = 0;    // what will ever be usable; falls when touching fails
  Bytes touched = 0;  // from the first byte on
  Bytes asked = 0;    // touched or being touched
  Bytes placed = 0;
  Bytes pinned = 0;            // in all; ready - pinned is in use unpinned (with pinning)
  std::uint32_t touching = 0;  // touch commands under way
  Bytes piece = 0;             // that the next registration takes at most
  std::uint32_t pieces = 0;    // pinned
  bool sequential = false;     // touching would pause beside a copy
  // Troubles. Each is set once and stays.
  bool touch_failed = false;  // memory ran out: limit says what there is
  bool pin_failed = false;    // nothing more is pinned
  bool token_late = false;    // turns came too late, or did not come
  bool pin_late = false;      // they came, and the registration of what was needed did not
  GrowthFigures figures;
};

// Not thread-safe; deterministic.
// 1. Touched in ascending order; pinned only what is touched, once, and in ascending order but for what is in use
//    without (Pinning::pieces): that is pinned behind all else, and seldom where it holds up the program.
// 2. What is ready is a prefix, and it only grows (while `limit` stands).
// 3. Whatever is placed below the limit becomes ready, if every command ends and the token comes or the pin_deadline
// does:
//    from when they are touched and needed, each `patient_for` bytes within twice the pin_deadline and the one
//    registration that may be under way then.
// 4. The token is given back after each registration, so that it goes round among those who want it, and is not kept
//    for anything that has not been touched yet.
// 5. No command follows from the time alone but through `wakeup`.
class Provisioner {
 public:
  explicit Provisioner(const ProvisionSpec& spec);  // std::logic_error for one that cannot be

  // Time does not go back. An event that nothing asked for is a std::logic_error.
  void on(const ProvisionEvent& event, ProvisionCommands& out);

  const ProvisionState& state() const { return state_; }
  const ProvisionSpec& spec() const { return spec_; }
  // Nothing will be ordered any more, whatever comes.
  bool finished() const;
  // How far touching goes now (Extent::needed: ahead of what is placed).
  Bytes goal(Time now) const;

 private:
  // Sums of bytes and of the time that they took, the old ones fading.
  struct Rate {
    double bytes = 0, time = 0;
    void add(double more_bytes, double more_time);
    double per_s() const { return time > 0 ? bytes / time * 1e9 : 0; }
  };
  struct Activity {  // touches or copies
    int in_flight = 0;
    Time busy = 0;                // time with any in flight, so far
    Time mark = 0;                // the last end, or the begin of the busy period
    Time other_busy_at_mark = 0;  // of the other activity
    Rate alone, beside;
    enum class Sample : std::uint8_t { mixed, alone, beside } latest = Sample::mixed;
  };
  void advance(Time now);
  void begin(Activity& activity, const Activity& other);
  void end(Activity& activity, const Activity& other, Bytes bytes, Time took);
  void on_produced(Bytes bytes);
  void on_touched(const ProvisionEvent& event, bool failed);
  void on_refused(Bytes offset);
  void on_pinned(const ProvisionEvent& event);
  void on_pin_failed(const ProvisionEvent& event);
  void on_pin_busy(const ProvisionEvent& event);
  void end_pinning(Bytes length, Time took);
  void shrink_piece(Bytes length);
  void update_ready();
  void update_model();
  void decide_touches(ProvisionCommands& out);
  void decide_pins(ProvisionCommands& out);
  void decide_patience(ProvisionCommands& out);
  bool pins() const;
  Bytes needed() const;
  Bytes wanted_touched() const;
  bool copy_first() const;
  bool touching_rests() const;
  Time turn_patience() const;
  static bool mostly(Time turns, Time total);
  Time pin_deadline(Time total, Time turns) const;
  std::optional<ByteRange> next_pin() const;
  std::optional<ByteRange> next_pin_ahead() const;
  bool pins_later() const;
  bool pauses() const;

  ProvisionSpec spec_;
  ProvisionState state_;
  Time now_ = 0;
  Activity touches_, copies_;
  Rate pins_;
  double interval_ = 0, bytes_ = 0, largest_ = 0, token_wait_ = 0;
  std::optional<Time> last_produced_;
  bool sequential_ = false;

  std::vector<ByteRange> outstanding_;  // touches
  std::vector<ByteRange> ahead_;        // touched beyond state_.touched; ascending
  Bytes settled_ = 0;                   // pinned, or in use without
  GrowthLater later_;                   // in use without (Pinning::pieces)
  std::optional<ByteRange> pinning_;
  Bytes largest_piece_ = 0;  // so far none of more has failed
  int pin_failures_ = 0;     // one after another
  enum class Token : std::uint8_t { none, asked, ours } token_ = Token::none;
  Time asked_at_ = 0;
  bool asked_for_later_ = false;  // not for anything ahead
  bool used_turn_ = false;
  Time pin_ended_ = 0;  // the last one
  Time in_a_row_ = 0;   // that registrations took since there was a rest
  Time rest_until_ = 0;
  std::optional<Time> resting_since_;  // with something to register
  // Needed memory that is touched and not ready: since when, and up to where it went then.
  std::optional<Time> waiting_since_;
  Time turn_waited_ = 0;  // since then, for turns that came
  Bytes waiting_end_ = 0;
  bool late_ = false;  // the pin deadline is over, and nothing was registered in good time since
};

}  // namespace ebb::policy
