// Opening where the system has no more threads to give.
#include <gtest/gtest.h>
#include <malloc.h>
#include <system_error>

#include "kept_rig.hpp"
#include "tests/os/few_threads.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

// Whichever of a store's threads it is that cannot be started.
TEST(NoThreads, OpeningIsRefusedByNameAndLeavesNothingBehind) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own for each thread";
#endif
  ::mallopt(M_ARENA_MAX, 1);  // an arena for each thread would want addresses too
  for (const Backend backend : {Backend::threads, Backend::uring, Backend::gpu}) {
    KeptRig rig(backend);
    keep(rig.open(), 1);
    rig.close();
    int refused = 0;
    bool opened = false;
    for (std::size_t threads = 0; threads < 40 && !opened; ++threads) {
      const auto engine = [&] {
        const FewThreads few(threads);
        return Engine::open(rig.rig().seams(), rig.setup());
      }();
      opened = static_cast<bool>(engine);
      if (opened) continue;
      ++refused;
      ASSERT_EQ(engine.error().code, Errc::out_of_memory) << engine.error().message;
      ASSERT_NE(engine.error().message.find("a thread cannot be started"), std::string::npos) << engine.error().message;
    }
    EXPECT_TRUE(opened);
    EXPECT_GT(refused, 5) << "as many as it has threads";
    expect_restored(rig.open(), 1, kSize);
  }
}

TEST(NoThreads, AnotherCauseIsNotTakenForThat) {
  KeptRig rig(Backend::threads);
  for (planner::TierIndex tier = 0; tier < 3; ++tier)
    rig.rig().seams().storages[tier] = [](auto&&...) -> std::unique_ptr<storage::PersistentStorage> {
      throw std::system_error(EMFILE, std::generic_category(), "a pipe");
    };
  const auto engine = Engine::open(rig.rig().seams(), rig.setup());
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Errc::io_error);
  EXPECT_NE(engine.error().message.find("a pipe: Too many open files"), std::string::npos) << engine.error().message;
}

}  // namespace
}  // namespace ebb::store
