#pragma once
// Which GPUs of this process may use each other's memory, and how fast.
#include <cstddef>
#include <vector>

#include "device/device.hpp"
#include "device/peer_memory.hpp"
#include "device/peer_probe.hpp"
#include "ebbtide/error.hpp"

namespace ebb::device {

/// What the driver says of the way from one GPU to another.
struct PeerLink {
  bool mig = false;     // one of them is a part of a GPU (MIG)
  bool access = false;  // the one can map the other's memory
  bool nvlink = false;  // and not over PCIe
};

/// Whether such a link is worth a probe. Error unsupported, which names the pair and what it lacks.
Result<void> check_link(int from, int to, const PeerLink& link);

/// A device and its fabric.
struct PeerEnd {
  Device& device;
  PeerFabric& fabric;
};

/// Tries the link by which `from` uses memory of `to`: probes it both ways, with bytes that one writes and the other
/// reads, then measures it with copies of `bytes`, a multiple of both granularities. Takes `bytes` of each device while
/// it runs. Errors: as of PeerFabric and probe().
Result<PeerRates> try_pair(PeerEnd from, PeerEnd to, std::size_t bytes);

/// An ordered pair of GPUs; without rates it is not used, and the error says why.
struct PeerPair {
  int from = 0, to = 0;
  Result<PeerRates> rates;
};

/// Every ordered pair of the GPUs that this process may use, tried one after another. Opens a context on each.
std::vector<PeerPair> cuda_peer_pairs(std::size_t bytes);

}  // namespace ebb::device
