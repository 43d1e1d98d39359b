// Ranks and a backend that take turns, as processes that are killed.
#include "veloc/relay.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <signal.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace ebb::veloc {
namespace {

class RelayOfANode : public ::testing::Test {
 protected:
  RelayOfANode() : folder_(std::filesystem::path(::testing::TempDir()) / ("relay" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
  }
  ~RelayOfANode() override { std::filesystem::remove_all(folder_); }

  Relay open() const { return Relay::open(folder_).value(); }
  /// A process that has done that, and then waits to be killed.
  pid_t process(const std::function<bool(const Relay&)>& act) const {
    int done[2];
    EXPECT_EQ(::pipe(done), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const Relay relay = open();
      const char said = act(relay) ? 'y' : 'n';
      if (::write(done[1], &said, 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char said = 0;
    EXPECT_EQ(::read(done[0], &said, 1), 1);
    EXPECT_EQ(said, 'y');
    ::close(done[0]);
    ::close(done[1]);
    return child;
  }
  pid_t rank(int number) const {
    return process([number](const Relay& relay) { return static_cast<bool>(relay.enter(number, Seconds(0))); });
  }
  static void kill(pid_t process) {
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
  }

  const std::filesystem::path folder_;
};

TEST_F(RelayOfANode, the_backend_has_its_turn_when_no_rank_lives) {
  const Relay backend = open();
  backend.serve().value();
  const pid_t first = rank(2), second = rank(0);
  EXPECT_EQ(backend.await_ranks(false).error().code, Errc::in_use);
  kill(first);
  EXPECT_EQ(backend.await_ranks(false).error().code, Errc::in_use);
  kill(second);
  backend.await_ranks().value();
  EXPECT_EQ(backend.ranks(), (std::vector<int>{0, 2}));
  kill(process([backend = std::to_string(::getpid())](const Relay& relay) {
    const auto entered = relay.enter(1, Seconds(0.05));
    return !entered && entered.error().code == Errc::in_use &&
           entered.error().message.find("process " + backend + " ") != std::string::npos;
  }));
  EXPECT_EQ(backend.ranks(), (std::vector<int>{0, 2})) << "one that waits has left nothing";
  backend.forget(0).value();
  backend.forget(2).value();
  backend.let_ranks_start();
  kill(rank(1));
  EXPECT_EQ(backend.ranks(), std::vector<int>{1});
}

TEST_F(RelayOfANode, knows_what_killed_ranks_asked_for) {
  const Relay backend = open();
  for (const int version : {7, 12}) {
    kill(process([version](const Relay& relay) {
      return relay.enter(3, Seconds(0)) && relay.ask(3, {"heat.map", version}) && relay.ask(3, {"wind", version + 1});
    }));
  }
  std::string text;
  for (const auto& [name, version] : backend.due(3).value()) text += name + " " + std::to_string(version) + ", ";
  EXPECT_EQ(text, "heat.map 7, wind 8, heat.map 12, wind 13, ");
  backend.forget(3).value();
  kill(rank(3));
  EXPECT_TRUE(backend.due(3).value().empty());
}

TEST_F(RelayOfANode, a_line_that_a_kill_cut_costs_no_other) {
  for (const std::string cut : {"he", "heat", "heat ", "heat 5", "\nheat ", "\n"}) {
    const Relay relay = open();
    relay.enter(3, Seconds(0)).value();
    relay.ask(3, {"heat", 7}).value();
    std::ofstream(folder_ / "rank-3", std::ios::app) << cut;
    EXPECT_EQ(relay.due(3).value().size(), 1U) << cut;
    relay.ask(3, {"heat", 8}).value();
    relay.ask(3, {"wind", 9}).value();
    const auto due = relay.due(3).value();
    ASSERT_GE(due.size(), 3U) << cut;
    EXPECT_TRUE(due.front().name == "heat" && due.front().version == 7);
    EXPECT_TRUE(due.end()[-2].name == "heat" && due.end()[-2].version == 8) << cut;
    EXPECT_TRUE(due.back().name == "wind" && due.back().version == 9) << cut;
    relay.forget(3).value();
  }
}

TEST_F(RelayOfANode, has_one_backend_until_it_is_killed) {
  const Relay here = open();
  EXPECT_FALSE(here.has_backend());
  const pid_t backend = process([](const Relay& relay) { return static_cast<bool>(relay.serve()); });
  EXPECT_TRUE(here.has_backend());
  const auto second = here.serve();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::in_use);
  EXPECT_NE(second.error().message.find(std::to_string(backend)), std::string::npos) << second.error().message;
  kill(backend);
  EXPECT_FALSE(here.has_backend());
  here.serve().value();
}

TEST_F(RelayOfANode, a_job_of_another_size_is_told_both) {
  const Relay relay = open();
  relay.check_count(4).value();
  relay.check_count(4).value();
  const auto refused = relay.check_count(3);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("4 ranks, and this one has 3"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(relay.ranks().empty());
}

TEST_F(RelayOfANode, a_folder_that_cannot_be_made_is_named) {
  const auto refused = Relay::open(folder_ / "none" / "relay");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("none/relay"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace ebb::veloc
