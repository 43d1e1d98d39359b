#pragma once
// Several processes of one node in virtual time, each with a cache that grows: threads that touch, a device that pins,
// one token for all, programs that write checkpoints and a transfer that carries them. All from one seed; every rule of
// provisioner.hpp is checked at every event against sums of its own.
#include <algorithm>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "planner/provisioner.hpp"
#include "units.hpp"

namespace ebb::policy {

// What a machine is like. Rates are bytes a second.
struct WorldSpec {
  double touch_rate = 9e9;    // of one thread
  double touch_total = 30e9;  // of all of a process's
  double copy_rate = 55e9;
  double unpinned_rate = 19e9;  // of copies that any byte of is not registered
  double interference = 0.6;    // both rates, when a copy runs beside touching
  Time pin_latency = 60'000;
  double pin_rate = 70e9;
  double noise = 0;  // 0.5: everything takes up to half as long again
};

class World {
 public:
  World(const WorldSpec& spec, std::uint64_t seed) : spec_(spec), random_(seed) {}

  struct Process {
    Process(World& world, const ProvisionSpec& spec) : world(world), provisioner(spec), pin_limit(spec.largest_piece) {}
    World& world;
    Provisioner provisioner;
    bool dead = false;  // none of its events happens any more
    // --- as this test sees it ---
    std::vector<ByteRange> touches;
    std::map<Bytes, Bytes> touched;     // begin, end
    Bytes prefix = 0, pinned = 0;       // touched from the first byte on; in all
    std::map<Bytes, Bytes> registered;  // begin, end; what adjoins is one
    std::optional<ByteRange> pinning;
    Bytes touch_next = 0, ready = 0, limit = 0, most_piece = 0, most_asked_ahead = 0;
    bool asked = false, ours = false, started = false;
    Time wakeup = kNever;
    std::uint64_t ticks = 0, events = 0, grants = 0, failed_pins = 0, busy_pins = 0;
    Time longest_pin = 0, pinning_took = 0;  // the longest; all of them together
    Time pinning_before_carried = 0;         // until the last copy
    Time in_a_row = 0, pin_ended = 0;        // registrations since a rest; the last one
    // --- faults ---
    Bytes memory = UINT64_MAX;    // touching fails beyond it
    Bytes pinnable = UINT64_MAX;  // as a limit of locked memory
    double pin_faults = 0;        // chance of each
    bool hangs = false;           // keeps the token for ever once it has it
    // --- the program and its transfer ---
    struct Checkpoint {
      Bytes begin = 0, end = 0;
      Time placed = 0;
    };
    std::deque<Checkpoint> waiting;
    bool copying = false;
    ByteRange copied;  // then
    Bytes written = 0, carried = 0, lost = 0, pin_limit;
    int left = 0;
    Time interval = 0;
    Bytes least = 0, most = 0;
    Time longest_wait = 0, waited = 0, last_carried = 0;
    int copies = 0, waits = 0;
  };

  Process& add(const ProvisionSpec& spec) {
    processes_.push_back(std::make_unique<Process>(*this, spec));
    Process& p = *processes_.back();
    p.limit = spec.capacity;
    p.pin_limit = std::max(spec.granule, spec.first_piece);
    return p;
  }
  // `left` checkpoints of `least` to `most` bytes, one each `interval` (with the noise).
  void program(Process& p, int left, Time interval, Bytes least, Bytes most) {
    p.left = left;
    p.interval = interval;
    p.least = least;
    p.most = most;
    at(now_ + interval, p, [this, &p] { write(p); });
  }
  void kill(Process& p) {
    p.dead = true;
    if (holder_ == &p) release();
    std::erase(queue_, &p);
    hand_on();
  }
  void later(Time when, std::function<void()> f) { events_.emplace(std::pair{when, sequence_++}, std::move(f)); }

  void run() {
    for (auto& p : processes_) start(*p);
    for (std::uint64_t steps = 0; !events_.empty(); ++steps) {
      ASSERT_LT(steps, 3'000'000u) << "it does not come to an end";
      const auto next = events_.begin();
      now_ = next->first.first;
      const auto f = std::move(next->second);
      events_.erase(next);
      f();
      if (testing::Test::HasFatalFailure()) return;
    }
    for (auto& p : processes_) finish(*p);
  }
  // At once, so that events before run() are possible.
  void start(Process& p) {
    if (p.started) return;
    p.started = true;
    feed(p, {});
  }

