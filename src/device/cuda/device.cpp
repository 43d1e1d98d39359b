#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>

#include "device/cuda.hpp"
#include "device/cuda/digest.hpp"
#include "device/cuda/driver.hpp"
#include "device/cuda/memory.hpp"
#include "device/cuda/parts.hpp"
#include "device/cuda/ranges.hpp"
#include "device/cuda/waiting.hpp"
#include "device/cuda/zones.hpp"

namespace ebb::device {
namespace {

static_assert(sizeof(StreamId) == sizeof(cudaStream_t) && sizeof(EventId) == sizeof(cudaEvent_t));

cudaEvent_t event_of(EventId id) { return reinterpret_cast<cudaEvent_t>(id); }

// kLegacyStream and the per-thread stream (2) are the driver's own handles already.
cudaStream_t stream_of(StreamId id) {
  if (id == kInlineStream) throw std::logic_error("a GPU has no inline stream: the host cannot copy its memory");
  return reinterpret_cast<cudaStream_t>(id);
}

/// One GPU. Its streams and events are the driver's handles.
///
/// Thread safety: as Device.
/// 1. It keeps no record of streams, events or memory except the ranges of reserve(): the driver has them. Whatever a
///    method is given must exist, and a stream must belong to this GPU's primary context. Members are set before the
///    device is shared; bridge_ and its events are used with bridge_mutex_ held.
/// 2. Each method makes the GPU's context current on the calling thread, with the relaxed capture mode, and then
///    restores both (cuda::Current).
/// 3. Only records and waits of events are ever enqueued on the legacy default stream. Work there is ordered with that
///    of every blocking stream of the process, so a copy of ours on it would delay all of them.
/// 4. A GPU's failure is permanent in the driver: from then on every event is failed and every call refused, with the
///    driver's reason. Once the driver has shut down (the process is exiting), events are done and everything else does
///    nothing.
class CudaDevice final : public Device {
 public:
  CudaDevice(const cuda::Context& context, std::string name)
      : context_(context), name_(std::move(name)), plain_(asked_for_plain()), ranges_(context, plain_) {}

  ~CudaDevice() override {
    const cuda::Current current(context_);
    if (current.error() != cudaSuccess) return;
    if (bridge_) {
      cuda::forget(cudaStreamSynchronize(bridge_));
      cuda::forget(cudaStreamDestroy(bridge_));
    }
    for (const cudaEvent_t event : {bridge_in_, bridge_out_}) {
      if (event) cuda::forget(cudaEventDestroy(event));
    }
  }

  Result<void> open() {
    const cuda::Current current(context_);
    if (current.error() != cudaSuccess) return refused("be made current", current.error());
    cudaError_t error = cudaStreamCreateWithFlags(&bridge_, cudaStreamNonBlocking);
    for (cudaEvent_t* event : {&bridge_in_, &bridge_out_}) {
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    }
    if (error != cudaSuccess) return refused("make a stream", error);
    cuda::enable_peers(context_);
    copies_parts_ = cuda::forget(cuda::load_parts()) == cudaSuccess;
    return {};
  }

  std::string_view name() const noexcept override { return name_; }
  std::optional<int> gpu() const noexcept override { return context_.ordinal; }
  bool host_memory() const noexcept override { return false; }

  Result<std::byte*> allocate(std::size_t bytes) override {
    const cuda::Current current(context_);
    return cuda::allocate_device(context_, bytes, plain_);
  }
  void free(std::byte* memory, std::size_t bytes) noexcept override {
    const cuda::Current current(context_);
    cuda::free_device(context_, memory, bytes, plain_);
  }
  Result<std::byte*> allocate_host(std::size_t bytes) override {
    const cuda::Current current(context_);
    return cuda::allocate_pinned(bytes);
  }
  void free_host(std::byte* memory, std::size_t bytes) noexcept override {
    const cuda::Current current(context_);
    cuda::free_pinned(memory, bytes);
  }
  std::uint64_t free_bytes() noexcept override {
    const cuda::Current current(context_);
    return cuda::free_device_bytes();
  }

  Result<std::byte*> reserve(std::size_t bytes) override {
    const cuda::Current current(context_);
    return ranges_.reserve(bytes);
  }
  Result<void> map(std::byte* range, std::size_t at, std::size_t bytes) override {
    const cuda::Current current(context_);
    return ranges_.map(range, at, bytes);
  }
  std::size_t map_granule() const noexcept override { return cuda::kGranularity; }
  void unreserve(std::byte* range, std::size_t) noexcept override {
    const cuda::Current current(context_);
    ranges_.unreserve(range);
  }
  Result<void> pin(std::byte* memory, std::size_t bytes) override {
    const cuda::Current current(context_);
    return cuda::pin(memory, bytes);
  }
  void unpin(std::byte* memory, std::size_t) noexcept override {
    const cuda::Current current(context_);
    cuda::unpin(memory);
  }

