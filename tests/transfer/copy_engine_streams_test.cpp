// What the engine follows on the application's streams.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "tests/doubles/fake_device.hpp"
#include "tests/doubles/forward_device.hpp"
#include "tests/os/test_files.hpp"
#include "tests/transfer/completions.hpp"
#include "transfer/copy_engine.hpp"

namespace ebb::transfer {
namespace {

using device::EventId;
using device::StreamId;
using doubles::FakeDevice;

constexpr StreamId kPerThread = 2;  // as on a GPU: one name for a separate stream in each thread

/// Records which events were queried, and the stream of each thread.
/// Thread safety: every method may be called from any thread.
class WatchedDevice final : public doubles::ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;

  device::EventState query(EventId event) noexcept override {
    {
      std::lock_guard lock(mutex_);
      asked_.insert(event);
    }
    return ForwardDevice::query(event);
  }
  void wait_any(std::span<const EventId> events, std::chrono::nanoseconds at_most) noexcept override {
    {
      std::lock_guard lock(mutex_);
      most_waited_ = std::max(most_waited_, events.size());
    }
    ForwardDevice::wait_any(events, at_most);
  }
  void interrupt() noexcept override {
    {
      std::lock_guard lock(mutex_);
      ++interrupts_;
    }
    ForwardDevice::interrupt();
  }
  Result<void> record(EventId event, StreamId stream) override {
    return ForwardDevice::record(event, stream == kPerThread ? own_stream() : stream);
  }

  /// From now on the calling thread's kPerThread.
  void set_own_stream(StreamId stream) {
    std::lock_guard lock(mutex_);
    own_streams_[std::this_thread::get_id()] = stream;
  }
  /// Different ones.
  std::size_t asked() const {
    std::lock_guard lock(mutex_);
    return asked_.size();
  }
  std::size_t most_waited() const {
    std::lock_guard lock(mutex_);
    return most_waited_;
  }
  std::size_t interrupts() const {
    std::lock_guard lock(mutex_);
    return interrupts_;
  }

 private:
  StreamId own_stream() const {
    std::lock_guard lock(mutex_);
    return own_streams_.at(std::this_thread::get_id());
  }

  mutable std::mutex mutex_;
  std::set<EventId> asked_;
  std::map<std::thread::id, StreamId> own_streams_;
  std::size_t most_waited_ = 0, interrupts_ = 0;
};

class CopyEngineStreams : public ::testing::Test {
 protected:
  // A stream with a copy in flight.
  StreamId busy_stream() {
    const StreamId stream = device_.create_stream().value();
    enqueue(stream);
    return stream;
  }
  // Another copy; copies in flight never overlap.
  void enqueue(StreamId stream) {
    const std::size_t at = 4096 * next_copy_++;
    ASSERT_TRUE(device_.copy(stream, to_.data() + at, from_.data() + at, 4096));
  }
  // The reporting thread looks at everything once more: it does so before it reports the second copy's end.
  void look() {
    for (int i = 0; i < 2; ++i) {
      const Token token = kOfLinks + next_copy_;
      const std::size_t at = 4096 * next_copy_++;
      engine_->submit(0, token, to_.data() + at, from_.data() + at, 4096);
      ASSERT_TRUE(fake_->complete(FakeDevice::kFirstStream));
      ASSERT_TRUE(completions_.of(token));
    }
  }
  std::vector<Token> told() const {
    std::vector<Token> order = completions_.order();
    std::erase_if(order, [](Token token) { return token >= kOfLinks; });
    return order;
  }

