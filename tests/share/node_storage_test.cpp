// What processes of a node's pool promise each other, with real shared memory, sockets and files.
#include "share/node_storage.hpp"

#include <atomic>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/doubles/faulty_files.hpp"
#include "tests/share/rank.hpp"

namespace ebb::share {
namespace {

using storage::ObjectId;
using namespace test;

TEST(NodeStorage, what_is_handed_over_is_in_the_store_and_its_parts_may_come_in_any_order) {
  const Place place;
  {
    Rank rank(place, 3, 1, 32 * kMiB);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    const ObjectId large = rank.write("a", 1, 5 * kMiB + 12345);
    const ObjectId small = rank.write("a", 2, 100, 6 * kMiB);
    const ObjectId empty = rank.write("b", 1, 0);
    EXPECT_TRUE(rank.listed(large) && rank.listed(small) && rank.listed(empty));
    for (const ObjectId object : {large, small, empty}) rank.await_persisted(object);
    EXPECT_TRUE(rank.read(large, "a", 1, 5 * kMiB + 12345));
    EXPECT_TRUE(rank.read(small, "a", 2, 100));
    EXPECT_EQ((*rank.storage().load_description(small))->history, "a");
    const NodeCounters counters = rank.storage().counters();
    EXPECT_EQ(counters.objects_written, 3u);
    EXPECT_EQ(counters.bytes_written, 5 * kMiB + 12345 + 100);
  }
  EXPECT_EQ(place.pools(), std::vector<std::string>{});
  Rank next(place, 3, 1, 32 * kMiB);
  std::map<std::pair<std::string, Version>, ObjectId> found;
  for (const storage::Found& one : next.storage().found()) found[{one.history, one.version}] = one.object;
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(next.read(found.at({"a", 1}), "a", 1, 5 * kMiB + 12345));
}

TEST(NodeStorage, a_version_that_is_dropped_and_written_anew_is_read_as_the_new_one) {
  const Place place;
  Rank rank(place, 0, 1, 32 * kMiB);
  for (std::uint64_t round = 0; round < 5; ++round) {
    const ObjectId other = rank.write("b", static_cast<Version>(round), kMiB, 8 * kMiB);
    const ObjectId object = rank.write("a", 7, 2 * kMiB, 0, round);
    rank.await_persisted(object);
    rank.await_persisted(other);
    if (round % 2 == 0) {
      EXPECT_TRUE(rank.read(object, "a", 7, 2 * kMiB, round));
    } else {
      EXPECT_TRUE(rank.read(other, "b", static_cast<Version>(round), kMiB));
    }
    rank.storage().drop(object);
  }
  const ObjectId last = rank.write("a", 7, 2 * kMiB, 0, 99);
  rank.await_persisted(last);
  EXPECT_TRUE(rank.read(last, "a", 7, 2 * kMiB, 99));
}

// Holds up the first write, and lets all others pass.
class FirstWriteHeld : public doubles::ForwardFiles<FirstWriteHeld> {
 public:
  using ForwardFiles::ForwardFiles;
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned) override { return Error{Errc::unsupported, "no ring"}; }
  template <class Whole>
  os::SysResult around(const doubles::FileRecord& record, const Whole& whole) noexcept {
    using Call = doubles::FileCall;
    if (record.call == Call::write && armed.exchange(false)) {
      held = true;
      while (held) std::this_thread::yield();
    }
    const os::SysResult result = whole();
    if (record.call == Call::sync) ++syncs;
    return result;
  }
  std::atomic<bool> armed{false}, held{false};
  std::atomic<int> syncs{0};
};

TEST(NodeStorage, a_version_that_is_written_anew_is_durable_after_what_it_replaces) {
  const Place place;
  os::PosixFiles posix;
  FirstWriteHeld files(posix);
  Rank rank(place, 0, 1, 32 * kMiB, "job-test", &files);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  rank.await_persisted(rank.write("b", 1, kMiB, 16 * kMiB));
  files.armed = true;
  const ObjectId older = rank.write("a", 7, kMiB, 0, 1);
  while (!files.held) std::this_thread::yield();
  const int syncs = files.syncs;
  const ObjectId newer = rank.write("a", 7, kMiB, 4 * kMiB, 2);
  while (files.syncs < syncs + 2) std::this_thread::yield();  // of its bytes, and of its header
  files.held = false;
  rank.await_persisted(older);
  rank.await_persisted(newer);
  EXPECT_EQ(rank.ended().back(), newer);
  EXPECT_TRUE(rank.read(newer, "a", 7, kMiB, 2));
}

TEST(NodeStorage, a_list_and_a_pool_that_are_full_are_waited_for) {
  const Place place;
  Rank rank(place, 0, 1, 8 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  std::vector<ObjectId> objects;
  for (Version version = 0; version < 3000; ++version) {
    objects.push_back(rank.write("small", version, 4096, static_cast<std::uint64_t>(version % 1500) * 4096));
    if (version % 1500 == 1499) rank.await_persisted(objects.back());
  }
  for (const ObjectId object : objects) rank.await_persisted(object);
  for (Version version = 0; version < 3000; version += 211) {
    EXPECT_TRUE(rank.read(objects.at(static_cast<std::size_t>(version)), "small", version, 4096));
  }
}

TEST(NodeStorage, what_is_larger_than_the_share_passes_through_the_stage) {
  const Place place;
  Rank rank(place, 0, 1, 4 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  std::vector<std::byte> own(20 * kMiB);
  const ObjectId first = rank.write_from(own.data(), "first", 1, 100);  // a short piece before long ones
  rank.await_persisted(first);
  const ObjectId large = rank.write_from(own.data(), "large", 1, 19 * kMiB + 5);
  const ObjectId small = rank.write("small", 1, kMiB);
  rank.await_persisted(large);
  rank.await_persisted(small);
  EXPECT_TRUE(rank.read(large, "large", 1, 19 * kMiB + 5));
  EXPECT_TRUE(rank.read(small, "small", 1, kMiB));
}

// Of a file that this process has open, by how its link begins; nothing: it has none.
std::optional<std::uint64_t> allocated(const std::string& name) {
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(one.path(), gone).string();
    struct stat found{};
    if (link.starts_with(name) && ::stat(one.path().c_str(), &found) == 0) {
      return static_cast<std::uint64_t>(found.st_blocks) * 512;
    }
  }
  return {};
}

TEST(NodeStorage, the_stage_has_memory_only_while_something_passes) {
  const Place place;
  Rank rank(place, 0, 1, 4 * kMiB);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  EXPECT_FALSE(allocated("/memfd:ebbtide-stage"));
  std::vector<std::byte> own(20 * kMiB);
  for (Version version = 0; version < 2; ++version) {
    const ObjectId large = rank.write_from(own.data(), "large", version, 20 * kMiB);
    rank.await_persisted(large);
    while (allocated("/memfd:ebbtide-stage").value() > 0) std::this_thread::yield();
    EXPECT_TRUE(rank.read(large, "large", version, 20 * kMiB));
  }
}

TEST(NodeStorage, what_cannot_be_written_stays_in_the_list_until_it_can) {
  const Place place;
  os::PosixFiles posix;
  doubles::FaultyFiles files(posix, 1);
  Rank rank(place, 0, 1, 8 * kMiB, "job-test", &files);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  files.fail_at_rate(doubles::FileCall::write, 1.0, EIO);
  const ObjectId object = rank.write("a", 1, 2 * kMiB);
  EXPECT_NE(rank.await_delayed(object).find("Input/output error"), std::string::npos);
  EXPECT_TRUE(rank.listed(object));
  files.clear_faults();
  rank.await_persisted(object);
  EXPECT_EQ(rank.await_last_transfer(), "ok");
  EXPECT_TRUE(rank.read(object, "a", 1, 2 * kMiB));
}

TEST(NodeStorage, what_cannot_be_written_and_is_withdrawn_is_nowhere) {
  const Place place;
  os::PosixFiles posix;
  doubles::FaultyFiles files(posix, 1);
  {
    Rank rank(place, 0, 1, 8 * kMiB, "job-test", &files);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    files.fail_at_rate(doubles::FileCall::write, 1.0, ENOSPC);
    const ObjectId object = rank.write("a", 1, 2 * kMiB);
    rank.await_delayed(object);
    rank.storage().withdraw(object);
    EXPECT_NE(rank.await_last_transfer(), "ok");
    EXPECT_FALSE(rank.listed(object));
    rank.storage().drop(object);
    files.clear_faults();
    rank.await_persisted(rank.write("a", 1, kMiB, 4 * kMiB, 1));
  }
  Rank next(place, 0, 1, 8 * kMiB);
  ASSERT_EQ(next.storage().found().size(), 1u);
  EXPECT_TRUE(next.read(next.storage().found().front().object, "a", 1, kMiB, 1));
}

TEST(NodeStorage, what_cannot_be_written_when_its_process_leaves_stays_in_the_pool) {
  const Place place;
  os::PosixFiles posix;
  doubles::FaultyFiles files(posix, 1);
  {
    Rank rank(place, 0, 1, 8 * kMiB, "job-test", &files);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    files.fail_at_rate(doubles::FileCall::write, 1.0, ENOSPC);
    rank.await_delayed(rank.write("a", 1, 2 * kMiB));
    rank.storage().leave();
    EXPECT_NE(rank.await_last_transfer(), "ok");
  }
  EXPECT_EQ(place.pools().size(), 1u);
  {
    const Rank refused(place, 0, 1, 8 * kMiB, "job-test", &files);
    ASSERT_TRUE(refused.error());
    EXPECT_EQ(refused.error()->code, Errc::no_space) << refused.error()->message;
  }
  Rank next(place, 0, 1, 8 * kMiB);
  ASSERT_FALSE(next.error()) << next.error()->message;
  EXPECT_TRUE(next.found().contains({"a", 1}));
}

TEST(NodeStorage, a_drop_is_answered_when_the_disk_has_it) {
  const Place place;
  os::PosixFiles posix;
  doubles::FaultyFiles files(posix, 1);
  Rank rank(place, 0, 1, 8 * kMiB, "job-test", &files);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  const ObjectId object = rank.write("a", 1, kMiB);
  rank.await_persisted(object);
  files.hold(doubles::FileCall::write);
  rank.storage().drop(object);
  rank.storage().memory().claim(4 * kMiB).value();  // is answered after what was said before
  EXPECT_EQ(rank.storage().failed_drops().size(), 1u);
  files.release(doubles::FileCall::write);
  while (!rank.storage().failed_drops().empty()) std::this_thread::yield();
}

// Begins an object that is larger than the share, and puts its first part.
ObjectId begin_in_pieces(Rank& rank, const std::vector<std::byte>& part) {
  storage::Description description{"part", 1, {}};
  description.info.bytes = 6 * kMiB;
  description.info.regions = {{0, 6 * kMiB, 0}};
  rank.storage().begin(storage::kFirstObject, std::make_shared<const storage::Description>(description)).value();
  rank.storage().put(1, storage::kFirstObject, 6 * kMiB, 0, part.data(), part.size()).value();
  return storage::kFirstObject;
}

TEST(NodeStorage, no_more_is_taken_of_what_has_failed_in_pieces) {
  const Place place;
  os::PosixFiles posix;
  doubles::FaultyFiles files(posix, 1);
  const std::vector<std::byte> part(kMiB);
  Rank rank(place, 0, 1, 4 * kMiB, "job-test", &files);
  ASSERT_FALSE(rank.error()) << rank.error()->message;
  files.fail_at_rate(doubles::FileCall::write, 1.0, EIO);
  const ObjectId object = begin_in_pieces(rank, part);
  EXPECT_NE(rank.await_outcome(object), "ok");
  files.clear_faults();
  const auto again = rank.storage().put(2, object, 6 * kMiB, 0, part.data(), part.size());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Errc::io_error);
}

TEST(NodeStorage, an_agent_that_leaves_finishes_what_it_has_a_part_of) {
  const Place place;
  const std::vector<std::byte> part(kMiB);
  std::optional<Rank> serves;
  serves.emplace(place, 0, 2, 8 * kMiB);
  Rank rank(place, 1, 2, 8 * kMiB);
  ASSERT_FALSE(serves->error() || rank.error());
  const ObjectId object = begin_in_pieces(rank, part);
  rank.await_transfer(1);
  const std::jthread leaves([&] { serves.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // longer than an agent needs to end
  for (std::uint64_t n = 1; n < 6; ++n)
    rank.storage().put(1 + n, object, 6 * kMiB, n * kMiB, part.data(), part.size()).value();
  rank.await_persisted(object);
}

TEST(NodeStorage, what_was_put_in_part_does_not_hold_up_the_end) {
  const Place place;
  const std::vector<std::byte> part(kMiB);
  {
    Rank rank(place, 0, 1, 4 * kMiB);
    ASSERT_FALSE(rank.error()) << rank.error()->message;
    begin_in_pieces(rank, part);
  }
  Rank next(place, 0, 1, 4 * kMiB);
  EXPECT_TRUE(next.storage().found().empty());
}

TEST(NodeStorage, mistakes_are_refused_with_both_values) {
  const Place place;
  Rank first(place, 0, 2, 8 * kMiB);
  ASSERT_FALSE(first.error()) << first.error()->message;
  const auto said = [](const Rank& rank) { return rank.error() ? rank.error()->message : std::string(); };
  EXPECT_NE(said(Rank(place, 0, 2, 8 * kMiB)).find("rank 0 of this job is in the pool already"), std::string::npos);
  EXPECT_NE(said(Rank(place, 1, 2, 16 * kMiB)).find("8388608 bytes, and this process asks for 16777216"),
            std::string::npos);
  EXPECT_NE(said(Rank(place, 1, 2, 3 * kMiB)).find("two chunks"), std::string::npos);
  Rank second(place, 1, 2, 8 * kMiB);
  EXPECT_FALSE(second.error());
  EXPECT_NE(said(Rank(place, 2, 2, 8 * kMiB)).find("all are taken"), std::string::npos);
  EXPECT_EQ(Rank(place, 0, 1, 8 * kMiB, "job-other").error().value().code, Errc::in_use);
}

}  // namespace
}  // namespace ebb::share
