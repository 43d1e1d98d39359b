#include "share/pool/handover_list.hpp"

#include <atomic>
#include <gtest/gtest.h>
#include <stdexcept>
#include <thread>
#include <vector>

namespace ebb::share {
namespace {

class HandoverListTest : public ::testing::Test {
 protected:
  HandoverListTest() {
    tables_.admit({of_, {7, 1}, 0});
    for (std::uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(tables_.lend(i, of_));
  }
  HandoverList view() { return {reinterpret_cast<std::byte*>(memory_.data()), shape_, tables_, of_}; }
  // A part of 100 bytes.
  static HandedOver part(std::uint64_t object, std::uint64_t at, bool last = false) {
    HandedOver entry{.object = object, .at = at, .part = {1, 1000, 100}};
    if (last) entry.description = {2, 0, 10};
    return entry;
  }
  std::vector<std::uint64_t> sequences() {
    std::vector<std::uint64_t> all;
    for (const HandedOver& entry : view().unfinished()) all.push_back(entry.sequence);
    return all;
  }
  std::uint64_t& word(std::uint64_t sequence, std::size_t at) { return memory_[(sequence - 1) * kEntryBytes / 8 + at]; }
  using Sequences = std::vector<std::uint64_t>;

  PoolShape shape_ = choose_shape(64 << 20, kDefaultChunk, 8).value();
  std::vector<std::uint64_t> tables_memory_ = std::vector<std::uint64_t>(shape_.tables_end() / 8);
  PoolTables tables_{reinterpret_cast<std::byte*>(tables_memory_.data()), shape_};
  const Member of_{3, 1};
  std::vector<std::uint64_t> memory_ = std::vector<std::uint64_t>(shape_.list_bytes() / 8);
  HandoverList list_ = view();
};

TEST_F(HandoverListTest, what_is_handed_over_is_listed_until_it_is_finished) {
  EXPECT_EQ(sequences(), Sequences{});
  HandedOver first = part(5, 0);
  first.description_sum.fill(std::byte{9});
  first.description = {3, 17, 4};
  EXPECT_EQ(list_.add(first).value(), 1u);
  EXPECT_EQ(list_.add(part(6, 200)).value(), 2u);
  EXPECT_EQ(list_.add(part(7, 0)).value(), 3u);
  first.sequence = 1;
  EXPECT_EQ(view().unfinished().front(), first);
  EXPECT_EQ(sequences(), (Sequences{1, 2, 3}));
  view().finish(2);
  EXPECT_TRUE(list_.is_finished(2));
  EXPECT_FALSE(list_.is_finished(1));
  EXPECT_EQ(sequences(), (Sequences{1, 3}));
}

TEST_F(HandoverListTest, a_full_list_refuses_until_its_oldest_entry_is_finished) {
  for (std::uint32_t i = 0; i < shape_.list_entries; ++i) list_.add(part(i, 0)).value();
  EXPECT_EQ(list_.add(part(0, 0)).error().code, Errc::no_space);
  view().finish(2);
  EXPECT_EQ(list_.add(part(0, 0)).error().code, Errc::no_space);
  view().finish(1);
  EXPECT_EQ(list_.add(part(0, 0)).value(), shape_.list_entries + 1u);
  EXPECT_EQ(list_.add(part(0, 0)).value(), shape_.list_entries + 2u);
  EXPECT_EQ(list_.add(part(0, 0)).error().code, Errc::no_space);
  EXPECT_TRUE(list_.is_finished(1));
  view().finish(shape_.list_entries + 2);
  EXPECT_TRUE(list_.is_finished(2));
  EXPECT_EQ(sequences().front(), 3u);
  EXPECT_EQ(sequences().back(), shape_.list_entries + 1u);
}

TEST_F(HandoverListTest, a_flipped_bit_makes_an_entry_not_count) {
  for (int i = 0; i < 3; ++i) list_.add(part(1, 0, true)).value();
  for (std::size_t at = 0; at < 13; ++at) {
    for (int bit = 0; bit < 64; ++bit) {
      word(2, at) ^= std::uint64_t{1} << bit;
      ASSERT_EQ(sequences(), (Sequences{1, 3})) << at << " " << bit;
      word(2, at) ^= std::uint64_t{1} << bit;
    }
  }
  EXPECT_EQ(sequences(), (Sequences{1, 2, 3}));
}

TEST_F(HandoverListTest, an_entry_that_was_being_written_does_not_count) {
  for (std::uint32_t i = 0; i < shape_.list_entries; ++i) list_.add(part(1, 0)).value();
  for (const std::uint64_t done : {1, 2}) view().finish(done);
  const std::vector<std::uint64_t> before = memory_;
  list_.add(part(2, 50, true)).value();
  const std::vector<std::uint64_t> after = memory_;
  // The words are written from the second on, and then the first.
  for (std::size_t written = 0; written < 13; ++written) {
    memory_ = before;
    for (std::size_t i = 1; i <= written; ++i) word(1, i) = after[i];
    EXPECT_EQ(sequences().front(), 3u) << written;
    EXPECT_EQ(sequences().size(), shape_.list_entries - 2);
  }
  memory_ = after;
  EXPECT_EQ(sequences().back(), shape_.list_entries + 1u);
}

TEST_F(HandoverListTest, entries_of_a_former_process_or_without_its_slabs_do_not_count) {
  list_.add(part(1, 0, true)).value();
  EXPECT_EQ(sequences(), Sequences{1});
  const HandoverList next{reinterpret_cast<std::byte*>(memory_.data()), shape_, tables_, Member{3, 3}};
  EXPECT_TRUE(next.unfinished().empty());
  EXPECT_TRUE(tables_.recall(1, of_));
  EXPECT_EQ(sequences(), Sequences{1});  // recalled is still its own
  EXPECT_TRUE(tables_.take_back(2, of_));
  EXPECT_EQ(sequences(), Sequences{});  // the description's
}

TEST_F(HandoverListTest, a_part_outside_its_slab_breaks_the_contract) {
  for (const SlabBytes wrong : {SlabBytes{shape_.slabs(), 0, 1},
                                {0, shape_.slab_bytes(), 1},
                                {0, 1, shape_.slab_bytes()},
                                {0, ~std::uint64_t{0}, 2}}) {
    EXPECT_THROW(static_cast<void>(list_.add({.part = wrong})), std::logic_error);
    EXPECT_THROW(static_cast<void>(list_.add({.description = wrong})), std::logic_error);
  }
}

TEST_F(HandoverListTest, an_object_is_whole_with_its_description_and_without_a_gap) {
  const auto add = [&](std::uint64_t object, std::uint64_t at, bool last = false) {
    list_.add(part(object, at, last)).value();
  };
  add(1, 0);
  add(2, 100);
  add(1, 100, true);  // whole
  add(3, 0);          // its process died before the description
  add(2, 0);
  add(2, 200, true);  // whole, parts in any order
  add(4, 100, true);  // the beginning is missing
  add(5, 0);
  add(5, 50, true);  // overlapping
  add(1, 0, true);   // the number again: another object
  const auto all = whole_objects(view().unfinished());
  ASSERT_EQ(all.size(), 3u);
  std::vector<std::pair<std::uint64_t, std::size_t>> found;
  for (const WholeObject& each : all) found.emplace_back(each.last().object, each.parts.size());
  EXPECT_EQ(found, (std::vector<std::pair<std::uint64_t, std::size_t>>{{1, 2}, {2, 3}, {1, 1}}));
  EXPECT_EQ(all[1].parts.front().at, 0u);
}

TEST_F(HandoverListTest, an_object_that_is_finished_in_part_is_not_whole) {
  for (const std::uint64_t done : {1, 2, 3}) {
    memory_.assign(memory_.size(), 0);
    HandoverList fresh = view();
    for (std::uint64_t at : {0, 100, 200}) fresh.add(part(1, at, at == 200)).value();
    EXPECT_EQ(whole_objects(fresh.unfinished()).size(), 1u);
    fresh.finish(done);
    EXPECT_TRUE(whole_objects(fresh.unfinished()).empty()) << done;
  }
}

TEST_F(HandoverListTest, a_description_is_read_only_as_it_was_handed_over) {
  std::vector<std::byte> slab(1000, std::byte{'d'});
  HandedOver last{.description = {0, 990, 10}};
  last.description_sum = storage::checksum_of(std::span(slab).last(10));
  EXPECT_EQ(read_description(last, slab).value(), std::vector<std::byte>(10, std::byte{'d'}));
  last.description.offset = 991;
  EXPECT_EQ(read_description(last, slab).error().code, Errc::damaged);
  last.description.offset = 990;
  slab[995] = std::byte{'x'};
  EXPECT_EQ(read_description(last, slab).error().code, Errc::damaged);
}

// The process adds, the agent reads and finishes, another process reads.
TEST_F(HandoverListTest, a_reader_sees_whole_entries_while_others_write) {
  constexpr std::uint64_t kAll = 5'000;
  std::atomic<bool> over{false};
  std::vector<std::uint64_t> pool(shape_.list_entries);  // the bytes that are handed over
  std::jthread process([&] {
    for (std::uint64_t n = 1; n <= kAll;) {
      if (n <= shape_.list_entries || list_.is_finished(n - shape_.list_entries)) {
        pool[(n - 1) % pool.size()] = n * n;
        EXPECT_EQ(list_.add(part(n, 3 * n)).value(), n);
        ++n;
      }
    }
  });
  std::jthread other([&] {
    while (!over) {
      for (const HandedOver& entry : view().unfinished()) ASSERT_EQ(entry.at, 3 * entry.object);
    }
  });
  HandoverList agent = view();
  for (std::uint64_t finished = 0; finished < kAll;) {
    for (const HandedOver& entry : agent.unfinished()) {
      EXPECT_EQ(entry.sequence, finished + 1);
      EXPECT_EQ(entry.object, entry.sequence);
      EXPECT_EQ(pool[(entry.sequence - 1) % pool.size()], entry.sequence * entry.sequence);
      agent.finish(entry.sequence);
      finished = entry.sequence;
    }
  }
  over = true;
}

}  // namespace
}  // namespace ebb::share
