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
  bool any = false;      // objects that are whole wait for nothing but a commit
  Bytes bytes = 0;       // of these
  bool moving = false;   // transfers are under way
  bool commits = false;  // a commit was asked for, and nothing has come of it yet
};

/// Whether to ask for a commit. It costs a sync, and returns memory to those that wait for it: so when nothing keeps
/// the disk busy, or when much of the pool waits for nothing else.
bool commit_pool(const PoolWrites& writes, Bytes pool);

/// Whether what the disk refused is tried again: at once where a drop may have made room or a commit is asked for.
bool try_again(bool may_fit, Time last, Time now);

}  // namespace ebb::planner