  void feed(Process& p, ProvisionEvent event) {
    if (p.dead) return;
    event.now = now_;
    ProvisionCommands out;
    ++p.events;
    p.provisioner.on(event, out);
    const ProvisionState& s = p.provisioner.state();
    const ProvisionSpec& spec = p.provisioner.spec();
    if (event.kind == ProvisionEvent::tick && p.events > 1) {
      ++p.ticks;
    }

    for (const ByteRange& r : out.touch) {
      ASSERT_EQ(r.offset, p.touch_next);
      ASSERT_GT(r.length, 0u);
      ASSERT_LE(r.length, spec.touch_piece);
      p.touch_next += r.length;
      ASSERT_LE(p.touch_next, spec.capacity);
      ASSERT_TRUE(r.offset % spec.granule == 0);
      ASSERT_TRUE(r.length % spec.granule == 0 || p.touch_next == s.limit);
      p.touches.push_back(r);
      begin_touch(p, r);
    }
    ASSERT_LE(p.touches.size(), static_cast<std::size_t>(spec.touchers));
    if (!out.touch.empty() && spec.extent == Extent::needed) {
      const Bytes bound = s.placed + std::max({spec.most_lead, spec.least_lead, s.placed / 8}) + spec.largest_piece;
      ASSERT_LE(p.touch_next, bound);
    }
    if (!out.touch.empty() && spec.beside == Beside::pause && p.copying) {
      ASSERT_LT(out.touch.back().offset, s.placed) << "touched beside a copy";
    }
    if (out.give_back) {
      ASSERT_TRUE(p.ours);
      ASSERT_FALSE(p.pinning);
      p.ours = false;
      ASSERT_EQ(holder_, &p);
      release();
    }
    if (out.ask) {
      ASSERT_FALSE(p.ours || p.asked);
      ASSERT_NE(spec.pinning, Pinning::none);
      p.asked = true;
      queue_.push_back(&p);
    }
    if (out.pin) {
      const ByteRange r = *out.pin;
      ASSERT_TRUE(p.ours);
      ASSERT_FALSE(p.pinning);
      ASSERT_GT(r.length, 0u);
      const Bytes end = r.offset + r.length;
      ASSERT_FALSE(is_pinned(p, r)) << "pins twice";
      if (spec.pinning == Pinning::pieces) {
        if (r.offset < p.ready) {
          ASSERT_LE(end, p.ready);
          const Bytes needed = (std::min(s.placed, s.limit) + spec.granule - 1) / spec.granule * spec.granule;
          ASSERT_LE(std::min(p.prefix, needed), s.ready) << "pins what is in use before what is waited for";
        } else {
          ASSERT_EQ(r.offset, p.ready);
        }
        ASSERT_LE(r.length, std::max(p.pin_limit, spec.granule)) << "longer than was measured";
        ASSERT_TRUE(r.length % spec.granule == 0 || end == s.limit);
      } else {
        ASSERT_EQ(r, (ByteRange{0, s.limit}));
      }
      ASSERT_TRUE(is_touched(p, r)) << "pins what is not touched";
      if (now_ - p.pin_ended >= spec.rest) p.in_a_row = 0;
      ASSERT_TRUE(p.in_a_row == 0 || p.in_a_row < spec.rest_after) << "registers on and on";
      p.pinning = r;
      begin_pin(p, r);
    }
    hand_on();

    // What is ready
    ASSERT_LE(s.limit, p.limit);
    p.limit = s.limit;
    ASSERT_LE(s.ready, s.limit);
    if (s.ready < p.ready) {
      ASSERT_EQ(s.ready, s.limit);
      ASSERT_TRUE(spec.faults_in);
    }
    if (s.ready > p.ready && !spec.faults_in) {
      ASSERT_TRUE(is_touched(p, {0, s.ready}));
      const bool in_time = !s.pin_failed && !s.token_late && !s.pin_late;
      if (in_time && spec.pinning == Pinning::pieces) {
        ASSERT_EQ(p.pinned, s.ready) << "ready and not pinned";
      }
    }
    p.ready = s.ready;
    p.wakeup = out.wakeup;
    if (p.wakeup != kNever) {
      ASSERT_GT(p.wakeup, now_);
      const Time when = p.wakeup;
      at(when, p, [this, &p, when] {
        if (p.wakeup == when) feed(p, {});
      });
    }
    carry(p);
  }

  Time now() const { return now_; }
  std::vector<std::unique_ptr<Process>>& processes() { return processes_; }

 private:
  void at(Time when, Process& p, std::function<void()> f) {
    later(when, [&p, f = std::move(f)] {
      if (!p.dead) f();
    });
  }
  double noisy() { return 1 + spec_.noise * std::uniform_real_distribution<>(0, 1)(random_); }
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  Time time_for(Bytes bytes, double rate) {
    return static_cast<Time>(static_cast<double>(bytes) / rate * 1e9 * noisy()) + 1;
  }

