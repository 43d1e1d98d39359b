// A process that says and writes anything does the agent, and the other processes, no harm.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <random>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <thread>

#include "os/process_id.hpp"
#include "share/messages.hpp"
#include "share/pool/description_text.hpp"
#include "tests/share/message_samples.hpp"
#include "tests/share/rank.hpp"

namespace ebb::share {
namespace {

using Bytes = std::vector<std::byte>;
using test::in_child;
using test::kMiB;
using test::LaterChild;
using test::Place;
using test::Rank;
using test::status_of;

const char* const kJob = "job-test";

// A process that says what it likes.
class Hostile {
 public:
  Hostile(const Place& place, std::uint64_t seed) : seams_(place.seams()), random_(seed) {
    connection_ = seams_.sockets->connect(socket_name(kJob)).value();
  }
  bool connected() const { return connection_ != nullptr; }
  void say(const Bytes& bytes, int descriptor = -1) {
    if (!connection_ || bytes.empty()) return;
    const auto sent = connection_->send(bytes, descriptor);
    if (!sent) connection_.reset();
    hear();
  }
  // Without hearing anything. False: the agent does not take it.
  bool tell(const message::Any& message, int descriptor = -1) {
    const auto sent = connection_->send(message::encode(message), descriptor);
    return sent && *sent;
  }
  // Until there is an answer, or the agent has closed the connection.
  std::optional<message::Any> await_answer() {
    while (connection_) {
      if (auto heard = hear()) return heard;
      std::this_thread::yield();
    }
    return {};
  }
  std::optional<message::Any> hear() {
    std::array<std::byte, os::kMaxMessage> buffer;
    if (!connection_) return {};
    auto received = connection_->receive(buffer);
    if (!received || received->kind == os::Received::Kind::closed) connection_.reset();
    if (!received || received->kind != os::Received::Kind::message) return {};
    const auto parsed = message::parse({buffer.data(), received->bytes});
    return parsed ? std::optional(*parsed) : std::nullopt;
  }
  // What rank 1 says first.
  message::Hello hello(const Place& place) {
    os::PosixFiles files;
    file_.emplace(PoolFile::open(seams_.memory->open(pool_name(kJob)).value()).value());
    PoolHeader wanted = file_->header();
    wanted.store.directory = place.directory().string();
    return {kPoolVersion, wanted, os::process_id(files, ::getpid()).value(), 1, 2, {}};
  }
  // Joins as rank 1 does; false: refused.
  bool join(const Place& place) {
    const auto pidfd = seams_.sockets->this_process().value();
    if (!connection_ || !tell(hello(place), pidfd.fd())) return false;
    const auto heard = await_answer();
    const auto* welcome = heard ? std::get_if<message::Welcome>(&*heard) : nullptr;
    if (welcome == nullptr) return false;
    welcome_ = *welcome;
    list_.emplace(file_->list(welcome_.member).value());
    slab_ = file_->map(std::array{welcome_.first_slab}).value();
    return true;
  }
  message::Any any_message() {
    switch (random_() % 6) {
      case 0: return message::Claim{static_cast<std::uint32_t>(random_() % 2 ? random_() : random_() % 10)};
      case 1:
        return message::Drop{random_(),
                             random_() % 8,
                             random_() % 99,
                             random_() % 2 == 0,
                             "1/h" + std::to_string(random_() % 3),
                             static_cast<Version>(random_() % 3)};
      case 2: return message::Commit{};
      case 3: {
        const auto samples = test::message_samples();
        return samples[random_() % samples.size()];
      }
      default: return message::Look{};
    }
  }
  Bytes any_bytes() {
    Bytes bytes = message::encode(any_message());
    for (std::uint64_t n = random_() % 3; n-- > 0;) bytes[random_() % bytes.size()] = static_cast<std::byte>(random_());
    if (random_() % 8 == 0) bytes.resize(random_() % 200);
    return bytes;
  }
  // An entry that may be right, or nearly.
  void add_entry() {
    const std::uint64_t slab_bytes = file_->shape().slab_bytes();
    storage::Description description{"1/h" + std::to_string(random_() % 3), static_cast<Version>(random_() % 3), {}};
    const std::uint64_t bytes = random_() % 3 * 4096 + random_() % 2 * 777;
    description.info.bytes = random_() % 8 == 0 ? random_() % kMiB : bytes;
    if (bytes > 0) description.info.regions = {{0, description.info.bytes, 0}};
    Bytes text = encode_description(description);
    if (random_() % 4 == 0) text[random_() % text.size()] = static_cast<std::byte>(random_());
    const std::uint64_t at = random_() % 8 * 32768;
    std::memcpy(slab_.data() + at, text.data(), text.size());
    HandedOver entry{.object = random_() % 8, .at = random_() % 4 == 0 ? random_() : 0};
    const auto near = static_cast<std::uint32_t>(welcome_.first_slab);
    entry.part = {random_() % 4 == 0 ? static_cast<std::uint32_t>(random_() % file_->shape().slabs()) : near,
                  random_() % 4 == 0 ? random_() % 5000 : 512 * 1024, std::min(bytes, slab_bytes / 4)};
    if (random_() % 3 != 0) {
      entry.description = {near, at, text.size()};
      entry.description_sum = storage::checksum_of(text);
    }
    static_cast<void>(list_->list.add(entry));  // a full list refuses
  }
  void run(int steps) {
    for (int step = 0; step < steps && connection_; ++step) {
      if (list_ && random_() % 2 == 0) add_entry();
      // What cannot be parsed ends the connection, so most can.
      say(random_() % 64 == 0 ? any_bytes() : message::encode(any_message()));
    }
  }

