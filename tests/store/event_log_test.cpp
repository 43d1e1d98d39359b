// What a store's planner was told can be told to another: it gives the same commands, one by one.
#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "kept_rig.hpp"
#include "planner/planner.hpp"
#include "trace/event_text.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A run with hints, departures from them, several threads and a failing disk.
std::string recorded(Backend backend) {
  const std::filesystem::path path = ::testing::TempDir() + "ebbtide-events-" + std::to_string(::getpid());
  Rig rig(backend);
  rig.setup().event_log = path;
  Store& store = rig.store();
  rig.files().fail_at_rate(doubles::FileCall::write, 0.05, EIO);
  const auto program = [&](History history, std::size_t least) {
    const auto size = [&](Version v) { return v % 3 == 1 ? least : 40 * kKiB; };
    for (Version v = 0; v < 25; ++v) {
      ASSERT_TRUE(write(history, v, size(v), {.timeout = Seconds(60)}));
      ASSERT_TRUE(history.hint_front(v));
    }
    for (Version v = 25; v-- > 0;) {
      const Version next = v % 2 == 0 ? v : 24 - v;
      expect_restored(history, next, size(next));
    }
  };
  std::thread other([&] { program(store.history("other"), 700); });
  program(store, 40 * kKiB);
  other.join();
  rig.files().clear_faults();  // the log is written through the same files
  EXPECT_TRUE(store.close());
  const std::string text = read_file(path);
  std::filesystem::remove(path);
  return text;
}

TEST(EventLog, ReplayGivesTheSameCommands) {
  for (const Backend backend : {Backend::uring, Backend::fake, Backend::gpu}) {
    const std::string log = recorded(backend);
    for (const char* name : {"device", "host", "ring:host"})
      EXPECT_EQ(log.find("\nmemory " + std::string(name) + " ") != log.npos, backend == Backend::gpu) << name;
    const trace::Replay replayed = trace::replay(log).value();
    EXPECT_FALSE(replayed.difference) << *replayed.difference;
    EXPECT_GT(replayed.events, 200u);
    EXPECT_GT(replayed.commands, 200u);
  }
}

// A store that is kept, opened a second time, with faults of the disk, damage, retention and waits.
TEST(EventLog, AKeptStoreIsReplayedToo) {
  const std::filesystem::path path = ::testing::TempDir() + "ebbtide-events-" + std::to_string(::getpid());
  KeptRig rig;
  for (const bool first : {true, false}) {
    rig.setup().event_log = path;
    rig.setup().machine.retention.keep_last = first ? 0 : 8;
    Store& store = rig.open();
    if (!first) {
      EXPECT_EQ(store.latest().value(), 11);
      std::byte byte{};
      EXPECT_EQ(code_of(store.restore(5, {{0, &byte, 1}})), Errc::size_mismatch);
      std::vector<std::byte> bytes(kSize);
      EXPECT_EQ(code_of(store.restore(4, {{0, bytes.data(), kSize}})), Errc::damaged);
      for (Version v : {3, 6, 11}) expect_restored(store, v, kSize);
      rig.files().fail_at_rate(doubles::FileCall::write, 0.05, EIO);
    }
    for (Version v = first ? 0 : 13; v < (first ? 13 : 26); ++v) {
      ASSERT_TRUE(write(store, v, v % 5 == 0 ? 0 : kSize, {.timeout = Seconds(60)}));
      ASSERT_TRUE(store.hint_front(v));
    }
    static_cast<void>(static_cast<bool>(store.wait("storage", Seconds(60))));
    rig.files().clear_faults();
    if (first) {
      ASSERT_TRUE(store.drop(12));
    }
    static_cast<void>(static_cast<bool>(store.close()));
    const std::string log = read_file(path);
    const trace::Replay replayed = trace::replay(log).value();
    EXPECT_FALSE(replayed.difference) << *replayed.difference;
    EXPECT_GT(replayed.commands, 30u);
    EXPECT_EQ(log.find(" carried ") != log.npos, !first) << "what was read from files was checked off their links";
    std::filesystem::remove(path);
    rig.close();
    if (!first) continue;
    const auto [file, offset] = rig.payload_of(4);
    ASSERT_FALSE(file.empty());
    OwnDirectory::flip(file, offset);
  }
}

