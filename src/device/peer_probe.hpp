#pragma once
// Whether copies to and from peer memory arrive, and how fast they are. Told by the bytes, never by what a driver says:
// on some machines peer copies are said to work and drop bytes.
#include <cstddef>

#include "device/device.hpp"
#include "ebbtide/error.hpp"

namespace ebb::device {

/// Where a device has mapped peer memory (PeerFabric::map()).
struct PeerView {
  Device& device;
  std::byte* memory;
};

/// Copies a pattern, which differs for each page and each probe, into the memory by `writer`, in pieces of odd sizes,
/// reads it back by `reader`, in other pieces, and compares. The two may be one device, or the owner and a borrower:
/// then each has its own address of the same memory. Overwrites it. Takes `bytes` of device and of host memory on each
/// side while it runs. Errors: damaged (it names the first wrong word), out_of_memory, io_error.
Result<void> probe(PeerView writer, PeerView reader, std::size_t bytes);

/// Bytes per second of bare copies between a device's own memory and peer memory.
struct PeerRates {
  double store = 0, load = 0;  // to the peer, from the peer
};

/// Medians of a few copies of `bytes`. Overwrites the memory. Errors: out_of_memory, io_error.
Result<PeerRates> measure_peer(PeerView view, std::size_t bytes);

}  // namespace ebb::device
