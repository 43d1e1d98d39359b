#include "tests/doubles/power_loss.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <gtest/gtest.h>
#include <optional>
#include <set>
#include <string>

namespace ebb::os::testing {
namespace {

constexpr std::uint64_t kSeeds = 400;  // of each state that a rare outcome is waited for in

// A file's contents as text; "-" if there is none.
std::string text_of(doubles::MemoryFiles& files, const std::string& path) {
  const SysResult opened = files.open(path, Open::read, false);
  if (!opened) return "-";
  const int fd = static_cast<int>(opened.value);
  FileStatus status;
  EXPECT_TRUE(files.status(fd, status));
  std::string text(status.bytes, '?');
  EXPECT_EQ(files.read(fd, text.data(), text.size(), 0).value, static_cast<std::int64_t>(text.size()));
  EXPECT_TRUE(files.close(fd));
  return text;
}

class PowerLossTest : public ::testing::Test {
 protected:
  int create(const std::string& path) {
    const SysResult opened = files_.open(path, Open::create, false);
    EXPECT_TRUE(opened) << path;
    return static_cast<int>(opened.value);
  }
  void put(int fd, const std::string& text, std::uint64_t offset = 0) {
    EXPECT_EQ(files_.write(fd, text.data(), text.size(), offset).value, static_cast<std::int64_t>(text.size()));
  }
  // A file that is on the disk.
  int settled(const std::string& path, const std::string& text) {
    const int fd = create(path);
    put(fd, text);
    EXPECT_TRUE(files_.sync(fd));
    EXPECT_TRUE(files_.sync_directory("/"));
    return fd;
  }
  // The possible contents of files after a crash at the journal's end, as "a|b".
  std::set<std::string> outcomes(const std::vector<std::string>& paths, std::optional<doubles::PowerLoss> power = {}) {
    if (!power) power.emplace(files_.journal());
    std::set<std::string> all;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const auto state = power->crash(power->size(), seed);
      std::string texts;
      for (const std::string& path : paths) texts.append(texts.empty() ? "" : "|").append(text_of(*state, path));
      all.insert(texts);
    }
    return all;
  }
  using Set = std::set<std::string>;
  doubles::MemoryFiles files_;
};

TEST_F(PowerLossTest, what_was_synced_is_there) {
  settled("/f", "hello");
  EXPECT_EQ(outcomes({"/f"}), Set({"hello"}));
}

TEST_F(PowerLossTest, a_write_without_a_sync_may_be_lost_and_its_length_too) {
  const int fd = create("/f");
  EXPECT_TRUE(files_.sync_directory("/"));
  put(fd, "hello");
  EXPECT_EQ(outcomes({"/f"}), Set({"", "hello", std::string(5, '\0')}));
}

TEST_F(PowerLossTest, what_a_failed_sync_was_to_cover_is_covered_by_no_later_one) {
  const int fd = settled("/f", "aaaa");
  put(fd, "b");
  files_.fail_sync(1);
  EXPECT_EQ(files_.sync(fd).error, EIO);
  EXPECT_TRUE(files_.sync(fd));
  EXPECT_EQ(text_of(files_, "/f"), "baaa") << "it is in memory";
  EXPECT_EQ(outcomes({"/f"}), (Set{"aaaa", "baaa"}));
  put(fd, "c", 1);
  EXPECT_TRUE(files_.sync(fd));
  EXPECT_EQ(outcomes({"/f"}), (Set{"acaa", "bcaa"})) << "what comes later is";
  EXPECT_TRUE(files_.drop_cached(fd));
  EXPECT_EQ(text_of(files_, "/f"), "acaa");
  EXPECT_EQ(outcomes({"/f"}), (Set{"acaa"})) << "bytes read from the disk are those on the disk";
  EXPECT_EQ(text_of(*doubles::PowerLoss(files_.journal()).killed(files_.changes()), "/f"), "acaa");
}

TEST_F(PowerLossTest, letting_memory_go_keeps_what_was_not_synced_yet) {
  const int fd = settled("/f", "aaaa");
  put(fd, "b");
  const std::size_t before = files_.changes();
  EXPECT_TRUE(files_.drop_cached(fd));
  EXPECT_EQ(text_of(files_, "/f"), "baaa");
  EXPECT_EQ(files_.changes(), before);
}

TEST_F(PowerLossTest, a_sync_of_another_file_or_of_the_directory_does_not_help) {
  const int fd = settled("/f", "old");
  const int other = settled("/g", "");
  put(fd, "new");
  EXPECT_TRUE(files_.sync(other));
  EXPECT_TRUE(files_.sync_directory("/"));
  EXPECT_EQ(outcomes({"/f"}), Set({"old", "new"}));
}

TEST_F(PowerLossTest, writes_may_be_there_in_any_order) {
  const int fd = settled("/f", std::string(2, '-'));
  put(fd, "a", 0);
  put(fd, "b", 1);
  EXPECT_EQ(outcomes({"/f"}), Set({"--", "a-", "-b", "ab"}));
}

TEST_F(PowerLossTest, a_later_write_hides_an_earlier_one_or_is_lost_itself) {
  const int fd = settled("/f", "0");
  put(fd, "1");
  put(fd, "2");
  EXPECT_EQ(outcomes({"/f"}), Set({"0", "1", "2"}));
}

TEST_F(PowerLossTest, a_write_is_torn_at_sectors_and_nowhere_else) {
  const int fd = settled("/f", std::string(8192, 'a'));
  put(fd, std::string(8192, 'b'));
  bool torn = false, page_torn = false;
  for (const std::string& text : outcomes({"/f"})) {
    ASSERT_EQ(text.size(), 8192u);
    std::set<char> of_sectors;
    for (std::size_t at = 0; at < text.size(); at += doubles::kSectorBytes) {
      const std::string sector = text.substr(at, doubles::kSectorBytes);
      ASSERT_TRUE(sector == std::string(doubles::kSectorBytes, 'a') ||
                  sector == std::string(doubles::kSectorBytes, 'b'));
      if (at < kBlock) of_sectors.insert(sector[0]);
    }
    torn = torn || text.substr(0, kBlock) != text.substr(kBlock);
    page_torn = page_torn || of_sectors.size() == 2;
  }
  EXPECT_TRUE(torn);
  EXPECT_TRUE(page_torn);
}

TEST_F(PowerLossTest, a_name_is_there_for_good_only_when_its_directory_is_synced) {
  const int fd = create("/f");
  put(fd, "x");
  EXPECT_TRUE(files_.sync(fd));
  EXPECT_EQ(outcomes({"/f"}), Set({"-", "x"}));
  EXPECT_TRUE(files_.sync_directory("/"));
  EXPECT_EQ(outcomes({"/f"}), Set({"x"}));
  EXPECT_TRUE(files_.remove("/f"));
  EXPECT_EQ(outcomes({"/f"}), Set({"-", "x"}));
  EXPECT_TRUE(files_.sync_directory("/"));
  EXPECT_EQ(outcomes({"/f"}), Set({"-"}));
}

TEST_F(PowerLossTest, a_file_in_a_directory_needs_the_syncs_of_both) {
  EXPECT_TRUE(files_.make_directory("/d"));
  const int fd = create("/d/f");
  put(fd, "x");
  EXPECT_TRUE(files_.sync(fd));
  EXPECT_TRUE(files_.sync_directory("/d"));
  EXPECT_EQ(outcomes({"/d/f"}), Set({"-", "x"}));
  EXPECT_TRUE(files_.sync_directory("/"));
  EXPECT_EQ(outcomes({"/d/f"}), Set({"x"}));
}

TEST_F(PowerLossTest, a_rename_is_done_or_not_and_never_half) {
  settled("/f", "old");
  settled("/fresh", "new");
  EXPECT_TRUE(files_.rename("/fresh", "/f"));
  EXPECT_EQ(outcomes({"/f", "/fresh"}), Set({"old|new", "new|-"}));
  EXPECT_TRUE(files_.sync_directory("/"));
  EXPECT_EQ(outcomes({"/f", "/fresh"}), Set({"new|-"}));
}

TEST_F(PowerLossTest, a_rename_between_directories_needs_the_syncs_of_both) {
  settled("/f", "x");
  EXPECT_TRUE(files_.make_directory("/d"));
  EXPECT_TRUE(files_.sync_directory("/"));
  EXPECT_TRUE(files_.rename("/f", "/d/f"));
  EXPECT_TRUE(files_.sync_directory("/"));
  EXPECT_EQ(outcomes({"/f", "/d/f"}), Set({"x|-", "-|x"}));
  EXPECT_TRUE(files_.sync_directory("/d"));
  EXPECT_EQ(outcomes({"/f", "/d/f"}), Set({"-|x"}));
}

TEST_F(PowerLossTest, a_rename_of_what_was_not_synced_may_show_an_empty_file) {
  settled("/f", "old");
  put(create("/fresh"), "new");
  EXPECT_TRUE(files_.rename("/fresh", "/f"));
  EXPECT_TRUE(files_.sync_directory("/"));
  EXPECT_EQ(outcomes({"/f"}), Set({"", "new", std::string(3, '\0')}));
}

TEST_F(PowerLossTest, a_later_rename_brings_the_earlier_one_with_it) {
  settled("/a", "x");
  EXPECT_TRUE(files_.rename("/a", "/b"));
  EXPECT_TRUE(files_.rename("/b", "/c"));
  EXPECT_EQ(outcomes({"/a", "/b", "/c"}), Set({"x|-|-", "-|x|-", "-|-|x"}));
}

TEST_F(PowerLossTest, lengths_and_punches_are_old_or_new) {
  const int fd = settled("/f", "abcdef");
  EXPECT_TRUE(files_.truncate(fd, 2));
  EXPECT_EQ(outcomes({"/f"}), Set({"abcdef", "ab"}));
  EXPECT_TRUE(files_.truncate(fd, 4));
  EXPECT_EQ(outcomes({"/f"}), Set({"abcdef", "ab", std::string("ab\0\0", 4)}));
  EXPECT_TRUE(files_.sync(fd));
  EXPECT_TRUE(files_.punch(fd, 0, 1));
  EXPECT_EQ(outcomes({"/f"}), Set({std::string("ab\0\0", 4), std::string("\0b\0\0", 4)}));
}

TEST_F(PowerLossTest, what_comes_after_the_moment_is_not_there) {
  const int fd = settled("/f", "1");
  const std::size_t before = files_.changes();
  files_.note("one");
  put(fd, "2");
  EXPECT_TRUE(files_.sync(fd));
  files_.note("two");
  const doubles::PowerLoss power(files_.journal());
  for (std::uint64_t seed = 0; seed < 50; ++seed) EXPECT_EQ(text_of(*power.crash(before, seed), "/f"), "1");
  EXPECT_EQ(text_of(*power.prefix(before), "/f"), "1");
  EXPECT_EQ(text_of(*power.prefix(before + 2), "/f"), "2");
  EXPECT_TRUE(power.notes(before).empty());
  EXPECT_EQ(power.notes(before + 1), std::vector<std::string>({"one"}));
  EXPECT_EQ(power.notes(power.size()), std::vector<std::string>({"one", "two"}));
  EXPECT_EQ(doubles::describe(power.change(before + 2)), std::to_string(before + 2) + " write /f 0+1");
}

TEST_F(PowerLossTest, leaving_out_any_sync_loses_what_it_kept) {
  settled("/f", "hello");
  const doubles::PowerLoss power(files_.journal());
  ASSERT_EQ(power.syncs().size(), 2u);
  EXPECT_EQ(outcomes({"/f"}, power), Set({"hello"}));
  EXPECT_TRUE(outcomes({"/f"}, power.without_sync(1)).contains(""));
  EXPECT_TRUE(outcomes({"/f"}, power.without_sync(2)).contains("-"));
  EXPECT_TRUE(outcomes({"/f"}, power.without_all(doubles::Change::Kind::sync_directory)).contains("-"));
}

// Of a disk of large sectors.
TEST_F(PowerLossTest, a_torn_block_may_lose_all_that_was_in_it) {
  const int fd = settled("/f", std::string(8192, 'a'));
  put(fd, "b", 1000);
  const doubles::PowerLoss power(files_.journal());
  std::set<char> first;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const std::string text = text_of(*power.crash(power.size(), seed, doubles::PowerLoss::Torn::blocks), "/f");
    first.insert(text[0]);
    EXPECT_EQ(text.substr(4096), std::string(4096, 'a'));
  }
  EXPECT_GT(first.size(), 2u);
}

