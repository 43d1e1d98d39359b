// The disk fails in the background, and the caches fill up with what it refused: what every kind of read says then.
#include "ebbtide/admin.hpp"
#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::FaultyFiles;
using doubles::FileCall;

struct Fault {
  const char* name;
  int error;
  std::uint64_t times;  // writes that fail
};

/// Each puts the version's bytes at `to`, and keeps the version.
struct Read {
  const char* name;
  bool needs_room;  // of the device cache
  std::function<Result<void>(Rig&, Version, std::vector<std::byte>& to)> call;
};

const std::vector<Read>& reads() {
  const auto restore = [](Rig& rig, Version v, std::vector<std::byte>& to) {
    return rig.store().restore(v, {{0, to.data(), to.size()}}, {.keep = true});
  };
  static const std::vector<Read> all{
      {"restore", false, restore},
      {"restore_async", false,
       [](Rig& rig, Version v, std::vector<std::byte>& to) -> Result<void> {
         const Target target{0, to.data(), to.size()};
         auto future = rig.store().restore_async(v, {&target, 1}, {.keep = true});
         return future ? future->wait() : future.error();
       }},
      {"restore in stream order", false,
       [](Rig& rig, Version v, std::vector<std::byte>& to) {
         const auto on = rig.device().create_stream().value();
         auto done = rig.store().restore(v, {{0, to.data(), to.size()}}, {.keep = true, .stream = on});
         EXPECT_TRUE(rig.device().synchronize());
         rig.device().destroy_stream(on);
         return done;
       }},
      {"hint, then restore", false,
       [restore](Rig& rig, Version v, std::vector<std::byte>& to) {
         EXPECT_TRUE(rig.store().hint({v}));
         EXPECT_TRUE(rig.store().start_prefetch());
         return restore(rig, v, to);
       }},
      {"borrow", true,
       [](Rig& rig, Version v, std::vector<std::byte>& to) -> Result<void> {
         auto loan = rig.store().borrow(v, {.keep = true});
         if (!loan) return loan.error();
         to = rig.get(loan->data(), to.size());
         return loan->release(true);
       }},
  };
  return all;
}

class KeptReads : public ::testing::TestWithParam<Fault> {
 protected:
  void read_all(const std::vector<Version>& versions, bool room) {
    for (const Version v : versions) {
      for (const Read& read : reads()) {
        std::vector<std::byte> bytes(kSize);
        const auto done = read.call(rig_.rig(), v, bytes);
        const std::string where = "version " + std::to_string(v) + ", " + read.name;
        if (done) {
          EXPECT_EQ(bytes, bytes_of(v, kSize)) << where;
        } else {
          EXPECT_TRUE(read.needs_room && !room && done.error().code == Errc::no_space)
              << where << ": " << done.error().message;
        }
      }
    }
  }
  void verify(const std::vector<Version>& durable) {
    const auto listing = admin::ls(rig_.path()).value();
    const auto verdicts = admin::verify(listing);
    for (const Version v : durable) {
      const auto found = std::ranges::find(listing.checkpoints, v, &admin::Checkpoint::version);
      ASSERT_NE(found, listing.checkpoints.end()) << "version " << v;
      EXPECT_EQ(verdicts[static_cast<std::size_t>(found - listing.checkpoints.begin())].kind,
                admin::Verdict::Kind::intact)
          << "version " << v;
    }
  }
  KeptRig rig_{Backend::gpu, {.device = 128 * kKiB, .host = 128 * kKiB}};
};

TEST_P(KeptReads, AreRightOrSayWhyAndTryTheDiskAgain) {
  const auto [name, error, times] = GetParam();
  Store& store = rig_.open();
  const std::vector<Version> durable{1, 2, 3};
  std::vector<Version> written = durable;
  for (const Version v : durable) keep(store, v);
  rig_.files().fail_nth(FileCall::write, 1, error, times);
  for (Version v = 4; v < 12 && write(store, v, kSize); ++v) written.push_back(v);
  EXPECT_GE(written.size(), 6u);
  read_all(written, false);
  verify(durable);
  rig_.files().clear_faults();
  read_all(written, true);  // no call that writes or waits comes before
  const auto kept = store.wait("storage");
  ASSERT_TRUE(kept) << kept.error().message;
  verify(written);
  ASSERT_TRUE(store.close());
}

INSTANTIATE_TEST_SUITE_P(Disk, KeptReads,
                         ::testing::Values(Fault{"APassingEIO", EIO, 5}, Fault{"ALastingEIO", EIO, FaultyFiles::kEver},
                                           Fault{"NoSpaceUntilSomeIsMade", ENOSPC, FaultyFiles::kEver}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace ebb::store
