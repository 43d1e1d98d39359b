// A process whose agent ends at the worst moment. The test is the agent: it says what it likes, and when.
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <thread>
#include <variant>

#include "os/process_id.hpp"
#include "share/agent/agent.hpp"
#include "share/messages.hpp"
#include "share/pool/pool_tables.hpp"
#include "tests/share/rank.hpp"

namespace ebb::share {
namespace {

using storage::ObjectId;
using test::kMiB;
using test::Place;
using test::Rank;

const char* const kThisJob = "job-test";

PoolHeader header_of(const Place& place, std::uint64_t budget) {
  storage::PersistentOptions options;
  options.directory = place.directory();
  options.capacity = 1024 * kMiB;
  return {choose_shape(budget, test::kChunk, 1).value(), kThisJob, pool_store(options)};
}

// An agent that does only what the test says. What it leaves is a real agent's to take over.
class Script {
 public:
  Script(const Place& place, std::uint64_t budget) : seams_(place.seams()) {
    pool_.emplace(
        PoolFile::create(seams_.memory->create(pool_name(kThisJob)).value(), header_of(place, budget)).value());
    listener_ = seams_.sockets->listen(socket_name(kThisJob)).value();
  }
  // For another process: the next agent.
  void end() {
    be_another();
    listener_.reset();
  }
  // The process finds an agent again, which knows nothing of what it has said before.
  void be_another() { connection_.reset(); }
  void remove_pool() { static_cast<void>(seams_.memory->remove(pool_name(kThisJob))); }

  message::Any next() {
    std::array<std::byte, os::kMaxMessage> buffer;
    for (;;) {
      if (!connection_) connection_ = listener_->accept().value();
      auto received = connection_ ? connection_->receive(buffer).value() : os::Received{};
      if (received.kind == os::Received::Kind::message) {
        return message::parse({buffer.data(), received.bytes}).value();
      }
      std::this_thread::yield();
    }
  }
  template <class Message>
  Message await() {
    for (;;) {
      const message::Any any = next();
      if (const auto* wanted = std::get_if<Message>(&any)) return *wanted;
    }
  }
  void say(const message::Any& message) { EXPECT_TRUE(connection_->send(message::encode(message)).value()); }
  // As the first process, which has all of the pool.
  void admit(const message::Hello& hello) {
    if (hello.member.generation == 0) enter(hello);
    say(message::Welcome{member_, 0, pool_->shape().slabs(), 1, false});
  }
  // Has written an object that came in pieces, and says nothing of it.
  void write(const std::string& history, Version version, std::uint64_t bytes) {
    os::PosixFiles files;
    os::SteadyClock clock;
    storage::PersistentOptions options = store_options(pool_->header().store);
    std::atomic<int> ended{0};
    const auto end = [&](std::uint64_t, const Result<void>& result) {
      EXPECT_TRUE(result);
      ++ended;
    };
    const auto store = storage::open_persistent_storage(files, clock, options, end, end).value();
    storage::Description description{"0/" + history, version, {}};
    description.info.bytes = bytes;
    description.info.regions = {{0, bytes, 0}};
    store->begin(storage::kFirstObject, std::make_shared<const storage::Description>(description)).value();
    std::vector<std::byte> memory(bytes + os::kBlock);
    void* aligned = memory.data();
    std::size_t space = memory.size();
    const auto* const at = static_cast<std::byte*>(std::align(os::kBlock, bytes, aligned, space));
    store->put(1, storage::kFirstObject, bytes, 0, at, bytes).value();
    while (ended < 1) std::this_thread::yield();
    store->commit();
    while (ended < 2) std::this_thread::yield();
    store->stop();
  }
  // Without a word to it.
  void enter(const message::Hello& hello) {
    member_ = pool_->admit(hello.process, pool_->shape().budget, hello.rank).value();
    pool_->allocate(0).value();
    EXPECT_TRUE(pool_->tables().lend(0, member_));
  }

