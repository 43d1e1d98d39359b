// What a GPU has beyond the contract: the legacy stream, captures, pinned memory, sizes, peers, the end of the process.
#include <atomic>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/device/cuda_fixture.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::device {
namespace {

// Holds a stream up until it is opened. Kernels must have run before: loading one may wait for the blocked work.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) : stream_(stream) {
    check(cudaLaunchHostFunc(stream, [](void* open) { static_cast<std::atomic<bool>*>(open)->wait(false); }, &open_));
  }
  ~Gate() {
    open();
    static_cast<void>(cudaStreamSynchronize(stream_));
  }
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  const cudaStream_t stream_;
  std::atomic<bool> open_{false};
};

TEST_F(CudaDeviceTest, is_found_by_name) {
  const std::vector<CudaFound> found = find_cuda_devices();
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].ordinal, 0);
  EXPECT_FALSE(found[0].name.empty());
  EXPECT_GT(found[0].total_bytes, kGiB);
  EXPECT_GT(found[0].free_bytes, 0u) << "this process uses it, so that it can be asked";
  EXPECT_FALSE(found[0].pci.empty());
  EXPECT_EQ(device_->name(), "cuda:0 " + found[0].name);
  EXPECT_FALSE(device_->host_memory());
  EXPECT_EQ(current_cuda_device(), 0);
}

TEST_F(CudaDeviceTest, pointers_are_told_apart) {
  std::byte* there = device_->allocate(4 * kMiB).value();
  std::byte* pinned = device_->allocate_host(4 * kMiB).value();
  void* others = nullptr;
  check(cudaMalloc(&others, kMiB));
  int here = 0;
  EXPECT_EQ(device_of_pointer(there), 0);
  EXPECT_EQ(device_of_pointer(there + 4 * kMiB - 1), 0);
  EXPECT_EQ(device_of_pointer(others), 0);
  EXPECT_FALSE(device_of_pointer(pinned));
  EXPECT_FALSE(device_of_pointer(&here));
  check(cudaFree(others));
  device_->free_host(pinned, 4 * kMiB);
  device_->free(there, 4 * kMiB);
}

TEST_F(CudaDeviceTest, host_memory_is_pinned_as_one_range) {
  constexpr std::size_t kBytes = 300 * kMiB + 4096;
  std::byte* pinned = device_->allocate_host(kBytes).value();
  for (std::byte* place : {pinned, pinned + kBytes / 2, pinned + kBytes - 1}) {
    cudaPointerAttributes attributes;
    check(cudaPointerGetAttributes(&attributes, place));
    EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  }
  std::byte* there = device_->allocate(kBytes).value();
  EXPECT_TRUE(copy_and_wait(stream_, there, pinned, kBytes));
  device_->free(there, kBytes);
  device_->free_host(pinned, kBytes);
  cudaPointerAttributes attributes;
  check(cudaPointerGetAttributes(&attributes, &attributes));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST_F(CudaDeviceTest, a_copy_on_the_legacy_stream_is_between_what_came_before_and_what_comes_later) {
  constexpr std::size_t kBytes = 64 * kMiB;
  std::byte *source = device_->allocate(kBytes).value(), *target = device_->allocate(kBytes).value();
  check(cudaMemsetAsync(source, 0, kBytes, cudaStreamLegacy));
  device_->copy(kLegacyStream, target, source, kBytes).value();
  check(cudaStreamSynchronize(cudaStreamLegacy));
  for (int round = 1; round <= 5; ++round) {
    Gate gate(cudaStreamLegacy);
    check(cudaMemsetAsync(source, 2 * round, kBytes, cudaStreamLegacy));
    device_->copy(kLegacyStream, target, source, kBytes).value();
    device_->record(event_, kLegacyStream).value();
    check(cudaMemsetAsync(source, 2 * round + 1, kBytes, cudaStreamLegacy));
    EXPECT_EQ(device_->query(event_), EventState::pending) << "what came before has not ended";
    gate.open();
    device_->wait(event_).value();
    EXPECT_TRUE(holds(target, kBytes, 2 * round)) << round;
    check(cudaStreamSynchronize(cudaStreamLegacy));
    EXPECT_TRUE(holds(source, kBytes, 2 * round + 1)) << round;
  }
  device_->free(source, kBytes);
  device_->free(target, kBytes);
}

TEST_F(CudaDeviceTest, own_streams_do_not_wait_for_the_legacy_stream) {
  std::byte* place = device_->allocate(2 * 4096).value();
  EXPECT_TRUE(copy_and_wait(stream_, place, place + 4096, 4096));
  Gate gate(cudaStreamLegacy);
  // Had our stream been a blocking one, this would never return: the gate is shut.
  EXPECT_TRUE(copy_and_wait(stream_, place, place + 4096, 4096));
  gate.open();
  check(cudaStreamSynchronize(cudaStreamLegacy));
  device_->free(place, 2 * 4096);
}

TEST_F(CudaDeviceTest, waits_return_while_the_event_is_pending) {
  cudaStream_t theirs = nullptr;
  check(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking));
  {
    Gate gate(theirs);
    device_->record(event_, reinterpret_cast<StreamId>(theirs)).value();
    EXPECT_EQ(device_->query(event_), EventState::pending);
    device_->wait_any({&event_, 1}, std::chrono::milliseconds(1));
    EXPECT_EQ(device_->query(event_), EventState::pending);
    std::thread other([&] { device_->interrupt(); });
    device_->wait_any({&event_, 1}, std::chrono::hours(1));
    other.join();
    EXPECT_EQ(device_->query(event_), EventState::pending);
    gate.open();
    EXPECT_TRUE(device_->wait(event_));
  }
  check(cudaStreamDestroy(theirs));
}

