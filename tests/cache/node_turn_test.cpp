#include "cache/node_turn.hpp"

#include <csignal>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cache/watch.hpp"
#include "tests/doubles/fake_device.hpp"

namespace ebb::memory {
namespace {

class NodeTurns : public testing::Test {
 protected:
  NodeTurns() {
    std::string name = testing::TempDir() + "/ebbtide-turn-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  ~NodeTurns() override { std::filesystem::remove_all(directory_); }
  platform::PinQueue line() const { return platform::PinQueue("test", {directory_}); }

  std::filesystem::path directory_;
};

TEST_F(NodeTurns, go_round) {
  NodeTurn one(line()), other(line());
  ASSERT_TRUE(one.take({}));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(other.take(stop.get_token()));
  one.give_back();
  EXPECT_TRUE(other.take(stop.get_token()));
  EXPECT_FALSE(one.take(stop.get_token()));
  other.give_back();
  EXPECT_TRUE(one.take({}));
  one.give_back();
}

TEST_F(NodeTurns, that_cannot_be_had_hold_nobody_up) {
  NodeTurn one(platform::PinQueue("test", {directory_ / "no" / "such"})), other(platform::PinQueue("test", {}));
  EXPECT_TRUE(one.take({}));
  EXPECT_TRUE(other.take({}));
  one.give_back();
  EXPECT_TRUE(one.take({}));
  EXPECT_NE(one.trouble().find("ENOENT"), std::string::npos) << one.trouble();
}

TEST_F(NodeTurns, are_asked_for_again_where_there_was_no_line_before) {
  const std::filesystem::path late = directory_ / "late";
  NodeTurn one(platform::PinQueue("test", {late / "line"})), other(platform::PinQueue("test", {late / "line"}));
  EXPECT_TRUE(one.take({}));
  EXPECT_FALSE(one.trouble().empty());
  one.give_back();
  std::filesystem::create_directory(late);
  EXPECT_TRUE(one.take({}));
  EXPECT_EQ(one.trouble(), "");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(other.take(stop.get_token())) << "it is waited for";
}

TEST_F(NodeTurns, that_cannot_be_had_are_told_of_once) {
  platform::testing::FakeDevice::Options as_a_gpu;
  as_a_gpu.discrete = true;
  platform::testing::FakeDevice device(as_a_gpu);
  Watch watch;
  MemoryOptions options = watch.options();
  options.turn = std::make_unique<NodeTurn>(platform::PinQueue("test", {directory_ / "no" / "such"}));
  policy::ProvisionSpec spec;
  spec.first_piece = spec.largest_piece = 2 << 20;
  const auto arena = TierMemory::growing(device, 8 << 20, "test", spec, std::move(options)).value();
  arena->want(8 << 20);
  while (arena->report().pinned < 8 << 20) std::this_thread::yield();
  const std::string told = arena->report().trouble;
  EXPECT_NE(told.find("beside other processes"), std::string::npos) << told;
  EXPECT_EQ(told.find("beside other processes"), told.rfind("beside other processes")) << told;
}

// A process that has the turn is killed while another process's cache waits for it.
TEST_F(NodeTurns, end_with_who_has_them) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    NodeTurn turn(line());
    const bool taken = turn.take({});
    if (::write(ready[1], taken ? "y" : "n", 1) == 1) {
      for (;;) ::pause();
    }
    ::_exit(1);
  }
  char taken = 0;
  ASSERT_EQ(::read(ready[0], &taken, 1), 1);
  ASSERT_EQ(taken, 'y');
  ::close(ready[0]);
  ::close(ready[1]);
  {
    platform::testing::FakeDevice::Options as_a_gpu;
    as_a_gpu.discrete = true;
    platform::testing::FakeDevice device(as_a_gpu);
    Watch watch;
    MemoryOptions options = watch.options();
    options.turn = std::make_unique<NodeTurn>(line());
    policy::ProvisionSpec spec;
    spec.pin_deadline = policy::kNever;
    const auto arena = TierMemory::growing(device, 8 << 20, "test", spec, std::move(options)).value();
    arena->want(8 << 20);
    while (arena->report().touched < 8 << 20) std::this_thread::yield();
    EXPECT_EQ(arena->ready(), 0u);
    EXPECT_EQ(::kill(child, SIGKILL), 0);
    watch.until_ready(*arena, 8 << 20);
    EXPECT_EQ(device.pinned(), 8u << 20);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

}  // namespace
}  // namespace ebb::memory
