// A store that has no memory for reading or writing: the caller gets a named error, and the store continues and closes
// normally.
#include "tests/os/refused_memory.hpp"
#include "tests/storage/segment_store_fixture.hpp"

namespace ebb::storage {
namespace {

using test::refuse_aligned;

class SegmentStoreMemoryTest : public SegmentStoreFixture {
 protected:
  ~SegmentStoreMemoryTest() override { refuse_aligned = false; }
  // On files that need no memory themselves.
  void open_plain() {
    storage_ = open_persistent_storage(posix_, clock_, options_, completions_.done(), persisted_.callback()).value();
  }
  template <class T>
  static void expect_refused(const Result<T>& how, const char* what) {
    ASSERT_FALSE(how);
    EXPECT_EQ(how.error().code, Errc::out_of_memory) << how.error().message;
    EXPECT_NE(how.error().message.find(what), std::string::npos) << how.error().message;
  }
};

TEST_F(SegmentStoreMemoryTest, a_read_that_needs_room_beside_is_refused_by_name_and_can_be_made_again) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1 << 16));
  reopen();
  const ObjectId id = storage_->found().at(0).object;
  Buffer in(1 << 16);
  refuse_aligned = true;
  expect_refused(get(id, 4096, in.data(), 4096), "version 1 of \"adjoint\": there is no memory to read it into");
  refuse_aligned = false;
  expect_back(id, 1, 1 << 16, 4096);
  storage_->stop();
}

TEST_F(SegmentStoreMemoryTest, a_header_that_finds_no_memory_fails_what_waits_for_it_alone) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1 << 16));
  reopen();
  const ObjectId id = storage_->found().at(0).object;
  Buffer in(1 << 16);
  refuse_aligned = true;
  expect_refused(get(id, 0, in.data(), 1 << 16), "to read its header into");
  expect_refused(storage_->load_description(id), "to read its header into");
  refuse_aligned = false;
  expect_back(id, 1, 1 << 16);
}

TEST_F(SegmentStoreMemoryTest, what_cannot_be_marked_complete_is_told_and_the_store_goes_on) {
  options_.sync_interval = std::chrono::hours(1);  // it is marked when we say so
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1 << 20));
  ASSERT_TRUE(write(kFirst + 1, 2, 1 << 20));
  refuse_aligned = true;
  storage_->commit();
  expect_refused(persisted_.of(kFirst + 1), "version 2 of \"adjoint\": there is no memory for its header");
  refuse_aligned = false;
  storage_->drop(kFirst + 1);
  ASSERT_TRUE(persist(kFirst + 2, 2, 1 << 20));
  reopen();
  ASSERT_EQ(storage_->found().size(), 2u);
  expect_back(storage_->found().at(0).object, 1, 1 << 20);
  expect_back(storage_->found().at(1).object, 2, 1 << 20);
}

TEST_F(SegmentStoreMemoryTest, a_drop_that_finds_no_memory_is_made_when_the_store_closes) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1 << 16));
  ASSERT_TRUE(persist(kFirst + 1, 2, 1 << 16));
  refuse_aligned = true;
  storage_->drop(kFirst);
  for (int i = 0; i < 10000 && storage_->describe().find("1 drops not carried out") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_NE(storage_->describe().find("1 drops not carried out"), std::string::npos) << storage_->describe();
  refuse_aligned = false;
  reopen();
  ASSERT_EQ(storage_->found().size(), 1u);
  expect_back(storage_->found().at(0).object, 2, 1 << 16);
}

// drop() refuses an object with transfers in flight; stop() would wait for them forever.
TEST_F(SegmentStoreMemoryTest, of_a_put_that_any_allocation_fails_in_nothing_stays_counted) {
  open_plain();
  Buffer out(1 << 20);
  ObjectId id = kFirst;
  for (const std::size_t bytes :
       {std::size_t{1} << 20, std::size_t{1} << 12}) {  // a small one is hashed and written later
    int refused = 0;
    for (bool all = false; !all; refused += !all, ++id) {
      ASSERT_TRUE(storage_->begin(id, describe(static_cast<Version>(id - kFirst), bytes)));
      const Token token = next_++;
      test::refuse_nth = refused + 1;
      try {
        const auto taken = storage_->put(token, id, bytes, 0, out.data(), bytes);
        all = test::refuse_nth > 0;
        test::refuse_nth = 0;
        ASSERT_TRUE(taken);
        EXPECT_EQ(bool(completions_.of(token)), all) << "allocation " << refused + 1;
      } catch (const std::bad_alloc&) {
      }
      if (!all) storage_->drop(id);
    }
    EXPECT_GE(refused, 2);
  }
  storage_->stop();
}

TEST_F(SegmentStoreMemoryTest, of_a_get_that_any_allocation_fails_in_nothing_stays_counted) {
  open();
  ASSERT_TRUE(persist(kFirst, 1, 1 << 16));
  Buffer in(1 << 16);
  int refused = 0;
  for (bool all = false; !all; refused += !all) {
    storage_.reset();
    open_plain();  // its header is read again
    const ObjectId id = storage_->found().at(0).object;
    const Token token = next_++;
    test::refuse_nth = refused + 1;
    try {
      const auto taken = storage_->get(token, id, 4096, in.data(), 4096);
      all = test::refuse_nth > 0;
      test::refuse_nth = 0;
      if (taken) {
        EXPECT_EQ(bool(completions_.of(token)), all) << "allocation " << refused + 1;
      } else {
        EXPECT_EQ(taken.error().code, Errc::out_of_memory) << taken.error().message;
      }
    } catch (const std::bad_alloc&) {
    }
  }
  EXPECT_GT(refused, 2);
  storage_->stop();
}

TEST_F(SegmentStoreMemoryTest, a_small_one_that_finds_no_memory_is_told) {
  open();
  ASSERT_TRUE(storage_->begin(kFirst, describe(1, 4096)));
  Buffer out(4096);
  out.scramble(1);
  refuse_aligned = true;
  expect_refused(put(kFirst, 4096, 0, out.data(), 4096),
                 "version 1 of \"adjoint\": there is no memory to write it from");
  refuse_aligned = false;
  ASSERT_TRUE(put(kFirst, 4096, 0, out.data(), 4096)) << "it may be put again";
  storage_->commit();
  EXPECT_TRUE(persisted_.of(kFirst));
}

}  // namespace
}  // namespace ebb::storage
