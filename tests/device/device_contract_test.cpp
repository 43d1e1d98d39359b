// What every Device keeps to.
#include <atomic>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "device/cuda.hpp"
#include "os/pages.hpp"
#include "tests/doubles/fake_device.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::device {
namespace {

struct Kind {
  const char* name;
  std::function<std::shared_ptr<Device>()> make;  // null: there is none here
};

class DeviceContract : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    device_ = GetParam().make();
    if (!device_) GTEST_SKIP() << "no CUDA device: " << cuda_absent_reason();
  }
  void TearDown() override {
    for (const EventId event : events_) device_->destroy_event(event);
    for (const StreamId stream : streams_) device_->destroy_stream(stream);
    for (const auto& [place, bytes] : memory_) device_->free(place, bytes);
  }

  // Until the end of the test.
  StreamId stream() { return kept(streams_, device_->create_stream().value()); }
  EventId event() { return kept(events_, device_->create_event().value()); }
  std::byte* memory(std::size_t bytes) {
    std::byte* place = device_->allocate(bytes).value();
    std::lock_guard lock(mutex_);
    memory_[place] = bytes;
    return place;
  }
  void copy(StreamId on, void* to, const void* from, std::size_t bytes) { device_->copy(on, to, from, bytes).value(); }

  // Device memory is the host's to read and write, or it is reached by copies alone.
  void upload(std::byte* to, std::span<const std::byte> from) { move(to, from.data(), from.size()); }
  std::vector<std::byte> download(const std::byte* from, std::size_t bytes) {
    std::vector<std::byte> all(bytes);
    move(all.data(), from, bytes);
    return all;
  }
  void move(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (device_->host_memory()) {
      std::memcpy(to, from, bytes);
      return;
    }
    const StreamId on = device_->create_stream().value();
    const EventId moved = device_->create_event().value();
    copy(on, to, from, bytes);
    device_->record(moved, on).value();
    device_->wait(moved).value();
    device_->destroy_event(moved);
    device_->destroy_stream(on);
  }
  static std::vector<std::byte> scrambled(std::size_t bytes, std::uint64_t seed) {
    test::Buffer buffer(bytes);
    buffer.scramble(seed);
    return {buffer.data(), buffer.data() + bytes};
  }

  std::shared_ptr<Device> device_;

 private:
  std::uintptr_t kept(std::vector<std::uintptr_t>& all, std::uintptr_t one) {
    std::lock_guard lock(mutex_);
    all.push_back(one);
    return one;
  }
  std::mutex mutex_;
  std::vector<std::uintptr_t> streams_, events_;
  std::map<std::byte*, std::size_t> memory_;
};

TEST_P(DeviceContract, allocates_aligned_memory_and_refuses_by_name) {
  std::byte* memory = device_->allocate(3 << 20).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % os::kBlock, 0u);
  const std::vector<std::byte> first = scrambled(4096, 1), last = scrambled(4096, 2);
  upload(memory, first);
  upload(memory + (3 << 20) - 4096, last);
  EXPECT_EQ(download(memory, 4096), first);
  EXPECT_EQ(download(memory + (3 << 20) - 4096, 4096), last);
  device_->free(memory, 3 << 20);
  const Result<std::byte*> refused = device_->allocate(std::size_t{1} << 60);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
}

TEST_P(DeviceContract, host_memory_is_the_hosts_and_copies_reach_it) {
  constexpr std::size_t kBytes = (5 << 20) + 4096;
  std::byte* host = device_->allocate_host(kBytes).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(host) % os::kBlock, 0u);
  const std::vector<std::byte> bytes = scrambled(kBytes, 6);
  std::memcpy(host, bytes.data(), kBytes);
  std::byte* there = memory(kBytes);
  const StreamId on = stream();
  const EventId event = this->event();
  copy(on, there, host, kBytes);
  device_->record(event, on).value();
  device_->wait(event).value();
  std::memset(host, 0, kBytes);
  copy(on, host, there, kBytes);
  device_->record(event, on).value();
  device_->wait(event).value();
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), host));
  device_->free_host(host, kBytes);

  const Result<std::byte*> refused = device_->allocate_host(std::size_t{1} << 60);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
}

