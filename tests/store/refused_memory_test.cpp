// The application's memory, where the system refuses it: the call says which region, and nothing is lost.
#include <sys/mman.h>

#include "kept_rig.hpp"
#include "tests/os/refused_pages.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using os::testing::Refusal;
using os::testing::RefusedPages;

struct Case {
  Backend backend;
  bool ephemeral, verify;
};

class RefusedMemory : public ::testing::TestWithParam<Case> {
 protected:
  RefusedMemory() : kept_(GetParam().backend), scratch_(GetParam().backend) {
    kept_.setup().verify_all = scratch_.setup().verify_all = GetParam().verify;
  }
  Store& open() { return GetParam().ephemeral ? scratch_.store() : kept_.open(); }

 private:
  KeptRig kept_;
  Rig scratch_;
};

void expect_named(const Result<void>& result, const char* region) {
  ASSERT_EQ(code_of(result), Errc::invalid_argument) << (result ? "" : result.error().message);
  EXPECT_NE(result.error().message.find(region), std::string::npos) << result.error().message;
}

// From a page to more than is copied past the caches, in the first chunk and in a later one.
TEST_P(RefusedMemory, IsNamedByEveryCallThatCopiesAndNothingIsLost) {
  Store& store = open();
  for (const auto& [pages, good] : {std::pair{2, 1}, {10, 9}, {300, 1}, {300, 299}}) {
    const std::size_t size = static_cast<std::size_t>(pages) * os::kBlock;
    ASSERT_TRUE(write(store, 1, size));
    for (const Refusal how : {Refusal::truncated, Refusal::none, Refusal::read_only}) {
      SCOPED_TRACE(std::to_string(pages) + " pages, refusal " + std::to_string(static_cast<int>(how)));
      const RefusedPages refused(pages, good, how);
      std::byte fine{7};
      if (how != Refusal::read_only) {
        const Source sources[] = {{4, &fine, 1}, {5, refused.data(), size}};
        const auto written = store.checkpoint(2, sources);
        expect_named(written ? Result<void>() : written.error(), "version 2: the memory of region 5 cannot be read");
        EXPECT_EQ(code_of(store.info(2)), Errc::unknown_version);
      }
      const Target target{0, refused.data(), size};
      expect_named(store.restore(1, {&target, 1}), "version 1: the memory of region 0 cannot be written");
      const auto restored = store.restore_async(1, {&target, 1});
      ASSERT_TRUE(restored);
      expect_named(restored->wait(), "version 1: the memory of region 0 cannot be written");
      expect_restored(store, 1, size, {.keep = true});
      ASSERT_TRUE(write(store, 2, size));  // the name is free
      expect_restored(store, 2, size, {.keep = true});
      ASSERT_TRUE(store.drop(2));
    }
    ASSERT_TRUE(store.drop(1));
  }
}

INSTANTIATE_TEST_SUITE_P(, RefusedMemory,
                         ::testing::Values(Case{Backend::threads, true, false}, Case{Backend::threads, false, true},
                                           Case{Backend::uring, false, false}),
                         [](const auto& info) {
                           return std::string(info.param.backend == Backend::uring ? "uring" : "threads") +
                                  (info.param.ephemeral ? "Ephemeral" : "") + (info.param.verify ? "Verified" : "");
                         });

}  // namespace
}  // namespace ebb::store