  static constexpr Token kOfLinks = 1'000'000;
  std::shared_ptr<FakeDevice> fake_ =
      std::make_shared<FakeDevice>(FakeDevice::Options{.seed = 3, .discrete = true, .automatic = false});
  WatchedDevice device_{fake_};
  test::Completions completions_;
  std::unique_ptr<CopyEngine> engine_ = CopyEngine::create(device_, 2, completions_.done()).value();
  test::Buffer from_{64 * 4096, std::byte{1}}, to_{64 * 4096};
  std::size_t next_copy_ = 0;
};

TEST_F(CopyEngineStreams, of_each_stream_the_oldest_event_alone_is_asked_for) {
  constexpr Token kEach = 200;
  const StreamId streams[] = {busy_stream(), busy_stream()};
  for (Token i = 0; i < 2 * kEach; ++i) ASSERT_TRUE(engine_->follow(streams[i % 2], i));
  EXPECT_EQ(device_.interrupts(), 2u) << "queued entries are seen when earlier ones end";
  look();
  EXPECT_LE(device_.asked(), 2u + 2u) << "the others are those of the link's copies";
  EXPECT_LE(device_.most_waited(), 2u + 1u);
  EXPECT_TRUE(told().empty());
  fake_->release();
  engine_->stop();
  EXPECT_EQ(told().size(), 2 * kEach);
}

TEST_F(CopyEngineStreams, one_stream_is_told_in_order_each_end_as_it_was) {
  const StreamId stream = device_.create_stream().value();
  fake_->fail_nth_copy(2);
  for (Token i = 1; i <= 4; ++i) {
    enqueue(stream);
    ASSERT_TRUE(engine_->follow(stream, i, i == 3 ? std::optional(Error{Errc::io_error, "refused"}) : std::nullopt));
  }
  look();
  EXPECT_TRUE(told().empty()) << "the refused one waits for its stream too";
  fake_->release();
  engine_->stop();
  EXPECT_EQ(told(), (std::vector<Token>{1, 2, 3, 4}));
  EXPECT_TRUE(completions_.of(1));
  EXPECT_EQ(completions_.of(2).error().code, Errc::io_error);
  EXPECT_EQ(completions_.of(3).error().message, "refused");
  EXPECT_TRUE(completions_.of(4));
}

TEST_F(CopyEngineStreams, each_is_told_when_its_own_part_of_the_stream_is_done) {
  const StreamId stream = device_.create_stream().value();
  for (Token i = 1; i <= 3; ++i) {
    enqueue(stream);
    ASSERT_TRUE(engine_->follow(stream, i));
  }
  for (Token i = 1; i <= 3; ++i) {
    look();
    ASSERT_EQ(told().size(), i - 1);
    ASSERT_TRUE(fake_->complete(stream));
    ASSERT_TRUE(completions_.of(i));
  }
  EXPECT_EQ(told(), (std::vector<Token>{1, 2, 3}));
}

TEST_F(CopyEngineStreams, a_slow_stream_holds_up_no_other) {
  const StreamId slow = busy_stream(), quick = device_.create_stream().value();
  ASSERT_TRUE(engine_->follow(slow, 1));
  for (Token i = 2; i <= 4; ++i) {
    enqueue(quick);
    ASSERT_TRUE(engine_->follow(quick, i));
    ASSERT_TRUE(fake_->complete(quick));
    ASSERT_TRUE(completions_.of(i));
  }
  EXPECT_EQ(told(), (std::vector<Token>{2, 3, 4}));
  fake_->release();
  EXPECT_TRUE(completions_.of(1));
}

// Also of an ended thread, whose id the next thread gets.
TEST_F(CopyEngineStreams, a_thread_whose_stream_is_slow_holds_up_no_other_on_its_own) {
  const StreamId slow = busy_stream(), idle = device_.create_stream().value();
  const auto follow_own = [&](StreamId own, Token token) {
    device_.set_own_stream(own);
    EXPECT_TRUE(engine_->follow(kPerThread, token));
  };
  std::thread(follow_own, slow, 1).join();
  std::thread(follow_own, idle, 2).join();
  follow_own(idle, 3);
  ASSERT_TRUE(completions_.of(2));
  ASSERT_TRUE(completions_.of(3));
  EXPECT_EQ(told().size(), 2u);
  fake_->release();
  EXPECT_TRUE(completions_.of(1));
}

TEST_F(CopyEngineStreams, each_of_many_can_be_come_after) {
  const StreamId first = device_.create_stream().value();
  for (Token i = 1; i <= 8; ++i) {
    enqueue(first);
    ASSERT_TRUE(engine_->follow(first, i, i == 5 ? std::optional(Error{Errc::io_error, "refused"}) : std::nullopt));
  }
  EXPECT_EQ(engine_->come_after(first, 5).error().message, "refused");
  const StreamId second = device_.create_stream().value();
  ASSERT_TRUE(engine_->come_after(second, 3));
  enqueue(second);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(fake_->complete(second));
    ASSERT_TRUE(fake_->complete(first));
  }
  EXPECT_TRUE(fake_->complete(second)) << "what it comes after is done";
  ASSERT_TRUE(completions_.of(3));
  EXPECT_TRUE(engine_->come_after(second, 3));
  fake_->release();
  engine_->stop();
  EXPECT_EQ(told().size(), 8u);
}

TEST_F(CopyEngineStreams, a_report_may_follow_more_even_while_stopping) {
  engine_.reset();  // it would take the other's interrupts
  CopyEngine* engine = nullptr;
  std::vector<StreamId> streams;
  for (int i = 0; i < 5; ++i) streams.push_back(device_.create_stream().value());
  int reports = 0;
  auto made = CopyEngine::create(device_, 1, [&](Token token, Result<void>) {
                ++reports;
                if (token == 20) return;
                EXPECT_TRUE(engine->follow(streams[(token + 1) % 5], token + 1));
              }).value();
  engine = made.get();
  enqueue(streams[0]);
  ASSERT_TRUE(engine->follow(streams[0], 0));
  fake_->release();
  engine->stop();
  EXPECT_EQ(reports, 21);
}

}  // namespace
}  // namespace ebb::transfer
