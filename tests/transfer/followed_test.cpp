#include "transfer/followed.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace ebb::transfer {
namespace {

Copy copy_of(Token token) { return {.token = token, .bytes = 0, .event = {}, .refused = {}, .ended = {}}; }

// The oldest, of which those of `done` end.
std::vector<Token> ask(Followed& followed, const std::set<Token>& done) {
  std::vector<Token> asked;
  std::vector<Copy*> oldest;
  followed.add_oldest(oldest);
  for (Copy* const copy : oldest) {
    asked.push_back(copy->token);
    if (done.contains(copy->token)) copy->ended = Result<void>();
  }
  return asked;
}

TEST(Followed, gives_the_oldest_of_each_stream) {
  Followed followed;
  EXPECT_TRUE(followed.push(7, copy_of(1)));
  for (Token token = 2; token <= 4; ++token) EXPECT_FALSE(followed.push(7, copy_of(token)));
  EXPECT_TRUE(followed.push(8, copy_of(5)));
  EXPECT_EQ(ask(followed, {}), (std::vector<Token>{1, 5}));
  EXPECT_EQ(ask(followed, {1, 2, 4}), (std::vector<Token>{1, 5}));
  EXPECT_TRUE(followed.find(1)) << "until it is dropped";
  followed.drop_ended();
  EXPECT_FALSE(followed.find(1));
  EXPECT_EQ(ask(followed, {2, 4}), (std::vector<Token>{2, 5}));
  followed.drop_ended();
  EXPECT_EQ(ask(followed, {}), (std::vector<Token>{3, 5}));
}

TEST(Followed, streams_and_threads_that_come_and_go_leave_nothing) {
  Followed followed;
  for (Token i = 0; i < 10; ++i) {
    std::thread([&] { EXPECT_TRUE(followed.push(2, copy_of(2 * i))) << "each thread has its own"; }).join();
    EXPECT_TRUE(followed.push(100 + i, copy_of(2 * i + 1)));
    EXPECT_EQ(followed.queues(), 2u);
    EXPECT_EQ(ask(followed, {2 * i, 2 * i + 1}).size(), 2u);
    followed.drop_ended();
    EXPECT_EQ(followed.queues(), 0u);
  }
}

TEST(Followed, a_token_used_anew_is_the_newer_ones) {
  Followed followed;
  followed.push(7, copy_of(1));
  ask(followed, {1});
  followed.push(8, copy_of(1));
  followed.drop_ended();
  ASSERT_TRUE(followed.find(1));
  EXPECT_FALSE(followed.find(1)->ended);
}

// Against a list that is searched from end to end.
TEST(Followed, is_like_a_list) {
  struct Entry {
    device::StreamId stream;
    Token token;
  };
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Followed followed;
    std::vector<Entry> list;
    Token next = 1;
    for (int step = 0; step < 500; ++step) {
      if (random() % 2) {
        const device::StreamId stream = random() % 5;
        const bool oldest = std::ranges::none_of(list, [&](const Entry& entry) { return entry.stream == stream; });
        EXPECT_EQ(followed.push(stream, copy_of(next)), oldest);
        list.push_back({stream, next++});
      } else {
        std::set<Token> done;
        for (const Entry& entry : list) {
          if (random() % 3) done.insert(entry.token);
        }
        for (std::size_t round = 0; round < list.size(); ++round) {  // each ends one of a stream at most
          ask(followed, done);
          followed.drop_ended();
        }
        std::set<device::StreamId> stuck;
        std::erase_if(list, [&](const Entry& entry) {
          if (!done.contains(entry.token)) stuck.insert(entry.stream);
          return !stuck.contains(entry.stream);
        });
      }
      std::set<device::StreamId> streams;
      for (const Entry& entry : list) streams.insert(entry.stream);
      ASSERT_EQ(followed.queues(), streams.size()) << seed;
      for (Token token = 0; token <= next; ++token) {
        const bool listed = std::ranges::any_of(list, [&](const Entry& entry) { return entry.token == token; });
        const Copy* const found = followed.find(token);
        ASSERT_EQ(found != nullptr, listed) << seed;
        ASSERT_TRUE(!found || found->token == token) << seed;
      }
    }
  }
}

}  // namespace
}  // namespace ebb::transfer
