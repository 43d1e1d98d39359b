// What is refused when a kept store is opened, or asked of the wrong store: by name, on a program's first run.
#include <fstream>
#include <sys/wait.h>

#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

ebb::Options options_of(const std::filesystem::path& directory, std::optional<Durability> durability) {
  ebb::Options options{.device = "cpu", .directory = directory, .device_cache = 1 << 20, .host_cache = 1 << 20};
  options.disk = 64 << 20;
  options.durability = durability;
  options.tuning.direct_io = false;
  return options;
}

void expect_refused(const ebb::Options& options, Errc code, std::initializer_list<const char*> words) {
  const auto refused = Store::open(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, code) << refused.error().message;
  for (const char* word : words)
    EXPECT_NE(refused.error().message.find(word), std::string::npos) << word << ": " << refused.error().message;
}

TEST(KeptChoice, AKeptStoreIsNotOpenedToKeepNothing) {
  OwnDirectory at;
  for (const char* level : {"process", "storage"}) {
    std::filesystem::remove_all(at.path());
    const auto durability = level == std::string("process") ? Durability::process : Durability::storage;
    {
      Store store = Store::open(options_of(at.path(), durability)).value();
    }
    const std::string named = "durability=\"" + std::string(level) + "\"";
    expect_refused(options_of(at.path(), {}), Errc::invalid_argument, {at.path().c_str(), named.c_str()});
    EXPECT_TRUE(Store::open(options_of(at.path(), durability)));
  }
}

TEST(KeptChoice, AStoreStaysOfItsLevel) {
  OwnDirectory at;
  {
    Store store = Store::open(options_of(at.path(), Durability::process)).value();
  }
  expect_refused(options_of(at.path(), Durability::storage), Errc::invalid_argument,
                 {at.path().c_str(), "\"process\""});
}

TEST(KeptChoice, OneProcessWrites) {
  OwnDirectory at;
  Store store = Store::open(options_of(at.path(), Durability::storage)).value();
  expect_refused(options_of(at.path(), Durability::storage), Errc::in_use, {at.path().c_str(), "read only"});
  ASSERT_TRUE(store.close());
  EXPECT_TRUE(Store::open(options_of(at.path(), Durability::storage)));
}

TEST(KeptChoice, OneProcessWritesAndTheNextCanWhenItIsKilled) {
  OwnDirectory at;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const ::pid_t child = ::fork();
  if (child == 0) {
    auto store = Store::open(options_of(at.path(), Durability::storage));
    const char ready = store ? 'y' : 'n';
    if (::write(ends[1], &ready, 1) == 1) ::pause();
    ::_exit(0);
  }
  char ready = 0;
  ASSERT_EQ(::read(ends[0], &ready, 1), 1);
  ASSERT_EQ(ready, 'y');
  expect_refused(options_of(at.path(), Durability::storage), Errc::in_use, {std::to_string(child).c_str()});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_TRUE(Store::open(options_of(at.path(), Durability::storage)));
}

TEST(KeptChoice, WhatIsNoStoreIsLeftAlone) {
  OwnDirectory at;
  std::filesystem::create_directory(at.path());
  std::ofstream(at.path() / "thesis.tex") << "dear";
  expect_refused(options_of(at.path(), Durability::storage), Errc::not_a_store, {"thesis.tex"});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(at.path()), {}), 1);
  auto readonly = options_of(at.path() / "none", {});
  readonly.readonly = true;
  expect_refused(readonly, Errc::not_a_store, {"none"});
  expect_refused(options_of(at.path() / "a" / "b", Durability::storage), Errc::invalid_argument,
                 {"a directory that exists"});
}

TEST(KeptChoice, ANewerStoreIsRefusedAndLeftAlone) {
  OwnDirectory at;
  {
    Store store = Store::open(options_of(at.path(), Durability::storage)).value();
  }
  std::fstream file(at.path() / "store", std::ios::in | std::ios::out | std::ios::binary);
  std::string sector(512, '\0');
  file.read(sector.data(), 512);
  sector[8] = 99;
  const auto sum = storage::checksum_of(std::as_bytes(std::span(sector)).first(496));
  std::memcpy(sector.data() + 496, sum.data(), sum.size());
  file.seekp(0);
  file.write(sector.data(), 512);
  file.close();
  for (const bool readonly : {false, true}) {
    auto options = options_of(at.path(), readonly ? std::optional<Durability>() : Durability::storage);
    if (readonly) options.readonly = true;
    expect_refused(options, Errc::unsupported, {at.path().c_str(), "format 99"});
  }
}

TEST(KeptChoice, WhatOthersMayWriteToOrALinkIsNotTrusted) {
  OwnDirectory at, link;
  {
    Store store = Store::open(options_of(at.path(), Durability::storage)).value();
  }
  std::filesystem::create_directory_symlink(at.path(), link.path());
  expect_refused(options_of(link.path(), Durability::storage), Errc::not_permitted, {link.path().c_str()});
  std::filesystem::permissions(at.path(), std::filesystem::perms::all);
  expect_refused(options_of(at.path(), Durability::storage), Errc::not_permitted, {at.path().c_str()});
}