 private:
  NodeSeams seams_;
  std::mt19937_64 random_;
  std::unique_ptr<os::LocalConnection> connection_;
  std::optional<PoolFile> file_;
  message::Welcome welcome_{};
  std::optional<MappedList> list_;
  os::SharedMapping slab_;
};

// The agent and the other ranks go on, and what they wrote is right.
void expect_well(Rank& rank, Version version) {
  const auto object = rank.write("good", version, kMiB);
  rank.await_persisted(object);
  EXPECT_TRUE(rank.read(object, "good", version, kMiB));
}

TEST(NodeHostile, messages_of_any_bytes_end_no_agent) {
  const Place place;
  Rank rank(place, 0, 2, 16 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  const int rounds = std::getenv("EBB_LONG") ? 5000 : 200;
  for (int round = 0; round < rounds; ++round) {
    Hostile hostile(place, static_cast<std::uint64_t>(round));
    ASSERT_TRUE(hostile.connected());
    for (int n = 0; n < 5; ++n) hostile.say(hostile.any_bytes());
    if (round % 50 == 0) expect_well(rank, round);
  }
  expect_well(rank, rounds);
  Rank other(place, 1, 2, 16 * kMiB);  // no share was lost to those that never were a process
  EXPECT_FALSE(other.error()) << (other.error() ? other.error()->message : "");
}

TEST(NodeHostile, a_member_that_writes_and_says_anything_harms_no_other) {
  const Place place;
  LaterChild hostiles([&] {
    for (int round = 0; round < (std::getenv("EBB_LONG") ? 1000 : 20); ++round) {
      const pid_t one = in_child([&] {
        Hostile hostile(place, static_cast<std::uint64_t>(round));
        if (!hostile.join(place)) ::_exit(3);
        hostile.run(300);
      });
      if (status_of(one) != 0) ::_exit(1);
    }
  });
  Rank rank(place, 0, 2, 16 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  const pid_t child = hostiles.begin();
  int status = 0;
  for (Version version = 0; ::waitpid(child, &status, WNOHANG) == 0; ++version) expect_well(rank, version);
  EXPECT_EQ(status, 0);
  Rank other(place, 1, 2, 16 * kMiB);
  ASSERT_FALSE(other.error()) << other.error()->message;
  EXPECT_FALSE(other.storage().found().empty());  // some entries were right, and reached the store
  expect_well(other, 0);
}

TEST(NodeHostile, only_a_process_that_sends_its_own_pidfd_is_admitted) {
  const Place place;
  Rank rank(place, 0, 2, 16 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  const os::OwnDescriptor always_ready([] { return ::open("/dev/null", O_RDWR | O_CLOEXEC); });
  const os::OwnDescriptor never_ready([] { return ::eventfd(0, EFD_CLOEXEC); });
  const os::OwnDescriptor another([] { return static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0)); });
  for (const int descriptor : {-1, always_ready.fd(), never_ready.fd(), another.fd()}) {
    Hostile hostile(place, 1);
    ASSERT_TRUE(hostile.tell(hostile.hello(place), descriptor));
    const auto answer = hostile.await_answer();
    ASSERT_TRUE(answer);
    const auto* refused = std::get_if<message::Refused>(&*answer);
    ASSERT_TRUE(refused) << descriptor;
    EXPECT_NE(refused->error.message.find("pidfd"), std::string::npos) << refused->error.message;
    EXPECT_FALSE(hostile.await_answer());  // the connection is closed
  }
  EXPECT_TRUE(Hostile(place, 1).join(place));
}

TEST(NodeHostile, who_reads_no_answers_is_listened_to_no_more) {
  using Clock = std::chrono::steady_clock;
  const Place place;
  Rank rank(place, 0, 2, 16 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  Hostile hostile(place, 1);
  ASSERT_TRUE(hostile.join(place));
  constexpr int kMany = 100'000;
  int said = 0;
  for (auto last = Clock::now(); said < kMany && Clock::now() - last < std::chrono::seconds(1);) {
    if (!hostile.tell(message::Claim{1})) continue;
    ++said;
    last = Clock::now();
  }
  EXPECT_LT(said, kMany);
  expect_well(rank, 1);
  for (int heard = 0; heard < said; ++heard) ASSERT_TRUE(hostile.await_answer()) << heard;  // none is lost
}

}  // namespace
}  // namespace ebb::share
