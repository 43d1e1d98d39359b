// With verify="all" no byte is handed out that is not the one that was given, whatever became of it in a cache.
#include <thread>

#include "kept_rig.hpp"
#include "tests/doubles/forward_device.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

/// Ordinary memory in which the n-th copy from now on, or the next one to a given place, leaves one bit wrong.
class RottenDevice : public doubles::ForwardDevice {
 public:
  RottenDevice() : doubles::ForwardDevice(device::make_host_device()) {}
  void spoil(int copy) { left_ = copy; }
  void spoil(const void* to) { place_ = to; }
  Result<void> copy(device::StreamId stream, void* to, const void* from, std::size_t bytes) override {
    auto done = doubles::ForwardDevice::copy(stream, to, from, bytes);
    const bool named = to == place_ && place_.exchange(nullptr) == to;
    if (--left_ == 0 || named) static_cast<std::byte*>(to)[bytes / 2] ^= std::byte{4};
    return done;
  }

 private:
  std::atomic<int> left_{0};
  std::atomic<const void*> place_{nullptr};
};

void expect_named(const Error& error, std::initializer_list<const char*> words) {
  EXPECT_EQ(error.code, Errc::damaged) << error.message;
  for (const char* word : words)
    EXPECT_NE(error.message.find(word), std::string::npos) << word << ": " << error.message;
}

struct Rotten {
  Rig rig{Backend::threads, {.chunk = 256 * kKiB}};
  std::shared_ptr<RottenDevice> device = std::make_shared<RottenDevice>();
  explicit Rotten(bool verify = true) {
    rig.seams().device = device;
    rig.setup().verify_all = verify;
  }
};

// Two regions, of which the second is spoilt on its way in.
void write_spoilt(Rotten& rotten, History& history, Version version) {
  const auto a = bytes_of(version, 1000), b = bytes_of(version + 1, 5000);
  rotten.device->spoil(2);
  ASSERT_TRUE(history.checkpoint(version, {{3, a.data(), a.size()}, {8, b.data(), b.size()}}));
  rotten.device->spoil(0);
}

TEST(Verify, ARestoreOfWhatACacheHasSpoiltSaysSo) {
  for (const bool in_background : {false, true}) {
    Rotten rotten;
    History history = rotten.rig.store().history("adjoint");
    write_spoilt(rotten, history, 7);
    std::vector<std::byte> a(1000), b(5000);
    const std::vector<Target> targets = {{8, b.data(), b.size()}, {3, a.data(), a.size()}};
    const Result<void> back = in_background
                                  ? history.restore_async(7, targets, {.keep = true}).value().wait({}, Seconds(60))
                                  : history.restore(7, targets, {.keep = true});
    ASSERT_FALSE(back);
    expect_named(back.error(), {"version 7", "adjoint", "region 8", "device"});
    const auto loan = history.borrow(7);
    ASSERT_FALSE(loan);
    expect_named(loan.error(), {"version 7", "region 8"});
    EXPECT_EQ(code_of(history.restore(7, targets)), Errc::damaged);
    EXPECT_EQ(code_of(history.restore(7, targets)), Errc::damaged) << "that it is gone is not all there is to say";
  }
}

TEST(Verify, OfSomeRegionsThoseAreChecked) {
  Rotten rotten;
  History history = rotten.rig.store().history("adjoint");
  write_spoilt(rotten, history, 7);
  std::vector<std::byte> a(1000), b(5000);
  ASSERT_TRUE(history.restore(7, {{3, a.data(), a.size()}}, {.keep = true, .some = true}));
  EXPECT_EQ(a, bytes_of(7, 1000));
  const auto back = history.restore(7, {{8, b.data(), b.size()}}, {.keep = true, .some = true});
  ASSERT_FALSE(back);
  expect_named(back.error(), {"version 7", "region 8"});
}

