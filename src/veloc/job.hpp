#pragma once
// How the store of a rank is opened, with those of the other ranks, and what opening finds on the node.
#include <mpi.h>
#include <optional>
#include <string>

#include "ebbtide/group.hpp"
#include "veloc/config.hpp"
#include "veloc/peers.hpp"
#include "veloc/relay.hpp"

namespace ebb::veloc {

struct Job {
  Config config;
  Group group;
  Peers peers;
  std::optional<Relay> relay = {};  ///< the ranks of each node have one store, and a backend sends what they leave
  bool over_mpi = false;
};

/// Errors: those of the configuration and of Group::open. Collective.
Result<Job> open_job(MPI_Comm comm, const std::string& file);
/// A job of one process, without MPI. Errors: as above.
Result<Job> open_job(unsigned id, const std::string& file);

}  // namespace ebb::veloc
