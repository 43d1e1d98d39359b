#pragma once
// The parts of an open store, all in one place.
#include "store/application_copies.hpp"
#include "store/background_worker.hpp"
#include "store/cache_memory.hpp"
#include "store/call_statistics.hpp"
#include "store/call_table.hpp"
#include "store/callers.hpp"
#include "store/catalog.hpp"
#include "store/dispatcher.hpp"
#include "store/hand_backs.hpp"
#include "store/lifetime.hpp"
#include "store/link_queues.hpp"
#include "store/persistence.hpp"
#include "store/planner_port.hpp"
#include "store/pump_thread.hpp"
#include "store/recovery.hpp"
#include "store/streams.hpp"
#include "store/timers.hpp"
#include "store/verifier.hpp"
#include "store/waits.hpp"

namespace ebb::store {

/// Each part knows those that it is given, and no other.
struct Machinery {
  Machinery(options::Seams given_seams, options::EngineSetup given_setup);
  Machinery(const Machinery&) = delete;

  const options::Seams seams;
  options::EngineSetup setup;  // constant after the store has opened
  PlannerPort port;
  Lifetime lifetime;
  Streams streams;
  CallStatistics statistics;
  Catalog catalog;
  CacheMemory memory;
  Persistence files;
  Recovery recovery;
  Verifier verifier;
  LinkQueues queues;
  ApplicationCopies copies;
  HandBacks hand_backs;
  CallTable calls;
  Callers callers;
  Timers timers;
  PumpThread pump;
  BackgroundWorker worker;
  Dispatcher dispatcher;
  Waits waits;
};

/// Base of those that serve calls: the parts, by name.
class OnMachinery {
 protected:
  explicit OnMachinery(Machinery& parts)
      : setup_(parts.setup),
        port_(parts.port),
        lifetime_(parts.lifetime),
        streams_(parts.streams),
        statistics_(parts.statistics),
        catalog_(parts.catalog),
        memory_(parts.memory),
        files_(parts.files),
        recovery_(parts.recovery),
        verifier_(parts.verifier),
        queues_(parts.queues),
        hand_backs_(parts.hand_backs),
        calls_(parts.calls),
        callers_(parts.callers),
        timers_(parts.timers) {}

  const options::EngineSetup& setup_;
  PlannerPort& port_;
  Lifetime& lifetime_;
  Streams& streams_;
  CallStatistics& statistics_;
  Catalog& catalog_;
  CacheMemory& memory_;
  Persistence& files_;
  Recovery& recovery_;
  Verifier& verifier_;
  LinkQueues& queues_;
  HandBacks& hand_backs_;
  CallTable& calls_;
  Callers& callers_;
  Timers& timers_;
};

}  // namespace ebb::store
