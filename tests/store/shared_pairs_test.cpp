// Which directories make one store, and which of two records of a version is the newer one.
#include <fstream>
#include <malloc.h>
#include <map>
#include <random>
#include <thread>

#include "ebbtide/admin.hpp"
#include "shared_rig.hpp"
#include "tests/os/few_threads.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;
namespace fs = std::filesystem;

constexpr auto kTree = fs::copy_options::recursive;

// The same rig with one directory alone.
Result<std::shared_ptr<Engine>> open_alone(SharedRig& rig, const fs::path& directory, bool readonly = false) {
  options::EngineSetup setup = rig.setup();
  setup.directory = directory;
  setup.durability = Durability::storage;
  setup.readonly = readonly;
  setup.shared.reset();
  setup.machine = KeptRig().setup().machine;
  return Engine::open(rig.kept().rig().seams(), setup);
}

void expect_refused_alone(SharedRig& rig, const fs::path& directory, const fs::path& other) {
  const auto alone = open_alone(rig, directory);
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().code, Errc::invalid_argument);
  for (const std::string& named : {directory.string(), other.string(), std::string("readonly"), std::string("/pair")})
    EXPECT_NE(alone.error().message.find(named), std::string::npos) << alone.error().message;
}

TEST(SharedPairs, NeitherDirectoryIsWrittenToAlone) {
  SharedRig rig;
  send(rig.open(), 1);
  rig.close();
  const fs::path local = rig.setup().directory, shared = rig.shared().path();
  expect_refused_alone(rig, local, shared);
  expect_refused_alone(rig, shared, local);
  for (const fs::path& one : {local, shared}) {
    const auto looking = open_alone(rig, one, true);
    ASSERT_TRUE(looking) << looking.error().message;
  }
  expect_restored(rig.open(), 1, kSize);
}

TEST(SharedPairs, OneThatWasWrittenToAloneIsNeverPartOfThePairAgain) {
  for (const bool of_shared : {false, true}) {
    SharedRig rig;
    send(rig.open(), 1);
    rig.close();
    const fs::path one = of_shared ? rig.shared().path() : rig.setup().directory;
    fs::remove(one / "pair");
    {
      const auto alone = open_alone(rig, one);
      ASSERT_TRUE(alone) << alone.error().message;
    }
    EXPECT_EQ(code_of(rig.try_open()), Errc::invalid_argument);
    rig.delete_local();
    expect_restored(rig.open(), 1, kSize);
  }
}

TEST(SharedPairs, TheWrongWayRoundIsRefused) {
  SharedRig rig;
  send(rig.open(), 1);
  rig.close();
  const fs::path local = rig.setup().directory;
  rig.setup().directory = rig.shared().path();
  rig.setup().shared->directory = local;
  const auto turned = rig.try_open();
  ASSERT_FALSE(turned);
  EXPECT_NE(turned.error().message.find("wrong way round"), std::string::npos) << turned.error().message;
}

// The paths below a directory.
std::set<fs::path> tree(const fs::path& directory) {
  std::set<fs::path> found;
  if (fs::exists(directory)) found.insert(directory);
  if (!fs::is_directory(directory)) return found;
  for (const auto& one : fs::recursive_directory_iterator(directory)) found.insert(one.path());
  return found;
}

TEST(SharedPairs, ARefusedOpeningLeavesNothingBehind) {
  SharedRig rig;
  send(rig.open(), 1);
  rig.close();
  const fs::path local = rig.setup().directory, shared = rig.shared().path();
  const OwnDirectory other_local, other_shared, foreign;
  fs::create_directory(foreign.path());
  std::ofstream(foreign.path() / "notes.txt") << "not a store's";
  const auto refused = [&](const fs::path& of_local, const fs::path& of_shared) {
    rig.setup().directory = of_local;
    rig.setup().shared->directory = of_shared;
    std::set<fs::path> before, after;
    for (const fs::path& one : {local, shared, of_local, of_shared}) before.merge(tree(one));
    EXPECT_FALSE(rig.try_open());
    for (const fs::path& one : {local, shared, of_local, of_shared}) after.merge(tree(one));
    EXPECT_EQ(before, after);
  };
  refused(local, other_shared.path());  // the checkpoints of the local one go elsewhere
  fs::create_directory(other_shared.path());
  refused(local, other_shared.path());
  refused(shared, other_shared.path());
  refused(other_local.path(), local);
  refused(other_local.path(), foreign.path());
  rig.setup().event_log = foreign.path() / "notes.txt" / "log";  // which is no directory
  refused(other_local.path(), shared);
  refused(other_local.path(), other_shared.path());
  refused(local, shared);
  rig.setup().event_log.reset();
  rig.setup().directory = local;
  rig.setup().shared->directory = shared;
  expect_restored(rig.open(), 1, kSize);  // the shared directory is still that one's
}

