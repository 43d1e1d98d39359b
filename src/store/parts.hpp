#pragma once
// The parts of an open store, which know one another by reference; Engine owns them.

namespace ebb::store {

class ApplicationCopies;  // copies from and to the application's memory
class BackgroundWorker;   // the thread that serves restore_async
class CacheMemory;        // the memory of the tiers, which comes while the store is in use
class CallStatistics;     // counts of calls
class CallTable;          // calls under way
class Callers;            // the application's threads, in their calls
class Catalog;            // checkpoints and histories
class Dispatcher;         // where the planner's output goes
class FileTier;           // what stores the bytes of a file tier
class FileTiers;          // all of these
class HandBacks;          // memory given back in stream order
class HeldBackMaps;       // maps of snapshots whose pieces are not durable below
class JoinedPool;         // the pool of the node
class Leases;             // memory that is lent to other processes, and borrowed of them
class Lifetime;           // phases, and what is in flight
class LinkQueues;         // commands between tiers, to the engines and back
class Objects;            // what checkpoints have in the files
class Persistence;        // the files, and what is durable there
class PlannerPort;        // the planner, its mutex, clock and log
class PumpThread;         // the thread for wake-ups, timers and what calls left behind
class Recovery;           // what other processes wrote
class SharedTrouble;      // a shared directory that fails or does not answer
class Suspender;          // the thread that a signal wakes
class Streams;            // the device's streams, as calls use them
class Verifier;           // whether bytes are what was given
class Waits;              // calls that only wait

class Timer;
class Timers;  // time limits
struct FileObject;
struct CallRow;

}  // namespace ebb::store
