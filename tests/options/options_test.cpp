#include <cstdlib>
#include <gtest/gtest.h>

#include "options/environment.hpp"

namespace ebb {
namespace {

TEST(SetOption, KnowsEveryField) {
  Options options;
  for (const auto& [key, text] : std::initializer_list<std::pair<const char*, const char*>>{
           {"directory", "/scratch"},
           {"device_cache", "1GiB"},
           {"host_cache", "2GiB"},
           {"memory", "200MB"},
           {"disk", "0"},
           {"tuning", "device_arena=direct, host_arena = Direct"},
           {"warm", "on"},
           {"durability", "ephemeral"},
           {"prefetch", "manual"},
           {"eviction", "LRU"},
           {"tuning", "io=threads,direct_io=off"},
           {"close_timeout", "5s"},
           {"event_log", "/tmp/events"}}) {
    ASSERT_TRUE(set_option(options, key, text)) << key;
  }
  EXPECT_EQ(options.directory, "/scratch");
  EXPECT_EQ(options.device_cache, 1ull << 30);
  EXPECT_EQ(options.host_cache, 2ull << 30);
  EXPECT_EQ(options.memory, 200'000'000u);
  EXPECT_EQ(options.disk, 0u);
  EXPECT_EQ(options.tuning.device_arena, DeviceArena::direct);
  EXPECT_EQ(options.tuning.host_arena, HostArena::direct);
  EXPECT_EQ(options.warm, true);
  EXPECT_EQ(options.durability, Durability::ephemeral);
  EXPECT_EQ(options.prefetch, Prefetch::manual);
  EXPECT_EQ(options.eviction, Eviction::lru);
  EXPECT_EQ(options.tuning.io, Io::threads);
  EXPECT_EQ(options.tuning.direct_io, false);
  EXPECT_EQ(options.close_timeout, Seconds(5));
  EXPECT_EQ(options.event_log, "/tmp/events");
}

TEST(SetOption, TuningByName) {
  Options options;
  ASSERT_TRUE(set_option(options, "tuning", "device_arena=mapped,node_chunk=1MiB"));
  ASSERT_TRUE(set_option(options, "tuning", "host_arena=incremental"));
  EXPECT_EQ(options.tuning.device_arena, DeviceArena::mapped);
  EXPECT_EQ(options.tuning.host_arena, HostArena::incremental);
  EXPECT_EQ(options.tuning.node_chunk, 1u << 20);
  EXPECT_TRUE(set_option(options, "tuning", " "));
  const auto message = [&](const char* text) { return set_option(options, "tuning", text).error().message; };
  // Each has names of its own.
  EXPECT_EQ(message("host_arena=direct, device_arena=incremental"),
            "tuning.device_arena=\"incremental\" is not valid: expected one of \"mapped\", \"direct\"");
  EXPECT_EQ(message("host_arena=mapped"),
            "tuning.host_arena=\"mapped\" is not valid: expected one of \"incremental\", \"direct\"");
  EXPECT_EQ(options.tuning.host_arena, HostArena::incremental) << "what is refused changes nothing";
  EXPECT_EQ(message("iO=threads"),
            "unknown option tuning.iO=\"threads\": there are device_arena, host_arena, io, direct_io, node_agent, "
            "node_chunk");
  EXPECT_EQ(message("threads").substr(0, 26), "tuning=\"threads\" is not va");
  EXPECT_FALSE(set_option(options, "io", "threads")) << "it is in tuning alone";
}

TEST(SetOption, NamesWhatIsWrongAndWhatWouldBeRight) {
  Options options;
  const auto message = [&](const char* key, const char* text) {
    return set_option(options, key, text).error().message;
  };
  EXPECT_EQ(message("eviction", "best"),
            "eviction=\"best\" is not valid: expected one of \"score\", \"score_paper\", \"lru\", \"fifo\"");
  EXPECT_EQ(message("tuning", "direct_io=maybe").substr(0, 28), "tuning.direct_io=\"maybe\" is ");
  EXPECT_NE(message("hostcache", "1GiB").find("host_cache"), std::string::npos);
  EXPECT_NE(message("directory", " ").find("directory"), std::string::npos);
}

TEST(Environment, FillsWhatTheCallerLeftOut) {
  Options given;
  given.disk = 7 << 20;
  const auto options = options::with_environment(
      given, {{"EBBTIDE_DISK", "1GiB"}, {"EBBTIDE_DEVICE_CACHE", "2MiB"}, {"EBBTIDE_DIR", "/a"}, {"OTHER", "x"}});
  const Options filled = Result<Options>(options).value();
  EXPECT_EQ(filled.disk, 7u << 20);
  EXPECT_EQ(filled.device_cache, 2u << 20);
  EXPECT_EQ(filled.directory, "/a");
  EXPECT_FALSE(filled.host_cache);
}

TEST(Environment, OfTheHostCacheAndTheBudgetTheCallersGoesFirst) {
  Options memory, host;
  memory.memory = 8 << 20;
  host.host_cache = 0;
  const auto one = options::with_environment(memory, {{"EBBTIDE_HOST_CACHE", "2MiB"}}).value();
  EXPECT_EQ(one.memory, 8u << 20);
  EXPECT_FALSE(one.host_cache);
  const auto other = options::with_environment(host, {{"EBBTIDE_MEMORY", "2MiB"}}).value();
  EXPECT_EQ(other.host_cache, 0u);
  EXPECT_FALSE(other.memory);
  EXPECT_EQ(options::with_environment({}, {{"EBBTIDE_MEMORY", "2MiB"}})->memory, 2u << 20);
}

TEST(Environment, TuningAndWhatTheCallerSaysOfIt) {
  const options::Environment both{{"EBBTIDE_TUNING", "device_arena=direct, host_arena=direct"}};
  EXPECT_EQ(options::with_environment({}, both)->tuning.device_arena, DeviceArena::direct);
  EXPECT_EQ(options::with_environment({}, both)->tuning.host_arena, HostArena::direct);
  Options given;
  given.tuning.device_arena = DeviceArena::mapped;
  EXPECT_EQ(options::with_environment(given, both)->tuning.device_arena, DeviceArena::mapped);
  EXPECT_EQ(options::with_environment(given, both)->tuning.host_arena, HostArena::direct) << "each by itself";
  const auto wrong = options::with_environment({}, {{"EBBTIDE_TUNING", "host_arena=at_once"}});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message,
            "EBBTIDE_TUNING.host_arena=\"at_once\" is not valid: expected one of \"incremental\", \"direct\"");
}

TEST(Environment, TheFullNameOfTheDirectoryGoesFirst) {
  auto options = options::with_environment({}, {{"EBBTIDE_DIR", "/a"}, {"EBBTIDE_DIRECTORY", "/b"}});
  EXPECT_EQ(options->directory, "/b");
}

TEST(Environment, RefusesWhatItDoesNotKnowByTheVariablesName) {
  const auto unknown = options::with_environment({}, {{"EBBTIDE_HOSTCACHE", "1GiB"}});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("EBBTIDE_HOSTCACHE"), std::string::npos);
  EXPECT_NE(unknown.error().message.find("host_cache"), std::string::npos);
  const auto wrong = options::with_environment({}, {{"EBBTIDE_HOST_CACHE", "lots"}});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("EBBTIDE_HOST_CACHE=\"lots\""), std::string::npos);
  EXPECT_FALSE(options::with_environment({}, {{"EBBTIDE_LOG", "loud"}}));
  EXPECT_TRUE(options::with_environment({}, {{"EBBTIDE_CUDA_PLAIN", "1"}})) << "not an option of a store";
  const auto device = options::with_environment({}, {{"EBBTIDE_DEVICE", "gpu7"}});
  ASSERT_FALSE(device);
  EXPECT_NE(device.error().message.find("\"cuda:N\""), std::string::npos) << device.error().message;
  EXPECT_EQ(options::with_environment({}, {{"EBBTIDE_DEVICE", "CUDA:3"}})->device, "cuda:3");
}

