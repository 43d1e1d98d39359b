#include "tests/sim/exhaustive.hpp"

#include <array>
#include <deque>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>

namespace ebb::sim::testing {
namespace {

constexpr int kMaxChunks = 8;
enum Where : std::uint8_t { fast = 1, second = 2, below = 4, ring = 8 };
constexpr std::uint8_t kIdle = 255;

// A transfer in flight on a link.
struct Busy {
  std::uint8_t chunk = kIdle, from = 0, to = 0, left = 0;  // from/to: Where, 0 = the application
};

struct Position {
  std::array<std::uint8_t, kMaxChunks> at{};  // Where, bits; what is complete
  std::uint8_t delivered = 0;                 // bits: chunks of the current read that the application has
  std::uint8_t op = 0, slept = 0;
  Busy app, forth, back, down, up;  // application; fast>second; second>fast; memory>below; below>memory
};
static_assert(std::is_trivially_copyable_v<Position>);

class Search {
 public:
  Search(const TinyCase& tiny, bool during_copies) : tiny_(tiny), during_copies_(during_copies) {
    int first = 0;
    for (int c : tiny.chunks) {
      first_.push_back(first);
      for (int i = 0; i < c; ++i) owner_.push_back(static_cast<int>(first_.size()) - 1);
      first += c;
    }
    chunks_ = first;
  }

  int run(std::size_t limit) {
    push(Position{}, 0);
    while (!queue_.empty()) {
      const auto [p, cost] = queue_.front();
      queue_.pop_front();
      if (!done_.insert(key(p)).second) continue;
      if (done_.size() > limit) return -1;
      if (p.op == tiny_.ops.size()) return cost;
      cost_ = cost;
      expand(p);
    }
    return -2;  // no schedule at all: the case has no room for its data
  }

 private:
  static std::string key(const Position& p) { return {reinterpret_cast<const char*>(&p), sizeof p}; }

  // Deque of a search with costs 0 and 1.
  void push(const Position& p, int cost) {
    if (cost > cost_)
      queue_.emplace_back(p, cost);
    else
      queue_.emplace_front(p, cost);
  }

  int version(int chunk) const { return owner_[static_cast<std::size_t>(chunk)]; }
  bool of(int chunk, const TinyCase::Op& op) const { return version(chunk) == op.version; }

  int held(const Position& p, Where where) const {
    int n = 0;
    for (int c = 0; c < chunks_; ++c) n += (p.at[static_cast<std::size_t>(c)] & where) != 0;
    for (const Busy* b : {&p.app, &p.forth, &p.back, &p.down, &p.up}) n += b->chunk != kIdle && b->to == where;
    return n;
  }
  int capacity(Where where) const {
    return where == fast ? tiny_.fast : where == second ? tiny_.second : where == ring ? tiny_.ring : 1 << 20;
  }
  int ticks(Where memory) const { return memory == fast ? tiny_.copy : tiny_.past; }  // of the application's copy
  bool coming(const Position& p, int chunk, Where where) const {
    for (const Busy* b : {&p.app, &p.forth, &p.back, &p.down, &p.up})
      if (b->chunk == chunk && b->to == where) return true;
    return false;
  }
  bool read_from(const Position& p, int chunk, Where where) const {
    for (const Busy* b : {&p.app, &p.forth, &p.back, &p.down, &p.up})
      if (b->chunk == chunk && b->from == where) return true;
    return false;
  }

  // Every way to make room for one more chunk at `where`: none needed, or some copy there that is not the only one and
  // not in use is given up. (Giving up earlier than needed, or more than needed, gains nothing.)
  template <class F>
  void with_room(const Position& p, Where where, F&& go) {
    if (held(p, where) < capacity(where)) return go(p);
    if (where == ring || where == below) return;
    for (int c = 0; c < chunks_; ++c) {
      const std::uint8_t at = p.at[static_cast<std::size_t>(c)];
      if (!(at & where) || !(at & (fast | second | below) & ~where) || read_from(p, c, where)) continue;
      Position q = p;
      q.at[static_cast<std::size_t>(c)] = at & static_cast<std::uint8_t>(~where);
      go(q);
    }
  }

  void start(const Position& p, Busy Position::* link, int chunk, int from, int to, int ticks) {
    auto go = [&](Position q) {
      q.*link = {static_cast<std::uint8_t>(chunk), static_cast<std::uint8_t>(from), static_cast<std::uint8_t>(to),
                 static_cast<std::uint8_t>(ticks)};
      push(q, cost_);
    };
    if (to == 0)
      go(p);
    else
      with_room(p, static_cast<Where>(to), go);
  }

