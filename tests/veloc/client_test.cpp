// VELOC's client from C++, in one process: its configuration, and what C has no calls for.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <istream>
#include <limits>
#include <memory>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>
#include <veloc.h>
#include <veloc.hpp>

namespace {

using ::testing::HasSubstr;

/// A directory with `scratch` and `persistent`, and a configuration.
class VelocClient : public ::testing::Test {
 protected:
  VelocClient() {
    const auto* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = test->name();
    for (char& c : name)
      if (c == '/') c = '_';
    at_ = std::filesystem::path(::testing::TempDir()) / ("veloc_" + name + std::to_string(::getpid()));
    std::filesystem::remove_all(at_);
    std::filesystem::create_directories(at_ / "scratch");
    std::filesystem::create_directories(at_ / "persistent");
  }
  ~VelocClient() override { std::filesystem::remove_all(at_); }

  std::string file() const { return (at_ / "veloc.cfg").string(); }
  std::string place(const char* key) const { return std::string(key) + " = " + (at_ / key).string() + "\n"; }
  void write(const std::string& text) const { std::ofstream(file()) << text; }
  void write_both(const std::string& more) const { write(place("scratch") + place("persistent") + more); }
  /// Why it cannot be opened; empty: it can.
  std::string refusal() const {
    try {
      const std::unique_ptr<veloc::client_t> client(veloc::get_client(0U, file()));
      return {};
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  }
  std::unique_ptr<veloc::client_t> open() const {
    return std::unique_ptr<veloc::client_t>(veloc::get_client(0U, file()));
  }

  std::filesystem::path at_;
};

struct Wrong {
  const char *line, *key, *value, *right;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.line; }

class WrongVelocConfiguration : public VelocClient, public ::testing::WithParamInterface<Wrong> {};

TEST_P(WrongVelocConfiguration, NamesKeyValueAndWhatIsRight) {
  write_both(GetParam().line + std::string("\n"));
  const std::string why = refusal();
  EXPECT_THAT(why, HasSubstr(file()));
  EXPECT_THAT(why, HasSubstr(GetParam().key + std::string(" = ") + GetParam().value));
  EXPECT_THAT(why, HasSubstr(GetParam().right));
  EXPECT_EQ(VELOC_Init_single(0, file().c_str()), VELOC_FAILURE);
  // The environment says it too.
  write_both("");
  std::string name = "VELOC_" + std::string(GetParam().key);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  ::setenv(name.c_str(), GetParam().value, 1);
  EXPECT_THAT(refusal(), HasSubstr(name + ": "));
  ::unsetenv(name.c_str());
  EXPECT_EQ(refusal(), "");
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongVelocConfiguration,
    ::testing::Values(Wrong{"mode = fast", "mode", "fast", "sync or async"},
                      Wrong{"max_versions = -1", "max_versions", "-1", "a number of versions"},
                      Wrong{"max_versions = 3x", "max_versions", "3x", "a number of versions"},
                      Wrong{"scratch_versions = many", "scratch_versions", "many", "a number of versions"},
                      Wrong{"persistent_interval = 1.5", "persistent_interval", "1.5", "a number of seconds, 0"},
                      Wrong{"gpu_cache_size = none", "gpu_cache_size", "none", "0.5"},
                      Wrong{"host_cache_size = -1", "host_cache_size", "-1", "0.5"},
                      Wrong{"host_cache_size = inf", "host_cache_size", "inf", "0.5"},
                      Wrong{"threaded = maybe", "threaded", "maybe", "true or false"},
                      Wrong{"score_eviction = 2", "score_eviction", "2", "true or false"},
                      Wrong{"premature_eviction = 2", "premature_eviction", "2", "true or false"},
                      Wrong{"disable_persistence = ?", "disable_persistence", "?", "true or false"},
                      Wrong{"max_parallelism = 0", "max_parallelism", "0", "from 1 on"},
                      Wrong{"watchdog_interval = -5", "watchdog_interval", "-5", "seconds"},
                      Wrong{"chksum = true", "chksum", "true", "a directory with meta"},
                      Wrong{"aggregated = on", "aggregated", "on", "give false"},
                      Wrong{"axl_type = AXL_XFER_SYNC", "axl_type", "AXL_XFER_SYNC", "leave it out"},
                      Wrong{"daos_pool = p", "daos_pool", "p", "leave it out"},
                      Wrong{"daos_cont = c", "daos_cont", "c", "leave it out"}),
    [](const auto& info) { return std::string(info.param.key) + std::to_string(info.index); });

TEST_F(VelocClient, DirectoriesMustBeThere) {
  EXPECT_THAT(refusal(), HasSubstr("cannot be read"));
  write(place("persistent"));
  EXPECT_THAT(refusal(), HasSubstr("scratch is not given"));
  write("scratch = " + (at_ / "none/none").string() + "\n");
  EXPECT_THAT(refusal(), HasSubstr("a directory that exists"));
  write(place("scratch") + "no key\n");
  EXPECT_THAT(refusal(), HasSubstr("line 2"));
  write(place("scratch") + "mode = sync\nmode = sync\n");
  EXPECT_THAT(refusal(), HasSubstr("once"));
  write(place("scratch") + "ec_interval = 0\n");
  EXPECT_THAT(refusal(), HasSubstr("there is no erasure coding"));
  write(place("scratch"));
  EXPECT_EQ(refusal(), "");
}

TEST_F(VelocClient, WhatHasNoEffectIsSaidOnce) {
  write_both("ec_interval = 0\nmetaa = x\nmeta = /none\nthreaded = true\n[section]\nmode = fast\n");
  ::testing::internal::CaptureStderr();
  open();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("no erasure coding"));
  EXPECT_THAT(said, HasSubstr("metaa is not a key"));
  EXPECT_THAT(said, HasSubstr("[section] mode is not a key"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 3) << said;
}

TEST_F(VelocClient, AFailureIsOneLine) {
  write_both("");
  const auto client = open();
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(client->checkpoint_begin("a\nb", 1));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("VELOC: Checkpoint_begin: the name 'a b'"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

TEST_F(VelocClient, OfAProcessThereIsOne) {
  write_both("");
  auto client = open();
  EXPECT_EQ(veloc::get_client(7U, "none.cfg"), client.get());
  EXPECT_EQ(VELOC_Init_single(0, file().c_str()), VELOC_SUCCESS);
  client.reset();
  EXPECT_EQ(VELOC_Init_single(0, file().c_str()), VELOC_SUCCESS);
  EXPECT_EQ(VELOC_Finalize(0), VELOC_SUCCESS);
}

/// A vector as text.
struct Numbers {
  std::vector<int> values;
  bool fails = false;
  void protect(veloc::client_t& client, int id, const char* name = "default") {
    client.mem_protect(
        id,
        [this](std::ostream& out) {
          if (fails) throw std::runtime_error("it is not ready");
          for (const int value : values) out << value << ' ';
        },
        [this](std::istream& in) {
          values.clear();
          for (int value = 0; in >> value;) values.push_back(value);
          return !fails;
        },
        name);
  }
};

TEST_F(VelocClient, RegionsMayBeSerialized) {
  write_both("mode = sync\n");
  const auto client = open();
  int plain = 5;
  Numbers numbers{{1, 2, 3}};
  EXPECT_TRUE(client->mem_protect(0, &plain, 1, sizeof plain));
  numbers.protect(*client, 1);
  EXPECT_TRUE(client->checkpoint("mixed", 1));
  numbers.values = {4};
  EXPECT_TRUE(client->checkpoint("mixed", 2));
  numbers.values.clear();
  plain = 0;
  ASSERT_TRUE(client->restart("mixed", 1));
  EXPECT_EQ(numbers.values, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(plain, 5);
  ASSERT_TRUE(client->restart_begin("mixed", 2));
  EXPECT_EQ(client->recover_size(1), 2U);
  EXPECT_EQ(client->recover_size(2), static_cast<std::size_t>(-1));
  EXPECT_TRUE(client->recover_mem(VELOC_RECOVER_SOME, {1}));
  EXPECT_EQ(numbers.values, std::vector<int>{4});
  numbers.fails = true;
  EXPECT_FALSE(client->recover_mem(VELOC_RECOVER_ALL, {}));
  EXPECT_TRUE(client->restart_end(true));
  EXPECT_FALSE(client->checkpoint("mixed", 3));
  EXPECT_FALSE(client->mem_protect(2, nullptr, [](std::istream&) { return true; }));
  EXPECT_EQ(client->restart_test("mixed", 0), 2);
}

TEST_F(VelocClient, AnObserverIsCalledAtTheEnd) {
  write_both("");
  const auto client = open();
  std::vector<std::pair<std::string, int>> seen;
  const auto observe = [&](const std::string& name, int version) { seen.emplace_back(name, version); };
  EXPECT_FALSE(client->register_observer(1, observe));
  EXPECT_FALSE(client->register_observer(VELOC_OBSERVE_CKPT_END, nullptr));
  EXPECT_TRUE(client->register_observer(VELOC_OBSERVE_CKPT_END, observe));
  int value = 0;
  client->mem_protect(0, &value, 1, sizeof value);
  EXPECT_TRUE(client->checkpoint_begin("seen", 3));
  EXPECT_TRUE(client->checkpoint_mem(VELOC_CKPT_ALL, {}));
  EXPECT_TRUE(seen.empty());
  EXPECT_TRUE(client->checkpoint_end(true));
  EXPECT_EQ(seen, (std::vector<std::pair<std::string, int>>{{"seen", 3}}));
}

TEST_F(VelocClient, ARegionMayBeUnprotectedAsItIsReleased) {
  write_both("mode = sync\n");
  const auto client = open();
  static veloc::client_t* the_client = nullptr;
  the_client = client.get();
  int one = 1, two = 2;
  const auto release = [](void*) { the_client->mem_clear(); };
  ASSERT_EQ(VELOC_Mem_protect(0, &one, 1, sizeof one, READ_ONLY, release), VELOC_SUCCESS);
  ASSERT_EQ(VELOC_Mem_protect(1, &two, 1, sizeof two, READ_ONLY, release), VELOC_SUCCESS);
  EXPECT_TRUE(client->checkpoint("heat", 1));
}

TEST_F(VelocClient, AVersionThatWasNeverWrittenIsVoidToo) {
  write_both("mode = sync\n");
  const auto client = open();
  EXPECT_TRUE(client->checkpoint_begin("heat", 1));
  EXPECT_EQ(client->restart_test("heat", 0), -1) << "not between begin and end";
  EXPECT_FALSE(client->checkpoint_end(true)) << "nothing was written";
  int value = 3;
  client->mem_protect(0, &value, 1, sizeof value);
  EXPECT_TRUE(client->checkpoint("heat", 2));
  EXPECT_EQ(client->restart_test("heat", 0), 2);
}

TEST_F(VelocClient, AnotherRankIsRead) {
  write_both("mode = sync\nmax_versions = 2\n");
  int value = 70;
  {
    const auto other = std::unique_ptr<veloc::client_t>(veloc::get_client(7U, file()));
    other->mem_protect(0, &value, 1, sizeof value);
    EXPECT_TRUE(other->checkpoint("heat", 3));
    value = 71;
    EXPECT_TRUE(other->checkpoint("heat", 4));
  }
  for (const bool on_its_node : {true, false}) {
    if (!on_its_node) std::filesystem::remove_all(at_ / "scratch");
    const auto client = open();
    client->mem_protect(0, &value, 1, sizeof value);
    EXPECT_EQ(client->restart_test("heat", 0), -1);
    EXPECT_EQ(client->restart_test("heat", 0, 0), -1) << "its own, by itself";
    EXPECT_EQ(client->restart_test("heat", 0, 7), 4);
    EXPECT_EQ(client->restart_test("heat", 3, 7), 3);
    EXPECT_EQ(client->restart_test("heat", 0, 8), -1);
    EXPECT_FALSE(client->restart_begin("heat", 3, 8));
    EXPECT_FALSE(client->restart_begin("heat", 2, 7));
    value = 0;
    EXPECT_TRUE(client->restart("heat", 3, 7));
    EXPECT_EQ(value, 70);
    EXPECT_TRUE(client->restart("heat", 4, 7));
    EXPECT_EQ(value, 71);
    EXPECT_TRUE(client->checkpoint("own", 1));
  }
}

TEST_F(VelocClient, WhatAnEarlierJobLeftIsDroppedWithALine) {
  write_both("mode = sync\n");
  int value = 0;
  for (const int first : {10, 5}) {
    const auto client = open();
    client->mem_protect(0, &value, 1, sizeof value);
    ::testing::internal::CaptureStderr();
    for (value = first; value < first + 3; ++value) EXPECT_TRUE(client->checkpoint("heat", value));
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), first == 5) << said;
    EXPECT_EQ(said.find("up to version 12 of 'heat' is dropped") != said.npos, first == 5) << said;
    EXPECT_EQ(client->restart_test("heat", 0), first + 2);
  }
}

TEST_F(VelocClient, AVersionIsReplacedWhenTheNewOneIsWhole) {
  write_both("mode = async\n");
  const auto value_in = [&](int version) {
    std::ifstream in(at_ / ("persistent/heat-0-" + std::to_string(version) + ".dat"), std::ios::binary);
    int found = -1;
    in.seekg(8 + 12).read(reinterpret_cast<char*>(&found), sizeof found);
    return in ? found : -1;
  };
  int value = 0;
  for (int job = 1; job <= 3; ++job) {
    const auto client = open();
    client->mem_protect(0, &value, 1, sizeof value);
    EXPECT_EQ(client->restart_test("heat", 0), job == 1 ? -1 : 3);
    EXPECT_TRUE(job == 1 || (client->restart("heat", 3) && value == 10 * (job - 1) + 3));
    for (const int version : {1, 2, 3}) {
      value = 10 * job + version;
      EXPECT_TRUE(client->checkpoint_begin("heat", version) && client->checkpoint_mem(VELOC_CKPT_ALL, {}));
      EXPECT_TRUE(client->checkpoint_end(true));
      const int last = value;
      value = 0;
      EXPECT_TRUE(client->restart("heat", version) && value == last);
    }
    EXPECT_TRUE(client->checkpoint_wait());
    while (value_in(3) != 10 * job + 3) ::usleep(1000);  // the older edition goes in the background
    EXPECT_EQ(value_in(2), 10 * job + 2);
    std::filesystem::remove_all(at_ / (job == 1 ? "scratch" : "none"));
  }
  // What VELOC writes after it is newer than all of ours.
  std::filesystem::copy_file(at_ / "persistent/heat-0-3.dat", at_ / "persistent/heat-0-4.dat");
  const auto client = open();
  client->mem_protect(0, &value, 1, sizeof value);
  EXPECT_EQ(client->restart_test("heat", 0), 4);
  EXPECT_TRUE(client->restart("heat", 4) && value == 33);
  EXPECT_TRUE(client->restart("heat", 2) && value == 32);
}

TEST_F(VelocClient, TheLastNumberIsAnyVersions) {
  constexpr int kLast = std::numeric_limits<int>::max();
  write_both("mode = sync\n");
  int value = 0;
  for (int job = 1; job <= 2; ++job) {
    const auto client = open();
    client->mem_protect(0, &value, 1, sizeof value);
    if (job == 1) {
      EXPECT_TRUE(client->checkpoint("heat", 7) && client->checkpoint("heat", kLast));
    } else {
      EXPECT_TRUE(client->checkpoint_begin("heat", kLast) && !client->checkpoint_end(false));
    }
    EXPECT_EQ(client->restart_test("heat", 0), kLast);
  }
}

TEST_F(VelocClient, VersionsWithinTheIntervalStayInScratch) {
  const auto sent = [&] {
    std::set<std::string> names;
    for (const auto& one : std::filesystem::directory_iterator(at_ / "persistent"))
      if (one.is_regular_file()) names.insert(one.path().filename());
    return names;
  };
  const std::string rest = "mode = sync\nmax_versions = 2\nscratch_versions = 3\npersistent_interval = ";
  int value = 0;
  write_both(rest + "1000000\n");
  {
    const auto client = open();
    client->mem_protect(0, &value, 1, sizeof value);
    for (value = 1; value <= 6; ++value) EXPECT_TRUE(client->checkpoint("heat", value));
    EXPECT_EQ(client->restart_test("heat", 0), 6);
    EXPECT_EQ(sent(), std::set<std::string>{});
  }
  {
    const auto client = open();
    client->mem_protect(0, &value, 1, sizeof value);
    ASSERT_EQ(client->restart_test("heat", 0), 6);
    ASSERT_TRUE(client->restart("heat", 6));
    EXPECT_EQ(value, 6);
    EXPECT_TRUE(client->restart_test("heat", 4) == 4 && client->restart_test("heat", 3) == -1) << "there are three";
    EXPECT_EQ(sent(), std::set<std::string>{});
    EXPECT_TRUE(client->checkpoint("heat", 7));
    EXPECT_EQ(sent(), std::set<std::string>{"heat-0-6.dat"}) << "what the job goes on from is sent";
  }
  write_both(rest + "1\n");
  const auto client = open();
  client->mem_protect(0, &value, 1, sizeof value);
  const std::set<std::string> of_earlier_jobs{"heat-0-6.dat", "heat-0-7.dat"};
  while (std::ranges::includes(of_earlier_jobs, sent())) {
    ASSERT_TRUE(client->checkpoint("heat", ++value + 7));
    ::usleep(10'000);
  }
}

TEST_F(VelocClient, OneThatStaysInScratchTakesNoOthersPlaceInPersistent) {
  int value = 0;
  for (const char* interval : {"0", "1000000", "1000000"}) {
    write_both("mode = sync\npersistent_interval = " + std::string(interval) + "\n");
    const auto client = open();
    client->mem_protect(0, &value, 1, sizeof value);
    ++value;
    for (const int version : {5, 6}) EXPECT_TRUE(client->checkpoint("heat", version));
    const int last = value;
    EXPECT_TRUE(client->restart_test("heat", 0) == 6 && client->restart("heat", 6) && value == last);
    EXPECT_TRUE(std::filesystem::exists(at_ / "persistent/heat-0-6.dat"));
  }
}

// As VELOC leaves it and finds it: the program's own bytes, there or behind a link.
TEST_F(VelocClient, AFileOfTheProgramGoesBothWays) {
  write_both("mode = sync\n");
  const std::string original = (at_ / "out.bin").string();
  const auto read = [](const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  {
    const auto client = open();
    ASSERT_TRUE(client->checkpoint_begin("heat", 1));
    std::ofstream(client->route_file(original)) << "written by the program";
    ASSERT_TRUE(client->checkpoint_end(true));
  }
  EXPECT_EQ(read(at_ / "persistent/heat-0-1.dat"), "written by the program");
  std::ofstream(at_ / "of_veloc.bin") << "left by VELOC";
  std::filesystem::create_symlink(at_ / "of_veloc.bin", at_ / "persistent/heat-0-2.dat");
  std::filesystem::remove_all(at_ / "scratch");
  const auto client = open();
  EXPECT_EQ(client->restart_test("heat", 0), 2);
  for (const auto& [version, text] : {std::pair(2, "left by VELOC"), {1, "written by the program"}}) {
    ASSERT_TRUE(client->restart_begin("heat", version));
    EXPECT_EQ(read(client->route_file(original)), text);
    EXPECT_TRUE(client->restart_end(true));
  }
  int value = 0;
  EXPECT_FALSE(client->mem_protect(std::numeric_limits<int>::min(), &value, 1, sizeof value));
}

// What somebody wrote anew has no checksums of ours.
// A link of VELOC's leads to the file, so that is the older edition until every rank has the new one.
TEST_F(VelocClient, AFileOfTheProgramIsReplacedWhenTheNewOneIsWhole) {
  const std::filesystem::path original = at_ / "heat.bin";
  const auto text = [&] {
    std::ifstream in(original);
    std::string first;
    return std::getline(in, first) ? first : std::string();
  };
  std::ofstream(original) << "old";
  std::filesystem::create_symlink(original, at_ / "persistent/heat-0-2.dat");
  write_both("mode = async\n");
  const auto write = [&](veloc::client_t& client) {
    for (const int version : {2, 3}) {
      if (!client.checkpoint_begin("heat", version)) return false;
      std::ofstream(client.route_file(version == 2 ? original : at_ / "other.bin")) << "new";
      if (!client.checkpoint_end(true)) return false;
    }
    return true;
  };
  const auto stays = [&] {
    ::setenv("EBBTIDE_LIMIT_SHARED", "1", 1);  // bytes a second: two are sent at once at most
    const auto client = open();
    int value = 0;
    client->mem_protect(0, &value, 1, sizeof value);
    for (const int version : {1, 2, 3, 4})
      if (!client->checkpoint("wind", version)) std::_Exit(1);
    const bool written = client->restart_test("heat", 0) == 2 && write(*client);
    std::_Exit(written && text() == "old" ? 0 : 1);  // killed
  };
  EXPECT_EXIT(stays(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(text(), "old");
  const auto client = open();
  EXPECT_TRUE(write(*client) && client->checkpoint_wait());
  EXPECT_EQ(text(), "new");
}

TEST_F(VelocClient, AFileThatDoesNotMatchItsChecksumFileIsNoVersion) {
  if (::dlopen("libcrypto.so.3", RTLD_LAZY) == nullptr && ::dlopen("libcrypto.so.1.1", RTLD_LAZY) == nullptr)
    GTEST_SKIP() << "there is no libcrypto";
  write_both(place("meta") + "chksum = true\nmode = sync\n");
  int value = 0;
  {
    const auto client = open();
    client->mem_protect(0, &value, 1, sizeof value);
    for (value = 1; value <= 3; ++value) EXPECT_TRUE(client->checkpoint("heat", value));
  }
  EXPECT_EQ(std::filesystem::file_size(at_ / "meta/heat-0-3.dat.chksum"), 32U);
  std::filesystem::remove_all(at_ / "scratch");
  std::fstream changed(at_ / "persistent/heat-0-3.dat", std::ios::in | std::ios::out | std::ios::binary);
  changed.seekp(8 + 12);  // the region's bytes
  changed.put(9);
  changed.close();
  const auto client = open();
  client->mem_protect(0, &value, 1, sizeof value);
  EXPECT_EQ(client->restart_test("heat", 0), 2);
  EXPECT_TRUE(client->restart("heat", 2));
  EXPECT_EQ(value, 2);
}

std::vector<void*> released;

TEST_F(VelocClient, AReleaseRoutineIsCalledWhenTheBytesAreCopied) {
  write_both("");
  ASSERT_EQ(VELOC_Init_single(0, file().c_str()), VELOC_SUCCESS);
  double value = 2.5;
  EXPECT_EQ(VELOC_Mem_protect(0, &value, 1, sizeof value, 9U), VELOC_FAILURE);
  EXPECT_EQ(VELOC_Mem_protect(0, &value, 1, sizeof value, READ_ONLY, [](void* at) { released.push_back(at); }),
            VELOC_SUCCESS);
  EXPECT_EQ(VELOC_Checkpoint_begin("released", 1), VELOC_SUCCESS);
  EXPECT_TRUE(released.empty());
  EXPECT_EQ(VELOC_Checkpoint_mem(), VELOC_SUCCESS);
  EXPECT_EQ(released, std::vector<void*>{&value});
  EXPECT_EQ(VELOC_Checkpoint_end(1), VELOC_SUCCESS);
  EXPECT_EQ(VELOC_Finalize(1), VELOC_SUCCESS);
}

// With a cache size a checkpoint waits for none before it, and max_versions of them stay.
TEST_F(VelocClient, CachesAndRetentionAreConfigured) {
  write_both(
      "mode = async\nhost_cache_size = 0.0625\ngpu_cache_size = 0.0625\nmax_versions = 2\nscore_eviction = true\n");
  int value = 0;
  {
    const auto client = open();
    client->mem_protect(0, &value, 1, sizeof value);
    for (value = 1; value <= 20; ++value) ASSERT_TRUE(client->checkpoint("many", value));
    ASSERT_TRUE(client->checkpoint_wait());
    while (client->restart_test("many", 18) != -1) ::usleep(1000);  // what is superseded goes in the background
  }
  const auto client = open();
  client->mem_protect(0, &value, 1, sizeof value);
  EXPECT_EQ(client->restart_test("many", 0), 20);
  ASSERT_TRUE(client->restart("many", 19));
  EXPECT_EQ(value, 19);
}

// Of any name, before the start and after it, though the fastest tier has room for a few.
TEST_F(VelocClient, WhatIsEnqueuedIsFetched) {
  constexpr int kVersions = 12;
  write_both("host_cache_size = 0.03\ngpu_cache_size = 0.004\n");
  const auto client = open();
  std::vector<char> field(1 << 20);
  client->mem_protect(0, field.data(), field.size(), 1);
  for (const char* const name : {"one", "two"})
    for (int version = 0; version < kVersions; ++version) ASSERT_TRUE(client->checkpoint(name, version));
  ASSERT_TRUE(client->checkpoint_wait());
  for (const char* const name : {"one", "two"}) {
    for (int version = 0; version < kVersions; ++version)
      ASSERT_EQ(VELOC_Prefetch_enqueue(name, version), VELOC_SUCCESS);
    if (std::string(name) == "one") {
      ASSERT_EQ(VELOC_Prefetch_start(), VELOC_SUCCESS);
    }
    for (int version = 0; version < kVersions; ++version) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      bool there = false;
      while (!(there = VELOC_Next_prefetched(name, version, 0)) && std::chrono::steady_clock::now() < until)
        ::usleep(1000);
      ASSERT_TRUE(there) << "version " << version << " of \"" << name << "\" is not on the fastest tier";
      ASSERT_TRUE(client->restart(name, version));
    }
  }
}

// What a job writes again is another edition, which the versions that it has yet to write are of as well.
TEST_F(VelocClient, WhatIsEnqueuedBeforeItIsWrittenAgainIsFetched) {
  constexpr int kVersions = 12;
  write_both("host_cache_size = 0.03\ngpu_cache_size = 0.004\n");
  const auto client = open();
  std::vector<char> field(1 << 20);
  client->mem_protect(0, field.data(), field.size(), 1);
  for (int version = 0; version < kVersions; ++version) ASSERT_TRUE(client->checkpoint("again", version));
  ASSERT_TRUE(client->checkpoint("again", 0));
  for (int version = 1; version < kVersions; ++version)
    ASSERT_EQ(VELOC_Prefetch_enqueue("again", version), VELOC_SUCCESS);
  for (int version = 1; version < kVersions; ++version) ASSERT_TRUE(client->checkpoint("again", version));
  ASSERT_TRUE(client->checkpoint_wait());
  ASSERT_EQ(VELOC_Prefetch_start(), VELOC_SUCCESS);
  for (int version = 1; version < kVersions; ++version) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!VELOC_Next_prefetched("again", version, 0) && std::chrono::steady_clock::now() < until) ::usleep(1000);
    ASSERT_TRUE(VELOC_Next_prefetched("again", version, 0)) << "version " << version << " is not on the fastest tier";
    ASSERT_TRUE(client->restart("again", version));
  }
}

TEST_F(VelocClient, WithoutPersistentScratchHasThem) {
  for (const char* const more : {"", "disable_persistence = true\n", "persistent_interval = -1\n"}) {
    write((*more ? place("persistent") : std::string()) + place("scratch") + more);
    int value = 1;
    auto client = open();
    client->mem_protect(0, &value, 1, sizeof value);
    EXPECT_TRUE(client->checkpoint("here", 4)) << more;
    EXPECT_TRUE(client->checkpoint_wait()) << more;
    EXPECT_TRUE(std::filesystem::is_empty(at_ / "persistent")) << more;
    client.reset();
    client = open();
    EXPECT_EQ(client->restart_test("here", 0), 4) << more;
    EXPECT_TRUE(client->cleanup("here")) << more;
    EXPECT_EQ(client->restart_test("here", 0), -1) << more;
    client.reset();
    std::filesystem::remove_all(at_ / "scratch");
    std::filesystem::create_directories(at_ / "scratch");
  }
}

}  // namespace
