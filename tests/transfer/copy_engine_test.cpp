#include "transfer/copy_engine.hpp"

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <new>
#include <pthread.h>
#include <stdexcept>

#include "device/cuda.hpp"
#include "tests/doubles/fake_device.hpp"
#include "tests/doubles/forward_device.hpp"
#include "tests/os/test_files.hpp"
#include "tests/transfer/completions.hpp"

namespace ebb::transfer {
namespace {

using doubles::FakeDevice;
using doubles::is_poison;

struct Kind {
  const char* name;
  std::function<std::shared_ptr<device::Device>()> make;  // null: there is none here
};

// Over the real devices and over the doubles that are as late as a device may be.
class CopyEngineContract : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    device_ = GetParam().make();
    if (!device_) GTEST_SKIP() << "no CUDA device: " << device::cuda_absent_reason();
    engine_ = CopyEngine::create(*device_, 3, completions_.done()).value();
  }
  void TearDown() override {
    engine_.reset();
    for (const auto& [place, bytes] : memory_) device_->free(place, bytes);
  }

  // Of the device, until the end of the test.
  std::byte* memory(std::size_t bytes) {
    memory_.emplace_back(device_->allocate(bytes).value(), bytes);
    return memory_.back().first;
  }

  std::shared_ptr<device::Device> device_;
  test::Completions completions_;
  std::unique_ptr<CopyEngine> engine_;

 private:
  std::vector<std::pair<std::byte*, std::size_t>> memory_;
};

TEST_P(CopyEngineContract, the_bytes_are_there_when_it_is_reported) {
  test::Buffer from(256 * 4096), back(256 * 4096);
  std::byte* const to = memory(256 * 4096);
  from.scramble(1);
  for (Token i = 0; i < 256; ++i) {
    engine_->submit(static_cast<unsigned>(i % 3), i, to + i * 4096, from.data() + i * 4096, 4096);
  }
  for (Token i = 0; i < 256; ++i) {
    ASSERT_TRUE(completions_.of(i));
    engine_->submit(static_cast<unsigned>((i + 1) % 3), 256 + i, back.data() + i * 4096, to + i * 4096, 4096);
    ASSERT_TRUE(completions_.of(256 + i));
    ASSERT_TRUE(std::equal(from.data() + i * 4096, from.data() + (i + 1) * 4096, back.data() + i * 4096));
  }
  EXPECT_NE(completions_.last_thread(), std::this_thread::get_id());
  engine_->stop();
  EXPECT_EQ(completions_.order().size(), 512u);
  EXPECT_EQ(engine_->pending(), 0u);
}

TEST_P(CopyEngineContract, one_link_reports_in_the_order_submitted) {
  test::Buffer from(4096);
  std::byte* const to = memory(3 * 4096);  // a target for each link, for links are not ordered
  for (Token i = 0; i < 90; ++i) {
    engine_->submit(static_cast<unsigned>(i % 3), i, to + i % 3 * 4096, from.data(), i % 7 * 8);
  }
  engine_->stop();
  std::array<std::vector<Token>, 3> by_link;
  for (const Token token : completions_.order()) by_link[token % 3].push_back(token);
  for (const auto& tokens : by_link) {
    EXPECT_EQ(tokens.size(), 30u);
    EXPECT_TRUE(std::ranges::is_sorted(tokens));
  }
}

TEST_P(CopyEngineContract, what_is_pending_when_it_stops_is_reported) {
  constexpr std::size_t kBytes = 1 << 20;
  test::Buffer from(kBytes);
  std::byte* const to = memory(3 * kBytes);
  for (Token i = 0; i < 12; ++i) {
    engine_->submit(static_cast<unsigned>(i % 3), i, to + i % 3 * kBytes, from.data(), kBytes);
  }
  engine_->stop();
  engine_->stop();
  EXPECT_EQ(completions_.order().size(), 12u);
  EXPECT_THROW(engine_->submit(0, 12, to, from.data(), 1), std::logic_error);
}

TEST_P(CopyEngineContract, several_threads_submit) {
  test::Buffer from(4096);
  std::byte* const to = memory(4 * 4096);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (Token i = 0; i < 100; ++i) engine_->submit(t % 3, t * 1000 + i, to + t * 4096, from.data(), 4096);
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine_->stop();
  EXPECT_EQ(completions_.order().size(), 400u);
}

TEST_P(CopyEngineContract, a_report_may_submit_more_even_while_stopping) {
  test::Buffer from(4096, std::byte{1});
  std::byte* const to = memory(4096);
  std::atomic<int> reports{0};
  CopyEngine* engine = nullptr;
  auto made = CopyEngine::create(*device_, 1, [&](Token token, Result<void>) {
                ++reports;
                if (token < 20) engine->submit(0, token + 1, to, from.data(), 4096);
              }).value();
  engine = made.get();
  engine->submit(0, 0, to, from.data(), 4096);
  engine->stop();
  EXPECT_EQ(reports, 21);
}

