#include <cstdint>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <string>

#include "device/cuda.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/memory.hpp"
#include "device/peer_pairs.hpp"

namespace ebb::device {
namespace {

using cuda::Context;

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

Error refused(const Context& context, const std::string& what, CUresult result, Errc otherwise = Errc::unsupported) {
  Errc code = otherwise;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) code = Errc::out_of_memory;
  if (result == CUDA_ERROR_INVALID_VALUE) code = Errc::invalid_argument;
  if (result == CUDA_ERROR_NOT_SUPPORTED || result == CUDA_ERROR_NOT_PERMITTED) code = Errc::unsupported;
  return {code,
          "cuda:" + std::to_string(context.ordinal) + " cannot " + what + ": " + cuda::describe(cuda::of(result))};
}

/// A handle of physical memory; released at its end. The memory lives on where it is mapped.
class Physical {
 public:
  Physical(const Context& context, CUmemGenericAllocationHandle handle) : context_(context), handle_(handle) {}
  Physical(const Physical&) = delete;
  ~Physical() {
    const cuda::Current current(context_);
    context_.driver->cuMemRelease(handle_);
  }
  const Context& context() const { return context_; }
  CUmemGenericAllocationHandle handle() const { return handle_; }

 private:
  const Context context_;
  const CUmemGenericAllocationHandle handle_;
};

class LentGpuMemory final : public LentMemory {
 public:
  LentGpuMemory(const Context& context, CUmemGenericAllocationHandle handle, std::size_t bytes)
      : memory_(context, handle), bytes_(bytes) {}
  std::size_t bytes() const noexcept override { return bytes_; }
  const Physical& memory() const { return memory_; }

  Result<os::OwnDescriptor> descriptor() const override {
    const Context& context = memory_.context();
    const cuda::Current current(context);
    int fd = -1;
    const CUresult result = context.driver->cuMemExportToShareableHandle(&fd, memory_.handle(), kDescriptor, 0);
    if (result != CUDA_SUCCESS) {
      return Error{Errc::io_error, refused(context, "make a descriptor of lent memory", result).message};
    }
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return os::OwnDescriptor([fd] { return fd; });
  }

 private:
  const Physical memory_;
  const std::size_t bytes_;
};

CUresult allow(const cuda::Driver& driver, CUdeviceptr address, std::size_t bytes, int ordinal) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = ordinal;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver.cuMemSetAccess(address, bytes, &access, 1);
}

/// Addresses with physical memory behind them, for one GPU; unmapped at their end.
class Mapping {
 public:
  explicit Mapping(const Context& context) : context_(context) {}
  Mapping(const Mapping&) = delete;
  ~Mapping() {
    const cuda::Current current(context_);
    if (mapped_) context_.driver->cuMemUnmap(address_, bytes_);
    if (bytes_) context_.driver->cuMemAddressFree(address_, bytes_);
  }

  /// Called with the GPU's context current.
  CUresult map(const Physical& memory, std::size_t bytes) {
    const cuda::Driver& driver = *context_.driver;
    CUresult result = driver.cuMemAddressReserve(&address_, bytes, cuda::kGranularity, 0, 0);
    if (result != CUDA_SUCCESS) return result;
    bytes_ = bytes;
    result = driver.cuMemMap(address_, bytes, 0, memory.handle(), 0);
    if (result != CUDA_SUCCESS) return result;
    mapped_ = true;
    return allow(driver, address_, bytes, context_.ordinal);
  }
  std::byte* address() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  const Context context_;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
};

class CudaFabric final : public PeerFabric {
 public:
  explicit CudaFabric(const Context& context) : context_(context) {}
  std::size_t granularity() const noexcept override { return cuda::kGranularity; }