// Also where a thread is refused after both directories were made.
TEST(SharedPairsWithoutThreads, ARefusedOpeningLeavesNothingBehind) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own for each thread";
#endif
  ::mallopt(M_ARENA_MAX, 1);  // an arena for each thread would want addresses too
  int refused = 0;
  bool ever = false;
  for (std::size_t threads = 0; threads < 40 && !ever; ++threads) {
    SharedRig rig;
    const auto opened = [&] {
      const FewThreads few(threads);
      return rig.try_open();
    }();
    ever = static_cast<bool>(opened);
    if (ever) break;
    ++refused;
    EXPECT_EQ(opened.error().code, Errc::out_of_memory) << opened.error().message;
    EXPECT_EQ(tree(rig.setup().directory), std::set<fs::path>{}) << threads << " threads";
    EXPECT_EQ(tree(rig.shared().path()), std::set<fs::path>{}) << threads << " threads";
  }
  EXPECT_TRUE(ever);
  EXPECT_GT(refused, 5) << "as many as it has threads";
}

TEST(SharedPairs, AnOpeningThatFailsTakesTheSharedDirectoryFromNobody) {
  SharedRig rig;
  send(rig.open(), 1);
  rig.close();
  const fs::path local = rig.setup().directory, shared = rig.shared().path();
  const OwnDirectory kept;
  fs::create_directory(kept.path());
  fs::copy(local, kept.path() / "local", kTree);
  fs::copy(shared, kept.path() / "shared", kTree);
  using doubles::FileCall;
  for (const FileCall call :
       {FileCall::open, FileCall::write, FileCall::sync, FileCall::sync_directory, FileCall::rename}) {
    bool reached = true;
    for (std::uint64_t n = 1; reached; ++n) {
      SCOPED_TRACE("call " + std::to_string(n) + " of kind " + std::to_string(static_cast<int>(call)));
      for (const fs::path& one : {local, shared}) fs::remove_all(one);
      fs::copy(kept.path() / "local", local, kTree);
      fs::copy(kept.path() / "shared", shared, kTree);
      const OwnDirectory fresh;
      rig.setup().directory = fresh.path();
      auto& files = rig.kept().files();
      const std::uint64_t before = files.count(call);
      files.fail_nth(call, n, EIO);
      auto opened = rig.try_open();
      reached = files.count(call) - before >= n;
      files.clear_faults();
      if (opened) continue;
      for (const fs::path& one : {local, fresh.path()}) {
        rig.setup().directory = one;
        expect_restored(rig.open(), 1, kSize);
        rig.close();
      }
    }
  }
}

// A power failure took what the local directory, which need not be synced, was given since it was opened.
TEST(SharedPairs, AVersionThatTheLocalDirectoryLostIsTheSharedOne) {
  SharedRig rig;
  send(rig.open(), 1);
  rig.close();
  OwnDirectory before;
  fs::copy(rig.setup().directory, before.path(), kTree);
  Store& store = rig.open();
  store.drop(1).value();
  send(store, 1, 2 * kSize);
  rig.close();
  rig.delete_local();
  fs::copy(before.path(), rig.setup().directory, kTree);
  Store& next = rig.open();
  expect_restored(next, 1, 2 * kSize);
  rig.close();
  rig.delete_local();
  expect_restored(rig.open(), 1, 2 * kSize);
}

// The shared directory lost its drop with the power, and the local one what replaced the version, which was dropped
// too.
TEST(SharedPairs, WhatWasReplacedStaysGoneAlsoWhenItsReplacementWasDropped) {
  SharedRig rig;
  rig.setup().durability = Durability::storage;
  send(rig.open(), 1);
  rig.close();
  OwnDirectory local, shared;
  fs::copy(rig.shared().path(), shared.path(), kTree);
  Store& store = rig.open();
  store.drop(1).value();
  keep(store, 1, 2 * kSize);
  store.drop(1).value();
  keep(store, 2);
  const auto is_there = [&](Version version) {
    const auto listed = admin::ls(rig.setup().directory).value();
    return std::ranges::any_of(listed.checkpoints, [&](const auto& one) { return one.version == version; });
  };
  while (is_there(1)) std::this_thread::yield();  // until the drop is carried out on the disk
  fs::copy(rig.setup().directory, local.path(), kTree);
  rig.close();
  for (const auto& [from, to] :
       {std::pair(local.path(), rig.setup().directory), std::pair(shared.path(), rig.shared().path())}) {
    fs::remove_all(to);
    fs::copy(from, to, kTree);
  }
  EXPECT_EQ(rig.open().versions().value(), std::vector<Version>{2});
}

