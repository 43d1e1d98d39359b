#pragma once
// A transfer of one checkpoint from one place to another, by chunk.
#include <array>
#include <span>
#include <vector>

#include "planner/checkpoint.hpp"
#include "planner/topology.hpp"

namespace ebb::planner {

// check: what an earlier process left is read, so that it counts.
enum class MoveKind : std::uint8_t { write, read, flush, prefetch, check };

// A chunk on its way: before its hop `hop` or (`moving`) on it. It is there once it has passed the last.
struct Chunk {
  Bytes offset = 0, length = 0;
  int way = 0;  // of the move's routes
  int hop = 0;
  bool moving = false;
  std::array<int, kMaxHops> slot{-1, -1, -1, -1};  // of the staging ring behind each hop
  CommandId command = 0;                           // the last that moved it
};

struct Move {
  bool live = false;
  MoveKind kind = MoveKind::write;
  bool demand = false;  // a blocked call depends on it
  bool forced = false;  // a `wait` depends on it
  bool cancelled = false, failed = false;
  bool unreadable = false;  // and it was the file that it reads
  bool ordered = false;     // on a stream of the application
  bool held = false;        // until that stream is ready: it passes the ring
  bool delayed = false;     // the file refuses it for now: no one knows when its commands end
  bool part = false;        // it brings a part of a replica, whose other part another one brings
  bool displaced = false;   // cancelled since its memory will not come: nothing is wrong with it
  Slot checkpoint = 0;
  RequestId request = 0;
  TierIndex from = kNoTier, to = kNoTier;  // kNoTier: the application
  TierIndex reads = kNoTier;               // where the bytes up to `until` are: `from`, or the rest of what is split
  std::span<const Route> routes;           // from there, the shortest first; each chunk takes one of them
  Bytes first = 0, total = 0;              // it brings the bytes from `first` to `total`: all, or those of a part
  Bytes issued = 0, done = 0, until = 0;
  int in_flight = 0;
  int retries = 0;
  Time since = 0;             // of the call that it serves, or of its own beginning
  std::vector<Chunk> chunks;  // between `done` and `issued`, by offset
};

inline const Route& route_of(const Move& m, int way) { return m.routes[static_cast<std::size_t>(way)]; }
// A check goes into the first ring, and no farther.
inline int hops_of(const Move& m, int way) { return m.kind == MoveKind::check ? 1 : route_of(m, way).hops; }
// How many staging rings a chunk passes, each behind a hop.
inline int rings_of(const Move& m, int way) { return m.kind == MoveKind::check ? 1 : route_of(m, way).hops - 1; }
inline bool arrived(const Move& m, const Chunk& k) { return k.hop == hops_of(m, k.way); }
// Whether its copies run on the application's stream, for as long as that takes: their link does not count them.
inline bool on_its_stream(const Move& m) { return m.ordered && hops_of(m, 0) == 1; }
inline bool goes_down(const Move& m) { return m.kind == MoveKind::write || m.kind == MoveKind::flush; }

}  // namespace ebb::planner
