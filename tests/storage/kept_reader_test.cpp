// A store that is only read, while what it found is not there any more, or something else is in its place.
#include <gmock/gmock.h>

#include "tests/storage/kept_fixture.hpp"

namespace ebb::storage {
namespace {

using ::testing::HasSubstr;

class KeptReaderTest : public KeptFixture {
 protected:
  std::unique_ptr<KeptStorage> open_reader() {
    KeptOptions options = options_;
    options.readonly = true;
    return try_open(options).value();
  }
};

// Of the same name's length, sizes, place and sequence: only the version, the time and the body tell them apart.
TEST_F(KeptReaderTest, another_record_in_the_place_of_what_was_found_is_not_handed_out) {
  open();
  ASSERT_TRUE(keep(kFirst, 0, 100'000));
  storage_->stop();
  storage_.reset();
  auto reader = open_reader();
  ASSERT_EQ(reader->found().size(), 1u);
  const ObjectId found = reader->found()[0].object;
  for (const auto& path : segments()) std::filesystem::remove(path);
  std::filesystem::remove(directory_ / kIndexFile);
  open();
  ASSERT_TRUE(keep(kFirst + 1, 7, 100'000));
  ASSERT_EQ(segments().size(), 1u);
  ASSERT_EQ(segments()[0].filename(), "segment-00000001.ebb") << "or this shows nothing";

  std::swap(storage_, reader);
  Buffer in(100'000);
  const auto got = get(found, 0, in.data(), 100'000);
  ASSERT_FALSE(got) << "bytes of version 7 were handed out as version 0";
  EXPECT_EQ(got.error().code, Errc::damaged);
  EXPECT_THAT(got.error().message, HasSubstr("another record is in its place"));
  const auto read = storage_->read(found);
  ASSERT_FALSE(read) << "the description of version 7 was handed out as that of version 0";
  EXPECT_EQ(read.error().code, Errc::damaged);
  EXPECT_EQ(storage_->verify(found).error().code, Errc::damaged);
  std::swap(storage_, reader);
}

}  // namespace
}  // namespace ebb::storage