TEST(Verify, WhatIsRightIsHandedOut) {
  Rotten rotten;
  Store& store = rotten.rig.store();
  for (Version v = 0; v < 30; ++v) {
    ASSERT_TRUE(write(store, v, v == 5 ? 0 : kSize));
    ASSERT_TRUE(store.hint_front(v));
  }
  EXPECT_TRUE(store.borrow(29).value().release(true));
  const Source room{0, nullptr, kSize};
  {
    Reservation reserved = store.reserve(30, std::span(&room, 1)).value();
    std::memcpy(reserved.data(), bytes_of(30, kSize).data(), kSize);
    ASSERT_TRUE(reserved.commit());
  }
  expect_restored(store, 30, kSize);
  for (Version v = 30; v-- > 0;) {
    std::vector<std::byte> bytes(v == 5 ? 0 : kSize);
    const Future future = store.restore_async(v, std::vector<Target>{{0, bytes.data(), bytes.size()}}).value();
    ASSERT_TRUE(future.wait({}, Seconds(60))) << v;
    EXPECT_TRUE(bytes == bytes_of(v, bytes.size()));
  }
}

TEST(Verify, ARestoreThatSpoilsTheTargetItselfSaysSo) {
  Rotten rotten;
  Store& store = rotten.rig.store();
  ASSERT_TRUE(write(store, 1, kSize));
  std::vector<std::byte> bytes(kSize);
  rotten.device->spoil(bytes.data());  // not the copy of a flush that goes on meanwhile
  EXPECT_EQ(code_of(store.restore(1, {{0, bytes.data(), kSize}}, {.keep = true})), Errc::damaged);
  expect_restored(store, 1, kSize);
}

TEST(Verify, ACommitIsWhatIsHandedOut) {
  Rotten rotten;
  Store& store = rotten.rig.store();
  const Source room{0, nullptr, kSize};
  Reservation reserved = store.reserve(1, std::span(&room, 1)).value();
  std::byte* const memory = reserved.data();
  std::memcpy(memory, bytes_of(1, kSize).data(), kSize);
  ASSERT_TRUE(reserved.commit());
  ASSERT_TRUE(store.wait("local", Seconds(60)));  // nothing reads it any more
  memory[kSize - 1] ^= std::byte{1};              // who has a stale pointer
  std::vector<std::byte> bytes(kSize);
  const auto back = store.restore(1, {{0, bytes.data(), kSize}});
  ASSERT_FALSE(back);
  expect_named(back.error(), {"version 1", "region 0"});
}

TEST(Verify, WhatAnEarlierProcessLeftIsCheckedInTheCachesToo) {
  KeptRig rig;
  {
    Store& store = rig.open();
    for (Version v : {1, 2}) keep(store, v);
    ASSERT_TRUE(store.close());
  }
  rig.setup().verify_all = true;
  const auto device = std::make_shared<RottenDevice>();
  rig.rig().seams().device = device;
  Store& store = rig.open();
  for (Version v : {1, 2}) expect_restored(store, v, kSize, {.keep = true});
  ASSERT_TRUE(store.hint({1}));
  const Loan loan = store.borrow(1).value();
  const_cast<std::byte*>(loan.data())[77] ^= std::byte{1};
  for (const bool in_background : {false, true}) {  // the copy in the file is right
    std::vector<std::byte> bytes(kSize);
    const std::vector<Target> targets = {{0, bytes.data(), kSize}};
    const Result<void> back = in_background
                                  ? store.restore_async(1, targets, {.keep = true}).value().wait({}, Seconds(60))
                                  : store.restore(1, targets, {.keep = true});
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_TRUE(bytes == bytes_of(1, kSize));
    const auto lines = rig.lines().starting("warning: ");
    ASSERT_EQ(lines.size(), 1u);
    for (const char* word : {"version 1", "region 0", "device", "restored from the files"}) {
      EXPECT_NE(lines[0].find(word), std::string::npos) << word << ": " << lines[0];
    }
    rig.lines().clear();
  }
  const auto again = store.borrow(1, {.keep = true});
  ASSERT_FALSE(again) << "somebody holds that memory";
  expect_named(again.error(), {"version 1", "region 0", "device"});

  const auto [file, offset] = rig.payload_of(1);
  rig.flip(file, offset + 5000);  // nor is that one right any more
  std::vector<std::byte> bytes(kSize);
  const auto back = store.restore(1, {{0, bytes.data(), kSize}}, {.keep = true});
  ASSERT_FALSE(back);
  expect_named(back.error(), {"version 1", "region 0", "device"});
}

