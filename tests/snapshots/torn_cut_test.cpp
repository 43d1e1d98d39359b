// Threads write as fast as they can while cuts are taken: each cut is one instant.
#include <atomic>

#include "tests/long_form.hpp"
#include "tests/snapshots/support.hpp"
#include "tests/store/kept_rig.hpp"

namespace ebb::snapshots {
namespace {

using namespace testing_support;

constexpr std::size_t kPairs = 96, kWriters = 3, kWords = kPage / 8, kStride = 64;

// Each writer has zones of its own in two halves of memory, far apart. In step s it stamps zone A, from its front on,
// with s, and then zone B. So in a cut a zone has one stamp, or, if it was being written, s at the front and s - 1
// behind; and B is never newer than all of A.
class Stamps {
 public:
  explicit Stamps(std::byte* memory) {
    for (std::size_t w = 0; w < kWriters; ++w)
      writers_.emplace_back([this, memory, w] {
        for (std::uint64_t step = 1; !stop_; ++step)
          for (std::size_t pair = w; pair < kPairs; pair += kWriters)
            for (const std::size_t zone : {pair, pair + kPairs}) {
              for (std::size_t i = 0; i < kWords; i += kStride)
                std::atomic_ref(*(reinterpret_cast<std::uint64_t*>(memory + zone * kPage) + i)).store(step);
              ++stamped_;
              stamped_.notify_one();
            }
      });
  }
  Stamps(const Stamps&) = delete;
  // Returns once another zone is stamped: a busy machine may give the writers no time for long.
  void await_one() const { stamped_.wait(stamped_); }
  ~Stamps() {
    stop_ = true;
    for (std::thread& one : writers_) one.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> stamped_{0};  // zones
  std::vector<std::thread> writers_;
};

// What a cut has, against the one before.
class StampCheck {
 public:
  void check(std::span<const std::byte> bytes) {
    ASSERT_EQ(bytes.size(), 2 * kPairs * kPage);
    const auto at = [&](std::size_t zone, std::size_t i) {
      std::uint64_t stamp = 0;
      std::memcpy(&stamp, bytes.data() + zone * kPage + i * 8, 8);
      return stamp;
    };
    for (std::size_t zone = 0; zone < 2 * kPairs; ++zone) {
      const std::uint64_t front = at(zone, 0), back = at(zone, kWords - kStride);
      for (std::size_t i = kStride; i < kWords; i += kStride) ASSERT_LE(at(zone, i), at(zone, i - kStride));
      ASSERT_LE(front - back, 1u) << "zone " << zone << " is torn";
      ASSERT_GE(back, last_[zone]) << "zone " << zone << " went back";
      moved_ = moved_ || back > last_[zone];
      last_[zone] = back;
    }
    for (std::size_t pair = 0; pair < kPairs; ++pair)
      ASSERT_LE(at(pair + kPairs, 0), at(pair, kWords - kStride)) << "pair " << pair;
  }
  bool moved() const { return moved_; }

 private:
  std::vector<std::uint64_t> last_ = std::vector<std::uint64_t>(2 * kPairs);
  bool moved_ = false;
};

class TornCut : public ::testing::TestWithParam<Durability> {};
INSTANTIATE_TEST_SUITE_P(Stores, TornCut, ::testing::Values(Durability::ephemeral, Durability::process),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

TEST_P(TornCut, NoZoneIsTornAndWhatWasWrittenLaterIsNeverThereAlone) {
  const Version cuts = long_form() ? 1000 : 60;
  constexpr Version kBehind = 12;  // how many cuts are kept, at least, before the oldest is looked at and dropped
  OwnDirectory directory;
  Rig rig(Backend::uring, {.device = 16 * kMiB, .host = 32 * kMiB, .disk = 1024 * kMiB});
  if (GetParam() != Durability::ephemeral) {
    rig.setup().directory = directory.path();
    rig.setup().durability = GetParam();
  }
  snapshots_of(rig, kPage, {.longest_wait = 60'000'000'000});  // the machine may be busy
  Store& store = rig.store();
  Pages memory(2 * kPairs * kPage);
  store.protect(0, memory.data(), memory.bytes(), {kPage, Track::faults}).value();
  std::vector<Snapshot> taken;
  StampCheck stamps;
  std::vector<std::byte> found(memory.bytes());
  const auto look = [&](Version version) {
    SCOPED_TRACE("cut " + std::to_string(version));
    const auto waited = taken[static_cast<std::size_t>(version)].wait(name_of(GetParam()));
    ASSERT_TRUE(waited) << waited.error().message;
    const std::vector<std::byte> whole = stored(store, version, 0);
    RestoreOptions options{.keep = true};
    if (version > 0) options.have = version - 1;
    store.restore(version, {{0, found.data(), found.size()}}, options).value();
    ASSERT_TRUE(found == whole);
    stamps.check(found);
    if (version > 0) store.drop(version - 1).value();
  };
  {
    const Stamps writers(memory.data());
    for (Version cut = 0; cut < cuts && !::testing::Test::HasFailure(); ++cut) {
      writers.await_one();
      auto snapshot = store.snapshot(cut);
      EXPECT_TRUE(snapshot) << snapshot.error().message;
      if (!snapshot) break;
      taken.push_back(*snapshot);
      if (cut >= kBehind) look(cut - kBehind);
    }
  }
  for (Version cut = cuts - kBehind; cut < cuts && !::testing::Test::HasFailure(); ++cut) look(cut);
  EXPECT_TRUE(stamps.moved());
  const SnapshotStats stats = store.snapshot_stats();
  EXPECT_EQ(stats.snapshots, static_cast<std::uint64_t>(cuts));
  EXPECT_EQ(stats.failures, 0u);
  EXPECT_GT(stats.duplicates, 0u);
}

// Less than a page at the end of memory, which is not protected, is copied when everything else is.
TEST(TornCutOfEdges, AreOfTheSameInstant) {
  Store store = Store::open({.device = "cpu", .device_cache = 16 * kMiB, .host_cache = 0, .disk = 0}).value();
  Pages memory(17 * kPage);
  const std::size_t bytes = 16 * kPage + 64;
  store.protect(0, memory.data(), bytes, {kPage, Track::faults}).value();
  const std::array<std::size_t, 3> places{3 * kPage, 16 * kPage + 8, 9 * kPage};  // the edge is written between
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t step = 1; !stop; ++step)
      for (const std::size_t at : places)
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory.data() + at)).store(step);
  });
  for (Version cut = 0; cut < (long_form() ? 5000 : 300) && !::testing::Test::HasFailure(); ++cut) {
    auto snapshot = store.snapshot(cut);
    EXPECT_TRUE(snapshot && snapshot->wait("ephemeral"));
    const std::vector<std::byte> found = stored(store, cut, 0);
    std::array<std::uint64_t, 3> stamps{};
    for (std::size_t i = 0; i < places.size(); ++i) std::memcpy(&stamps[i], found.data() + places[i], 8);
    EXPECT_TRUE(stamps[0] >= stamps[1] && stamps[1] >= stamps[2] && stamps[0] - stamps[2] <= 1)
        << "cut " << cut << ": " << stamps[0] << ", " << stamps[1] << ", " << stamps[2];
    store.drop(cut).value();
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace ebb::snapshots
