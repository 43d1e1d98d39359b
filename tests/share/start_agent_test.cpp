// Errors of starting an agent.
#include "share/agent/start_agent.hpp"

#include <fstream>
#include <gtest/gtest.h>

#include "tests/share/rank.hpp"

namespace ebb::share {
namespace {

Result<void> start(const test::Place& place, const std::string& script) {
  const std::filesystem::path program = place.shared() / "agent";
  std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return start_agent(program, "job-test");
}

TEST(StartAgent, one_that_was_killed_may_be_started_again_and_one_that_cannot_start_may_not) {
  const test::Place place;
  EXPECT_TRUE(start(place, "exit 0"));
  const auto killed = start(place, "kill -9 $$");
  ASSERT_FALSE(killed);
  EXPECT_EQ(killed.error().code, Errc::closed);
  const auto ended = start(place, "exit 5");
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Errc::io_error);
  EXPECT_NE(ended.error().message.find("status 5"), std::string::npos) << ended.error().message;
}

// Sockets whose peers belong to another PID namespace: those of the agent or those of the process.
class Strangers final : public os::LocalSockets {
 public:
  Strangers(std::shared_ptr<os::LocalSockets> inner, bool agent) : inner_(std::move(inner)), agent_(agent) {}
  Result<std::unique_ptr<os::LocalListener>> listen(const std::string& name) override {
    auto listener = inner_->listen(name);
    if (!listener || !agent_) return listener;
    return std::unique_ptr<os::LocalListener>(std::make_unique<Listener>(std::move(*listener)));
  }
  Result<std::unique_ptr<os::LocalConnection>> connect(const std::string& name) override {
    auto connection = inner_->connect(name);
    if (!connection || !*connection || agent_) return connection;
    return invisible(**connection);
  }
  Result<os::OwnDescriptor> this_process() override { return inner_->this_process(); }
  Result<std::size_t> wait(std::span<os::Waiting> all, std::chrono::milliseconds limit) override {
    return inner_->wait(all, limit);
  }

 private:
  static std::unique_ptr<os::LocalConnection> invisible(os::LocalConnection& connection) {
    return os::connection_over(os::OwnDescriptor([&] { return ::dup(connection.fd()); }), 0);
  }
  struct Listener final : os::LocalListener {
    explicit Listener(std::unique_ptr<os::LocalListener> inner) : inner_(std::move(inner)) {}
    int fd() const noexcept override { return inner_->fd(); }
    Result<std::unique_ptr<os::LocalConnection>> accept() override {
      auto accepted = inner_->accept();
      if (!accepted || !*accepted) return accepted;
      return invisible(**accepted);
    }
    std::unique_ptr<os::LocalListener> inner_;
  };
  std::shared_ptr<os::LocalSockets> inner_;
  bool agent_;
};

TEST(StartAgent, processes_of_two_pid_namespaces_hear_why_they_share_no_pool) {
  struct Apart : test::Place {
    explicit Apart(bool agent) : agent_(agent) {}
    NodeSeams seams() const override {
      NodeSeams seams = Place::seams();
      seams.sockets = std::make_shared<Strangers>(seams.sockets, agent_);
      return seams;
    }
    bool agent_;
  };
  for (const bool agent : {true, false}) {
    const Apart place(agent);
    const test::Rank rank(place, 0, 2, 8 * test::kMiB);
    ASSERT_TRUE(rank.error());
    EXPECT_EQ(rank.error()->code, Errc::unsupported);
    EXPECT_NE(rank.error()->message.find("another PID namespace"), std::string::npos) << rank.error()->message;
  }
}

}  // namespace
}  // namespace ebb::share