TEST(KeptChoice, MemoryIsGoodEnoughForTheProcessAlone) {
  KeptRig rig;
  rig.files().pretend({"tmpfs", true, 1 << 30, 1 << 30});
  const auto refused = Engine::open(rig.rig().seams(), rig.setup());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_NE(refused.error().message.find("tmpfs"), std::string::npos);
  rig.setup().durability = Durability::process;
  Store& store = rig.open();
  ASSERT_TRUE(write(store, 1, kSize));
  EXPECT_TRUE(store.wait("process"));
}

TEST(KeptChoice, AStoreInMemoryByThePublicCalls) {
  os::PosixFiles files;
  os::FileSystem found;
  if (!files.describe("/dev/shm", found) || !found.in_memory) GTEST_SKIP() << "no tmpfs at /dev/shm";
  const OwnDirectory at("/dev/shm");
  auto options = options_of(at.path(), Durability::storage);
  options.tuning.direct_io = {};
  expect_refused(options, Errc::unsupported, {at.path().c_str(), found.kind.c_str()});
  options.durability = Durability::process;
  {
    Store store = Store::open(options).value();
    ASSERT_TRUE(write(store, 1, kSize));
    EXPECT_TRUE(store.wait("process"));
  }
  Store store = Store::open(options).value();
  expect_restored(store, store.latest().value().value(), kSize);
}

TEST(KeptChoice, WhatAStoreHoldsIsNoRoomThatItLacks) {
  KeptRig rig;
  auto options = options_of(rig.path(), Durability::storage);
  options.disk = {};
  const options::Seams seams = rig.rig().seams();
  const auto capacity = [](Store& store) { return store.stats().tiers.back().capacity; };
  {
    Store store = Engine::open_store(seams, options, {}).value();
    for (Version v = 0; v < 4; ++v) keep(store, v, 1 << 20);
  }
  rig.files().pretend({"ext4", false, 1 << 20, 1 << 30});  // next to nothing is free
  Store store = Engine::open_store(seams, options, {}).value();
  EXPECT_GT(capacity(store), 4u << 20);
  EXPECT_LT(capacity(store), 6u << 20);
  keep(store, 4, 100 * kKiB);
}

TEST(KeptChoice, AnEphemeralStoreHasNoneOfIt) {
  OwnDirectory at;
  std::filesystem::create_directory(at.path());
  Store store = Store::open(options_of(at.path(), {})).value();
  EXPECT_EQ(code_of(store.latest()), Errc::unsupported);
  const Future future = write(store, 1, kSize).value();
  for (const char* level : {"process", "storage"}) {
    for (const auto& refused : {store.wait(level), store.wait(1, level), future.wait(level)}) {
      EXPECT_EQ(code_of(refused), Errc::unsupported);
      EXPECT_NE(refused.error().message.find("\"ephemeral\""), std::string::npos) << refused.error().message;
    }
    EXPECT_THROW(future.done(level), BadResult);
  }
  EXPECT_TRUE(store.wait("ephemeral"));
  auto options = options_of(at.path(), {});
  options.keep_last = 2;
  expect_refused(options, Errc::unsupported, {"keep_last", "ephemeral"});
  options.keep_last = {};
  options.keep_every = 2;
  expect_refused(options, Errc::unsupported, {"keep_every", "ephemeral"});
}

TEST(KeptChoice, ALevelThatTheStoreDoesNotReachIsUnsupported) {
  KeptRig rig;
  rig.setup().durability = Durability::process;
  Store& store = rig.open();
  const Future future = write(store, 1, kSize).value();
  EXPECT_TRUE(store.wait("process"));
  EXPECT_TRUE(future.done("process"));
  EXPECT_EQ(code_of(store.wait("storage")), Errc::unsupported);
  EXPECT_EQ(code_of(future.wait("storage")), Errc::unsupported);
  EXPECT_EQ(code_of(store.wait("node")), Errc::unsupported);
  EXPECT_EQ(code_of(store.wait("paper")), Errc::invalid_argument);
  EXPECT_THROW(future.done("storage"), BadResult);
  rig.setup().readonly = true;
  rig.setup().durability = Durability::storage;  // not asked: it is the store's own that holds
  Store& again = rig.open();
  EXPECT_EQ(code_of(again.wait("storage")), Errc::unsupported);
  EXPECT_TRUE(again.wait("process"));
}

TEST(KeptChoice, OptionsThatMakeNoSenseTogether) {
  OwnDirectory at;
  auto options = options_of(at.path(), Durability::storage);
  options.disk = 0;
  expect_refused(options, Errc::invalid_argument, {"disk"});
  options = options_of(at.path(), Durability::ephemeral);
  options.readonly = true;
  expect_refused(options, Errc::invalid_argument, {"readonly"});
  options = options_of(at.path(), Durability::storage);
  options.keep_every = 5;
  expect_refused(options, Errc::invalid_argument, {"keep_last"});
  options = options_of(at.path(), {});
  options.readonly = true;
  options.keep_last = 5;
  expect_refused(options, Errc::unsupported, {"readonly"});
  EXPECT_FALSE(std::filesystem::exists(at.path()));
}

}  // namespace
}  // namespace ebb::store