TEST_P(DeviceContract, says_what_is_free) { EXPECT_GT(device_->free_bytes(), std::uint64_t{1} << 20); }

TEST_P(DeviceContract, a_copy_is_there_when_its_event_is_done) {
  const StreamId on = stream();
  const EventId event = this->event();
  EXPECT_EQ(device_->query(event), EventState::done);  // never recorded
  std::byte *from = memory(1 << 20), *to = memory(1 << 20);
  const std::vector<std::byte> bytes = scrambled(1 << 20, 1);
  upload(from, bytes);
  copy(on, to, from, 1 << 20);
  device_->record(event, on).value();
  ASSERT_TRUE(device_->wait(event));
  EXPECT_EQ(device_->query(event), EventState::done);
  EXPECT_EQ(download(to, 1 << 20), bytes);
}

TEST_P(DeviceContract, a_digest_is_that_of_the_memory_when_the_stream_gets_there) {
  constexpr std::size_t kMost = (std::size_t{40} << 20) + 7;
  const StreamId on = device_->host_memory() ? stream() : kLegacyStream;
  const StreamId other = stream();
  const EventId ended = event();
  std::byte* const there = memory(kMost);
  std::byte* const parts = device_->allocate_host(2 * kDigestParts * sizeof(Digest)).value();
  auto* const first = reinterpret_cast<Digest*>(parts);
  const auto one = scrambled(kMost, 1), two = scrambled(kMost, 2);
  for (const StreamId each : {other, on}) {
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{4097},
                                    std::size_t{100'000}, std::size_t{1} << 20, kMost}) {
      copy(each, there, one.data(), bytes);
      device_->digest(each, there, bytes, first).value();
      copy(each, there, two.data(), bytes);
      device_->digest(each, there, bytes, first + kDigestParts).value();
      device_->record(ended, each).value();
      device_->wait(ended).value();
      EXPECT_EQ(sum_of(first), digest_of(one.data(), bytes)) << bytes;
      EXPECT_EQ(sum_of(first + kDigestParts), digest_of(two.data(), bytes)) << bytes;
    }
  }
  device_->free_host(parts, 2 * kDigestParts * sizeof(Digest));
}

TEST_P(DeviceContract, a_stream_works_in_order) {
  const StreamId on = stream();
  const EventId event = this->event();
  // Each copy's source is the target of the one before it.
  std::byte* chain = memory(64 * 4096);
  const std::vector<std::byte> first = scrambled(4096, 2);
  upload(chain, first);
  for (int i = 1; i < 64; ++i) copy(on, chain + i * 4096, chain + (i - 1) * 4096, 4096);
  device_->record(event, on).value();
  ASSERT_TRUE(device_->wait(event));
  EXPECT_EQ(download(chain + 63 * 4096, 4096), first);
}

TEST_P(DeviceContract, streams_are_ordered_by_stream_wait) {
  const StreamId a = stream(), b = stream();
  const EventId there = event(), back = event();
  std::byte *from = memory(4096), *middle = memory(4096), *to = memory(4096);
  for (int round = 0; round < 50; ++round) {
    const std::vector<std::byte> bytes = scrambled(4096, static_cast<std::uint64_t>(round));
    upload(from, bytes);
    copy(a, middle, from, 4096);
    device_->record(there, a).value();
    device_->stream_wait(b, there).value();
    copy(b, to, middle, 4096);
    device_->record(back, b).value();
    ASSERT_TRUE(device_->wait(back));
    ASSERT_EQ(download(to, 4096), bytes) << round;
  }
}

