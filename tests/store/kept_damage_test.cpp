// Damage on the disk is named, what is older serves, and no byte that is not the checkpoint's gets to the caller
// unsaid.
#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

constexpr std::size_t kLast = kSize - 100;  // in the last chunk

/// Three versions on the disk, of which `bad` has a wrong byte at `at`.
void write_three(KeptRig& rig, Version bad, std::uint64_t at) {
  Store& store = rig.open();
  for (Version v : {1, 2, 3}) keep(store, v);
  ASSERT_TRUE(store.close());
  rig.close();
  const auto [file, offset] = rig.payload_of(bad);
  OwnDirectory::flip(file, offset + at);
}

void expect_named(const Error& error, const KeptRig& rig, const char* version) {
  EXPECT_EQ(error.code, Errc::damaged) << error.message;
  for (const std::string& word : {std::string(version), rig.segments().at(0).string(), std::string("offset")}) {
    EXPECT_NE(error.message.find(word), std::string::npos) << word << ": " << error.message;
  }
}

// Each byte of the target is as it was, or the checkpoint's own.
void expect_honest(const std::vector<std::byte>& found, Version version) {
  const auto right = bytes_of(version, found.size());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] != std::byte{0x55} && found[i] != right[i];
  EXPECT_EQ(wrong, 0u);
}

TEST(KeptDamage, LatestPassesOverWhatIsDamagedAndSaysWhere) {
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{kLast}}) {
    KeptRig rig;
    write_three(rig, 3, at);
    Store& store = rig.open();
    EXPECT_EQ(store.versions(), (std::vector<Version>{1, 2, 3})) << "nothing has looked yet";
    EXPECT_EQ(store.latest().value(), 2);
    const auto warnings = rig.lines().starting("warning: ");
    ASSERT_EQ(warnings.size(), 1u);
    for (const std::string& word : {std::string("version 3"), rig.segments().at(0).string(), std::string("offset")}) {
      EXPECT_NE(warnings[0].find(word), std::string::npos) << word << ": " << warnings[0];
    }
    EXPECT_EQ(store.versions(), (std::vector<Version>{1, 2}));
    std::vector<std::byte> bytes(kSize, std::byte{0x55});
    const auto refused = store.restore(3, {{0, bytes.data(), bytes.size()}});
    ASSERT_FALSE(refused);
    expect_named(refused.error(), rig, "version 3");
    EXPECT_TRUE(bytes == std::vector<std::byte>(kSize, std::byte{0x55}));
    expect_restored(store, 2, kSize);
    EXPECT_EQ(store.latest().value(), 2);
    EXPECT_EQ(rig.lines().starting("warning: ").size(), 1u) << "said once";
  }
}

TEST(KeptDamage, TheProgramGoesOnAndWritesTheDamagedVersionAnew) {
  KeptRig rig;
  write_three(rig, 3, kLast);
  {
    Store& store = rig.open();
    ASSERT_EQ(store.latest().value(), 2);
    keep(store, 3, kSize / 2);
    EXPECT_EQ(store.latest().value(), 3);
  }
  Store& store = rig.open();
  EXPECT_EQ(rig.lines().starting("warning: ").size(), 0u);
  EXPECT_EQ(store.versions(), (std::vector<Version>{1, 2, 3}));
  EXPECT_EQ(store.latest().value(), 3);
  expect_restored(store, 3, kSize / 2);
}

TEST(KeptDamage, ARestoreOfItFailsByNameAndTheTargetIsAsItWasOrRight) {
  for (const Backend backend : {Backend::uring, Backend::threads, Backend::gpu}) {
    for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{20 * kKiB}, std::uint64_t{kLast}}) {
      KeptRig rig(backend);
      write_three(rig, 3, at);
      Store& store = rig.open();
      std::vector<std::byte> bytes(kSize, std::byte{0x55});
      const auto refused = store.restore(3, {{0, bytes.data(), bytes.size()}});
      ASSERT_FALSE(refused);
      expect_named(refused.error(), rig, "version 3");
      expect_honest(bytes, 3);
      EXPECT_EQ(store.versions(), (std::vector<Version>{1, 2}));
      const auto again = store.restore(3, {{0, bytes.data(), bytes.size()}});
      ASSERT_FALSE(again);
      expect_named(again.error(), rig, "version 3");
      std::vector<std::byte> later(kSize, std::byte{0x55});
      const auto async = store.restore_async(3, std::vector<Target>{{0, later.data(), later.size()}});
      EXPECT_EQ(code_of(async), Errc::damaged);
      EXPECT_EQ(code_of(store.borrow(3)), Errc::damaged);
      for (Version v : {1, 2}) expect_restored(store, v, kSize);
      ASSERT_TRUE(write(store, 3, kSize));
    }
  }
}