TEST(EventLog, ADifferenceIsFound) {
  std::string log = recorded(Backend::threads);
  const auto command = log.find("\nc ", log.size() / 2);
  ASSERT_NE(command, std::string::npos);
  log.erase(command, log.find('\n', command + 1) - command);
  const auto replayed = trace::replay(log);
  ASSERT_TRUE(replayed);
  EXPECT_TRUE(trace::Replay(Result<trace::Replay>(replayed).value()).difference);
}

TEST(EventLog, ADifferenceOfProvisioningIsFound) {
  const std::string log = recorded(Backend::gpu);
  for (const std::string name : {"host", "ring:host"}) {
    const auto event = log.find("\np " + name + " ");
    const auto output = log.find("\no " + name + " ", event);
    ASSERT_NE(output, log.npos);
    std::string changed = log;
    changed.insert(output + 4 + name.size(), "1");  // more is ready than was
    const auto line =
        "line " + std::to_string(std::count(log.begin(), log.begin() + static_cast<long>(output), '\n') + 2);
    const trace::Replay replayed = trace::replay(changed).value();
    ASSERT_TRUE(replayed.difference);
    EXPECT_EQ(replayed.difference->find(line + ": recorded \"o " + name + " 1"), 0u) << *replayed.difference;
    changed = log;
    changed.erase(output, changed.find('\n', output + 1) - output);
    EXPECT_TRUE(trace::replay(changed).value().difference) << "an output is missing";
    changed = log;
    changed.erase(event, changed.find('\n', output + 1) - event);
    auto without = trace::replay(changed);
    EXPECT_TRUE(!without || without->difference) << "an event is missing";
  }
}

TEST(EventLog, MemoryIsProvisionedByTheStoresClock) {
  const std::filesystem::path path = ::testing::TempDir() + "ebbtide-events-" + std::to_string(::getpid());
  Rig rig(Backend::gpu);
  rig.seams().clock = std::make_shared<doubles::ManualClock>(4711);
  rig.setup().event_log = path;
  for (Version v = 0; v < 5; ++v) ASSERT_TRUE(write(rig.store(), v, 40 * kKiB));
  EXPECT_TRUE(rig.store().close());
  std::istringstream lines(read_file(path));
  std::filesystem::remove(path);
  std::map<std::string, int> events;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind, name, now;
    words >> kind;
    if (kind == "p") words >> name;
    words >> now;
    EXPECT_TRUE((kind != "p" && kind != "e") || now == "4711") << line;
    ++events[kind];
  }
  EXPECT_GT(events["e"], 5);
  EXPECT_GT(events["p"], 5);
}