  void expand(const Position& p) {
    const TinyCase::Op& op = tiny_.ops[p.op];
    const bool calling = op.kind != TinyCase::Op::sleep;
    // Background transfers: any chunk from any memory to where it is not.
    for (int c = 0; c < chunks_; ++c) {
      const std::uint8_t at = p.at[static_cast<std::size_t>(c)];
      auto absent = [&](Where w) { return !(at & w) && !coming(p, c, w) && capacity(w) > 0; };
      if (p.forth.chunk == kIdle && at & fast && absent(second))
        start(p, &Position::forth, c, fast, second, tiny_.swap);
      if (p.back.chunk == kIdle && at & second && absent(fast)) start(p, &Position::back, c, second, fast, tiny_.swap);
      const bool disk = p.up.chunk == kIdle || !tiny_.shared;
      if (p.down.chunk == kIdle && disk && absent(below))
        for (Where from : {fast, second, ring})
          if (at & from && (from != fast || tiny_.leaps)) start(p, &Position::down, c, from, below, tiny_.down);
      const bool free_disk = p.down.chunk == kIdle || !tiny_.shared;
      if (p.up.chunk == kIdle && free_disk && at & below) {
        for (Where to : {fast, second})
          if (absent(to) && (to != fast || tiny_.leaps)) start(p, &Position::up, c, below, to, tiny_.up);
        // Into the ring only for the current read.
        if (op.kind == TinyCase::Op::read && of(c, op) && absent(ring) && tiny_.past > 0 && !(p.delivered >> c & 1))
          start(p, &Position::up, c, below, ring, tiny_.up);
      }
    }
    if (calling && p.app.chunk == kIdle) copy(p, op);
    tick(p, calling);
  }

  void copy(const Position& p, const TinyCase::Op& op) {
    for (int c = 0; c < chunks_; ++c) {
      if (!of(c, op)) continue;
      const std::uint8_t at = p.at[static_cast<std::size_t>(c)];
      if (op.kind == TinyCase::Op::write) {
        if (at != 0) continue;
        for (Where to : {fast, second, ring})
          if (capacity(to) > 0 && ticks(to) > 0) start(p, &Position::app, c, 0, to, ticks(to));
        through(p, c, true);
        return;  // chunks of one checkpoint are alike: the next one
      }
      if (p.delivered >> c & 1) continue;
      for (Where from : {fast, second, ring})
        if (at & from && ticks(from) > 0) start(p, &Position::app, c, from, 0, ticks(from));
      if (at == below) through(p, c, false);
    }
  }

  // Straight through the ring, finer than by chunks: both links for as long as the slower one takes.
  void through(const Position& p, int c, bool write) {
    if (!during_copies_ || tiny_.ring == 0 || tiny_.past == 0) return;
    Busy Position::* link = write ? &Position::down : &Position::up;
    if ((p.*link).chunk != kIdle) return;
    if (tiny_.shared && (p.down.chunk != kIdle || p.up.chunk != kIdle)) return;
    Position q = p;
    const int slow = write ? tiny_.down : tiny_.up, ticks = slow > tiny_.past ? slow : tiny_.past;
    q.*link = {static_cast<std::uint8_t>(c), 0, 16, static_cast<std::uint8_t>(slow)};  // 16: nowhere, the link is taken
    q.app = {static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(write ? 0 : below),
             static_cast<std::uint8_t>(write ? below : 0), static_cast<std::uint8_t>(ticks)};
    push(q, cost_);
  }

  void tick(Position p, bool calling) {
    auto run = [&](Busy& b, bool app) {
      if (b.chunk == kIdle || --b.left > 0) return;
      if (b.to != 0 && b.to != 16) p.at[b.chunk] |= b.to;
      if (b.to == 0 && app) {
        p.delivered |= static_cast<std::uint8_t>(1 << b.chunk);
        p.at[b.chunk] &= static_cast<std::uint8_t>(~ring);
      }
      if (b.from == ring) p.at[b.chunk] &= static_cast<std::uint8_t>(~ring);
      b = Busy{};
    };
    const bool still = !during_copies_ && p.app.chunk != kIdle;
    run(p.app, true);
    if (!still)
      for (Busy* b : {&p.forth, &p.back, &p.down, &p.up}) run(*b, false);
    if (!calling) ++p.slept;
    settle(p);
    push(p, cost_ + (calling ? 1 : 0));
  }

  // Goes on to the next operation as soon as the present one is over.
  void settle(Position& p) {
    while (p.op < tiny_.ops.size()) {
      const TinyCase::Op& op = tiny_.ops[p.op];
      if (op.kind == TinyCase::Op::sleep) {
        if (p.slept < op.ticks) return;
        p.slept = 0;
      } else {
        if (p.app.chunk != kIdle) return;
        for (int c = 0; c < chunks_; ++c) {
          if (!of(c, op)) continue;
          const std::uint8_t at = p.at[static_cast<std::size_t>(c)];
          if (op.kind == TinyCase::Op::write && (at == 0 || at & ring)) return;
          if (op.kind == TinyCase::Op::read && !(p.delivered >> c & 1)) return;
        }
        if (op.kind == TinyCase::Op::read) {
          for (int c = 0; c < chunks_; ++c) {
            if (!of(c, op)) continue;
            p.at[static_cast<std::size_t>(c)] &= static_cast<std::uint8_t>(op.keep ? ~ring : 0);
            for (Busy* b : {&p.forth, &p.back, &p.down, &p.up}) {
              if (b->chunk != c || (op.keep && b->to != ring)) continue;
              *b = Busy{};  // given up with what it moved
            }
          }
          p.delivered = 0;
        }
      }
      ++p.op;
    }
  }

  const TinyCase& tiny_;
  const bool during_copies_;
  std::vector<int> first_, owner_;
  int chunks_ = 0, cost_ = 0;
  std::deque<std::pair<Position, int>> queue_;
  std::unordered_set<std::string> done_;
};

}  // namespace

int best_blocked(const TinyCase& tiny, bool during_copies, std::size_t limit) {
  return Search(tiny, during_copies).run(limit);
}

}  // namespace ebb::sim::testing
