#pragma once
// Several processes of one node in virtual time: threads that touch, a device that pins, one pin queue for all,
// programs that write checkpoints and a transfer that carries them. All from one seed; the rules of provisioner.hpp are
// checked at every event against a state of each page.
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

namespace ebb::planner {

// What a machine is like. Rates are bytes a second.
struct WorldSpec {
  double touch_rate = 9e9;    // of one thread
  double touch_total = 30e9;  // of all of a process's
  double copy_rate = 55e9;
  double unpinned_rate = 19e9;  // of copies that any byte of is not pinned
  double interference = 0.6;    // both rates, when a copy runs beside touching
  Time pin_latency = 60'000;
  double pin_rate = 70e9;
  double noise = 0;  // 0.5: everything takes up to half as long again
};

class World {
 public:
  World(const WorldSpec& spec, std::uint64_t seed) : spec_(spec), random_(seed) {}

  struct Process {
    explicit Process(const ProvisionSpec& spec)
        : provisioner(spec), page(spec.capacity % kMiB ? 4096 : 64 << 10), pages(spec.capacity / page) {}
    Provisioner provisioner;
    Bytes page;
    struct Page {
      bool touched = false, pinned = false;
    };
    std::vector<Page> pages;
    std::deque<ByteRange> touches;
    std::optional<ByteRange> pinning;
    Bytes expected = 0;
    bool ticket = false, dead = false, started = false;
    Bytes touch_next = 0, ready = 0, limit = 0, piece_limit = 0;
    Time wakeup = kNever, in_a_row = 0, pin_ended = 0;
    // --- measured
    Time longest_pin = 0, pinning_took = 0, longest_wait = 0, last_carried = 0, pinning_before_carried = 0;
    Bytes pinned = 0, most_piece = 0;
    std::uint64_t ticks = 0, calls = 0, busy_pins = 0, failed_pins = 0;
    // --- faults
    Bytes memory = UINT64_MAX;    // touching fails beyond it
    Bytes pinnable = UINT64_MAX;  // as a limit of locked memory
    double pin_faults = 0;        // chance of each
    bool hangs = false;           // keeps the first of the queue for ever once it is
    // --- the program and its transfer
    struct Checkpoint {
      ByteRange range;
      Time placed = 0;
    };
    std::deque<Checkpoint> waiting;
    std::optional<ByteRange> copied;
    Bytes written = 0, carried = 0, lost = 0, least = 0, most = 0;
    Time interval = 0;
    int left = 0, copies = 0, waits = 0;
  };

  Process& add(const ProvisionSpec& spec) {
    Process& p = *processes_.emplace_back(std::make_unique<Process>(spec));
    p.limit = spec.capacity;
    p.piece_limit = spec.piece;
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
    std::erase(queue_, &p);
    call_next();
  }
  void later(Time when, std::function<void()> f) { events_.emplace(std::pair{when, sequence_++}, std::move(f)); }

