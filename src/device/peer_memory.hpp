#pragma once
// Memory that one device lends and others map, in this process or in another of the same user.
// Ordinary memory, and the double of a GPU's: make_host_fabric(). GPUs: make_cuda_fabric() (cuda.hpp).
#include <cstddef>
#include <memory>

#include "device/device.hpp"
#include "ebbtide/error.hpp"
#include "os/own_descriptors.hpp"

namespace ebb::device {

/// Physical memory that a device lends. It has no address: who wants to touch it maps it, the lender too. It is freed
/// when this object, all descriptors of it and all its mappings are gone, in every process: a lender that ends or is
/// killed takes nothing from a borrower.
/// Thread safety: every method may be called from any thread.
class LentMemory {
 public:
  virtual ~LentMemory() = default;
  virtual std::size_t bytes() const noexcept = 0;
  /// A new descriptor of the memory, to be sent (LocalConnection::send()). It keeps the memory allocated
  /// until it is closed. Error io_error.
  virtual Result<os::OwnDescriptor> descriptor() const = 0;
};

/// One device's end of the links to its peers.
/// Thread safety: every method may be called from any thread. Memory and mappings may outlive the fabric.
class PeerFabric {
 public:
  virtual ~PeerFabric() = default;
  /// The unit of lend() and map(), in bytes: 2 MiB on a GPU.
  virtual std::size_t granularity() const noexcept = 0;
  /// Allocates memory of this device to be lent; `bytes` is a multiple of granularity(). Its contents are undefined.
  /// Errors: invalid_argument (another size), out_of_memory, unsupported (it cannot be shared here).
  virtual Result<std::unique_ptr<LentMemory>> lend(std::size_t bytes) = 0;
  /// Maps lent memory of this or another device, so that this device may copy from and to it; `bytes` as lent. The
  /// descriptor stays the caller's, who may close it after this call. The last owner of the mapping unmaps it: no work
  /// on it may be in flight then. A forked child has no such mapping. That the copies arrive is for probe() to tell
  /// (peer_probe.hpp). Errors: unsupported (this device cannot reach that memory, or a GPU not over NVLink),
  /// invalid_argument or unsupported (more bytes than are lent, a descriptor of something else), out_of_memory.
  virtual Result<std::shared_ptr<std::byte>> map(int descriptor, std::size_t bytes) = 0;
  /// The same for memory that a fabric of this kind has lent in this process.
  virtual Result<std::shared_ptr<std::byte>> map(const LentMemory& lent) = 0;
  /// The other GPU whose memory is mapped at `memory`, as a device, which from now on may copy from and to it as well:
  /// copies between it and the host then take that GPU's own link, and none of this one's. Opens a context there (some
  /// hundred megabytes of that GPU). Null: it is this device's, ordinary memory, or of a GPU that is hidden from this
  /// process. Errors, which name that GPU: out_of_memory or unsupported (no context can be opened there, or it may not
  /// copy from and to it).
  virtual Result<std::shared_ptr<Device>> owner(std::byte* /*memory*/, std::size_t /*bytes*/) {
    return std::shared_ptr<Device>();
  }
};

/// Whether so many bytes can be lent by a fabric of this granularity. Error invalid_argument.
Result<void> check_lent_size(std::size_t bytes, std::size_t granularity);

/// Memory files (memfd) in place of device memory.
std::unique_ptr<PeerFabric> make_host_fabric();

/// The fabric of a GPU's device; of any other, make_host_fabric().
Result<std::unique_ptr<PeerFabric>> make_peer_fabric(const Device& device);

}  // namespace ebb::device