  Result<StreamId> create_stream() override {
    const cuda::Current current(context_);
    cudaStream_t stream = nullptr;
    const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) return refused("make a stream", error);
    return reinterpret_cast<StreamId>(stream);
  }
  void destroy_stream(StreamId id) noexcept override {
    const cuda::Current current(context_);
    if (current.error() != cudaSuccess || id == kInlineStream) return;
    const auto stream = reinterpret_cast<cudaStream_t>(id);
    cuda::forget(cudaStreamSynchronize(stream));
    cuda::forget(cudaStreamDestroy(stream));
  }
  Result<EventId> create_event() override {
    const cuda::Current current(context_);
    cudaEvent_t event = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (error != cudaSuccess) return refused("make an event", error);
    return reinterpret_cast<EventId>(event);
  }
  void destroy_event(EventId event) noexcept override {
    const cuda::Current current(context_);
    if (current.error() == cudaSuccess) cuda::forget(cudaEventDestroy(event_of(event)));
  }

  Result<void> copy(StreamId id, void* to, const void* from, std::size_t bytes) override {
    const cudaStream_t stream = stream_of(id);
    if (bytes == 0) return {};
    const cuda::Current current(context_);
    const auto enqueue = [&](cudaStream_t on) { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, on); };
    return copied(id == kLegacyStream ? beside_legacy(enqueue) : enqueue(stream), bytes);
  }

  Result<void> copy_all(StreamId id, std::span<const BareCopy> parts) override {
    constexpr std::size_t kFew = 4;  // the driver's own calls are as quick
    if (parts.size() < kFew || !copies_parts_) return Device::copy_all(id, parts);
    const cuda::Current current(context_);
    cuda::PartList within;
    for (const BareCopy& one : parts) {
      if (one.bytes <= cuda::kShortPart && owns(one.to, one.bytes) && owns(one.from, one.bytes)) {
        within.parts[within.count++] = one;
        if (within.count < within.kMost) continue;
        if (auto result = copy_within(id, within); !result) return result;
        within.count = 0;
      } else if (auto result = copy(id, one.to, one.from, one.bytes); !result) {
        return result;
      }
    }
    return copy_within(id, within);
  }

  Result<void> digest(StreamId id, const void* memory, std::size_t bytes, Digest* parts) override {
    const cudaStream_t stream = stream_of(id);
    const cuda::Current current(context_);
    const auto enqueue = [&](cudaStream_t on) { return cuda::enqueue_digest(on, memory, bytes, parts); };
    const cudaError_t error = id == kLegacyStream ? beside_legacy(enqueue) : enqueue(stream);
    if (error == cudaErrorNotSupported) {
      return Error{Errc::unsupported, "device '" + name_ + "' computes no digests: this build was made without nvcc"};
    }
    return result("compute a digest", error);
  }

  bool owns(const void* memory, std::size_t bytes) noexcept override {
    const auto* const last = static_cast<const std::byte*>(memory) + (bytes > 0 ? bytes - 1 : 0);
    return device_of_pointer(memory) == context_.ordinal && device_of_pointer(last) == context_.ordinal;
  }

  Result<void> zones(StreamId id, const ZoneJob& job) override {
    const cudaStream_t stream = stream_of(id);
    const cuda::Current current(context_);
    const auto enqueue = [&](cudaStream_t on) { return cuda::enqueue_zones(on, job); };
    const cudaError_t error = id == kLegacyStream ? beside_legacy(enqueue) : enqueue(stream);
    if (error == cudaErrorNotSupported) {
      return Error{Errc::unsupported, "device '" + name_ + "' finds no zones: this build was made without nvcc"};
    }
    return result("work on zones", error);
  }

  bool capturing(StreamId id) noexcept override {
    if (id == kInlineStream) return false;
    const cuda::Current current(context_);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cuda::forget(cudaStreamIsCapturing(reinterpret_cast<cudaStream_t>(id), &status));
    // The legacy stream cannot be captured, but using it while a blocking stream is being captured would invalidate
    // that capture.
    if (error == cudaErrorStreamCaptureImplicit) return true;
    return error == cudaSuccess && status != cudaStreamCaptureStatusNone;
  }

  bool foreign(StreamId id) noexcept override {
#if CUDART_VERSION >= 12080
    if (id <= 2) return false;  // the default streams exist on every device
    const cuda::Current current(context_);
    int device = context_.ordinal;
    return cuda::forget(cudaStreamGetDevice(reinterpret_cast<cudaStream_t>(id), &device)) == cudaSuccess &&
           device != context_.ordinal;
#else
    static_cast<void>(id);
    return false;
#endif
  }

