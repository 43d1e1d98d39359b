// Which damage may be none the next time: only a sentence of ours says so, never a name within another.
#include "storage/scan/unreadable.hpp"

#include <gtest/gtest.h>

#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {
namespace {

TEST(Unreadable, only_a_sentence_about_a_block_that_cannot_be_read_says_so) {
  EXPECT_TRUE(says_unreadable(unreadable()));
  EXPECT_TRUE(says_unreadable("version 7: " + unreadable()));
  EXPECT_TRUE(says_unreadable("version -7: " + unreadable()));
  for (const std::string other : {"", "version ", "version 7", "version 7: ", "it cannot be read", "a head is torn",
                                  "version x: it cannot be read: EIO", "version 7 of \"it cannot be read: \" is torn",
                                  "version 7: version 8: it cannot be read: EIO", "name: it cannot be read: EIO"}) {
    EXPECT_FALSE(says_unreadable(other)) << other;
  }
}

TEST(Unreadable, what_the_disk_could_not_read_may_come_back) {
  EXPECT_FALSE(may_come_back({}));
  EXPECT_FALSE(may_come_back({{"segment", 0, unreadable()}})) << "the sentence alone says nothing";
  EXPECT_TRUE(may_come_back({{"segment", 0, "a head is torn"}, {"segment", 0, unreadable(), true}}));
}

TEST(Unreadable, an_index_of_format_1_says_it_by_its_sentence) {
  ScannedStore store;
  store.damages = {{"segment", 0, "a head is torn"}, {"segment", 0, "version 7: " + unreadable(), true}};
  const auto parsed = parse_index(encode_index(store), store.head).value();
  EXPECT_FALSE(parsed.damages.at(0).unreadable);
  EXPECT_TRUE(parsed.damages.at(1).unreadable);
}

}  // namespace
}  // namespace ebb::storage