TEST_P(DeviceContract, the_inline_stream_copies_at_once) {
  const EventId event = this->event();
  test::Buffer from(4096), to(4096);
  if (!device_->host_memory()) {
    EXPECT_THROW(static_cast<void>(device_->copy(kInlineStream, to.data(), from.data(), 4096)), std::logic_error);
    EXPECT_THROW(static_cast<void>(device_->record(event, kInlineStream)), std::logic_error);
    EXPECT_THROW(static_cast<void>(device_->stream_wait(kInlineStream, event)), std::logic_error);
    return;
  }
  from.scramble(3);
  copy(kInlineStream, to.data(), from.data(), 4096);
  EXPECT_TRUE(std::ranges::equal(from.first(4096), to.first(4096)));
  device_->record(event, kInlineStream).value();
  EXPECT_EQ(device_->query(event), EventState::done);

  // Waiting on it is the host waiting.
  const StreamId on = stream();
  from.scramble(4);
  copy(on, to.data(), from.data(), 4096);
  device_->record(event, on).value();
  device_->stream_wait(kInlineStream, event).value();
  EXPECT_TRUE(std::ranges::equal(from.first(4096), to.first(4096)));
}

TEST_P(DeviceContract, empty_copies_are_copies) {
  const StreamId on = stream();
  const EventId event = this->event();
  copy(on, nullptr, nullptr, 0);
  if (device_->host_memory()) copy(kInlineStream, nullptr, nullptr, 0);
  device_->record(event, on).value();
  EXPECT_TRUE(device_->wait(event));
}

TEST_P(DeviceContract, copies_of_one_call_are_all_made_whatever_their_lengths_and_places) {
  constexpr std::size_t kAll = 24 << 20;
  std::byte *from = memory(kAll), *to = memory(kAll);
  const std::vector<std::byte> bytes = scrambled(kAll, 11);
  const StreamId on = stream();
  const EventId event = this->event();
  std::mt19937 random(11);
  for (const std::size_t count : {0, 1, 3, 4, 7, 128, 129, 1000}) {
    upload(from, bytes);
    upload(to, std::vector<std::byte>(kAll));
    std::vector<std::byte> host = scrambled(1 << 20, 12), expected(kAll), back(1 << 20), back_expected(1 << 20);
    std::vector<BareCopy> parts;
    std::size_t at_from = 0, at_to = 0, at_host = 0, at_back = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t align = std::size_t{1} << random() % 6;
      const std::size_t most = count < 8 ? 3 << 20 : i % 50 == 0 ? 65536 : 4096;
      const std::size_t length = i % 9 == 8 ? 0 : random() % most;
      at_from = (at_from + random() % 40) / align * align, at_to = (at_to + random() % 99 + align - 1) / align * align;
      if (i % 5 == 3 && at_host + length <= host.size() && at_back + length <= back.size()) {  // with host memory
        parts.push_back({to + at_to, host.data() + at_host, length});
        std::copy_n(host.begin() + static_cast<std::ptrdiff_t>(at_host), length,
                    expected.begin() + static_cast<std::ptrdiff_t>(at_to));
        parts.push_back({back.data() + at_back, from + at_from, length});
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at_from), length,
                    back_expected.begin() + static_cast<std::ptrdiff_t>(at_back));
        at_host += length, at_back += length;
      } else {
        parts.push_back({to + at_to, from + at_from, length});
        std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at_from), length,
                    expected.begin() + static_cast<std::ptrdiff_t>(at_to));
      }
      at_from += length, at_to += length;
      ASSERT_TRUE(at_from <= kAll && at_to <= kAll);
    }
    device_->copy_all(on, parts).value();
    device_->record(event, on).value();
    device_->wait(event).value();
    EXPECT_TRUE(download(to, kAll) == expected) << count;
    EXPECT_TRUE(back == back_expected) << count;
  }
}

TEST_P(DeviceContract, wait_any_returns_for_the_first_and_when_interrupted) {
  const StreamId on = stream();
  const EventId event = this->event();
  std::byte *from = memory(4096), *to = memory(4096);
  copy(on, to, from, 4096);
  device_->record(event, on).value();
  while (device_->query(event) == EventState::pending) device_->wait_any({&event, 1}, std::chrono::hours(1));
  device_->interrupt();
  device_->wait_any({}, std::chrono::hours(1));  // the interrupt before it ends it
  std::thread other([&] { device_->interrupt(); });
  device_->wait_any({}, std::chrono::hours(1));
  other.join();
  device_->wait_any({}, std::chrono::nanoseconds(1));  // ends by itself
}

