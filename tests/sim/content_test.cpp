#include "sim/content.hpp"

#include <gtest/gtest.h>
#include <map>

#include "sim/random.hpp"

namespace ebb::sim {
namespace {

using planner::Command;
using planner::Endpoint;

TEST(Stamps, AgreeWithANaiveMapOfBytes) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    Stamps stamps;
    std::map<Bytes, std::pair<std::uint64_t, Bytes>> naive;
    for (int step = 0; step < 300; ++step) {
      const Bytes begin = random.below(60), length = random.between(1, 20), first = random.below(4);
      const std::uint64_t serial = random.between(1, 3);
      if (random.chance(0.6)) {
        stamps.put(begin, length, serial, first);
        for (Bytes i = 0; i < length; ++i) naive[begin + i] = {serial, first + i};
      } else {
        stamps.erase(begin, length);
        for (Bytes i = 0; i < length; ++i) naive.erase(begin + i);
      }
      const Bytes at = random.below(60), n = random.between(1, 10), from = random.below(6);
      std::uint64_t whose = naive.contains(at) ? naive[at].first : 0;
      for (Bytes i = 0; i < n; ++i)
        if (!naive.contains(at + i) || naive[at + i] != std::pair{whose, from + i}) whose = 0;
      ASSERT_EQ(stamps.whose(at, n, from), whose) << "seed " << seed << " step " << step;
    }
  }
}

class ContentTest : public ::testing::Test {
 protected:
  static planner::Machine machine() {
    planner::Machine m;
    m.tiers = {{.name = "device", .medium = planner::Medium::device, .capacity = 1000, .granule = 1},
               {.name = "local", .medium = planner::Medium::file, .capacity = 1000, .granule = 1}};
    planner::connect(m);
    return m;
  }
  static constexpr Endpoint app{}, device{Endpoint::tier, 0}, file{Endpoint::tier, 1},
      ring{Endpoint::ring, planner::kHost};
  Command command(Endpoint from, Bytes a, Endpoint to, Bytes b, Bytes length = 100, planner::RequestId request = 0) {
    Command c;
    c.id = next_++;
    c.checkpoint = {1, 1};
    c.request = request;
    c.length = length;
    c.total = 100;
    c.from = {from, a};
    c.to = {to, b};
    return c;
  }
  void move(const Command& c) {
    content_.start(c);
    content_.finish(c);
  }
  Content content_{machine()};
  planner::CommandId next_ = 1;
};

TEST_F(ContentTest, BytesComeBackAsTheyWentIn) {
  content_.begin_write(7);
  move(command(app, 0, device, 300, 100, 7));
  move(command(device, 300, ring, 0));
  move(command(ring, 0, file, 0));
  content_.freed({0, {1, 1}, 300, 100});
  content_.begin_restore(8, 7, 100);
  EXPECT_THROW(content_.end_restore(8), std::logic_error);
  move(command(file, 0, app, 0, 100, 8));
  EXPECT_NO_THROW(content_.end_restore(8));
}

TEST_F(ContentTest, RefusesWhatWouldCorrupt) {
  content_.begin_write(7);
  EXPECT_THROW(content_.start(command(device, 0, ring, 0)), std::logic_error) << "never written";
  const Command in = command(app, 0, device, 300, 100, 7);
  content_.start(in);
  EXPECT_THROW(content_.start(command(app, 0, device, 350, 100, 7)), std::logic_error) << "two writes overlap";
  EXPECT_THROW(content_.freed({0, {1, 1}, 390, 100}), std::logic_error) << "freed in use";
  content_.finish(in);
  content_.begin_restore(8, 6, 100);
  EXPECT_THROW(content_.start(command(device, 300, app, 0, 100, 8)), std::logic_error) << "of another write";
  EXPECT_THROW(content_.start(command(device, 300, app, 0, 100, 9)), std::logic_error) << "of no call";
  content_.freed({0, {1, 1}, 300, 100});
  EXPECT_THROW(content_.start(command(device, 300, ring, 0)), std::logic_error) << "freed";
  EXPECT_THROW(content_.start(command(app, 0, device, 950, 100, 7)), std::logic_error) << "beyond the end";
}

TEST_F(ContentTest, AFailedTransferLeavesNothingAtItsTarget) {
  content_.begin_write(7);
  const Command in = command(app, 0, device, 0, 100, 7);
  content_.start(in);
  content_.fail(in);
  EXPECT_THROW(content_.start(command(device, 0, ring, 0)), std::logic_error);
}

TEST_F(ContentTest, LentMemoryIsInUseUntilGivenBack) {
  content_.lend(3, {device, 100}, 100, 3, true);
  content_.begin_write(7);
  EXPECT_THROW(content_.start(command(app, 0, device, 150, 100, 7)), std::logic_error);
  content_.commit(3);
  content_.lend(4, {device, 100}, 100, 3, false);
  EXPECT_THROW(content_.freed({0, {1, 1}, 100, 100}), std::logic_error);
  EXPECT_THROW(content_.lend(5, {device, 100}, 100, 9, false), std::logic_error) << "not that write's bytes";
  content_.give_back(4);
  EXPECT_NO_THROW(content_.freed({0, {1, 1}, 100, 100}));
}

}  // namespace
}  // namespace ebb::sim
