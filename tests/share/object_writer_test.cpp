// What the agent writes through the page cache.
#include "share/agent/object_writer.hpp"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <signal.h>
#include <thread>

#include "share/pool/description_text.hpp"
#include "tests/doubles/faulty_files.hpp"
#include "tests/share/rank.hpp"

namespace ebb::share {
namespace {

using doubles::FileCall;
using test::kMiB;
using test::Place;

// Once it is closed, no sync returns until it is opened again.
class SyncGate final : public doubles::ForwardFiles<SyncGate> {
 public:
  using ForwardFiles::ForwardFiles;
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned entries) override { return inner_.open_ring(entries); }
  std::atomic<bool> closed{false}, held{false};

 private:
  friend ForwardFiles;
  template <class Whole>
  os::SysResult around(const doubles::FileRecord& call, Whole&& whole) noexcept {
    while (call.call == FileCall::sync && closed) held = true;
    return whole();
  }
};

class ObjectWriterTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kShare = 8 * kMiB, kBytes = 2 * kMiB;
  static constexpr Member kMember{0, 1};

  storage::PersistentOptions options() const {
    storage::PersistentOptions options;
    options.directory = place_.directory();
    options.capacity = 1024 * kMiB;
    return options;
  }
  void open(os::Files& files) {
    writer_.open(files, options()).value();
    std::memset(bytes_.get(), 1, kBytes);
  }
  // An object that is not in the pool, whole.
  void add(std::uint64_t number) { add(number, writer_); }
  void add(std::uint64_t number, ObjectWriter& writer) { add(number, writer, static_cast<Version>(number), kBytes); }
  // The first bytes of it.
  void add(std::uint64_t number, ObjectWriter& writer, Version version, std::uint64_t bytes) {
    storage::Description description{"a", version, {}};
    description.info.bytes = kBytes;
    description.info.regions = {{0, kBytes, 0}};
    const auto text = encode_description(description);
    message::Staged piece{};
    piece.object = number;
    piece.bytes = bytes;
    piece.description.assign(reinterpret_cast<const char*>(text.data()), text.size());
    writer.add_piece(kMember, piece, bytes_.get());
  }
  // Until its piece has ended, or all of it.
  ObjectWriter::Ended await(std::uint64_t number, bool piece) {
    for (;;) {
      for (ObjectWriter::Ended& ended : writer_.run())
        if (ended.object == number && !ended.written && ended.piece.has_value() == piece) return ended;
      std::this_thread::yield();
    }
  }
  void allow_overflow() {
    writer_.set_room(kMember, kShare);
    writer_.allow_overflow(1024 * kMiB, 0);
  }

  const Place place_;
  os::PosixFiles posix_;
  os::SteadyClock clock_;
  const std::unique_ptr<std::byte, decltype(&std::free)> bytes_{
      static_cast<std::byte*>(std::aligned_alloc(os::kBlock, kBytes)), &std::free};
  ObjectWriter writer_{nullptr, choose_shape(kShare, kMiB, 1).value(), clock_, [] {}};
};

TEST_F(ObjectWriterTest, what_has_no_room_among_the_files_of_the_page_cache_goes_past_it) {
  doubles::FaultyFiles files(posix_, 1);
  open(files);
  add(1);
  EXPECT_EQ(await(1, false).error.message, "");
  allow_overflow();
  files.fail_at_rate(FileCall::preallocate, 1.0, ENOSPC);
  add(2);
  EXPECT_EQ(writer_.progress().beside, 0u);
  EXPECT_EQ(await(2, true).error.message, "");
  EXPECT_EQ(await(2, false).error.message, "");
  writer_.stop();
}

TEST_F(ObjectWriterTest, what_is_dropped_stands_in_the_page_cache_until_the_drop_is_carried_out) {
  SyncGate files(posix_);
  open(files);
  allow_overflow();
  add(1);  // makes the file of the next one
  EXPECT_EQ(await(1, false).error.message, "");
  EXPECT_EQ(writer_.progress().beside, 0u);
  files.closed = true;
  add(2);
  EXPECT_EQ(await(2, true).error.message, "");
  EXPECT_EQ(writer_.progress().beside, kBytes);
  writer_.commit(kMember);
  while (!files.held) std::this_thread::yield();
  writer_.drop(kMember, {1, 2, 0, false, "a", 2});
  EXPECT_EQ(await(2, false).error.code, Errc::dropped);
  EXPECT_EQ(writer_.progress().beside, kBytes);
  files.closed = false;
  while (writer_.progress().beside > 0) {
    writer_.run();
    std::this_thread::yield();
  }
  writer_.stop();
}

TEST_F(ObjectWriterTest, what_the_agent_before_had_written_is_dropped_with_what_is_written_again) {
  open(posix_);
  add(1);
  const std::uint64_t sequence = await(1, false).sequence;
  writer_.stop();
  ObjectWriter next(nullptr, choose_shape(kShare, kMiB, 1).value(), clock_, [] {});
  next.open(posix_, options()).value();
  add(1, next);
  next.drop(kMember, {1, 1, sequence, false, "a", 1});
  while (!next.idle(kMember)) next.run();
  next.stop();
  const auto ignore = [](std::uint64_t, const Result<void>&) {};
  EXPECT_TRUE(storage::open_persistent_storage(posix_, clock_, options(), ignore, ignore).value()->found().empty());
}

TEST_F(ObjectWriterTest, a_drop_that_is_said_again_takes_nothing_that_was_written_since) {
  const message::Drop drop{1, 0, 1, false, "a", 1};  // of the store's first record
  const auto carry_out = [&] {
    writer_.drop(kMember, drop);
    writer_.commit(kMember);
    while (writer_.drops_done() < writer_.drops()) {
      writer_.run();
      std::this_thread::yield();
    }
  };
  const auto killed_after = [&](const std::function<void()>& work) {
    const pid_t child = test::in_child([&] {
      open(posix_);
      work();
      ::raise(SIGKILL);
    });
    EXPECT_TRUE(WIFSIGNALED(test::status_of(child)));
  };
  killed_after([&] {
    add(1);
    await(1, false);
  });
  killed_after([&] {
    add(2, writer_, 1, kMiB);  // makes a file, and is not whole
    carry_out();
  });
  const auto found = [&] {
    const auto ignore = [](std::uint64_t, const Result<void>&) {};
    storage::PersistentOptions readonly = options();
    readonly.readonly = true;
    return storage::open_persistent_storage(posix_, clock_, readonly, ignore, ignore).value()->found().size();
  };
  ASSERT_EQ(found(), 0u) << "the drop was carried out, and nobody was told";
  open(posix_);
  add(2, writer_, 1, kBytes);
  EXPECT_EQ(await(2, false).error.message, "");
  carry_out();
  writer_.stop();
  EXPECT_EQ(found(), 1u);
}

}  // namespace
}  // namespace ebb::share