  Result<void> record(EventId event, StreamId stream) override {
    const cudaStream_t on = stream_of(stream);
    const cuda::Current current(context_);
    return result("record an event", cudaEventRecord(event_of(event), on));
  }
  Result<void> stream_wait(StreamId stream, EventId event) override {
    const cudaStream_t on = stream_of(stream);
    const cuda::Current current(context_);
    return result("wait on a stream", cudaStreamWaitEvent(on, event_of(event), 0));
  }

  Result<void> synchronize() override {
    const cuda::Current current(context_);
    return result("finish its work", cudaDeviceSynchronize());
  }

  EventState query(EventId event) noexcept override {
    const cuda::Current current(context_);
    const cudaError_t error = cuda::query_event(event);
    return error == cudaErrorNotReady ? EventState::pending
           : error == cudaSuccess     ? EventState::done
                                      : EventState::failed;
  }
  Result<void> wait(EventId event) override {
    const cuda::Current current(context_);
    return result("do the work that was waited for", cuda::await_event(event));
  }
  void wait_any(std::span<const EventId> events, std::chrono::nanoseconds at_most) noexcept override {
    const cuda::Current current(context_);
    any_wait_.wait(events, at_most);
  }
  void interrupt() noexcept override { any_wait_.interrupt(); }
  void discard(void*, std::size_t) noexcept override {}

 private:
  static bool asked_for_plain() {
    const char* asked = std::getenv("EBBTIDE_CUDA_PLAIN");
    return asked && std::string_view(asked) == "1";
  }

  // The driver's error, as one that names the device and the failed operation.
  Error refused(const std::string& what, cudaError_t error) const {
    cuda::forget(error);
    return {error == cudaErrorMemoryAllocation ? Errc::out_of_memory : Errc::io_error,
            "device '" + name_ + "' could not " + what + ": " + cuda::describe(error)};
  }
  // The same for waits: a driver that has shut down has no work left to wait for.
  Result<void> result(const char* what, cudaError_t error) const {
    if (error == cudaSuccess || cuda::gone(error)) return {};
    return refused(what, error);
  }
  Result<void> copy_within(StreamId id, const cuda::PartList& list) {
    const cudaStream_t stream = stream_of(id);
    const auto enqueue = [&](cudaStream_t on) { return cuda::enqueue_parts(on, list); };
    const cudaError_t error = id == kLegacyStream ? beside_legacy(enqueue) : enqueue(stream);
    if (error == cudaSuccess || cuda::gone(error)) return {};
    cuda::forget(error);  // the driver's own copies need no kernel, or fail with their own reason
    return Device::copy_all(id, std::span(list.parts, list.count));
  }

  Result<void> copied(cudaError_t error, std::size_t bytes) const {
    if (error == cudaSuccess || cuda::gone(error)) return {};
    return refused("copy " + std::to_string(bytes) + " bytes", error);
  }

  // After the legacy stream's earlier work, before its later work. The events may be recorded again at once: a wait
  // refers to the event's state when it was enqueued.
  template <class Enqueue>
  cudaError_t beside_legacy(const Enqueue& enqueue) {
    std::lock_guard lock(bridge_mutex_);
    cudaError_t error = cudaEventRecord(bridge_in_, cudaStreamLegacy);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(bridge_, bridge_in_, 0);
    if (error == cudaSuccess) error = enqueue(bridge_);
    if (error == cudaSuccess) error = cudaEventRecord(bridge_out_, bridge_);
    if (error == cudaSuccess) error = cudaStreamWaitEvent(cudaStreamLegacy, bridge_out_, 0);
    if (error != cudaSuccess) cuda::forget(cudaStreamSynchronize(bridge_));  // nothing is ordered after it
    return error;
  }

  const cuda::Context context_;
  const std::string name_;
  const bool plain_;
  bool copies_parts_ = false;  // there is a kernel for this GPU
  cuda::Ranges ranges_;
  std::mutex bridge_mutex_;
  cudaStream_t bridge_ = nullptr;
  cudaEvent_t bridge_in_ = nullptr, bridge_out_ = nullptr;
  cuda::AnyWait any_wait_;
};

}  // namespace

Result<std::shared_ptr<Device>> make_cuda_device(int ordinal) {
  Result<cuda::Context> context = cuda::Context::retain(ordinal);
  if (!context) return context.error();
  cudaDeviceProp properties;
  if (const cudaError_t error = cuda::forget(cudaGetDeviceProperties(&properties, ordinal)); error != cudaSuccess) {
    return Error{Errc::unsupported, "cuda:" + std::to_string(ordinal) + " cannot be asked: " + cuda::describe(error)};
  }
  auto device = std::make_shared<CudaDevice>(*context, "cuda:" + std::to_string(ordinal) + " " + properties.name);
  if (Result<void> opened = device->open(); !opened) return opened.error();
  return std::shared_ptr<Device>(std::move(device));
}

}  // namespace ebb::device