TEST_F(CudaDeviceTest, captures_are_seen) {
  cudaStream_t blocking = nullptr, apart = nullptr;
  check(cudaStreamCreate(&blocking));
  check(cudaStreamCreateWithFlags(&apart, cudaStreamNonBlocking));
  const auto as_id = [](cudaStream_t stream) { return reinterpret_cast<StreamId>(stream); };
  EXPECT_FALSE(device_->capturing(as_id(blocking)));
  EXPECT_FALSE(device_->capturing(kLegacyStream));

  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(apart, cudaStreamCaptureModeGlobal));
  EXPECT_TRUE(device_->capturing(as_id(apart)));
  EXPECT_FALSE(device_->capturing(as_id(blocking)));
  EXPECT_FALSE(device_->capturing(stream_));
  EXPECT_FALSE(device_->capturing(kLegacyStream)) << "a non-blocking stream is none of its concern";
  check(cudaStreamEndCapture(apart, &graph));
  check(cudaGraphDestroy(graph));

  check(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal));
  EXPECT_TRUE(device_->capturing(as_id(blocking)));
  EXPECT_TRUE(device_->capturing(kLegacyStream)) << "using it would spoil the capture";
  EXPECT_FALSE(device_->capturing(stream_));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  check(cudaStreamEndCapture(blocking, &graph));
  check(cudaGraphDestroy(graph));
  EXPECT_FALSE(device_->capturing(as_id(blocking)));
  EXPECT_FALSE(device_->capturing(kLegacyStream));
  check(cudaStreamDestroy(blocking));
  check(cudaStreamDestroy(apart));
}

TEST_F(CudaDeviceTest, work_of_other_threads_does_not_break_a_capture) {
  cudaStream_t theirs = nullptr;
  check(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking));
  std::byte* place = device_->allocate(kMiB).value();
  check(cudaStreamBeginCapture(theirs, cudaStreamCaptureModeGlobal));
  check(cudaMemsetAsync(place, 1, 4096, theirs));
  const auto everything = [&] {
    std::byte *there = device_->allocate(4 * kMiB).value(), *pinned = device_->allocate_host(4 * kMiB).value();
    std::byte *range = device_->reserve(4 * kMiB).value(), *host = os::map_pages(kMiB).value();
    device_->map(range, 0, 2 * kMiB).value();
    os::populate(host, kMiB).value();
    device_->pin(host, kMiB).value();
    const StreamId on = device_->create_stream().value();
    const EventId event = device_->create_event().value();
    EXPECT_GT(device_->free_bytes(), 0u);
    EXPECT_EQ(device_of_pointer(there), 0);
    device_->copy(on, there, pinned, 4 * kMiB).value();
    device_->copy(on, range, host, kMiB).value();
    device_->record(event, on).value();
    while (device_->query(event) == EventState::pending) device_->wait_any({&event, 1}, std::chrono::seconds(1));
    device_->stream_wait(stream_, event).value();
    EXPECT_TRUE(device_->wait(event));
    device_->destroy_event(event);
    device_->destroy_stream(on);
    device_->unpin(host, kMiB);
    os::unmap_pages(host, kMiB);
    device_->unreserve(range, 4 * kMiB);
    device_->free_host(pinned, 4 * kMiB);
    device_->free(there, 4 * kMiB);
    EXPECT_TRUE(make_cuda_device(0));
  };
  std::thread(everything).join();
  everything();  // nor does the capturing thread's own
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(theirs, &graph));
  std::size_t nodes = 0;
  check(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u) << "the memset alone";
  check(cudaGraphDestroy(graph));
  check(cudaStreamDestroy(theirs));
  device_->free(place, kMiB);
}