// Each call's request and timer leave the store's tables as they came: one thread at a time.
TEST(Verify, SeveralThreadsBorrowAtOnce) {
  Rotten rotten;
  Store& store = rotten.rig.store();
  for (Version v = 0; v < 4; ++v) ASSERT_TRUE(write(store, v, kKiB));
  std::vector<std::thread> threads;
  for (Version v = 0; v < 4; ++v) {
    threads.emplace_back([&store, v] {
      for (int again = 0; again < 100; ++again) {
        auto loan = store.borrow(v, {.keep = true, .timeout = Seconds(600)});
        ASSERT_TRUE(loan) << loan.error().message;
        EXPECT_EQ(std::memcmp(loan->data(), bytes_of(v, kKiB).data(), kKiB), 0);
        ASSERT_TRUE(loan->release(true));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The file has a checksum of its own, of what it was given.
TEST(Verify, AFileThatWasGivenWrongBytesIsNotTakenForRight) {
  KeptRig rig;
  rig.setup().verify_all = true;
  const auto device = std::make_shared<RottenDevice>();
  rig.rig().seams().device = device;
  Store& store = rig.open();
  const auto given = bytes_of(1, kSize);
  device->spoil(1);
  ASSERT_TRUE(store.checkpoint(1, {{0, given.data(), given.size()}}));
  device->spoil(0);
  ASSERT_TRUE(store.wait("storage", Seconds(60)));
  std::vector<std::byte> bytes(kSize);
  const auto back = store.restore(1, {{0, bytes.data(), kSize}}, {.keep = true});
  ASSERT_FALSE(back);
  expect_named(back.error(), {"version 1", "region 0"});
}

TEST(Verify, WithoutItACacheIsBelieved) {
  Rotten rotten(false);
  History history = rotten.rig.store().history("adjoint");
  write_spoilt(rotten, history, 7);
  std::vector<std::byte> a(1000), b(5000);
  EXPECT_TRUE(history.restore(7, {{8, b.data(), b.size()}, {3, a.data(), a.size()}}))
      << "the tests above need this to be so";
}

TEST(Verify, AsAnOption) {
  ebb::Options options;
  EXPECT_TRUE(set_option(options, "verify", "ALL"));
  EXPECT_EQ(options.verify, Verify::all);
  EXPECT_TRUE(set_option(options, "verify", "files"));
  EXPECT_EQ(options.verify, Verify::files);
  const auto wrong = set_option(options, "verify", "some");
  ASSERT_FALSE(wrong);
  for (const char* word : {"verify", "some", "\"files\", \"all\""}) {
    EXPECT_NE(wrong.error().message.find(word), std::string::npos) << wrong.error().message;
  }
}

TEST(Verify, OnAGpuItIsUnsupported) {
  Rig gpu(Backend::gpu);
  ebb::Options options{.directory = ::testing::TempDir(), .device_cache = 1 << 20, .host_cache = 1 << 20};
  options.disk = 0;
  options.verify = Verify::all;
  const auto refused = Engine::open_store(gpu.seams(), options, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_NE(refused.error().message.find("verify"), std::string::npos);
  options.verify = Verify::files;
  EXPECT_TRUE(Engine::open_store(gpu.seams(), options, {}));
}

}  // namespace
}  // namespace ebb::store
