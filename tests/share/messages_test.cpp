// What a process and the agent say to each other arrives as it was said, or is refused.
#include "share/messages.hpp"

#include <gtest/gtest.h>
#include <random>
#include <set>
#include <tuple>

#include "os/local_socket.hpp"
#include "tests/share/message_samples.hpp"

namespace ebb::share {
namespace {

using Bytes = std::vector<std::byte>;

auto values(const Error& error) { return std::tuple(error.code, error.message); }
auto values(const message::Hello& m) { return std::tuple(m.version, m.wanted, m.process, m.rank, m.ranks, m.member); }
auto values(const message::Claim& m) { return std::tuple(m.slabs); }
auto values(const message::Look&) { return std::tuple(); }
auto values(const message::Drop& m) {
  return std::tuple(m.number, m.object, m.sequence, m.abandon, m.history, m.version);
}
auto values(const message::Commit&) { return std::tuple(); }
auto values(const message::Leave&) { return std::tuple(); }
auto values(const message::Welcome& m) { return std::tuple(m.member, m.first_slab, m.slabs, m.agent, m.program); }
auto values(const message::Refused& m) { return values(m.error); }
auto values(const message::Claimed& m) { return std::tuple(m.slabs, values(m.error)); }
auto values(const message::Finished& m) { return std::tuple(m.object, m.sequence, values(m.error)); }
auto values(const message::Dropped& m) { return std::tuple(m.number); }
auto values(const message::Stage& m) { return std::tuple(m.bytes); }
auto values(const message::Staged& m) { return std::tuple(m.object, m.offset, m.at, m.bytes, m.description); }
auto values(const message::Written& m) { return std::tuple(m.object, m.sequence); }
auto values(const message::Delayed& m) { return std::tuple(m.object, values(m.error)); }
auto values(const message::Lifeline& m) { return std::tuple(m.version, m.process); }
auto values(const message::Borrow& m) { return std::tuple(m.bytes, m.piece); }
auto values(const message::Granted& m) { return std::tuple(m.lease, m.bytes); }
auto values(const message::Share& m) { return std::tuple(m.link); }
auto values(const message::Recall& m) { return std::tuple(m.lease); }
auto values(const message::Return& m) { return std::tuple(m.lease, m.unusable); }
auto values(const message::Moved& m) { return std::tuple(m.object, m.offset, values(m.error)); }

bool same(const message::Any& a, const message::Any& b) {
  return a.index() == b.index() &&
         std::visit([&](const auto& one) { return values(one) == values(std::get<std::decay_t<decltype(one)>>(b)); },
                    a);
}

TEST(Messages, arrive_as_they_were_said) {
  std::set<std::size_t> kinds;
  for (const message::Any& said : test::message_samples()) {
    const auto heard = message::parse(message::encode(said));
    ASSERT_TRUE(heard) << said.index() << ": " << heard.error().message;
    EXPECT_TRUE(same(*heard, said)) << said.index();
    EXPECT_LE(message::encode(said).size(), os::kMaxMessage);
    kinds.insert(said.index());
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<message::Any>);
}

TEST(Messages, that_are_too_short_or_too_long_are_damaged) {
  for (const message::Any& said : test::message_samples()) {
    Bytes bytes = message::encode(said);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const auto heard = message::parse(std::span(bytes).first(length));
      ASSERT_FALSE(heard) << "kind " << said.index() << " cut to " << length;
      ASSERT_EQ(heard.error().code, Errc::damaged);
    }
    bytes.push_back(std::byte{0});
    ASSERT_FALSE(message::parse(bytes)) << said.index();
  }
}

TEST(Messages, of_another_version_are_refused_with_both_whatever_follows) {
  message::Hello hello;
  hello.version = kPoolVersion + 41;
  Bytes bytes = message::encode(hello);
  for (const std::size_t length : {bytes.size(), std::size_t{5}}) {
    const auto heard = message::parse(std::span(bytes).first(length));
    ASSERT_FALSE(heard);
    EXPECT_EQ(heard.error().code, Errc::unsupported);
    EXPECT_NE(heard.error().message.find("version " + std::to_string(kPoolVersion) + ","), std::string::npos);
    EXPECT_NE(heard.error().message.find("version " + std::to_string(kPoolVersion + 41)), std::string::npos);
  }
}

TEST(Messages, that_are_changed_at_random_are_a_message_or_damaged) {
  std::mt19937_64 random(1);
  std::size_t heard = 0, refused = 0;
  for (int round = 0; round < 2000; ++round) {
    for (const message::Any& said : test::message_samples()) {
      Bytes bytes = message::encode(said);
      for (std::uint64_t n = 1 + random() % 4; n-- > 0;) {
        bytes[random() % std::min<std::size_t>(bytes.size(), 64)] = static_cast<std::byte>(random());
      }
      const auto got = message::parse(bytes);
      if (got) {
        ++heard;
        const Bytes again = message::encode(*got);
        ASSERT_EQ(message::encode(message::parse(again).value()), again);
      } else {
        ++refused;
        ASSERT_TRUE(got.error().code == Errc::damaged || got.error().code == Errc::unsupported);
        ASSERT_FALSE(got.error().message.empty());
      }
    }
  }
  EXPECT_GT(heard, 1000u);
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace ebb::share