  void run() {
    for (auto& p : processes_) feed(*p, {});
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
  // How long a registration takes from now on, whatever its size.
  void pins_in(Time latency) { spec_.pin_latency = latency; }
  Time now() const { return now_; }
  std::vector<std::unique_ptr<Process>>& processes() { return processes_; }

 private:
  void at(Time when, Process& p, std::function<void()> f) {
    later(when, [&p, f = std::move(f)] {
      if (!p.dead) f();
    });
  }
  double draw() { return std::uniform_real_distribution<>(0, 1)(random_); }
  Time time_for(Bytes bytes, double rate) {
    return static_cast<Time>(static_cast<double>(bytes) / rate * 1e9 * (1 + spec_.noise * draw())) + 1;
  }
  template <typename Of>
  static bool all(const Process& p, ByteRange r, Of of) {
    return std::all_of(p.pages.begin() + static_cast<std::ptrdiff_t>(r.offset / p.page),
                       p.pages.begin() + static_cast<std::ptrdiff_t>(r.end() / p.page), of);
  }
  template <typename Do>
  static void each(Process& p, ByteRange r, Do what) {
    for (Bytes i = r.offset / p.page; i < r.end() / p.page; ++i) what(p.pages[i]);
  }

  void feed(Process& p, ProvisionEvent event) {
    if (p.dead) return;
    event.now = now_;
    if (event.kind == ProvisionEvent::tick && p.started) ++p.ticks;
    if (event.kind == ProvisionEvent::expected) p.expected = event.length;
    p.started = true;
    const ProvisionCommands out = p.provisioner.on(event);
    const ProvisionState& s = p.provisioner.state();
    const ProvisionSpec& spec = p.provisioner.spec();
    for (const ByteRange& r : out.touch) {
      ASSERT_EQ(r.offset, p.touch_next);
      ASSERT_TRUE(r.length > 0 && r.length <= spec.piece && r.offset % spec.piece == 0);
      ASSERT_TRUE(r.length == spec.piece || r.end() == s.limit);
      p.touch_next = r.end();
      const Bytes expected = spec.used_when == UsedWhen::pinned ? p.expected : 0;
      ASSERT_LE(p.touch_next, s.placed + std::max(spec.lead, expected) + std::max(spec.largest_piece, spec.piece));
      p.touches.push_back(r);
      begin_touch(p, r);
    }
    ASSERT_LE(p.touches.size(), static_cast<std::size_t>(spec.touchers));
    if (out.take_ticket) {
      ASSERT_FALSE(p.ticket || p.pinning);
      ASSERT_EQ(spec.used_when, UsedWhen::pinned);
      p.ticket = true;
      queue_.push_back(&p);
    }
    if (event.kind == ProvisionEvent::called && !out.pin) leave(p);
    if (out.pin) {
      const ByteRange r = *out.pin;
      ASSERT_EQ(event.kind, ProvisionEvent::called);
      ASSERT_FALSE(p.pinning);
      ASSERT_TRUE(r.length > 0 && (r.length % spec.piece == 0 || r.end() == s.limit || r.offset < p.ready));
      ASSERT_TRUE(all(p, r, [](auto& page) { return page.touched && !page.pinned; })) << "untouched, or twice";
      if (r.offset < p.ready) {
        ASSERT_LE(r.end(), p.ready);
      } else {
        ASSERT_EQ(r.offset, p.ready);
      }
      ASSERT_LE(r.length, p.piece_limit) << "longer than was measured";
      if (now_ - p.pin_ended >= spec.cooldown) p.in_a_row = 0;
      ASSERT_LT(p.in_a_row, 3 * spec.longest_pin) << "no cooldown";
      p.pinning = r;
      begin_pin(p, r);
    }
    call_next();
    check_ready(p);
    p.wakeup = out.wakeup;
    if (p.wakeup != kNever) {
      ASSERT_GT(p.wakeup, now_);
      at(p.wakeup, p, [this, &p, when = p.wakeup] {
        if (p.wakeup == when) feed(p, {});
      });
    }
    carry(p);
  }

  static void check_ready(Process& p) {
    const ProvisionState& s = p.provisioner.state();
    const bool always = p.provisioner.spec().used_when == UsedWhen::always;
    ASSERT_LE(s.limit, p.limit);
    ASSERT_LE(s.ready, s.limit);
    ASSERT_TRUE(s.ready >= p.ready || (always && s.ready == s.limit));
    if (s.ready > p.ready && !always) {
      const bool late =
          s.pin_failed || s.queue_late || s.pin_late || p.provisioner.spec().used_when != UsedWhen::pinned;
      ASSERT_TRUE(
          all(p, {p.ready, s.ready - p.ready}, [&](auto& page) { return page.touched && (late || page.pinned); }));
      ASSERT_FALSE(p.pinning && p.pinning->offset >= p.ready && p.pinning->offset < s.ready)
          << "used while it is pinned";
    }
    p.limit = s.limit;
    p.ready = s.ready;
  }

  void begin_touch(Process& p, ByteRange r) {
    double rate = std::min(spec_.touch_rate, spec_.touch_total / static_cast<double>(p.touches.size()));
    if (p.copied) rate *= spec_.interference;
    at(now_ + time_for(r.length, rate), p, [this, &p, r] {
      std::erase(p.touches, r);
      const bool failed = r.end() > p.memory;
      if (!failed) each(p, r, [](auto& page) { page.touched = true; });
      feed(p, {failed ? ProvisionEvent::touch_failed : ProvisionEvent::touched, 0, r.offset, r.length});
    });
  }

  void begin_pin(Process& p, ByteRange r) {
    if (r.offset < p.ready && p.copied && p.copied->offset < r.end() && r.offset < p.copied->end()) {
      return at(now_ + 1, p, [this, &p, r] {
        ++p.busy_pins;
        end_pin(p, {ProvisionEvent::pin_busy, 0, r.offset, r.length});
      });
    }
    const Time took = static_cast<Time>(static_cast<double>(spec_.pin_latency) * (1 + spec_.noise * draw())) +
                      time_for(r.length, spec_.pin_rate);
    const bool failed = p.pinned + r.length > p.pinnable || draw() < p.pin_faults;
    at(now_ + took, p, [this, &p, r, took, failed] {
      const ProvisionSpec& spec = p.provisioner.spec();
      p.in_a_row += took;
      p.pinning_took += took;
      p.pin_ended = now_;
      p.longest_pin = std::max(p.longest_pin, took);
      if (failed) {
        ++p.failed_pins;
      } else {
        p.pinned += r.length;
        p.most_piece = std::max(p.most_piece, r.length);
        each(p, r, [](auto& page) { page.pinned = true; });
      }
      // The most that may follow: twice as much if that would still be short, less if it was too long.
      if (took > spec.longest_pin || failed) {
        while (p.piece_limit >= r.length && p.piece_limit > spec.piece) p.piece_limit /= 2;
      } else if (took <= spec.longest_pin / 2) {
        while (p.piece_limit < 2 * r.length && 2 * p.piece_limit <= spec.largest_piece) p.piece_limit *= 2;
      }
      const auto kind = failed ? ProvisionEvent::pin_failed : ProvisionEvent::pinned;
      end_pin(p, {kind, 0, r.offset, r.length, took});
    });
  }
  void end_pin(Process& p, ProvisionEvent event) {
    p.pinning.reset();
    leave(p);
    feed(p, event);
  }

  // The first of the queue is called; the next one when it leaves, or dies.
  void leave(Process& p) {
    ASSERT_EQ(queue_.front(), &p);
    queue_.pop_front();
    called_ = nullptr;
    call_next();
  }
  void call_next() {
    if (queue_.empty() || called_ == queue_.front() || queue_.front()->hangs) return;
    Process& p = *(called_ = queue_.front());
    at(now_ + time_for(2000, 1e9), p, [this, &p] {
      p.ticket = false;
      ++p.calls;
      feed(p, {.kind = ProvisionEvent::called});
    });
  }

  void write(Process& p) {
    if (p.left-- == 0) return;
    const Bytes bytes = std::uniform_int_distribution<Bytes>(p.least, p.most)(random_);
    const Bytes end = std::min(p.written + bytes, p.provisioner.spec().capacity) / p.page * p.page;
    feed(p, {.kind = ProvisionEvent::produced, .length = bytes});
    if (bytes % 3 == 0) feed(p, {.kind = ProvisionEvent::expected, .length = 4 * bytes});  // and less again
    if (end > p.written) {
      p.waiting.push_back({{p.written, end - p.written}, now_});
      p.written = end;
      feed(p, {.kind = ProvisionEvent::placed, .length = end});
    }
    at(now_ + time_for(static_cast<Bytes>(p.interval), 1e9), p, [this, &p] { write(p); });
  }

  // One transfer at a time, in order, when its bytes are ready.
  void carry(Process& p) {
    if (p.copied || p.waiting.empty()) return;
    const auto [range, placed] = p.waiting.front();
    if (range.end() > p.ready && range.end() <= p.limit) return;
    p.waiting.pop_front();
    if (range.end() > p.limit) {
      p.lost += range.length;
      return carry(p);
    }
    const Time wait = now_ - std::max(placed, p.last_carried);
    p.longest_wait = std::max(p.longest_wait, wait);
    p.waits += wait > 0;
    ++p.copies;
    p.copied = range;
    const bool pinned = all(p, range, [](auto& page) { return page.pinned; });
    const double rate = pinned ? spec_.copy_rate : std::min(spec_.copy_rate, spec_.unpinned_rate);
    at(now_ + time_for(range.length, rate * (p.touches.empty() ? 1 : spec_.interference)), p, [this, &p, range] {
      p.carried += range.length;
      p.copied.reset();
      p.last_carried = now_;
      p.pinning_before_carried = p.pinning_took;
      carry(p);
    });
  }

  // Nothing happens any more, and nothing is owed.
  void finish(Process& p) {
    if (p.dead) return;
    const ProvisionState& s = p.provisioner.state();
    const ProvisionSpec& spec = p.provisioner.spec();
    const bool waits = p.hangs || (!queue_.empty() && queue_.front()->hangs);
    EXPECT_TRUE(p.touches.empty() && !p.pinning);
    EXPECT_GE(s.ready, std::min(s.placed, s.limit)) << "what is placed never became ready";
    EXPECT_EQ(p.carried + p.lost, p.written);
    EXPECT_EQ(s.pinned, p.pinned);
    EXPECT_TRUE(s.touch_failed || (s.limit == spec.capacity && p.lost == 0));
    EXPECT_TRUE(p.memory < spec.capacity || !s.touch_failed);
    EXPECT_TRUE(p.failed_pins > 0 || !s.pin_failed);
    EXPECT_TRUE(waits || !p.ticket);
    // A tick for each ticket that was waited for and each cooldown; none besides.
    EXPECT_LE(p.ticks, 3 * (p.calls + 1) + static_cast<std::uint64_t>(p.copies));
    const bool pins = spec.used_when == UsedWhen::pinned && !s.pin_failed && !waits;
    if (pins) {
      EXPECT_EQ(p.pinned, s.ready) << "what was used unpinned is pinned later";
    }
    EXPECT_TRUE(spec.lead != kAllAhead || s.touch_failed || s.touched == spec.capacity);
    EXPECT_EQ(p.provisioner.finished(), !p.ticket && s.ready == s.limit && (s.touched >= s.limit || s.touch_failed));
  }

  WorldSpec spec_;
  std::mt19937_64 random_;
  Time now_ = 0;
  std::uint64_t sequence_ = 0;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> events_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::deque<Process*> queue_;
  Process* called_ = nullptr;
};

}  // namespace ebb::planner
