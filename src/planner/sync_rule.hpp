#pragma once
// When what was written to files is synced, and when what a disk refused is tried again.
#include "planner/ids.hpp"

namespace ebb::planner {

/// Writes and drops that wait for a sync.
struct Unsynced {
  bool any = false;
  bool wanted = false;  // somebody waits for it, or no sync is made that others could share
  Bytes bytes = 0;      // of what is whole
};

inline constexpr Time kSyncInterval = 100'000'000;  // many writes share a sync
// A slow directory is synced seldom: who waits for it, or for its room, has it synced at once.
inline constexpr Time kSharedSyncInterval = 1'000'000'000;
inline constexpr Bytes kMostUnsynced = Bytes{64} << 20;  // so much waits for no interval

/// When they are to be synced; `last`: when that was done last. kNever: there is nothing.
Time sync_at(const Unsynced& waiting, Time last, Time interval);

/// Writes of a pool's agent for its processes.
struct PoolWrites {
  bool any = false;     // objects that are whole wait for nothing but a commit, and none was asked for them
  Bytes bytes = 0;      // of these
  bool moving = false;  // transfers are under way
  Time moved = 0;       // when the last transfer ended
  int commits = 0;      // that were asked for, and have not ended
  Bytes held = 0;       // so much may wait for a sync in the page cache; 0: nothing is there
};

inline constexpr Time kRest = 3'000'000;

/// When to ask for a commit; kNever: not as things are. It costs a sync: so when nothing has kept the disk busy for a
/// moment, or at once when a quarter of the pool waits for nothing else. Two are under way at most: one is synced while
/// the next is gathered behind it. A sync holds up who writes through the page cache, so that half of what may be there
/// is gathered first.
Time commit_pool_at(const PoolWrites& writes, Bytes pool);

/// Whether what the disk refused is tried again: at once where a drop may have made room or a commit is asked for.
bool try_again(bool may_fit, Time last, Time now);

}  // namespace ebb::planner