  Result<std::unique_ptr<LentMemory>> lend(std::size_t bytes) override {
    if (Result<void> size = check_lent_size(bytes, cuda::kGranularity); !size) return size.error();
    const cuda::Current current(context_);
    // Checked first, so that a size that does not fit does not briefly take all memory from others.
    if (bytes > cuda::free_device_bytes()) {
      return cuda::no_device_memory(context_, bytes, "that is more than is free");
    }
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = kDescriptor;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = context_.ordinal;
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = context_.driver->cuMemCreate(&handle, bytes, &properties, 0);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      return cuda::no_device_memory(context_, bytes, cuda::describe(cuda::of(result)));
    }
    if (result != CUDA_SUCCESS) return refused(context_, "lend memory", result);
    return std::unique_ptr<LentMemory>(std::make_unique<LentGpuMemory>(context_, handle, bytes));
  }

  Result<std::shared_ptr<std::byte>> map(int descriptor, std::size_t bytes) override {
    if (Result<void> size = check_lent_size(bytes, cuda::kGranularity); !size) return size.error();
    if (descriptor < 0) return Error{Errc::invalid_argument, "there is no descriptor of lent memory"};
    const cuda::Current current(context_);
    CUmemGenericAllocationHandle handle = 0;
    // The descriptor's number in place of a pointer: so the driver wants it.
    void* const number = reinterpret_cast<void*>(static_cast<std::uintptr_t>(descriptor));
    const CUresult result = context_.driver->cuMemImportFromShareableHandle(&handle, number, kDescriptor);
    if (result != CUDA_SUCCESS) {
      const std::string what = "import descriptor " + std::to_string(descriptor) + " as lent memory";
      return refused(context_, what, result, Errc::invalid_argument);
    }
    return mapped(Physical(context_, handle), bytes);
  }

  Result<std::shared_ptr<std::byte>> map(const LentMemory& lent) override {
    const cuda::Current current(context_);
    return mapped(dynamic_cast<const LentGpuMemory&>(lent).memory(), lent.bytes());
  }

  Result<std::shared_ptr<Device>> owner(std::byte* memory, std::size_t bytes) override {
    const std::optional<int> ordinal = device_of_pointer(memory);
    if (!ordinal || *ordinal == context_.ordinal) return std::shared_ptr<Device>();
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Device>& device = owners_[*ordinal];
    if (!device) {
      auto made = make_cuda_device(*ordinal);
      if (!made) return made.error();
      device = std::move(*made);
    }
    const CUresult result = allow(*context_.driver, reinterpret_cast<CUdeviceptr>(memory), bytes, *ordinal);
    if (result == CUDA_SUCCESS) return device;
    return refused(context_, "let cuda:" + std::to_string(*ordinal) + " copy to its mapping of lent memory", result);
  }

 private:
  // Memory of another GPU is used over NVLink alone. Where the driver does not say whose it is, as of a GPU that is
  // hidden from this process, only the probe decides.
  Result<void> check_owner(const Physical& memory) const {
    CUmemAllocationProp properties{};
    int gpus = 0;
    if (context_.driver->cuMemGetAllocationPropertiesFromHandle(&properties, memory.handle()) != CUDA_SUCCESS ||
        cuda::forget(cudaGetDeviceCount(&gpus)) != cudaSuccess) {
      return {};
    }
    const int owner = properties.location.id;
    if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE || owner < 0 || owner >= gpus) return {};
    if (owner == context_.ordinal) return {};
    return check_link(context_.ordinal, owner, cuda_peer_link(context_.ordinal, owner));
  }

  Result<std::shared_ptr<std::byte>> mapped(const Physical& memory, std::size_t bytes) const {
    if (Result<void> linked = check_owner(memory); !linked) return linked.error();
    const auto mapping = std::make_shared<Mapping>(context_);
    const CUresult result = mapping->map(memory, bytes);
    if (result == CUDA_SUCCESS) return std::shared_ptr<std::byte>(mapping, mapping->address());
    return refused(context_, "map " + std::to_string(bytes) + " bytes of lent memory", result);
  }

  const Context context_;
  std::mutex mutex_;
  std::map<int, std::shared_ptr<Device>> owners_;  // by ordinal; guarded by mutex_
};

}  // namespace

Result<std::unique_ptr<PeerFabric>> make_cuda_fabric(int ordinal) {
  const Result<Context> context = Context::retain(ordinal);
  if (!context) return context.error();
  CUdevice device = 0;
  int shares = 0;
  const cuda::Driver& driver = *context->driver;
  if (driver.cuDeviceGet(&device, ordinal) != CUDA_SUCCESS ||
      driver.cuDeviceGetAttribute(&shares, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device) !=
          CUDA_SUCCESS ||
      !shares) {
    return Error{Errc::unsupported, "cuda:" + std::to_string(ordinal) + " cannot share memory as a file descriptor"};
  }
  return std::unique_ptr<PeerFabric>(std::make_unique<CudaFabric>(*context));
}

}  // namespace ebb::device
