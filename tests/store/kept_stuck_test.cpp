// Files that do not answer, perhaps ever. An engine that closed all the same is left where it is, since its threads may
// not end: hence a process of its own for each test, which leaves without asking them.
#include <cstdlib>

#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FileCall;

[[noreturn]] void leave(const KeptRig& rig) {
  std::error_code ignored;  // its threads may be writing there
  std::filesystem::remove_all(rig.path(), ignored);
  std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
}

void close_in_time(std::size_t bytes, const std::string& waited_for) {
  KeptRig& rig = *new KeptRig;
  rig.setup().close_timeout = Seconds(0.05);
  Store& store = rig.open();
  keep(store, 1, bytes);
  rig.files().hold(FileCall::write);
  const auto second = write(store, 2, bytes), third = write(store, 3, bytes);
  EXPECT_TRUE(second && third);
  rig.files().await_held(FileCall::write, 1);
  const auto closed = store.close();
  EXPECT_FALSE(closed);
  if (closed) leave(rig);
  EXPECT_EQ(closed.error().code, Errc::timed_out);
  for (const std::string& word : {waited_for, rig.path().string()}) {
    EXPECT_NE(closed.error().message.find(word), std::string::npos) << word << ": " << closed.error().message;
  }
  EXPECT_EQ(code_of(store.close()), Errc::timed_out);
  EXPECT_EQ(code_of(store.restore(1, std::span<const Target>{})), Errc::closed);
  for (const Result<Future>& future : {second, third}) {
    try {
      EXPECT_FALSE(Result<Future>(future).value().done("storage"));
      ADD_FAILURE() << "nothing was said of what will never be durable";
    } catch (const BadResult& refused) {
      EXPECT_EQ(refused.error().code, Errc::closed) << refused.what();
    }
  }
  rig.close();
  rig.files().release(FileCall::write);  // and what answers after all finds everything there
  leave(rig);
}

TEST(KeptStuck, ClosingEndsInItsTimeAndNamesWhatItWaitedFor) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(close_in_time(kSize, "version 2 is not, and 1 more"), ::testing::ExitedWithCode(0), "");
  // Small ones are gathered by the storage, and written with their headers.
  EXPECT_EXIT(close_in_time(kKiB, "version 2 and 1 more was kept"), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ebb::store