TEST_F(PowerLossTest, the_same_seed_gives_the_same_state_and_a_state_can_be_gone_on_from) {
  const int fd = settled("/f", std::string(65536, 'a'));
  put(fd, std::string(65536, 'b'));
  const doubles::PowerLoss power(files_.journal());
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = text_of(*power.crash(power.size(), seed), "/f");
    EXPECT_EQ(text, text_of(*power.crash(power.size(), seed), "/f"));
    seen.insert(text);
  }
  EXPECT_GT(seen.size(), 3u);

  const auto state = power.crash(power.size(), 1);
  const std::string as_it_came = text_of(*state, "/f");
  const int again = static_cast<int>(state->open("/f", Open::write, false).value);
  EXPECT_EQ(state->write(again, "!", 1, 0).value, 1);
  const int another = static_cast<int>(state->open("/g", Open::create, false).value);
  EXPECT_GE(another, 0);
  const doubles::PowerLoss twice(state->journal());
  EXPECT_EQ(text_of(*twice.crash(0, 5), "/f"), as_it_came);
  EXPECT_EQ(text_of(*twice.prefix(1), "/f"), std::string("!").append(as_it_came.substr(1)));
}

TEST_F(PowerLossTest, a_thousand_states_of_a_store_are_made_in_no_time) {
  const int fd = create("/f");
  const std::string chunk(65536, 'x');
  for (std::uint64_t at = 0; at < (4u << 20); at += chunk.size()) {
    put(fd, chunk, at);
    if (at % (1u << 20) == 0) {
      EXPECT_TRUE(files_.sync(fd));
    }
  }
  const doubles::PowerLoss power(files_.journal());
  const std::clock_t start = std::clock();
  for (std::uint64_t seed = 0; seed < 1000; ++seed) EXPECT_NE(power.crash(seed % power.size(), seed), nullptr);
  // A fraction of a second; the rest is for sanitizers and slow machines. Copying 4 MiB for each would take longer.
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5.0);
}

}  // namespace
}  // namespace ebb::os::testing