  static void add_to(std::map<Bytes, Bytes>& ranges, ByteRange r) {
    auto at = ranges.insert_or_assign(r.offset, r.offset + r.length).first;
    if (at != ranges.begin() && std::prev(at)->second == at->first) {
      std::prev(at)->second = at->second;
      at = std::prev(ranges.erase(at));
    }
    const auto next = std::next(at);
    if (next == ranges.end() || next->first != at->second) return;
    at->second = next->second;
    ranges.erase(next);
  }
  static bool holds(const std::map<Bytes, Bytes>& ranges, Bytes begin, Bytes end) {
    const auto after = ranges.upper_bound(begin);
    return after != ranges.begin() && std::prev(after)->second >= end;
  }
  static bool is_touched(const Process& p, ByteRange r) {
    Bytes at = std::max(r.offset, p.prefix);
    while (at < r.offset + r.length) {
      auto next = p.touched.upper_bound(at);
      if (next == p.touched.begin()) return false;
      --next;
      if (next->second <= at) return false;
      at = next->second;
    }
    return true;
  }

  static bool overlap(const ByteRange& a, const ByteRange& b) {
    return a.offset < b.offset + b.length && b.offset < a.offset + a.length;
  }
  static bool is_pinned(const Process& p, const ByteRange& r) {
    const auto behind = p.registered.lower_bound(r.offset + r.length);  // what is pinned is disjoint: one can overlap
    return r.length != 0 && behind != p.registered.begin() && std::prev(behind)->second > r.offset;
  }

  void begin_touch(Process& p, ByteRange r) {
    const double others = static_cast<double>(p.touches.size());
    double rate = std::min(spec_.touch_rate, spec_.touch_total / others);
    if (p.copying) rate *= spec_.interference;
    const Time took = time_for(r.length, rate);
    at(now_ + took, p, [this, &p, r, took] {
      std::erase(p.touches, r);
      const bool failed = r.offset + r.length > p.memory;
      if (!failed) p.touched[r.offset] = r.offset + r.length;
      while (p.touched.contains(p.prefix)) p.prefix = p.touched[p.prefix];
      feed(p, {failed ? ProvisionEvent::touch_failed : ProvisionEvent::touched, 0, r.offset, r.length, took});
    });
  }

  void begin_pin(Process& p, ByteRange r) {
    if (p.provisioner.spec().pinning == Pinning::pieces && r.offset < p.ready && p.copying && overlap(r, p.copied)) {
      return at(now_ + 1, p, [this, &p, r] {
        p.pinning.reset();
        ++p.busy_pins;
        feed(p, {ProvisionEvent::pin_busy, 0, r.offset, r.length});
      });
    }
    const Time took =
        static_cast<Time>(static_cast<double>(spec_.pin_latency) * noisy()) + time_for(r.length, spec_.pin_rate);
    const bool failed = p.pinned + r.length > p.pinnable || chance(p.pin_faults);
    at(now_ + took, p, [this, &p, r, took, failed] {
      p.pinning.reset();
      p.in_a_row += took;
      p.pinning_took += took;
      p.pin_ended = now_;
      if (failed) {
        ++p.failed_pins;
      } else {
        p.pinned += r.length;
        add_to(p.registered, r);
        p.longest_pin = std::max(p.longest_pin, took);
        p.most_piece = std::max(p.most_piece, r.length);
        // The most that may follow from this: twice as much if that would still be short, less if it was too long.
        const ProvisionSpec& spec = p.provisioner.spec();
        const Bytes whole =
            (r.length + spec.granule - 1) / spec.granule * spec.granule;  // an odd end need not be the last
        if (took > spec.longest_pin)
          p.pin_limit = std::min(p.pin_limit, std::max(whole, 2 * spec.granule) - spec.granule);
        if (took <= spec.longest_pin / 2) p.pin_limit = std::max(p.pin_limit, 2 * r.length);
        p.pin_limit = std::min(p.pin_limit, spec.largest_piece);
      }
      feed(p, {failed ? ProvisionEvent::pin_failed : ProvisionEvent::pinned, 0, r.offset, r.length, took});
    });
  }

  // In turn, and at once when its holder is gone.
  void release() { holder_ = nullptr; }
  void hand_on() {
    if (holder_ || queue_.empty()) return;
    Process& p = *queue_.front();
    queue_.pop_front();
    holder_ = &p;
    if (p.hangs) return;
    const Time wait = static_cast<Time>(2000 * noisy());
    at(now_ + wait, p, [this, &p] {
      p.asked = false;
      p.ours = true;
      ++p.grants;
      feed(p, {.kind = ProvisionEvent::granted});
    });
  }