/// A dictionary of what a store of two directories holds, beside such a store.
class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {
    rig_.setup().durability = Durability::storage;
    open();
  }

  void step() {
    switch (random_() % 8) {
      case 0: return write(false);
      case 1: return write(true);
      case 2: return drop();
      case 3: return send_all();
      case 4: return alone();
      case 5: return reopen({});
      case 6: return reopen(Local::deleted);
      default: return reopen(random_() % 2 ? Local::other : Local::lost);
    }
  }

 private:
  enum class Local { deleted, other, lost };
  struct Held {
    std::size_t size = 0;
    bool shared = false;  // it certainly is in the shared directory
  };

  void open() {
    fs::remove_all(before_.path());
    if (fs::exists(rig_.setup().directory)) fs::copy(rig_.setup().directory, before_.path(), kTree);
    touched_.clear();
    store_ = &rig_.open();
  }

  void write(bool anew) {
    Version version = ++highest_;
    if (anew && !held_.empty()) {
      version = std::next(held_.begin(), static_cast<long>(random_() % held_.size()))->first;
      store_->drop(version).value();
      touched_.insert(version);
    }
    keep(*store_, version, ++writes_ * kBytes);
    held_[version] = {writes_ * kBytes};
  }

  void drop() {
    if (held_.empty()) return;
    const Version version = std::next(held_.begin(), static_cast<long>(random_() % held_.size()))->first;
    store_->drop(version).value();
    held_.erase(version);
    touched_.insert(version);
  }

  void send_all() {
    ASSERT_TRUE(store_->wait("shared", Seconds(60)));
    for (auto& [version, held] : held_) held.shared = true;
  }

  // Nothing is written, whichever it is.
  void alone() {
    rig_.close();
    for (const fs::path& one : {rig_.setup().directory, rig_.shared().path()}) EXPECT_FALSE(open_alone(rig_, one));
    open();
  }

  void reopen(std::optional<Local> local) {
    const auto safe = [&](Version version) { return held_.contains(version) && held_.at(version).shared; };
    if (local == Local::lost && !std::ranges::all_of(touched_, safe)) local.reset();  // what was dropped may come back
    rig_.close();
    if (local == Local::deleted || local == Local::lost) fs::remove_all(rig_.setup().directory);
    if (local == Local::lost && fs::exists(before_.path())) fs::copy(before_.path(), rig_.setup().directory, kTree);
    if (local == Local::other) {
      const fs::path left = rig_.setup().directory;
      elsewhere_.push_back(std::make_unique<OwnDirectory>());
      rig_.setup().directory = elsewhere_.back()->path();
      check(local);
      rig_.close();
      // What was left behind is taken only if it has nothing.
      const fs::path here = std::exchange(rig_.setup().directory, left);
      if (!rig_.try_open()) rig_.setup().directory = here;
      local.reset();
    }
    check(local);
  }

  // What the shared directory had is right, and so is the rest, unless the local directory went.
  void check(std::optional<Local> local) {
    const std::map<Version, Held> before = held_;
    store_ = &rig_.open();
    std::set<Version> there;
    for (const Version version : store_->versions().value()) {
      ASSERT_TRUE(before.contains(version)) << version << " is back";
      there.insert(version);
    }
    for (const auto& [version, held] : before) {
      const bool may_be_gone = local && !held.shared;
      if (there.contains(version)) {
        expect_restored(*store_, version, held.size, {.keep = true});
      } else {
        EXPECT_TRUE(may_be_gone) << version << " is lost";
        held_.erase(version);
      }
    }
    open();
  }

  static constexpr std::size_t kBytes = 256;
  std::minstd_rand random_;
  SharedRig rig_{{.local = 96 * kKiB}};
  OwnDirectory before_;  // the local directory when it was opened
  std::vector<std::unique_ptr<OwnDirectory>> elsewhere_;
  Store* store_ = nullptr;
  std::map<Version, Held> held_;
  Version highest_ = 0;
  std::size_t writes_ = 0;
  std::set<Version> touched_;  // dropped, or written anew, since the store was opened
};

class SharedPairsRandom : public ::testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Seeds, SharedPairsRandom, ::testing::Range(1u, 6u));

TEST_P(SharedPairsRandom, NothingIsStaleOrLost) {
  Random program(GetParam());
  for (int step = 0; step < 25 && !::testing::Test::HasFailure(); ++step) program.step();
}

}  // namespace
}  // namespace ebb::store
