#include "store/machinery.hpp"

namespace ebb::store {

Machinery::Machinery(options::Seams given_seams, options::EngineSetup given_setup)
    : seams(std::move(given_seams)),
      setup(std::move(given_setup)),
      port(seams.clock, setup.machine, dispatcher),
      lifetime(port),
      streams(seams.device, setup.log),
      statistics(port),
      catalog(port, setup.durability != Durability::ephemeral || setup.readonly),
      memory(port, lifetime, catalog),
      files(port, lifetime, catalog, calls, seams, setup),
      recovery(port, lifetime, catalog, files, setup),
      verifier(port, lifetime, catalog, streams, memory, files, setup, seams.device),
      queues(port, lifetime, catalog, memory, files, verifier, calls, hand_backs),
      copies(port, lifetime, streams, memory, queues, calls, verifier, catalog),
      hand_backs(port, lifetime, catalog, streams),
      calls(port, lifetime, catalog, streams, statistics, setup.verify_all),
      callers(port, lifetime, memory, calls, queues, copies),
      pump(port, lifetime, queues, files, timers),
      worker(port, lifetime, queues, copies, calls, verifier),
      dispatcher(port, lifetime, catalog, memory, files, queues, calls, pump),
      waits(port, lifetime, catalog, statistics, files, calls, callers, timers, setup) {}

}  // namespace ebb::store