TEST(Environment, LogGoesToStderrOnlyWhenAskedFor) {
  auto options = options::with_environment({}, {{"EBBTIDE_LOG", "info"}});
  ASSERT_TRUE(options->log);
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  (*options->log)("hello");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "ebbtide: hello\n");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Environment, WarningsGoToStderrUnlessTheyAreForbidden) {
  const auto said = [](const options::Environment& environment) {
    auto options = options::with_environment({}, environment);
    testing::internal::CaptureStderr();
    for (const char* line : {"warning: a", "open: b"}) (*options->log)(line);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said({}), "ebbtide: warning: a\n");
  EXPECT_EQ(said({{"EBBTIDE_LOG", ""}}), "ebbtide: warning: a\n");
  EXPECT_EQ(said({{"EBBTIDE_LOG", "info"}}), "ebbtide: warning: a\nebbtide: open: b\n");
  EXPECT_EQ(said({{"EBBTIDE_LOG", "off"}}), "");
}

TEST(Environment, TheProcessesOwnIsRead) {
  ::setenv("EBBTIDE_DISK", "3GiB", 1);
  auto options = with_environment({});
  ::unsetenv("EBBTIDE_DISK");
  EXPECT_EQ(options->disk, 3ull << 30);
}

}  // namespace
}  // namespace ebb
