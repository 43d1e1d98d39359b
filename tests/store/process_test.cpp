// The store among other things of its process: forks, the log, ownership.
#include "child.hpp"
#include "support.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

Options small() {
  Options options;
  options.directory = ::testing::TempDir();
  options.device_cache = 1 << 20;
  options.host_cache = 1 << 20;
  options.disk = 16 << 20;
  return options;
}

TEST(Process, AForkedChildIsRefusedByNameAndTheParentGoesOn) {
  Rig rig(Backend::threads, {.disk = 0});
  Store& store = rig.store();
  ASSERT_TRUE(write(store, 1, 1000));
  const int said = in_a_child([&] {
    int wrong = 0;
    const auto refused = write(store, 2, 1000);
    if (code_of(refused) != Errc::unsupported) wrong |= 1;
    if (!refused && refused.error().message.find("forked") == std::string::npos) wrong |= 2;
    if (code_of(store.close()) != Errc::unsupported) wrong |= 4;
    if (code_of(store.versions()) != Errc::unsupported) wrong |= 8;
    rig.end();  // must neither hang nor crash, though its threads are not here
    return wrong;
  });
  EXPECT_EQ(said, 0);
  expect_restored(store, 1, 1000);
}

TEST(Process, TellsWhatItChoseOnceAndNotOnStdout) {
  Options options = small();
  std::vector<std::string> lines;
  options.log = [&](std::string_view line) { lines.emplace_back(line); };
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    auto store = Store::open(options);
    ASSERT_TRUE(store) << store.error().message;
    const std::string settings = store->stats().settings;
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_EQ(lines[0], "open: " + settings);
    EXPECT_NE(settings.find("device 1 MiB, host 1 MiB, local 16 MiB"), std::string::npos) << settings;
  }
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Process, TheStoresOwnExampleRuns) {
  std::vector<double> field(1000);
  auto opened = Store::open(small());
  ASSERT_TRUE(opened) << opened.error().message;
  Store store = std::move(opened).value();
  for (int step = 0; step < 100; ++step) {
    std::fill(field.begin(), field.end(), step);
    store.checkpoint(step, {{0, field.data(), field.size() * sizeof(double)}}).value();
    store.hint_front(step).value();
  }
  for (int step = 100; step-- > 0;) {
    store.restore(step, {{0, field.data(), field.size() * sizeof(double)}}).value();
    ASSERT_EQ(field[999], step);
  }
}

TEST(Process, AMovedFromStoreIsClosedAndAMovedToOneGoesOn) {
  Store first = Store::open(small()).value();
  ASSERT_TRUE(write(first, 1, 1000));
  Store second = std::move(first);
  expect_restored(second, 1, 1000);
  EXPECT_EQ(code_of(write(first, 2, 10)), Errc::closed);
  EXPECT_TRUE(first.close());
  Store third = Store::open(small()).value();
  History of_third = third.history("x");
  third = std::move(second);
  EXPECT_EQ(code_of(write(of_third, 1, 10)), Errc::closed);
  EXPECT_TRUE(write(third, 1, 10));
}

TEST(Process, EveryShapeOfTiersWorks) {
  for (const Sizes sizes : {Sizes{.device = 0}, Sizes{.host = 0}, Sizes{.device = 0, .host = 0}, Sizes{.disk = 0},
                            Sizes{.device = 0, .disk = 0}, Sizes{.host = 0, .disk = 0}}) {
    Rig rig(Backend::uring, sizes);
    Store& store = rig.store();
    const Version count = sizes.disk > 0 ? 30 : 3;
    for (Version v = 0; v < count; ++v) {
      const auto written = write(store, v, 50 * kKiB);
      ASSERT_TRUE(written) << written.error().message;
    }
    for (Version v = count; v-- > 0;) expect_restored(store, v, 50 * kKiB);
  }
}

TEST(Process, AFutureOfAClosedStoreSaysSo) {
  Future future;
  EXPECT_TRUE(future.done());
  {
    Rig rig(Backend::fake);
    future = write(rig.store(), 1, 1000).value();
  }
  EXPECT_TRUE(future.done());
  EXPECT_TRUE(future.wait());
  EXPECT_EQ(code_of(future.wait("local")), Errc::closed);
}

}  // namespace
}  // namespace ebb::store
