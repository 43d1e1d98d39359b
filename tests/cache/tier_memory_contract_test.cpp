// What all memory of a tier does, whatever it is and however it is provisioned.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "cache/tier_memory.hpp"
#include "device/cuda.hpp"
#include "tests/cache/watch.hpp"
#include "tests/doubles/fake_device.hpp"

namespace ebb::cache {
namespace {

enum class On { host_device, fake_host, fake_discrete, cuda };

struct Way {
  const char* name;
  On on;
  MadeMemory (*make)(device::Device&, std::size_t, MemoryOptions);
};

MadeMemory host_direct(device::Device& device, std::size_t bytes, MemoryOptions) {
  return direct_host_memory(device, bytes);
}
MadeMemory host_incremental(device::Device& device, std::size_t bytes, MemoryOptions options) {
  return incremental_host_memory(device, bytes, std::move(options));
}
// Small pieces, so that there are many.
MadeMemory host_small(device::Device& device, std::size_t bytes, MemoryOptions options) {
  planner::ProvisionSpec spec;
  spec.piece = 4096;
  spec.largest_piece = 64 << 10;
  spec.lead = 512 << 10;
  spec.pin_deadline = planner::kNever;  // a thread that pins may be late on a busy machine
  return incremental_host_memory(device, bytes, std::move(options), spec);
}
MadeMemory device_direct(device::Device& device, std::size_t bytes, MemoryOptions) {
  return direct_device_memory(device, bytes);
}
MadeMemory device_mapped(device::Device& device, std::size_t bytes, MemoryOptions options) {
  return mapped_device_memory(device, bytes, std::move(options));
}
MadeMemory device_mapped_small(device::Device& device, std::size_t bytes, MemoryOptions options) {
  options.map_piece = 5000;  // 8192
  return mapped_device_memory(device, bytes, std::move(options));
}

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const On on : {On::host_device, On::fake_host, On::fake_discrete, On::cuda}) {
    for (const Way& way :
         {Way{"host_direct", on, host_direct}, Way{"host_incremental", on, host_incremental},
          Way{"host_small", on, host_small}, Way{"device_direct", on, device_direct},
          Way{"device_mapped", on, device_mapped}, Way{"device_mapped_small", on, device_mapped_small}}) {
      all.push_back(way);
    }
  }
  return all;
}

class TierMemoryContract : public testing::TestWithParam<Way> {
 protected:
  TierMemoryContract() {
    if (GetParam().on == On::host_device) {
      real_ = device::make_host_device();
    } else if (GetParam().on == On::cuda) {
      if (device::cuda_absent_reason().empty()) real_ = device::make_cuda_device(0).value();
    } else {
      doubles::FakeDevice::Options options;
      options.discrete = GetParam().on == On::fake_discrete;
      fake_ = std::make_unique<doubles::FakeDevice>(options);
    }
  }
  void SetUp() override {
    if (!fake_ && !real_) GTEST_SKIP() << "no CUDA device: " << device::cuda_absent_reason();
  }
  ~TierMemoryContract() override {
    if (!fake_) return;
    EXPECT_EQ(fake_->allocated(), 0u);
    EXPECT_EQ(fake_->reserved(), 0u);
    EXPECT_EQ(fake_->pinned(), 0u);
    EXPECT_TRUE(fake_->violations().empty()) << fake_->violations()[0];
  }
  device::Device& device() { return fake_ ? *fake_ : *real_; }
  std::unique_ptr<TierMemory> make(std::size_t bytes) {
    return GetParam().make(device(), bytes, watch_.options()).value();
  }

  // By parts, on a stream, and waits for it.
  void copy(const TierMemory& tier, std::size_t offset, std::byte* memory, std::size_t bytes, bool into) {
    const device::StreamId stream = device().create_stream().value();
    const device::EventId event = device().create_event().value();
    std::size_t next = offset;
    tier.for_each_part(offset, bytes, [&](std::size_t at, std::size_t length) {
      EXPECT_EQ(at, next);
      EXPECT_GT(length, 0u);
      next += length;
      std::byte* const inside = tier.data() + at;
      std::byte* const outside = memory + (at - offset);
      const auto copied =
          into ? device().copy(stream, inside, outside, length) : device().copy(stream, outside, inside, length);
      EXPECT_TRUE(copied) << copied.error().message;
    });
    EXPECT_EQ(next, offset + bytes);
    ASSERT_TRUE(device().record(event, stream));
    ASSERT_TRUE(device().wait(event));
    device().destroy_stream(stream);
    device().destroy_event(event);
  }

  std::shared_ptr<device::Device> real_;
  std::unique_ptr<doubles::FakeDevice> fake_;
  Watch watch_;
};