TEST(KeptDamage, ARestoreInTheBackgroundFailsByName) {
  KeptRig rig;
  write_three(rig, 2, kLast);
  Store& store = rig.open();
  std::vector<std::byte> bytes(kSize, std::byte{0x55});
  const Future future = store.restore_async(2, std::vector<Target>{{0, bytes.data(), bytes.size()}}).value();
  const auto failed = future.wait({}, Seconds(60));
  ASSERT_FALSE(failed);
  expect_named(failed.error(), rig, "version 2");
  expect_honest(bytes, 2);
}

TEST(KeptDamage, ABorrowOfItFailsByName) {
  KeptRig rig;
  write_three(rig, 2, kLast);
  Store& store = rig.open();
  const auto refused = store.borrow(2);
  ASSERT_FALSE(refused);
  expect_named(refused.error(), rig, "version 2");
}

TEST(KeptDamage, WhatAMemoryTierHasIsRestoredWhateverBecomesOfTheFile) {
  KeptRig rig;
  {
    Store& store = rig.open();
    keep(store, 1);
    ASSERT_TRUE(store.close());
  }
  Store& store = rig.open();
  expect_restored(store, 1, kSize, {.keep = true});  // from the file
  ASSERT_TRUE(store.hint({1, 1}));
  ASSERT_TRUE(store.start_prefetch());
  Loan loan = store.borrow(1).value();  // on the device now
  const auto [file, offset] = rig.payload_of(1);
  OwnDirectory::flip(file, offset + kLast);
  ASSERT_TRUE(loan.release(true));
  expect_restored(store, 1, kSize, {.keep = true});
  EXPECT_EQ(store.latest().value(), 1) << "all of it is in a cache, and was checked on the way there";
  rig.close();
  Store& next = rig.open();
  EXPECT_EQ(next.latest().value(), std::nullopt);
  EXPECT_EQ(rig.lines().starting("warning: ").size(), 1u);
}

TEST(KeptDamage, ADamagedHeaderIsNamedAtOpenAndByWhoAsks) {
  KeptRig rig;
  write_three(rig, 3, 0);
  std::filesystem::remove(rig.path() / "index");
  const auto [file, offset] = rig.payload_of(3);
  OwnDirectory::flip(file, offset - 4096 + 700);  // in the header's body, behind the sector
  Store& store = rig.open();
  const auto warnings = rig.lines().starting("warning: ");
  ASSERT_EQ(warnings.size(), 1u);
  for (const std::string& word : {file.string(), std::string("offset " + std::to_string(offset - 4096))}) {
    EXPECT_NE(warnings[0].find(word), std::string::npos) << word << ": " << warnings[0];
  }
  EXPECT_EQ(store.latest().value(), 2);
}

TEST(KeptDamage, AHeaderThatIsDamagedBehindTheIndexIsNamedByWhoAsks) {
  KeptRig rig;
  write_three(rig, 3, 0);
  const auto [file, offset] = rig.payload_of(3);
  OwnDirectory::flip(file, offset - 4096 + 700);
  Store& store = rig.open();
  const auto info = store.info(3);
  ASSERT_FALSE(info);
  expect_named(info.error(), rig, "version 3");
  std::byte byte{};
  EXPECT_EQ(code_of(store.restore(3, {{0, &byte, 1}})), Errc::damaged);
  EXPECT_EQ(store.versions(), (std::vector<Version>{1, 2}));
  EXPECT_EQ(store.latest().value(), 2);
}

TEST(KeptDamage, WithoutAnIntactOneThereIsNone) {
  KeptRig rig;
  write_three(rig, 3, 0);
  for (Version v : {1, 2}) {
    const auto [file, offset] = rig.payload_of(v);
    OwnDirectory::flip(file, offset);
  }
  Store& store = rig.open();
  EXPECT_EQ(store.latest().value(), std::nullopt);
  EXPECT_EQ(rig.lines().starting("warning: ").size(), 3u);
}

TEST(KeptDamage, WhatCannotBeReadAtAllIsPassedOverAndNeverTakenForNothing) {
  KeptRig rig;
  {
    Store& store = rig.open();
    for (Version v : {1, 2}) keep(store, v);
    ASSERT_TRUE(store.close());
  }
  Store& store = rig.open();
  rig.files().fail_nth(doubles::FileCall::read, 1, EIO);
  EXPECT_EQ(store.latest().value(), 1);
  EXPECT_EQ(rig.lines().starting("warning: ").size(), 1u);
  EXPECT_EQ(store.latest().value(), 2) << "it was the disk's mood";
  rig.close();
  Store& again = rig.open();
  rig.files().fail_nth(doubles::FileCall::read, 1, EIO, doubles::FaultyFiles::kEver);
  const auto none = again.latest();
  ASSERT_FALSE(none) << "a program would begin from nothing";
  EXPECT_EQ(none.error().code, Errc::io_error);
  EXPECT_NE(none.error().message.find("EIO"), std::string::npos) << none.error().message;
}

}  // namespace
}  // namespace ebb::store
