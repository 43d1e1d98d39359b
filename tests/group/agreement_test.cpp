// Members that write, fail and crash at random: what is agreed on is in every member, and what retention keeps by it is
// too.
#include "ebbtide/agreement.hpp"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <set>

namespace ebb {
namespace {

constexpr Version kNone = Agreement::kNone;

// A member with a store: `keep_last` is 1 or more, and counts what was agreed on.
struct Member {
  Agreement agreement;
  std::map<Version, bool> stored;  // whether it is durable
  std::size_t round = 0;           // so many ended here
  bool under_way = false;
  Version agreed = kNone;

  // Retention may drop older versions once newer ones are durable and agreed on. Some stores are slow at that.
  void retire(std::size_t keep_last) {
    std::size_t newer = 0;
    for (auto at = stored.rbegin(); at != stored.rend();) {
      if (newer >= keep_last) {
        at = std::make_reverse_iterator(stored.erase(std::next(at).base()));
      } else {
        newer += at->second && at->first <= agreed;
        ++at;
      }
    }
  }
};

struct Members {
  explicit Members(std::size_t count) : members(count) {
    for (Member& one : members) one.agreement.add_history();
  }
  std::vector<Member> members;
  std::vector<std::vector<std::vector<std::int64_t>>> rounds;  // of each, what members offered

  void begin(Member& one) {
    if (one.under_way) return;
    one.under_way = true;
    rounds.resize(std::max(rounds.size(), one.round + 1));
    rounds[one.round].push_back(one.agreement.offer());
  }
  // If all members are in its round.
  bool end(Member& one, std::size_t keep_last) {
    if (!one.under_way || rounds[one.round].size() < members.size()) return false;
    std::vector<std::int64_t> least = rounds[one.round][0];
    for (const auto& offer : rounds[one.round])
      std::ranges::transform(offer, least, least.begin(), [](auto a, auto b) { return std::min(a, b); });
    const auto outcome = one.agreement.take(least);
    ++one.round;
    one.under_way = false;
    for (const auto& [history, version] : outcome.voided) one.stored.erase(version);
    for (const auto& [history, version] : outcome.agreed) one.agreed = version;
    one.retire(keep_last);
    return true;
  }
};

class RandomMembers : public ::testing::TestWithParam<int> {};

TEST_P(RandomMembers, AlwaysHaveTheNewestAgreedVersionInCommon) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const std::size_t count = 1 + random() % 5, keep_last = 1 + random() % 3;
  Members group(count);
  Version newest = kNone, most = 0;
  std::set<Version> failed;  // in some member
  for (int step = 0; step < 600; ++step) {
    Member& one = group.members[random() % count];
    Agreement& agreement = one.agreement;
    switch (random() % 4) {
      case 0: {  // a checkpoint
        const Version version = agreement.last(0) + 1;
        const bool passed = agreement.is_void(0, version);
        if (passed || random() % 16 == 0) {
          agreement.failed(0, version);
          failed.insert(version);
        } else {
          agreement.written(0, version);
          one.stored[version] = false;
        }
        most = std::max(most, version);
        break;
      }
      case 1: {  // the oldest that is not durable becomes so, or never will
        const auto at = std::ranges::find_if(one.stored, [](const auto& it) { return !it.second; });
        if (at == one.stored.end()) break;
        if (random() % 16 == 0) {
          agreement.failed(0, at->first);
          failed.insert(at->first);
          one.stored.erase(at);
        } else {
          at->second = true;
          agreement.durable(0, at->first);
        }
        break;
      }
      case 2: group.begin(one); break;
      default: group.end(one, keep_last);
    }
    for (const Member& each : group.members) newest = std::max(newest, each.agreed);
    Version common = newest;
    while (failed.contains(common)) --common;
    for (const Member& each : group.members) {
      const auto there = each.stored.find(common);
      ASSERT_TRUE(common == kNone || (there != each.stored.end() && there->second))
          << "step " << step << ": " << common;
    }
  }
  // All come to the same point, and agree on all that is durable everywhere.
  for (Member& one : group.members) {
    for (Version version = one.agreement.last(0) + 1; version <= most; ++version) {
      if (one.agreement.is_void(0, version)) {
        one.agreement.failed(0, version);
      } else {
        one.agreement.written(0, version);
        one.stored[version] = false;
      }
    }
    for (auto& [version, durable] : one.stored) {
      if (!durable) one.agreement.durable(0, version);
      durable = true;
    }
    one.agreement.arrive();
  }
  for (int turn = 0; turn < 2000; ++turn)
    for (Member& one : group.members) {
      if (!one.agreement.met()) group.begin(one);
      group.end(one, keep_last);
    }
  for (const Member& one : group.members) {
    EXPECT_TRUE(one.agreement.met());
    EXPECT_FALSE(one.under_way);
    EXPECT_EQ(one.round, group.members[0].round) << "a member is in a round that the others are not in";
    EXPECT_EQ(one.agreed, group.members[0].agreed);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomMembers, ::testing::Range(0, 200));

TEST(Agreement, AVersionThatOneMemberLacksIsVoidInAll) {
  Members group(2);
  Member &fast = group.members[0], &slow = group.members[1];
  fast.agreement.failed(0, 3);
  group.begin(fast);
  EXPECT_FALSE(group.end(fast, 1)) << "the other is not there";
  group.begin(slow);
  EXPECT_TRUE(group.end(slow, 1) && group.end(fast, 1));
  EXPECT_TRUE(slow.agreement.is_void(0, 3));
  EXPECT_FALSE(fast.agreement.is_void(0, 3)) << "it knows, and has passed it";
  slow.agreement.failed(0, 3);
  EXPECT_FALSE(slow.agreement.is_void(0, 3));
  EXPECT_EQ(slow.agreement.last(0), 3);
}

}  // namespace
}  // namespace ebb