TEST_P(DeviceContract, every_interrupt_ends_a_wait) {
  std::atomic<int> waits{0};
  std::thread waiter([&] {
    for (; waits < 2000; ++waits) device_->wait_any({}, std::chrono::hours(1));
  });
  // One at a time: an interrupt before a wait took the one before it would be the same one.
  for (int seen; (seen = waits) < 2000;) {
    device_->interrupt();
    while (waits == seen) std::this_thread::yield();
  }
  waiter.join();
}

TEST_P(DeviceContract, destroying_a_stream_ends_its_work_first) {
  std::byte *from = memory(8 * 4096), *to = memory(8 * 4096);
  const std::vector<std::byte> bytes = scrambled(8 * 4096, 5);
  upload(from, bytes);
  const StreamId on = device_->create_stream().value();
  for (int i = 0; i < 8; ++i) copy(on, to + i * 4096, from + i * 4096, 4096);
  device_->destroy_stream(on);
  EXPECT_EQ(download(to, 8 * 4096), bytes);
}

TEST_P(DeviceContract, synchronize_waits_for_every_stream) {
  std::byte *from = memory(8 * 4096), *to = memory(8 * 4096);
  const std::vector<std::byte> bytes = scrambled(8 * 4096, 8);
  upload(from, bytes);
  std::vector<EventId> events;
  for (int i = 0; i < 8; ++i) {
    const StreamId on = stream();
    copy(on, to + i * 4096, from + i * 4096, 4096);
    events.push_back(event());
    device_->record(events.back(), on).value();
  }
  device_->synchronize().value();
  for (const EventId event : events) EXPECT_EQ(device_->query(event), EventState::done);
  EXPECT_EQ(download(to, bytes.size()), bytes);
  device_->synchronize().value();  // with nothing to do
}

TEST_P(DeviceContract, several_threads_use_it_at_once) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const StreamId on = stream();
      const EventId event = this->event();
      std::byte *from = memory(16384), *to = memory(16384);
      for (std::uint64_t round = 0; round < 40; ++round) {
        const std::vector<std::byte> bytes = scrambled(16384, t * 1000 + round);
        upload(from, bytes);
        copy(on, to, from, bytes.size());
        device_->record(event, on).value();
        device_->wait(event).value();
        right += download(to, bytes.size()) == bytes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
}

TEST_P(DeviceContract, reserved_memory_is_mapped_piece_by_piece) {
  const std::size_t granule = device_->map_granule();
  const std::size_t bytes = 5 * granule + os::kBlock;  // the last piece is a short one
  std::byte* range = device_->reserve(bytes).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range) % (2 << 20), 0u);
  const std::vector<std::byte> all = scrambled(bytes, 9);
  const std::span<const std::byte> source(all);

  device_->map(range, 0, 2 * granule).value();
  upload(range, source.first(2 * granule));
  device_->map(range, 2 * granule, granule).value();
  const std::vector<std::byte> first(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(2 * granule));
  EXPECT_EQ(download(range, 2 * granule), first) << "what was there stays";
  device_->map(range, 3 * granule, bytes - 3 * granule).value();
  upload(range + 2 * granule, source.subspan(2 * granule));
  EXPECT_EQ(download(range, bytes), all) << "across all borders at once";

  std::byte* other = memory(bytes);
  const StreamId on = stream();
  const EventId event = this->event();
  copy(on, other + 1000, range + 1000, bytes - 2000);
  device_->record(event, on).value();
  device_->wait(event).value();
  EXPECT_EQ(download(other + 1000, bytes - 2000), std::vector(all.begin() + 1000, all.end() - 1000));
  device_->unreserve(range, bytes);
}

