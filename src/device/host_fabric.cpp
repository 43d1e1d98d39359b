#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda.hpp"
#include "device/peer_memory.hpp"
#include "os/files.hpp"
#include "os/memory_left.hpp"
#include "os/shared_memory.hpp"
#include "os/sys_result.hpp"

namespace ebb::device {
namespace {

constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW;  // a mapping never loses its pages

Result<os::OwnDescriptor> duplicate(int descriptor) {
  os::OwnDescriptor copied([&] { return ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0); });
  if (!copied) return os::system_error("copying the descriptor of lent memory failed", errno);
  return copied;
}

class LentFile final : public LentMemory {
 public:
  LentFile(os::OwnDescriptor file, std::size_t bytes) : file_(std::move(file)), bytes_(bytes) {}
  std::size_t bytes() const noexcept override { return bytes_; }
  Result<os::OwnDescriptor> descriptor() const override { return duplicate(file_.fd()); }
  int fd() const { return file_.fd(); }

 private:
  const os::OwnDescriptor file_;
  const std::size_t bytes_;
};

class HostFabric final : public PeerFabric {
 public:
  std::size_t granularity() const noexcept override { return os::kBlock; }

  Result<std::unique_ptr<LentMemory>> lend(std::size_t bytes) override {
    if (Result<void> size = check_lent_size(bytes, os::kBlock); !size) return size.error();
    // Asked first: a memory file takes pages until the kernel ends a process.
    if (Result<void> fits = os::check_left(bytes, os::memory_to_keep(os::available_host_memory())); !fits)
      return fits.error();
    os::OwnDescriptor file([] { return ::memfd_create("ebbtide-lent", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
    if (!file) return os::system_error("making a memory file failed", errno);
    Result<os::OwnDescriptor> copy = duplicate(file.fd());
    if (!copy) return copy.error();
    os::DescriptorSharedFile allocating(std::move(*copy), "ebbtide-lent");
    if (Result<void> allocated = allocating.allocate({0, bytes}); !allocated) {
      return Error{Errc::out_of_memory, allocated.error().message};
    }
    if (::fcntl(file.fd(), F_ADD_SEALS, kFixedSize) != 0)
      return os::system_error("sealing a memory file failed", errno);
    return std::unique_ptr<LentMemory>(std::make_unique<LentFile>(std::move(file), bytes));
  }

  Result<std::shared_ptr<std::byte>> map(int descriptor, std::size_t bytes) override {
    if (Result<void> size = check_lent_size(bytes, os::kBlock); !size) return size.error();
    const int seals = ::fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || (seals & kFixedSize) != kFixedSize) {
      return Error{Errc::invalid_argument, "descriptor " + std::to_string(descriptor) + " is no lent memory"};
    }
    Result<os::OwnDescriptor> copy = duplicate(descriptor);
    if (!copy) return copy.error();
    Result<os::SharedMapping> mapped = os::DescriptorSharedFile(std::move(*copy), "ebbtide-lent").map({{{0, bytes}}});
    if (!mapped) return mapped.error();
    const auto mapping = std::make_shared<os::SharedMapping>(std::move(*mapped));
    return std::shared_ptr<std::byte>(mapping, mapping->data());
  }

  Result<std::shared_ptr<std::byte>> map(const LentMemory& lent) override {
    return map(dynamic_cast<const LentFile&>(lent).fd(), lent.bytes());
  }
};

}  // namespace

Result<void> check_lent_size(std::size_t bytes, std::size_t granularity) {
  if (bytes != 0 && bytes % granularity == 0) return {};
  return Error{Errc::invalid_argument, std::to_string(bytes) + " bytes cannot be lent: expected a multiple of " +
                                           std::to_string(granularity) + " above 0"};
}

std::unique_ptr<PeerFabric> make_host_fabric() { return std::make_unique<HostFabric>(); }

Result<std::unique_ptr<PeerFabric>> make_peer_fabric(const Device& device) {
  if (const auto ordinal = device.gpu()) return make_cuda_fabric(*ordinal);
  return make_host_fabric();
}

}  // namespace ebb::device
