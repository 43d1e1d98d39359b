// Which damage may be none the next time: only a sentence of ours says so, never a name within another.
#include "storage/scan/unreadable.hpp"

#include <gtest/gtest.h>

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
  EXPECT_FALSE(may_come_back({}));
  EXPECT_FALSE(may_come_back({{"segment", 0, "a head is torn"}}));
  EXPECT_TRUE(may_come_back({{"segment", 0, "a head is torn"}, {"segment", 0, unreadable()}}));
}

}  // namespace
}  // namespace ebb::storage