// While it lives no thread's stack fits into the address space.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge = before_;
    pthread_attr_setstacksize(&huge, std::size_t{1} << 60);
    pthread_setattr_default_np(&huge);
  }
  NoThreads(const NoThreads&) = delete;
  ~NoThreads() { pthread_setattr_default_np(&before_); }

 private:
  pthread_attr_t before_;
};

TEST_P(CopyEngineContract, a_thread_that_cannot_be_started_is_named) {
  const auto refused = [&] {
    const NoThreads none;
    return CopyEngine::create(*device_, 1, completions_.done());
  }();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_NE(refused.error().message.find("a thread cannot be started: "), std::string::npos) << refused.error().message;
  EXPECT_TRUE(CopyEngine::create(*device_, 1, completions_.done()));
}

std::shared_ptr<device::Device> make_fake(bool discrete) {
  return std::make_shared<FakeDevice>(FakeDevice::Options{.seed = 4, .discrete = discrete});
}

// Null without a GPU; one that cannot be used is a failure of every test.
std::shared_ptr<device::Device> make_cuda() {
  return device::cuda_absent_reason().empty() ? device::make_cuda_device(0).value() : nullptr;
}

INSTANTIATE_TEST_SUITE_P(All, CopyEngineContract,
                         ::testing::Values(Kind{"host", [] { return device::make_host_device(); }},
                                           Kind{"fake", [] { return make_fake(false); }},
                                           Kind{"fake_gpu", [] { return make_fake(true); }}, Kind{"cuda", make_cuda}),
                         [](const auto& info) { return info.param.name; });

class CopyEngineOnCommand : public ::testing::Test {
 protected:
  FakeDevice device_{{.seed = 2, .automatic = false}};
  test::Completions completions_;
  std::unique_ptr<CopyEngine> engine_ = CopyEngine::create(device_, 2, completions_.done()).value();
  test::Buffer from_{8 * 4096, std::byte{1}}, to_{8 * 4096};
};

TEST_F(CopyEngineOnCommand, nothing_is_reported_before_the_device_is_done) {
  engine_->submit(0, 1, to_.data(), from_.data(), 4096);
  engine_->submit(1, 2, to_.data() + 4096, from_.data(), 4096);
  device_.await_unfinished(2);
  EXPECT_TRUE(completions_.order().empty());
  EXPECT_EQ(engine_->pending(), 2u);
  ASSERT_TRUE(device_.complete(doubles::FakeDevice::kFirstStream + 1));  // the second stream first
  ASSERT_TRUE(completions_.of(2));
  EXPECT_EQ(completions_.order(), std::vector<Token>{2});
  EXPECT_TRUE(is_poison(to_.data(), 4096));
  device_.release();
  ASSERT_TRUE(completions_.of(1));
}

TEST_F(CopyEngineOnCommand, each_nth_copy_that_fails_or_is_refused_is_reported_alone) {
  device_.release();
  Token token = 0;
  for (std::uint64_t n = 1; n <= 6; ++n) {
    for (const bool refused : {false, true}) {
      const Token first = token;
      refused ? device_.refuse_nth_copy(n) : device_.fail_nth_copy(n);
      for (int i = 0; i < 6; ++i, ++token) engine_->submit(0, token, to_.data() + i * 4096, from_.data(), 4096);
      for (Token t = first; t < first + 6; ++t) {
        const Result<void> how = completions_.of(t);
        EXPECT_EQ(static_cast<bool>(how), t != first + n - 1) << n;
        EXPECT_TRUE(how || how.error().code == Errc::io_error);
      }
    }
  }
  engine_->stop();
  EXPECT_EQ(completions_.order().size(), token);
}

TEST_F(CopyEngineOnCommand, a_failed_copy_tells_the_devices_reason) {
  device_.release();
  device_.fail_nth_copy(1);
  engine_->submit(0, 1, to_.data(), from_.data(), 4096);
  const Result<void> how = completions_.of(1);
  ASSERT_FALSE(how);
  EXPECT_EQ(how.error().message, "a copy of 4096 bytes failed on device 'fake': a copy on the device failed");
}

TEST_F(CopyEngineOnCommand, a_stream_comes_after_a_copy_that_is_under_way) {
  const device::StreamId stream = device_.create_stream().value();
  test::Buffer last{4096};
  engine_->submit(0, 1, to_.data(), from_.data(), 4096);
  ASSERT_TRUE(engine_->come_after(stream, 1));
  ASSERT_TRUE(device_.copy(stream, last.data(), to_.data(), 4096));
  EXPECT_FALSE(device_.complete(stream)) << "what it reads is not there yet";
  ASSERT_TRUE(device_.complete(FakeDevice::kFirstStream));
  ASSERT_TRUE(completions_.of(1));
  device_.run();
  EXPECT_EQ(last.data()[0], std::byte{1});
}

