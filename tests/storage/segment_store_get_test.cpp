// What get() asks of the disk, and when.
#include <algorithm>

#include "tests/storage/segment_store_fixture.hpp"

namespace ebb::storage {
namespace {

class SegmentStoreGetTest : public SegmentStoreFixture {
 protected:
  /// How often the first record's header was read since there were `from` calls.
  std::ptrdiff_t headers_read(std::size_t from) const {
    const auto records = files_.records();
    return std::count_if(records.begin() + static_cast<std::ptrdiff_t>(from), records.end(), [](const FileRecord& one) {
      return one.call == FileCall::read && segment_number(one.path.filename()) && one.offset == 4096;
    });
  }
};

TEST_F(SegmentStoreGetTest, the_checksums_are_read_once_for_all_ranges_and_none_waits_for_them_to_be_read_itself) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1 << 16));
  reopen();
  const ObjectId id = storage_->found().at(0).object;
  const std::size_t start = files_.records().size();
  Buffer in(1 << 16), out(1 << 16);
  out.scramble(1);
  files_.hold(FileCall::read);
  std::vector<Token> tokens;
  for (std::size_t at = 0; at < in.size(); at += 16384) {
    tokens.push_back(next_++);
    ASSERT_TRUE(storage_->get(tokens.back(), id, at, in.data() + at, 16384));
  }
  files_.await_held(FileCall::read, 4);  // the engine has no more threads: the header and three ranges
  files_.release(FileCall::read);
  for (const Token token : tokens) EXPECT_TRUE(completions_.of(token));
  EXPECT_TRUE(std::ranges::equal(in.first(1 << 16), out.first(1 << 16)));
  EXPECT_EQ(headers_read(start), 1);
}

TEST_F(SegmentStoreGetTest, a_header_that_cannot_be_read_fails_all_ranges_and_is_read_anew_by_the_next) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1 << 16));
  reopen();
  const ObjectId id = storage_->found().at(0).object;
  Buffer in(1 << 16);
  flip(segments().at(0), 4096 + 600);
  files_.hold(FileCall::read);
  const std::vector<Token> tokens{next_++, next_++};
  ASSERT_TRUE(storage_->get(tokens[0], id, 0, in.data(), 16384));
  files_.await_held(FileCall::read, 2);
  ASSERT_TRUE(storage_->get(tokens[1], id, 16384, in.data() + 16384, 16384));
  files_.release(FileCall::read);
  for (const Token token : tokens) {
    const auto how = completions_.of(token);
    ASSERT_FALSE(how);
    EXPECT_EQ(how.error().code, Errc::damaged);
    EXPECT_NE(how.error().message.find("header does not match"), std::string::npos) << how.error().message;
  }
  flip(segments().at(0), 4096 + 600);
  expect_back(id, 1, 1 << 16, 16384);
}

TEST_F(SegmentStoreGetTest, what_was_read_beside_the_payload_is_not_read_again_for_its_description) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1 << 16));
  reopen();
  const ObjectId id = storage_->found().at(0).object;
  expect_back(id, 1, 1 << 16);
  const std::size_t start = files_.records().size();
  const auto first = storage_->load_description(id);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ((*first)->info.metadata, "m");
  EXPECT_EQ(headers_read(start), 0);
  const auto second = storage_->load_description(id);  // the store does not cache it
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ((*second)->info.metadata, "m");
  EXPECT_EQ(headers_read(start), 1);
}

// Records the order of `carried` and `done` calls.
class SegmentStoreBytesReadTest : public SegmentStoreGetTest {
 protected:
  using Told = std::vector<std::pair<char, Token>>;

  std::unique_ptr<PersistentStorage> open_told(const PersistentOptions& options) {
    const auto tell = [this](char what, Token token) {
      std::lock_guard lock(mutex_);
      told_.emplace_back(what, token);
    };
    const auto done = completions_.done();
    return open_persistent_storage(
               files_, clock_, options,
               [tell, done](Token token, Result<void> how) { tell('d', token), done(token, std::move(how)); },
               persisted_.callback(), [tell](Token token) { tell('c', token); })
        .value();
  }
  Told told() {
    std::lock_guard lock(mutex_);
    return std::exchange(told_, {});
  }

 private:
  std::mutex mutex_;
  Told told_;
};

TEST_F(SegmentStoreBytesReadTest, what_is_read_and_yet_to_be_checked_is_told_once_and_before_its_end) {
  storage_ = open_told(options_);
  ASSERT_TRUE(persist(kFirst, 1, 1 << 16));
  EXPECT_EQ(told(), (Told{{'d', next_ - 1}})) << "only the end of a put is reported";
  Buffer in(1 << 16);
  ASSERT_TRUE(get(kFirst, 0, in.data(), 1 << 16));
  EXPECT_EQ(told(), (Told{{'c', next_ - 1}, {'d', next_ - 1}}));
  flip(segments().at(0), 2 * 4096);
  EXPECT_EQ(get(kFirst, 0, in.data(), 1 << 16).error().code, Errc::damaged);
  EXPECT_EQ(told(), (Told{{'c', next_ - 1}, {'d', next_ - 1}})) << "the result of the check comes with the end";
  files_.fail_nth(FileCall::read, 1, EIO);
  EXPECT_EQ(get(kFirst, 0, in.data(), 1 << 16).error().code, Errc::io_error);
  EXPECT_EQ(told(), (Told{{'d', next_ - 1}})) << "there is nothing to check";
}

TEST_F(SegmentStoreBytesReadTest, what_is_not_checked_just_ends) {
  options_.checksums = false;
  storage_ = open_told(options_);
  ASSERT_TRUE(persist(kFirst, 1, 1 << 16));
  told();
  Buffer in(1 << 16);
  ASSERT_TRUE(get(kFirst, 0, in.data(), 1 << 16));
  EXPECT_EQ(told(), (Told{{'d', next_ - 1}}));
}

TEST_F(SegmentStoreGetTest, without_checksums_nothing_is_checked) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1 << 16));
  storage_.reset();
  options_.readonly = true;
  options_.checksums = false;
  open();
  flip(segments().at(0), 2 * 4096);
  Buffer in(1 << 16);
  EXPECT_TRUE(get(storage_->found().at(0).object, 0, in.data(), 1 << 16));
}

TEST_F(SegmentStoreGetTest, of_nothing_a_small_object_gives_nothing_though_it_has_no_place_yet) {
  options_.sync_interval = std::chrono::hours(1);
  open();
  ASSERT_TRUE(storage_->begin(kFirst, describe(1, 100)));
  ASSERT_TRUE(storage_->begin(kFirst + 1, describe(2, 0)));
  std::byte none{};
  for (const ObjectId id : {kFirst, kFirst + 1}) {
    const auto got = get(id, 0, &none, 0);
    EXPECT_TRUE(got) << got.error().message;
  }
}

}  // namespace
}  // namespace ebb::storage
