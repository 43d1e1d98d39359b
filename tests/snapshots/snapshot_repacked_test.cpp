// A reader of a store beside `ebbtide gc`, which packs snapshots anew: what stays is found at every moment, exact.
#include <functional>
#include <thread>

#include "storage/admin/collect.hpp"
#include "storage/admin/repack.hpp"
#include "tests/doubles/memory_files.hpp"
#include "tests/snapshots/snapshot_model.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
using doubles::MemoryFiles;
using Memory = SnapshotModel::Memory;

/// Files that call a function after so many calls, by the thread that makes the last of them.
/// Thread safety: every method may be called from any thread.
class InterruptedFiles final : public doubles::ForwardFiles<InterruptedFiles> {
 public:
  InterruptedFiles(os::Files& inner, std::uint64_t after, std::function<void()> then)
      : ForwardFiles(inner), after_(after), then_(std::move(then)) {}
  std::uint64_t calls() const { return calls_; }
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned entries) override { return inner_.open_ring(entries); }

 private:
  friend ForwardFiles;
  template <class Whole>
  os::SysResult around(const doubles::FileRecord&, Whole&& whole) noexcept {
    const os::SysResult result = whole();
    if (++calls_ == after_) then_();
    return result;
  }
  std::atomic<std::uint64_t> calls_{0};
  const std::uint64_t after_;
  const std::function<void()> then_;
};

// A test looks after every call of the files; under a sanitizer, which takes ten times as long, after every fifth.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t kStep = 5;
#else
constexpr std::uint64_t kStep = 1;
#endif

/// A store of two snapshots, on a disk in memory: of the first one the second needs so little that `gc` packs it anew,
/// and their map then has another size.
class SnapshotsRepacked : public ::testing::Test {
 protected:
  SnapshotsRepacked() {
    auto files = std::make_shared<MemoryFiles>();
    Rig rig{Backend::threads, kSmall};
    in(rig, files, false);
    Engine& engine = rig.engine();
    const auto first = model_.make(1, nullptr, model_.all(), model_.filled(std::byte{1}));
    SnapshotModel::store(engine, first);
    auto dirty = model_.all();
    for (auto& range : dirty) range.count -= 2 * range.count / 5;
    auto second = model_.make(2, &first.written, dirty, second_memory(first.written.memory, dirty));
    SnapshotModel::store(engine, second);
    written_ = std::move(second.written);
    rig.end();
    written_files_ = files->journal();
  }
  static void in(Rig& rig, std::shared_ptr<os::Files> files, bool readonly) {
    rig.seams().files = std::move(files);
    rig.setup().directory = "/store";
    rig.setup().durability = Durability::process;
    rig.setup().readonly = readonly;
    rig.setup().machine.ephemeral = false;
  }

  Memory second_memory(Memory memory, const std::vector<storage::ZoneRange>& dirty) {
    for (const auto& range : dirty)
      for (std::uint32_t i = 0; i < range.count; ++i) model_.write_zone(memory, {range.region, range.first + i, 1});
    return memory;
  }

  /// What a store looks like to a reader, who does each call for the first time or again.
  void expect_all_there(Store& reader) {
    const auto latest = reader.latest();
    ASSERT_TRUE(latest) << latest.error().message;
    ASSERT_EQ(*latest, std::optional<Version>(2));
    const auto info = reader.info(2);
    ASSERT_TRUE(info) << info.error().message;
    ASSERT_EQ(info->regions.size(), written_.memory.size());
    Memory memory = written_.memory;
    for (auto& [region, bytes] : memory) std::fill(bytes.begin(), bytes.end(), std::byte{0x55});
    const auto done = reader.restore(2, SnapshotModel::targets(memory), {.keep = true});
    ASSERT_TRUE(done) << done.error().message;
    ASSERT_TRUE(memory == written_.memory) << "version 2 came back with other bytes";
  }
  /// Returns how many snapshots were packed anew.
  static std::size_t collect(os::Files& files) {
    os::SteadyClock clock;
    storage::collect(files, "/store", {.keep_last = 1}).value();
    const std::size_t repacked = storage::repack_snapshots(files, clock, "/store", false).value().size();
    storage::collect(files, "/store", {}).value();
    return repacked;
  }

  SnapshotModel model_{1};
  SnapshotModel::Written written_;
  doubles::Journal written_files_;
};

TEST_F(SnapshotsRepacked, AreThereWhereverGcComesBetweenTwoCallsOfAReader) {
  bool came = true;
  for (std::uint64_t after = 1; came && !HasFailure(); after += kStep) {
    SCOPED_TRACE("after call " + std::to_string(after));
    came = false;
    MemoryFiles files(written_files_);
    Rig rig{Backend::threads, kSmall};
    in(rig,
       std::make_shared<InterruptedFiles>(files, after,
                                          [&] {
                                            came = true;
                                            EXPECT_EQ(collect(files), 1u);
                                          }),
       true);
    for (int again = 0; again < 2; ++again) expect_all_there(rig.store());
  }
}

TEST_F(SnapshotsRepacked, AreThereWhereverAReaderComesBetweenTwoCallsOfGc) {
  bool came = true;
  for (std::uint64_t after = 1; came && !HasFailure(); after += kStep) {
    SCOPED_TRACE("after call " + std::to_string(after));
    came = false;
    auto files = std::make_shared<MemoryFiles>(written_files_);
    Rig before{Backend::threads, kSmall}, meanwhile{Backend::threads, kSmall};
    in(before, files, true);
    in(meanwhile, files, true);
    expect_all_there(before.store());
    InterruptedFiles gc(*files, after, [&] {
      came = true;
      expect_all_there(before.store());
      expect_all_there(meanwhile.store());
    });
    EXPECT_EQ(collect(gc), 1u);
    expect_all_there(before.store());
  }
}

// Gc begins at one of the reader's calls, and stops at one of its own until the reader has all.
TEST_F(SnapshotsRepacked, AreThereWhereverBothAre) {
  for (std::uint64_t seed = 0; seed < 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const std::uint64_t reader_at = 1 + random() % 100, gc_at = 1 + random() % 300;
    std::atomic<bool> stopped{false}, read{false};
    MemoryFiles files(written_files_);
    InterruptedFiles gc(files, gc_at, [&] {
      stopped = true;
      stopped.notify_all();
      read.wait(false);
    });
    std::thread collecting;
    Rig rig{Backend::threads, kSmall};
    in(rig,
       std::make_shared<InterruptedFiles>(files, reader_at,
                                          [&] {
                                            collecting = std::thread([&] {
                                              EXPECT_EQ(collect(gc), 1u);
                                              stopped = true;
                                              stopped.notify_all();
                                            });
                                            stopped.wait(false);
                                          }),
       true);
    expect_all_there(rig.store());
    read = true;
    read.notify_all();
    if (collecting.joinable()) collecting.join();
    expect_all_there(rig.store());
  }
}

}  // namespace
}  // namespace ebb::store