// Each kind, with as many values in it as it has fields, is read back as it was written.
TEST(EventLog, EveryEventIsReadBackAsItWasWritten) {
  using namespace planner::event;
  constexpr planner::Version kLowest = INT64_MIN;
  const std::vector<Any> all = {Tick{},
                                Checkpoint{7, -5, 99, planner::kNever, true},
                                Reserve{7, kLowest, UINT64_C(1) << 40, 3},
                                Adopt{7, kLowest, UINT64_C(1) << 40, 3, planner::kAdopted + 4096},
                                Restore{7, 1, true, false},
                                Borrow{7, 1, 5},
                                Wait{7, 1, 2},
                                WaitAll{7, planner::kNoTier},
                                Submit{7, true, false},
                                Commit{7, true},
                                Abandon{7},
                                Release{7, true},
                                Cancel{7},
                                Ready{7},
                                Hint{true, {1, -2, INT64_MAX}},
                                HintFront{4},
                                Unhint{{3, 3}},
                                UnhintAll{},
                                StartPrefetch{},
                                planner::event::Order{true},
                                Agreed{-1},
                                Goes{3},
                                Drop{4},
                                DropAll{},
                                Forget{},
                                Recovered{4, 5, 2},
                                Durable{4, 2},
                                NotDurable{4, 2},
                                Unreleased{4096, 2},
                                Carried{UINT64_C(1) << 40},
                                Finished{8},
                                Failed{8, Failed::source},
                                Lend{1, 2, 4096, 3},
                                Limit{3, 250000},
                                Recall{1, 2, 4096, 7},
                                Lost{1, 2}};
  ASSERT_EQ(all.size(), std::variant_size_v<Any>);
  for (std::size_t kind = 0; kind < all.size(); ++kind) {
    ASSERT_EQ(all[kind].index(), kind);
    std::string line, again;
    trace::append_text(line, planner::Event{123456789012, 3, all[kind]});
    line.pop_back();
    const planner::Event back = trace::parse_event(line).value();
    trace::append_text(again, back);
    EXPECT_EQ(again, line + "\n");
    EXPECT_EQ(back.what.index(), kind) << line;
    EXPECT_FALSE(trace::parse_event(line + " x")) << "there is more than it has";
  }
  EXPECT_EQ(std::get<Hint>(trace::parse_event("e 1 hint 0 1 1 -2 3").value().what).versions,
            (std::vector<planner::Version>{1, -2, 3}));
  EXPECT_EQ(std::get<Checkpoint>(trace::parse_event("e 1 checkpoint 0 7 -5 99 6 1").value().what).bytes, 99u);
}

TEST(EventLog, ALogOfAnotherFormatIsRefusedByItsName) {
  const auto refused = trace::replay("ebbtide-events 5\nnode app 0\n");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("\"ebbtide-events 5\""), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("the version that wrote it"), std::string::npos) << refused.error().message;
}

TEST(EventLog, AnythingElseIsRefusedByLine) {
  const std::string empty = "ebbtide-events 8\nnode app 0\ntier a 1 4096 4096 0\nmachine 4096 0 1 0 3 0 0\n";
  const std::string memory = "memory a 4096 0 1 4096 4096 0 1 1 1\n";
  for (const std::string& text : std::vector<std::string>{
           "", "something else\n", "ebbtide-events 8\n", "ebbtide-events 7\ntier a\n", empty + "x\n",
           empty + "e 0 dance 0\n", empty + "e 0 tick 4294967295\n",
           "ebbtide-events 8\nnode app 0\ntier a 1 4096 0 0\nmachine 4096 0 1 0 3 0 0\n", empty + "p a 0 tick 0 0 0\n",
           empty + "memory a 4096 0 1 4096 4096\n", empty + memory + memory, empty + memory + "p a 0 dance 0 0 0\n",
           empty + memory + "p a 0 tick 0 0 0 0\n", empty + memory + "p a 0 pinned 0 4096 1\n",
           empty + "memory a 4096 0 99999 1 1 0 1 1 1\n"}) {
    const auto result = trace::replay(text);
    ASSERT_FALSE(result) << text;
    EXPECT_EQ(result.error().code, Errc::invalid_argument);
  }
}

TEST(EventLog, APathThatCannotBeWrittenIsRefusedAtOpen) {
  Rig rig;
  rig.setup().event_log = "/nowhere/at/all";
  const auto opened = Engine::open(rig.seams(), rig.setup());
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("/nowhere/at/all"), std::string::npos);
}

TEST(EventLog, AFailureToWriteItIsToldByClose) {
  Rig rig(Backend::threads, {.disk = 0});
  const std::filesystem::path path = ::testing::TempDir() + "ebbtide-events-" + std::to_string(::getpid());
  rig.setup().event_log = path;
  Store& store = rig.store();
  ASSERT_TRUE(write(store, 1, 1000));
  rig.files().fail_nth(doubles::FileCall::write, 1, ENOSPC);
  const auto closed = store.close();
  std::filesystem::remove(path);
  EXPECT_EQ(code_of(closed), Errc::io_error);
  EXPECT_NE(closed.error().message.find("ENOSPC"), std::string::npos);
}

}  // namespace
}  // namespace ebb::store
