// Persistent storage: round trips, restarts, drops and the space they free, concurrent readers.
#include <random>

#include "tests/storage/segment_store_fixture.hpp"

namespace ebb::storage {
namespace {

struct Engine {
  const char* name;
  Kind kind;
  bool direct, synced;
};

class SegmentStoreTest : public SegmentStoreFixture, public ::testing::WithParamInterface<Engine> {
 protected:
  void SetUp() override {
    options_.engine.kind = GetParam().kind;
    options_.direct = GetParam().direct;
    options_.synced = GetParam().synced;
    auto opened = try_open(options_);
    if (!opened && opened.error().message.find("io_uring") != std::string::npos) GTEST_SKIP() << opened.error().message;
    storage_ = std::move(opened).value();
  }
};

TEST_P(SegmentStoreTest, ranges_in_any_order_come_back_also_after_a_restart) {
  constexpr std::size_t kTotal = 300'001;
  Buffer out(kTotal);
  out.scramble(5);
  storage_->begin(kFirst, describe(5, kTotal, "about")).value();
  std::vector<std::size_t> offsets;
  for (std::size_t at = 0; at < kTotal; at += 16384) offsets.push_back(at);
  std::shuffle(offsets.begin(), offsets.end(), std::mt19937(3));
  for (const std::size_t at : offsets) {
    EXPECT_FALSE(persisted_.has(kFirst));
    ASSERT_TRUE(put(kFirst, kTotal, at, out.data() + at, std::min<std::size_t>(16384, kTotal - at)));
  }
  ASSERT_TRUE(persisted_.of(kFirst));
  expect_back(kFirst, 5, kTotal, 12288);
  reopen();
  ASSERT_EQ(storage_->found().size(), 1u);
  const Found found = storage_->found()[0];
  EXPECT_EQ(found.history, "adjoint");
  EXPECT_EQ(found.version, 5);
  EXPECT_EQ(found.bytes, kTotal);
  EXPECT_LT(found.object, kFirst);
  expect_back(found.object, 5, kTotal, 4096);  // less than a block
  expect_back(found.object, 5, kTotal);
  const auto description = storage_->load_description(found.object).value();
  EXPECT_EQ(description->info.metadata, "about");
  EXPECT_EQ(description->info.regions.at(0).bytes, kTotal);
  EXPECT_TRUE(storage_->verify(found.object));
  EXPECT_TRUE(storage_->damages().empty());
  EXPECT_EQ(persisted_.reports(), 1u);
}

TEST_P(SegmentStoreTest, another_block_size_reads_what_was_written) {
  ASSERT_TRUE(persist(kFirst, 1, 200'000));
  options_.block_bytes = 65536;
  reopen();
  expect_back(storage_->found().at(0).object, 1, 200'000, 12288);
  ASSERT_TRUE(persist(kFirst + 1, 2, 200'000));
  options_.block_bytes = 4096;
  reopen();
  expect_back(storage_->found().at(1).object, 2, 200'000, 4096);
}

TEST_P(SegmentStoreTest, objects_of_nothing_are_kept) {
  ASSERT_TRUE(persist(kFirst, 1, 0));
  ASSERT_TRUE(put(kFirst, 0, 0, nullptr, 0));
  ASSERT_TRUE(get(kFirst, 0, nullptr, 0));
  reopen();
  ASSERT_EQ(storage_->found().size(), 1u);
  EXPECT_EQ(storage_->found()[0].bytes, 0u);
  EXPECT_TRUE(get(storage_->found()[0].object, 0, nullptr, 0));
  EXPECT_TRUE(storage_->verify(storage_->found()[0].object));
}

TEST_P(SegmentStoreTest, the_newer_of_two_with_one_name_counts) {
  ASSERT_TRUE(persist(kFirst, 1, 10'000));
  storage_->begin(kFirst + 1, describe(1, 20'000)).value();
  Buffer out(20'000);
  out.scramble(99);
  ASSERT_TRUE(put(kFirst + 1, 20'000, 0, out.data(), 20'000));
  ASSERT_TRUE(persisted_.of(kFirst + 1));
  for (int restart = 0; restart < 2; ++restart) {
    reopen();
    ASSERT_EQ(storage_->found().size(), 1u);
    EXPECT_EQ(storage_->found()[0].bytes, 20'000u);
    expect_back(storage_->found()[0].object, 99, 20'000);
    EXPECT_EQ(storage_->use().used, os::round_up(20'000));
  }
}

TEST_P(SegmentStoreTest, drops_give_room_back_and_whole_segments) {
  for (ObjectId i = 0; i < 12; ++i) ASSERT_TRUE(persist(kFirst + i, static_cast<Version>(i), 300'000));
  EXPECT_EQ(segments().size(), 4u);
  const std::uint64_t before = allocated();
  for (ObjectId i = 0; i < 12; ++i) {
    if (i != 4 && i != 11) storage_->drop(kFirst + i);
  }
  EXPECT_EQ(storage_->use().used, 2 * os::round_up(300'000));
  settle();
  EXPECT_LT(allocated() + 8 * 300'000, before);
  EXPECT_EQ(segments().size(), 2u) << "one record lives in each";
  reopen();
  const auto found = storage_->found();
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(found[0].version, 4);
  EXPECT_EQ(found[1].version, 11);
  expect_back(found[0].object, 4, 300'000);
  expect_back(found[1].object, 11, 300'000);
  storage_->drop(found[0].object);
  reopen();
  EXPECT_EQ(storage_->found().at(0).version, 11);
}

// Against a model: what was written comes back, byte for byte, whatever shares its blocks and is dropped there.
TEST_P(SegmentStoreTest, small_and_large_ones_come_and_go) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t most) { return static_cast<std::size_t>(random() % most); };
  std::map<Version, ObjectId> there;
  std::map<Version, std::size_t> sizes;
  ObjectId next = kFirst;
  for (int round = 0; round < 30; ++round) {
    std::vector<ObjectId> written;
    for (std::size_t many = below(12); many > 0; --many) {
      const Version version = static_cast<Version>(next - kFirst);
      sizes[version] = below(4) == 0 ? below(40'000) : below(3600);
      ASSERT_TRUE(write(next, version, sizes[version]));
      there[version] = next;
      written.push_back(next++);
      if (below(3) == 0) storage_->commit();
    }
    for (std::size_t many = below(8); many > 0 && !there.empty(); --many) {
      const auto gone = std::next(there.begin(), static_cast<std::ptrdiff_t>(below(there.size())));
      storage_->drop(gone->second);
      std::erase(written, gone->second);
      there.erase(gone);
    }
    for (const auto& [version, id] : there) expect_back(id, version, sizes[version]);  // durable or not yet
    storage_->commit();
    for (const ObjectId id : written) ASSERT_TRUE(persisted_.of(id));
    if (below(4) != 0) continue;
    reopen();
    EXPECT_TRUE(storage_->damages().empty());
    ASSERT_EQ(storage_->found().size(), there.size());
    for (const Found& found : storage_->found()) {
      ASSERT_TRUE(there.contains(found.version));
      EXPECT_EQ(storage_->load_description(found.object).value()->info.bytes, sizes[found.version]);
      EXPECT_TRUE(storage_->verify(found.object));
      there[found.version] = found.object;
    }
  }
  for (const auto& [version, id] : there) expect_back(id, version, sizes[version]);
  for (const auto& [version, id] : there) storage_->drop(id);
  reopen();
  EXPECT_TRUE(storage_->found().empty());
  EXPECT_EQ(segments().size(), 1u) << "the last one alone stays";
}

TEST_P(SegmentStoreTest, small_ones_share_blocks) {
  options_.sync_interval = std::chrono::hours(1);
  reopen();
  constexpr std::size_t kMany = 200;
  for (std::size_t i = 0; i < kMany; ++i) ASSERT_TRUE(write(kFirst + i, static_cast<Version>(i), 512));
  storage_->commit();
  for (std::size_t i = 0; i < kMany; ++i) ASSERT_TRUE(persisted_.of(kFirst + i));
  options_.sync_interval = std::chrono::milliseconds(1);
  reopen();
  if (options_.synced) {  // handed to the system, each is written as it comes
    EXPECT_LE(allocated(), 4 * os::kBlock + kMany * 1024);
  }
  EXPECT_EQ(storage_->found().size(), kMany);
}

TEST_P(SegmentStoreTest, what_was_never_complete_is_not_found) {
  Buffer out(100'000);
  storage_->begin(kFirst, describe(1, 100'000)).value();
  ASSERT_TRUE(put(kFirst, 100'000, 0, out.data(), 8192));
  ASSERT_TRUE(persist(kFirst + 1, 2, 5000));
  storage_->begin(kFirst + 2, describe(3, 100'000)).value();
  storage_->drop(kFirst + 2);
  reopen();
  EXPECT_EQ(persisted_.of(kFirst).error().code, Errc::closed);
  EXPECT_FALSE(persisted_.has(kFirst + 2));
  ASSERT_EQ(storage_->found().size(), 1u);
  EXPECT_EQ(storage_->found()[0].version, 2);
  std::vector<Damage> damages;
  EXPECT_TRUE(storage_->damages().empty());
}

TEST_P(SegmentStoreTest, capacity_counts_payloads_alone) {
  storage_.reset();
  options_.capacity = 10 * 4096;
  open();
  for (ObjectId i = 0; i < 10; ++i) ASSERT_TRUE(persist(kFirst + i, static_cast<Version>(i), 4000));
  const auto refused = write(kFirst + 10, 10, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::no_space);
  storage_->drop(kFirst + 3);
  EXPECT_TRUE(persist(kFirst + 11, 11, 4000)) << "at once";
  EXPECT_EQ(storage_->use().used, options_.capacity);
  EXPECT_EQ(storage_->use().objects, 10u);
}

TEST_P(SegmentStoreTest, readers_see_what_another_process_adds) {
  ASSERT_TRUE(persist(kFirst, 1, 100'000));
  PersistentOptions readonly = options_;
  readonly.readonly = true;
  auto reader = try_open(readonly).value();
  ASSERT_EQ(reader->found().size(), 1u);
  EXPECT_TRUE(reader->refresh().empty());
  storage_->begin(kFirst + 5, describe(50, 100'000)).value();  // precedes the next, and is complete after it
  for (ObjectId i = 1; i < 5; ++i) ASSERT_TRUE(persist(kFirst + i, static_cast<Version>(i) + 1, 400'000));
  const auto found = reader->refresh();
  ASSERT_EQ(found.size(), 4u);
  EXPECT_TRUE(reader->refresh().empty());
  Buffer out(100'000);
  ASSERT_TRUE(put(kFirst + 5, 100'000, 0, out.data(), 100'000));
  ASSERT_TRUE(persisted_.of(kFirst + 5));
  const auto late = reader->refresh();
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].version, 50);
  std::swap(storage_, reader);
  expect_back(found[0].object, 2, 400'000);
  std::swap(storage_, reader);
  // Dropped while the reader runs: by a tombstone, or with its segment.
  storage_->drop(kFirst);
  for (ObjectId i = 1; i < 5; ++i) storage_->drop(kFirst + i);
  settle();
  for (const ObjectId id : {reader->found()[0].object, found[0].object}) {
    EXPECT_EQ(reader->verify(id).error().code, Errc::unknown_version);
    std::swap(storage_, reader);
    Buffer in(100'000);
    EXPECT_EQ(get(id, 0, in.data(), 100'000).error().code, Errc::unknown_version);
    std::swap(storage_, reader);
  }
  reader->stop();
}

TEST_P(SegmentStoreTest, one_writer_at_a_time) {
  const auto second = try_open(options_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::in_use);
}

TEST_P(SegmentStoreTest, broken_contracts_throw) {
  Buffer out(65536);
  EXPECT_THROW(static_cast<void>(put(kFirst, 10, 0, out.data(), 10)), std::logic_error) << "not begun";
  storage_->begin(kFirst, describe(1, 60'000)).value();
  EXPECT_THROW(static_cast<void>(storage_->begin(kFirst, describe(1, 60'000))), std::logic_error);
  EXPECT_THROW(static_cast<void>(put(kFirst, 50'000, 0, out.data(), 8192)), std::logic_error) << "another total";
  EXPECT_THROW(static_cast<void>(put(kFirst, 60'000, 4096, out.data(), 8192)), std::logic_error) << "within a block";
  EXPECT_THROW(static_cast<void>(put(kFirst, 60'000, 0, out.data(), 4096)), std::logic_error) << "part of a block";
  EXPECT_THROW(static_cast<void>(put(kFirst, 60'000, 57344, out.data(), 8192)), std::logic_error) << "beyond the end";
  EXPECT_THROW(static_cast<void>(get(kFirst + 1, 0, out.data(), 1)), std::logic_error);
  storage_->stop();
  EXPECT_THROW(static_cast<void>(put(kFirst, 60'000, 0, out.data(), 8192)), std::logic_error);
}

TEST_P(SegmentStoreTest, several_threads_put_get_and_drop) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Buffer out(40'000), in(40'000);
      for (std::uint64_t i = 0; i < 25; ++i) {
        const ObjectId id = kFirst + t * 100 + i;
        out.scramble(id);
        storage_->begin(id, describe(static_cast<Version>(id - kFirst), 40'000)).value();
        storage_->put(2 * id, id, 40'000, 0, out.data(), 40'000).value();
        completions_.of(2 * id).value();
        if (i % 3 == 0) storage_->commit();
        if (i % 2) persisted_.of(id).value();
        storage_->get(2 * id + 1, id, 0, in.data(), 40'000).value();
        completions_.of(2 * id + 1).value();
        right += std::ranges::equal(in.first(40'000), out.first(40'000));
        if (i % 4) storage_->drop(id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 100);
  reopen();
  EXPECT_EQ(storage_->found().size(), 28u);
  for (const Found& found : storage_->found()) {
    expect_back(found.object, found.version + static_cast<Version>(kFirst), 40'000);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SegmentStoreTest,
                         ::testing::Values(Engine{"threads_direct", Kind::threads, true, true},
                                           Engine{"io_uring_direct", Kind::uring, true, true},
                                           Engine{"threads_buffered_process", Kind::threads, false, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb::storage