TEST_F(CudaDeviceTest, memory_that_is_not_there_is_refused_and_nothing_leaks) {
  const std::uint64_t before = device_->free_bytes();
  const Result<std::byte*> refused = device_->allocate(before + 4 * kGiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_NE(refused.error().message.find(std::to_string(before + 4 * kGiB)), std::string::npos);
  EXPECT_NE(refused.error().message.find("bytes free"), std::string::npos);
  EXPECT_EQ(refused.error().message.find("(0 bytes free)"), std::string::npos) << refused.error().message;

  // The last bytes are the driver's own, as a rule: some piece fails, and those before it are given back.
  Result<std::byte*> all = device_->allocate(before);
  if (all) {
    device_->free(*all, before);
  } else {
    EXPECT_EQ(all.error().code, Errc::out_of_memory);
  }
  EXPECT_GE(device_->free_bytes() + kSlack, before);
  std::byte* place = device_->allocate(4 * kMiB).value();
  EXPECT_LT(device_->free_bytes(), before);
  device_->free(place, 4 * kMiB);
}

TEST_F(CudaDeviceTest, freed_memory_is_given_back) {
  const std::uint64_t before = device_->free_bytes();
  constexpr std::size_t kBytes = 2 * kGiB + 5 * kMiB + 1;  // three pieces, the last one short
  for (int round = 0; round < 20; ++round) {
    std::byte* place = device_->allocate(kBytes).value();
    EXPECT_LE(device_->free_bytes() + kBytes, before + kSlack);
    device_->free(place, kBytes);
  }
  EXPECT_GE(device_->free_bytes() + kSlack, before);
}

TEST_F(CudaDeviceTest, five_gigabytes_go_in_one_copy) {
  constexpr std::size_t kBytes = 5 * kGiB;
  if (device_->free_bytes() < 2 * kBytes + kGiB) GTEST_SKIP() << "needs 11 GiB of device memory";
  std::byte *from = device_->allocate(kBytes).value(), *to = device_->allocate(kBytes).value();
  const std::vector<std::size_t> places{0, kGiB - 2048, 4 * kGiB - 2048, kBytes - 4096};
  std::vector<test::Buffer> written;
  for (const std::size_t place : places) {
    written.emplace_back(4096).scramble(place);
    copy_and_wait(stream_, from + place, written.back().data(), 4096).value();
  }
  ASSERT_TRUE(copy_and_wait(stream_, to, from, kBytes));
  for (std::size_t i = 0; i < places.size(); ++i) {
    EXPECT_TRUE(std::ranges::equal(download(to + places[i], 4096), written[i].first(4096))) << places[i];
  }
  device_->free(from, kBytes);
  device_->free(to, kBytes);
}

TEST_F(CudaDeviceTest, another_gpu_in_the_process_is_no_matter_and_reached) {
  if (find_cuda_devices().size() < 2) GTEST_SKIP() << "needs two CUDA devices";
  check(cudaSetDevice(0));
  const std::shared_ptr<Device> other = make_cuda_device(1).value();
  std::byte *here = device_->allocate(8 * kMiB).value(), *there = other->allocate(8 * kMiB).value();
  EXPECT_EQ(device_of_pointer(there), 1);
  int current = -1;
  check(cudaGetDevice(&current));
  EXPECT_EQ(current, 0) << "the caller's device is what it was";

  test::Buffer bytes(8 * kMiB);
  bytes.scramble(7);
  copy_and_wait(stream_, here, bytes.data(), bytes.size()).value();
  const StreamId on = other->create_stream().value();
  const EventId event = other->create_event().value();
  other->copy(on, there, here, bytes.size()).value();
  other->record(event, on).value();
  // An event of one GPU orders a stream of another.
  device_->stream_wait(stream_, event).value();
  EXPECT_TRUE(copy_and_wait(stream_, here, there, bytes.size()));
  EXPECT_TRUE(std::ranges::equal(download(here, bytes.size()), bytes.first(bytes.size())));
  // So are pieces that are mapped one by one.
  std::byte* range = other->reserve(8 * kMiB).value();
  other->map(range, 0, 2 * kMiB).value();
  other->map(range, 2 * kMiB, 6 * kMiB).value();
  EXPECT_EQ(device_of_pointer(range + 8 * kMiB - 1), 1);
  EXPECT_TRUE(copy_and_wait(stream_, range, here, 8 * kMiB));
  EXPECT_TRUE(copy_and_wait(stream_, there, range, 8 * kMiB));
  EXPECT_TRUE(std::ranges::equal(download(there, bytes.size()), bytes.first(bytes.size())));
  other->unreserve(range, 8 * kMiB);
  other->destroy_event(event);
  other->destroy_stream(on);
  other->free(there, 8 * kMiB);
  device_->free(here, 8 * kMiB);
}

TEST(CudaDeviceApart, a_process_opens_contexts_only_where_it_is_told) {
  if (!cuda_absent_reason().empty()) GTEST_SKIP() << "no CUDA device: " << cuda_absent_reason();
  const std::size_t gpus = find_cuda_devices().size();
  if (gpus < 2) GTEST_SKIP() << "needs two CUDA devices";
  const int last = static_cast<int>(gpus) - 1;
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const std::shared_ptr<Device> device = make_cuda_device(last).value();
        const EventId event = device->create_event().value();
        device->wait(event).value();
        // Known where the process uses a GPU, and only there.
        const bool unknown = find_cuda_devices()[0].free_bytes == 0;
        std::exit(unknown && find_cuda_devices()[static_cast<std::size_t>(last)].free_bytes > 0 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

// Destroyed by the last of a process's destructors, when the driver may have shut down, with a copy in flight.
struct Late {
  std::shared_ptr<Device> device;
  StreamId stream = 0;
  EventId event = 0;
  std::byte *memory = nullptr, *range = nullptr, *host = nullptr;

  void open() {
    device = make_cuda_device(0).value();
    stream = device->create_stream().value();
    event = device->create_event().value();
    memory = device->allocate(2 * kGiB).value();
    range = device->reserve(8 * kMiB).value();
    device->map(range, 0, 2 * kMiB).value();
    host = os::map_pages(2 * kMiB).value();
    os::populate(host, 2 * kMiB).value();
    device->pin(host, kMiB).value();
  }
  ~Late() {
    if (!device) return;
    static_cast<void>(device->copy(stream, memory, memory + kGiB, kGiB));
    static_cast<void>(device->copy(kLegacyStream, memory, memory + kGiB, kGiB));
    static_cast<void>(device->record(event, stream));
    static_cast<void>(device->query(event));
    static_cast<void>(device->wait(event));
    static_cast<void>(device->capturing(kLegacyStream));
    static_cast<void>(device->create_event());
    static_cast<void>(device->allocate(kMiB));
    device->wait_any({&event, 1}, std::chrono::milliseconds(1));
    device->destroy_event(event);
    device->destroy_stream(stream);
    device->free(memory, 2 * kGiB);
    static_cast<void>(device->map(range, 2 * kMiB, 2 * kMiB));
    device->unreserve(range, 8 * kMiB);
    static_cast<void>(device->reserve(8 * kMiB));
    device->unpin(host, kMiB);
    static_cast<void>(device->pin(host + kMiB, kMiB));
    os::unmap_pages(host, 2 * kMiB);
  }
};

TEST(CudaDeviceAtExit, a_process_ends_with_a_device_in_use) {
  static Late late;  // before the runtime's first use, so that it is destroyed after what that leaves to the exit
  if (!cuda_absent_reason().empty()) GTEST_SKIP() << "no CUDA device: " << cuda_absent_reason();
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        late.open();
        late.device->copy(late.stream, late.memory, late.memory + kGiB, kGiB).value();
        late.device->record(late.event, late.stream).value();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ebb::device
