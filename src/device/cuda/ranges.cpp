#include "device/cuda/ranges.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "device/cuda/memory.hpp"
#include "os/files.hpp"

namespace ebb::device::cuda {

std::vector<PeerGpu> peers_in_use(const Context& context) {
  int count = 0;
  if (forget(cudaGetDeviceCount(&count)) != cudaSuccess) return {};
  std::vector<PeerGpu> peers;
  for (int other = 0; other < count; ++other) {
    if (other == context.ordinal || !has_context(*context.driver, other)) continue;
    int reached = 0, reaches = 0;
    forget(cudaDeviceCanAccessPeer(&reached, context.ordinal, other));
    forget(cudaDeviceCanAccessPeer(&reaches, other, context.ordinal));
    if (reached || reaches) peers.push_back({other, reached != 0, reaches != 0});
  }
  return peers;
}

MappedRange::~MappedRange() {
  if (mapped_) context_.driver->cuMemUnmap(address_, mapped_);  // all pieces at once
  if (reserved_) context_.driver->cuMemAddressFree(address_, reserved_);
}

CUresult MappedRange::reserve(std::size_t bytes) {
  const CUresult result = context_.driver->cuMemAddressReserve(&address_, bytes, kGranularity, 0, 0);
  if (result == CUDA_SUCCESS) reserved_ = bytes;
  if (result == CUDA_SUCCESS) peers_ = peers_in_use(context_);
  return result;
}

CUresult MappedRange::append(std::size_t bytes) {
  const Driver& driver = *context_.driver;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = context_.ordinal;
  CUmemGenericAllocationHandle memory = 0;
  CUresult result = driver.cuMemCreate(&memory, bytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  const CUdeviceptr piece = address_ + mapped_;
  result = driver.cuMemMap(piece, bytes, 0, memory, 0);
  driver.cuMemRelease(memory);  // mapped memory lives until it is unmapped
  if (result != CUDA_SUCCESS) return result;
  result = allow(piece, bytes, context_.ordinal);
  if (result != CUDA_SUCCESS) {
    driver.cuMemUnmap(piece, bytes);
    return result;
  }
  for (const PeerGpu& peer : peers_) {
    // Only an optimisation: without peer access, copies go through host memory.
    if (peer.reaches) static_cast<void>(allow(piece, bytes, peer.ordinal));
  }
  mapped_ += bytes;
  return CUDA_SUCCESS;
}

CUresult MappedRange::allow(CUdeviceptr piece, std::size_t bytes, int ordinal) const {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return context_.driver->cuMemSetAccess(piece, bytes, &access, 1);
}

std::byte* MappedRange::take() {
  reserved_ = mapped_ = 0;
  return address();
}

Result<std::byte*> Ranges::reserve(std::size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX - kGranularity) {
    return no_device_memory(context_, bytes, "that is not a valid size of an address range");
  }
  auto range = std::make_unique<Range>(context_);
  range->bytes = bytes;
  std::byte* address = nullptr;
  if (plain_) {
    const Result<std::byte*> allocated = allocate_plain(context_, bytes);
    if (!allocated) return allocated;
    address = *allocated;
  } else {
    const CUresult result = range->memory.reserve(os::round_up(bytes, kGranularity));
    if (result != CUDA_SUCCESS) return no_device_memory(context_, bytes, describe(of(result)));
    address = range->memory.address();
  }
  std::lock_guard lock(mutex_);
  ranges_[address] = std::move(range);
  return address;
}

Result<void> Ranges::map(std::byte* address, std::size_t at, std::size_t bytes) {
  Range* range = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto found = ranges_.find(address);
    if (found != ranges_.end()) range = found->second.get();
  }
  if (!range || at != range->mapped || bytes == 0 || bytes > range->bytes - at) {
    throw std::logic_error("a piece to be mapped is outside its range or does not follow the one before it");
  }
  if (bytes % kGranularity && at + bytes != range->bytes) {
    throw std::logic_error("a piece to be mapped is no multiple of map_granule()");
  }
  if (!plain_) {
    const CUresult result = range->memory.append(os::round_up(bytes, kGranularity));
    if (result != CUDA_SUCCESS) return no_device_memory(context_, bytes, describe(of(result)));
  }
  range->mapped += bytes;
  return {};
}

void Ranges::unreserve(std::byte* address) noexcept {
  std::unique_ptr<Range> range;
  {
    std::lock_guard lock(mutex_);
    auto node = ranges_.extract(address);
    if (node.empty()) return;
    range = std::move(node.mapped());
  }
  if (plain_) forget(cudaFree(address));
}

}  // namespace ebb::device::cuda