TEST_P(TierMemoryContract, is_aligned_padded_and_ready_where_it_is_wanted) {
  const auto tier = make(3 * kMiB + 5000);
  EXPECT_EQ(tier->size(), 3 * kMiB + 8192);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tier->data()) % 4096, 0u);
  EXPECT_EQ(tier->limit(), tier->size());
  EXPECT_LE(tier->ready(), tier->size());
  tier->want(tier->size());
  watch_.until_ready(*tier, tier->size());
  EXPECT_EQ(tier->ready(), tier->size());
  // But that the thread that pins may be late, on a busy machine.
  const auto late = [](const std::string& text) { return text.find("used unregistered meanwhile") != text.npos; };
  for (const std::string& text : watch_.troubles()) EXPECT_TRUE(late(text)) << text;
}

TEST_P(TierMemoryContract, holds_what_was_copied_into_it_while_it_grows) {
  const auto tier = make(2 * kMiB);
  std::vector<std::byte> in(2 * kMiB), out(2 * kMiB);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i * 7 + i / 4096);
  std::byte* const source = device().allocate_host(in.size()).value();
  std::memcpy(source, in.data(), in.size());
  // Pieces of no round size, each copied as soon as it may be, those before it read again.
  constexpr std::size_t kStep = 100'001;
  for (std::size_t at = 0; at < in.size(); at += kStep) {
    const std::size_t length = std::min(kStep, in.size() - at);
    tier->produced(length);
    tier->want(at + length);
    watch_.until_ready(*tier, at + length);
    tier->copy_begun(at, length);
    copy(*tier, at, source + at, length, true);
    tier->copy_ended(at, length);
  }
  std::memset(source, 0, in.size());
  tier->copy_begun(0, in.size());
  copy(*tier, 0, source, in.size(), false);
  tier->copy_ended(0, in.size());
  EXPECT_EQ(std::memcmp(source, in.data(), in.size()), 0);
  device().free_host(source, in.size());
}

TEST_P(TierMemoryContract, ready_only_grows_and_is_told) {
  const auto tier = make(kMiB);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    for (std::size_t last = 0; !done;) {
      const std::size_t ready = tier->ready();
      EXPECT_GE(ready, last);
      EXPECT_LE(ready, tier->limit());
      last = ready;
    }
  });
  for (std::size_t end = 0; end <= kMiB; end += 64 << 10) {
    tier->want(end);
    watch_.until_ready(*tier, end);
  }
  done = true;
  reader.join();
}

TEST_P(TierMemoryContract, stops_at_any_time_and_says_nothing_afterwards) {
  for (int i = 0; i < 20; ++i) {
    const auto tier = make(kMiB);
    if (i % 2) tier->want(kMiB);
    for (int spin = 0; spin < i * 100; ++spin) static_cast<void>(tier->ready());
    tier->stop();
    const std::size_t ready = tier->ready();
    const int changes = watch_.changes();
    tier->want(kMiB);
    tier->produced(kMiB);
    tier->copy_begun(0, kMiB);
    tier->copy_ended(0, kMiB);
    tier->stop();
    EXPECT_EQ(tier->ready(), ready);
    EXPECT_EQ(watch_.changes(), changes);
    EXPECT_EQ(tier->report().ready, ready);
    if (ready > 0) tier->for_each_part(0, ready, [](std::size_t, std::size_t) {});
  }
}

TEST_P(TierMemoryContract, nothing_is_no_memory_and_too_much_is_refused_by_name) {
  const auto empty = make(0);
  EXPECT_EQ(empty->data(), nullptr);
  EXPECT_EQ(empty->size(), 0u);
  EXPECT_EQ(empty->limit(), 0u);
  empty->want(1);
  empty->produced(1);
  empty->expect(1);
  for (const std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX}) {
    const auto refused = GetParam().make(device(), bytes, {});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  }
}

TEST_P(TierMemoryContract, many_threads_may_use_it) {
  const auto tier = make(kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t end = 4096; end <= kMiB; end += 4096 * (t + 1)) {
        tier->want(end);
        tier->produced(4096);
        tier->expect(end);
        tier->copy_begun(0, 4096);
        std::size_t parts = 0;
        if (const std::size_t ready = tier->ready())
          tier->for_each_part(0, ready, [&](std::size_t, std::size_t) { ++parts; });
        tier->copy_ended(0, 4096);
        EXPECT_LE(tier->report().ready, kMiB);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  tier->want(kMiB);
  watch_.until_ready(*tier, kMiB);
}

std::string name_of_way(const testing::TestParamInfo<Way>& info) {
  const char* on[] = {"host_device", "fake_host", "fake_discrete", "cuda"};
  return std::string(on[static_cast<int>(info.param.on)]) + "_" + info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Ways, TierMemoryContract, testing::ValuesIn(ways()), name_of_way);

}  // namespace
}  // namespace ebb::cache
