// Where the kernel allows a program less: what is tracked instead, and that every version is exact.
#include "tests/os/another_user.hpp"

#include "tests/snapshots/support.hpp"

namespace ebb::snapshots {
namespace {

using namespace testing_support;
using os::WatchForm;
using os::testing::as_nobody;
using os::testing::in_child;
using os::testing::read_into;

constexpr int kSkipped = 100;

// 0, or which step failed.
int take_snapshots(Track track, bool reads_fail) {
  Store store = Store::open({.device_cache = 8 * kMiB, .host_cache = 0, .disk = 0}).value();
  Pages memory(64 * kPage);
  if (!store.protect(0, memory.data(), memory.bytes(), {kPage, track})) return 1;
  std::vector<std::vector<std::byte>> expected;
  for (Version version = 0; version < 8; ++version) {
    expected.push_back(memory.copy());
    auto cut = store.snapshot(version);
    if (!cut || !cut->wait("ephemeral")) return 2;
    memory.data()[static_cast<std::size_t>(version) * 7 * kPage] = std::byte{5};
    std::byte* const at = memory.data() + (static_cast<std::size_t>(version) * 5 + 3) * kPage;
    if (read_into(at) != (reads_fail ? EFAULT : 0)) return 3;
  }
  for (Version version = 0; version < 8; ++version)
    if (stored(store, version, 0) != expected[static_cast<std::size_t>(version)]) return 4;
  return 0;
}

TEST(AnotherUser, MayReadIntoProtectedMemory) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  if (!os::SystemWriteWatches().open(WatchForm::userfaultfd_async)) GTEST_SKIP() << "no userfaultfd";
  EXPECT_EQ(as_nobody([] { return take_snapshots(Track::automatic, false); }), 0);
}

TEST(AnotherUser, IsLimitedToFaultsOfUserModeWithFaults) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const int done = as_nobody([] {
    const auto watch = os::SystemWriteWatches().open(WatchForm::userfaultfd_sync);
    return !watch || !(*watch)->user_faults_only() ? kSkipped : take_snapshots(Track::faults, true);
  });
  if (done == kSkipped) GTEST_SKIP() << "vm.unprivileged_userfaultfd is not 0";
  EXPECT_EQ(done, 0);
}

TEST(RefusedUserfaultfd, LeavesDigestsAndMprotect) {
  for (const int error : {EPERM, ENOSYS}) {
    const auto without = [&](const std::function<int()>& steps) {
      return in_child([&] {
        if (::geteuid() == 0 && !os::testing::become_nobody()) return 101;
        return os::testing::refuse_userfaultfd(error) ? steps() : 102;
      });
    };
    EXPECT_EQ(without([] { return take_snapshots(Track::automatic, false); }), 0);
    EXPECT_EQ(without([] { return take_snapshots(Track::faults, true); }), 0);
    EXPECT_EQ(without([&] {
                Store store = Store::open({.device_cache = 8 * kMiB, .host_cache = 0, .disk = 0}).value();
                Pages memory(4 * kPage);
                const auto refused = store.protect(0, memory.data(), memory.bytes(), {kPage, Track::scan});
                if (refused || refused.error().code != Errc::unsupported) return 1;
                const std::string name = error == EPERM ? "EPERM" : "ENOSYS";
                return refused.error().message.find(name) == std::string::npos ? 2 : 0;
              }),
              0);
  }
}

}  // namespace
}  // namespace ebb::snapshots
