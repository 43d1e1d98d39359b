#include "device/peer_pairs.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include "device/cuda.hpp"

namespace ebb::device {
namespace {

constexpr std::size_t kProbed = std::size_t{8} << 20;  // bytes; the host draws and compares them

/// One GPU; without a fabric, the reason.
struct OpenGpu {
  std::shared_ptr<Device> device;
  Result<std::unique_ptr<PeerFabric>> fabric;
};

OpenGpu open_gpu(int ordinal) {
  Result<std::shared_ptr<Device>> device = make_cuda_device(ordinal);
  if (!device) return {nullptr, device.error()};
  return {*device, make_peer_fabric(**device)};
}

Result<PeerRates> rates_of(int from, OpenGpu& one, int to, OpenGpu& other, std::size_t bytes) {
  for (const OpenGpu* gpu : {&one, &other}) {
    if (!gpu->fabric) return gpu->fabric.error();
  }
  if (Result<void> linked = check_link(from, to, cuda_peer_link(from, to)); !linked) return linked.error();
  return try_pair({*one.device, **one.fabric}, {*other.device, **other.fabric}, bytes);
}

}  // namespace

Result<void> check_link(int from, int to, const PeerLink& link) {
  const std::string pair = "from cuda:" + std::to_string(from) + " to cuda:" + std::to_string(to);
  if (link.mig) return Error{Errc::unsupported, "no way " + pair + ": one is a part of a GPU (MIG)"};
  if (!link.access) return Error{Errc::unsupported, "no peer access " + pair};
  if (!link.nvlink) return Error{Errc::unsupported, "no NVLink " + pair};
  return {};
}

Result<PeerRates> try_pair(PeerEnd from, PeerEnd to, std::size_t bytes) {
  const auto lent = to.fabric.lend(bytes);
  if (!lent) return lent.error();
  const auto near = from.fabric.map(**lent);
  if (!near) return near.error();
  const auto home = to.fabric.map(**lent);
  if (!home) return home.error();
  const PeerView borrower{from.device, near->get()}, owner{to.device, home->get()};
  const std::size_t probed = std::min(bytes, kProbed);
  if (Result<void> stored = probe(borrower, owner, probed); !stored) return stored.error();
  if (Result<void> loaded = probe(owner, borrower, probed); !loaded) return loaded.error();
  return measure_peer(borrower, bytes);
}

std::vector<PeerPair> cuda_peer_pairs(std::size_t bytes) {
  const std::vector<CudaFound> found = find_cuda_devices();
  if (found.size() < 2) return {};
  std::vector<OpenGpu> gpus;
  for (const CudaFound& gpu : found) gpus.push_back(open_gpu(gpu.ordinal));
  std::vector<PeerPair> pairs;
  for (std::size_t from = 0; from < found.size(); ++from) {
    for (std::size_t to = 0; to < found.size(); ++to) {
      const int one = found[from].ordinal, other = found[to].ordinal;
      if (from != to) pairs.push_back({one, other, rates_of(one, gpus[from], other, gpus[to], bytes)});
    }
  }
  return pairs;
}

}  // namespace ebb::device