TEST_F(CopyEngineOnCommand, a_stream_comes_after_another_that_is_followed) {
  const device::StreamId first = device_.create_stream().value(), second = device_.create_stream().value();
  ASSERT_TRUE(device_.copy(first, to_.data(), from_.data(), 4096));
  ASSERT_TRUE(engine_->follow(first, 1));
  ASSERT_TRUE(engine_->come_after(second, 1));
  ASSERT_TRUE(device_.copy(second, to_.data() + 4096, to_.data(), 4096));
  EXPECT_FALSE(device_.complete(second));
  device_.release();
  ASSERT_TRUE(completions_.of(1));
  ASSERT_TRUE(device_.synchronize());
  EXPECT_EQ(to_.data()[4096], std::byte{1});
}

TEST(CopyEngine, what_finds_no_memory_is_not_waited_for) {
  struct Full : doubles::ForwardDevice {
    using ForwardDevice::ForwardDevice;
    Result<void> record(device::EventId event, device::StreamId stream) override {
      if (full) throw std::bad_alloc();
      return ForwardDevice::record(event, stream);
    }
    bool full = false;
  };
  Full device{std::make_shared<FakeDevice>()};
  test::Completions completions;
  const auto engine = CopyEngine::create(device, 1, completions.done()).value();
  const device::StreamId stream = device.create_stream().value();
  test::Buffer from(4096), to(4096);
  device.full = true;
  EXPECT_EQ(engine->follow(stream, 1).error().code, Errc::out_of_memory);
  EXPECT_THROW(engine->submit(0, 2, to.data(), from.data(), 4096), std::bad_alloc);
  EXPECT_EQ(engine->pending(), 0u);
  device.full = false;
  ASSERT_TRUE(engine->follow(stream, 3));
  EXPECT_TRUE(completions.of(3));
  engine->stop();
}

TEST_F(CopyEngineOnCommand, what_was_reported_is_come_after_by_doing_nothing) {
  const device::StreamId stream = device_.create_stream().value();
  engine_->submit(0, 1, to_.data(), from_.data(), 4096);
  device_.release();
  ASSERT_TRUE(completions_.of(1));
  EXPECT_TRUE(engine_->come_after(stream, 1));
  EXPECT_TRUE(engine_->come_after(stream, 77)) << "never heard of";
}

TEST_F(CopyEngineOnCommand, nothing_can_come_after_a_copy_that_was_refused) {
  const device::StreamId stream = device_.create_stream().value();
  engine_->submit(0, 1, to_.data(), from_.data(), 4096);  // in front of it: so that it stays to be found
  device_.refuse_nth_copy(1);
  engine_->submit(0, 2, to_.data(), from_.data(), 4096);
  EXPECT_FALSE(engine_->come_after(stream, 2));
  device_.release();
  ASSERT_TRUE(completions_.of(1));
  EXPECT_FALSE(completions_.of(2));
}

// A failure must be found while its end is being reported: otherwise later work would read bytes that never came.
TEST_F(CopyEngineOnCommand, a_failure_can_be_found_until_it_has_been_told) {
  CopyEngine* engine = nullptr;
  device::StreamId stream = 0;
  std::optional<bool> found;
  test::Completions told;
  auto made = CopyEngine::create(device_, 1, [&](Token token, Result<void> how) {
                found = !engine->come_after(stream, token);
                told.done()(token, std::move(how));
              }).value();
  engine = made.get();
  stream = device_.create_stream().value();
  device_.fail_nth_copy(1);
  engine->submit(0, 1, to_.data(), from_.data(), 4096);
  device_.release();
  EXPECT_FALSE(told.of(1));
  EXPECT_EQ(found, true);
  made->stop();
}

TEST_F(CopyEngineOnCommand, a_copy_in_parts_is_reported_once_when_all_of_it_is_there) {
  const Part parts[] = {{to_.data(), from_.data(), 4096}, {to_.data() + 8192, from_.data() + 8192, 4096}};
  engine_->submit(0, 1, parts);
  ASSERT_TRUE(device_.complete(FakeDevice::kFirstStream));
  EXPECT_TRUE(completions_.order().empty());
  device_.release();
  ASSERT_TRUE(completions_.of(1));
  EXPECT_EQ(to_.data()[0], std::byte{1});
  EXPECT_EQ(to_.data()[8192], std::byte{1});
}

TEST_F(CopyEngineOnCommand, a_part_that_is_refused_is_reported_when_those_before_it_are_done) {
  const Part parts[] = {{to_.data(), from_.data(), 4096}, {to_.data() + 8192, from_.data() + 8192, 4096}};
  device_.refuse_nth_copy(2);
  engine_->submit(0, 1, parts);
  EXPECT_TRUE(completions_.order().empty()) << "its first part is still in flight";
  device_.release();
  EXPECT_FALSE(completions_.of(1));
  EXPECT_EQ(to_.data()[0], std::byte{1});
}

}  // namespace
}  // namespace ebb::transfer