TEST_P(DeviceContract, ranges_are_given_back_however_far_they_are_mapped) {
  const std::size_t granule = device_->map_granule();
  for (std::size_t mapped = 0; mapped <= 3; ++mapped) {
    std::byte* range = device_->reserve(3 * granule).value();
    for (std::size_t piece = 0; piece < mapped; ++piece) device_->map(range, piece * granule, granule).value();
    EXPECT_THROW(static_cast<void>(device_->map(range, mapped * granule + 100, granule)), std::logic_error);
    device_->unreserve(range, 3 * granule);
  }
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1} << 60, SIZE_MAX}) {
    const Result<std::byte*> refused = device_->reserve(bytes);
    ASSERT_FALSE(refused) << bytes;
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
    EXPECT_NE(refused.error().message.find(std::to_string(bytes)), std::string::npos) << refused.error().message;
  }
}

TEST_P(DeviceContract, pinned_pieces_are_copied_from_and_to_each_for_itself) {
  constexpr std::size_t kPiece = 64 << 10;
  Result<std::byte*> mapped = os::map_pages(3 * kPiece);
  ASSERT_TRUE(mapped);
  std::byte* const host = *mapped;
  const std::vector<std::byte> all = scrambled(3 * kPiece, 10);
  std::ranges::copy(all, host);
  std::byte* there = memory(3 * kPiece);
  const StreamId on = stream();
  const EventId event = this->event();
  const auto there_and_back = [&](std::size_t at, std::size_t bytes) {
    copy(on, there + at, host + at, bytes);
    device_->record(event, on).value();
    device_->wait(event).value();
    std::memset(host + at, 0, bytes);
    copy(on, host + at, there + at, bytes);
    device_->record(event, on).value();
    device_->wait(event).value();
    EXPECT_TRUE(std::equal(all.begin(), all.end(), host)) << at << " " << bytes;
  };
  there_and_back(0, 3 * kPiece);  // not pinned
  device_->pin(host, kPiece).value();
  device_->pin(host + kPiece, kPiece).value();
  for (const std::size_t piece : {0, 1, 2}) there_and_back(piece * kPiece, kPiece);  // the last one is not pinned
  there_and_back(kPiece + 100, kPiece - 100);
  if (!device_->host_memory()) {
    const Result<void> crossing = device_->copy(on, there, host + 1, kPiece);
    ASSERT_FALSE(crossing) << "from one pinned piece into the next";
    EXPECT_EQ(crossing.error().code, Errc::io_error);
    const Result<void> into = device_->copy(on, host + 1, there, kPiece);
    ASSERT_FALSE(into);
    EXPECT_EQ(into.error().code, Errc::io_error);
    there_and_back(0, kPiece);  // a refused copy does no harm to what comes after
    EXPECT_TRUE(device_->synchronize());
  }
  device_->unpin(host, kPiece);
  device_->unpin(host + kPiece, kPiece);
  there_and_back(0, 3 * kPiece);
  device_->pin(host, 3 * kPiece).value();
  there_and_back(0, 3 * kPiece);
  device_->unpin(host, 3 * kPiece);
  os::unmap_pages(host, 3 * kPiece);
}

TEST_P(DeviceContract, work_for_what_does_not_exist_throws) {
  if (!device_->host_memory()) GTEST_SKIP() << "handles of a GPU are the driver's: a wrong one cannot be detected";
  EXPECT_ANY_THROW(static_cast<void>(device_->copy(99, nullptr, nullptr, 0)));
  EXPECT_ANY_THROW(static_cast<void>(device_->record(99, kInlineStream)));
}

std::shared_ptr<Device> make_fake(bool discrete) {
  return std::make_shared<doubles::FakeDevice>(doubles::FakeDevice::Options{.seed = 11, .discrete = discrete});
}

// Null without a GPU; one that cannot be used is a failure of every test.
std::shared_ptr<Device> make_cuda() {
  return cuda_absent_reason().empty() ? make_cuda_device(0).value() : std::shared_ptr<Device>();
}

INSTANTIATE_TEST_SUITE_P(All, DeviceContract,
                         ::testing::Values(Kind{"host", [] { return std::shared_ptr<Device>(make_host_device()); }},
                                           Kind{"fake", [] { return make_fake(false); }},
                                           Kind{"fake_gpu", [] { return make_fake(true); }}, Kind{"cuda", make_cuda}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb::device