 private:
  NodeSeams seams_;
  std::optional<PoolFile> pool_;
  std::unique_ptr<os::LocalListener> listener_;
  std::unique_ptr<os::LocalConnection> connection_;
  Member member_{};
};

void expect_stores(Rank& rank) {
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  const ObjectId object = rank.write("a", 1, kMiB);
  rank.await_persisted(object);
  EXPECT_TRUE(rank.read(object, "a", 1, kMiB));
}

TEST(NodeAgentEnds, an_open_meets_the_next_agent_though_that_has_another_file) {
  const Place place;
  Script agent(place, 8 * kMiB);
  std::thread ends([&] {
    agent.await<message::Hello>();
    agent.remove_pool();
    agent.end();
  });
  Rank rank(place, 0, 1, 8 * kMiB);
  ends.join();
  expect_stores(rank);
}

TEST(NodeAgentEnds, an_open_that_is_admitted_to_a_removed_pool_meets_the_agent_of_the_next_one) {
  const Place place;
  Script agent(place, 8 * kMiB);
  agent.remove_pool();
  const NodeSeams seams = place.seams();
  PoolFile::create(seams.memory->create(pool_name(kThisJob)).value(), header_of(place, 8 * kMiB)).value();
  std::thread ends([&] {
    agent.admit(agent.await<message::Hello>());
    agent.await<message::Leave>();
    agent.end();
  });
  Rank rank(place, 0, 1, 8 * kMiB);
  ends.join();
  expect_stores(rank);
}

TEST(NodeAgentEnds, an_open_that_it_has_admitted_and_not_told_is_met_by_the_next_agent) {
  const Place place;
  {
    const Rank makes_the_store(place, 0, 1, 8 * kMiB);
  }
  Script agent(place, 8 * kMiB);
  std::thread ends([&] {
    agent.enter(agent.await<message::Hello>());
    agent.end();
  });
  Rank rank(place, 0, 1, 8 * kMiB);
  ends.join();
  expect_stores(rank);
}

class NodeAgentEndsInPieces : public ::testing::Test {
 protected:
  void SetUp() override {
    {
      const Rank makes_the_store(place_, 0, 1, 4 * kMiB);
    }
    agent_.emplace(place_, 4 * kMiB);
    std::thread admits([&] { agent_->admit(agent_->await<message::Hello>()); });
    rank_.emplace(place_, 0, 1, 4 * kMiB);
    admits.join();
    ASSERT_FALSE(rank_->error()) << rank_->error()->message;
  }
  const Place place_;
  std::optional<Script> agent_;
  std::vector<std::byte> own_ = std::vector<std::byte>(6 * kMiB), other_ = own_;
  std::optional<Rank> rank_;
};

TEST_F(NodeAgentEndsInPieces, the_next_agent_hears_of_no_piece_before_the_stage) {
  const ObjectId first = rank_->write_from(own_.data(), "first", 1, kMiB / 2);
  agent_->await<message::Staged>();
  agent_->be_another();
  const auto hello = agent_->await<message::Hello>();
  const ObjectId second = rank_->write_from(other_.data(), "second", 1, kMiB / 2);
  agent_->admit(hello);
  for (bool staged = false;;) {
    const message::Any any = agent_->next();
    staged = staged || std::holds_alternative<message::Stage>(any);
    if (!std::holds_alternative<message::Staged>(any)) continue;
    EXPECT_TRUE(staged);
    break;
  }
  agent_->end();  // a real one follows, and is given both again
  for (const ObjectId object : {first, second}) rank_->await_persisted(object);
  EXPECT_TRUE(rank_->read(first, "first", 1, kMiB / 2));
  EXPECT_TRUE(rank_->read(second, "second", 1, kMiB / 2));
}

TEST_F(NodeAgentEndsInPieces, what_it_has_taken_a_part_of_fails_and_nothing_else_does) {
  const ObjectId first = rank_->write_from(own_.data(), "first", 1, 6 * kMiB);
  const auto piece = agent_->await<message::Staged>();
  agent_->say(message::Moved{piece.object, piece.offset, {}});
  while (agent_->await<message::Staged>().offset < 4 * piece.bytes) continue;  // in the slot that became free
  agent_->be_another();
  agent_->await<message::Hello>();
  const ObjectId second = rank_->write_from(other_.data(), "second", 1, 6 * kMiB);
  agent_->end();  // it has not been admitted, so nothing of the second was sent
  EXPECT_NE(rank_->await_outcome(first), "ok");
  rank_->await_persisted(second);
  EXPECT_TRUE(rank_->read(second, "second", 1, 6 * kMiB));
}

TEST_F(NodeAgentEndsInPieces, what_it_has_written_and_not_told_is_dropped_by_the_next_one) {
  const ObjectId object = rank_->write_from(own_.data(), "a", 1, kMiB / 2);
  const auto piece = agent_->await<message::Staged>();
  agent_->write("a", 1, kMiB / 2);
  agent_->say(message::Moved{piece.object, piece.offset, {}});
  rank_->await_last_transfer();
  rank_->storage().drop(object);
  EXPECT_EQ(agent_->await<message::Drop>().sequence, 0u);
  agent_->end();
  while (rank_->storage().drops_done() < 1) std::this_thread::yield();
  rank_.reset();
  EXPECT_TRUE(Rank(place_, 0, 1, 4 * kMiB).storage().found().empty());
}

}  // namespace
}  // namespace ebb::share