  void write(Process& p) {
    if (p.left-- == 0) return;
    const Bytes bytes = std::uniform_int_distribution<Bytes>(p.least, p.most)(random_);
    const Bytes end = std::min(p.written + bytes, p.provisioner.spec().capacity);
    feed(p, {.kind = ProvisionEvent::produced, .length = bytes});
    if (end > p.written) {
      p.waiting.push_back({p.written, end, now_});
      p.written = end;
      feed(p, {.kind = ProvisionEvent::placed, .length = end});
    }
    at(now_ + static_cast<Time>(static_cast<double>(p.interval) * noisy()) + 1, p, [this, &p] { write(p); });
  }

  // One transfer at a time, in order, when its bytes are ready.
  void carry(Process& p) {
    if (p.copying || p.waiting.empty()) return;
    const auto next = p.waiting.front();
    if (next.end > p.provisioner.state().limit) {
      p.lost += next.end - next.begin;
      p.waiting.pop_front();
      carry(p);
      return;
    }
    if (next.end > p.ready) return;
    p.waiting.pop_front();
    const Time wait = now_ - std::max(next.placed, p.last_carried);
    p.longest_wait = std::max(p.longest_wait, wait);
    p.waited += wait;
    p.waits += wait > 0;
    ++p.copies;
    p.copying = true;
    p.copied = {next.begin, next.end - next.begin};
    const double most =
        holds(p.registered, next.begin, next.end) ? spec_.copy_rate : std::min(spec_.copy_rate, spec_.unpinned_rate);
    const double rate = most * (p.touches.empty() ? 1 : spec_.interference);
    const Bytes bytes = next.end - next.begin;
    const Time took = time_for(bytes, rate);
    feed(p, {.kind = ProvisionEvent::copy_begun});
    at(now_ + took, p, [this, &p, bytes, took] {
      p.carried += bytes;
      p.copying = false;
      p.last_carried = now_;
      p.pinning_before_carried = p.pinning_took;
      feed(p, {.kind = ProvisionEvent::copy_ended, .length = bytes, .took = took});
    });
  }

  // Nothing happens any more, and nothing is owed.
  void finish(Process& p) {
    if (p.dead) return;
    const ProvisionState& s = p.provisioner.state();
    const ProvisionSpec& spec = p.provisioner.spec();
    EXPECT_TRUE(p.touches.empty());
    EXPECT_FALSE(p.pinning);
    EXPECT_GE(s.ready, std::min(s.placed, s.limit)) << "what is placed never became ready";
    EXPECT_EQ(p.carried + p.lost, p.written);
    EXPECT_EQ(s.placed, p.written);
    // Where pages come by themselves, what is placed stays: all of it, perhaps.
    EXPECT_TRUE(s.touch_failed ? s.limit < spec.capacity || spec.faults_in : s.limit == spec.capacity);
    if (p.memory >= spec.capacity) {
      EXPECT_FALSE(s.touch_failed);
      EXPECT_EQ(p.lost, 0u);
    }
    if (p.failed_pins == 0) {
      EXPECT_FALSE(s.pin_failed);
    }
    if (!p.hangs && holder_ == nullptr) {
      EXPECT_FALSE(p.asked || p.ours);
    }
    // One tick for each wait for the token that lasted, and for each rest; none besides.
    const std::uint64_t rests = spec.rest > 0 ? p.grants : 0;
    EXPECT_LE(p.ticks, p.grants + rests + p.busy_pins + 2 + static_cast<std::uint64_t>(p.copies));
    // What was used without is pinned by now.
    if (spec.pinning == Pinning::pieces && !s.pin_failed && !p.hangs && holder_ == nullptr) {
      EXPECT_EQ(p.pinned, s.ready);
    }
    if (spec.extent == Extent::all && !s.touch_failed) {
      EXPECT_EQ(s.touched, spec.capacity);
    }
    if (spec.extent == Extent::needed) {
      EXPECT_LE(p.touch_next,
                s.placed + std::max({spec.most_lead, spec.least_lead, s.placed / 8}) + spec.largest_piece);
    }
  }

  WorldSpec spec_;
  std::mt19937_64 random_;
  Time now_ = 0;
  std::uint64_t sequence_ = 0;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> events_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::deque<Process*> queue_;
  Process* holder_ = nullptr;
};

}  // namespace ebb::policy
