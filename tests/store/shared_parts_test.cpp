// What is stored in several checkpoints, files and snapshots, goes on to a shared directory as a whole.
#include "shared_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

// A history of a snapshot's pieces, as the store names them.
constexpr const char* kPieces = "/.ebbtide-snapshot/0000000000000001-0000000000000001/0";

/// A store that sends even versions on, with a piece that it does not send, and a map that was written after it.
struct HeldBack {
  HeldBack() {
    rig.tier().every = 2;
    Store& store = rig.open();
    piece.emplace(rig.kept().rig().engine().view(kPieces));
    keep(*piece, 1);
    const auto written = write(store, 2, kSize, {.timeout = Seconds(60)});
    map.emplace(Result<Future>(written).value());
    History other = store.history("other");
    for (Version version = 2; version < 10; version += 2) send(other, version);
  }
  SharedRig rig;
  std::optional<History> piece;
  std::optional<Future> map;
};

TEST(SharedParts, AMapIsNotDurableBeforeItsPieces) {
  HeldBack held;
  EXPECT_FALSE(held.map->done("shared"));
  ASSERT_TRUE(held.piece->wait(1, "shared", Seconds(60)));
  EXPECT_TRUE(held.map->wait("shared", Seconds(60)));
}

TEST(SharedParts, APieceThatIsDroppedHoldsBackNothing) {
  HeldBack held;
  EXPECT_FALSE(held.map->done("shared"));
  ASSERT_TRUE(held.piece->drop());
  EXPECT_TRUE(held.map->wait("shared", Seconds(60)));
}

void write_file(Store& store, Version version, std::size_t size, const char* level) {
  auto file = store.create_file("model", version).value();
  const auto bytes = bytes_of(version, size);
  ASSERT_TRUE(file.write(bytes));
  ASSERT_TRUE(file.close());
  const auto waited = file.wait(level, Seconds(60));
  ASSERT_TRUE(waited) << waited.error().message;
}

void expect_file(Store& store, Version version, std::size_t size) {
  auto file = store.open_file("model", version);
  ASSERT_TRUE(file) << file.error().message;
  std::vector<std::byte> bytes(size);
  EXPECT_EQ(file->read(bytes).value(), size);
  EXPECT_TRUE(bytes == bytes_of(version, size));
}

std::vector<Version> versions_of(Store& store) {
  std::vector<Version> found;
  const auto all = store.files("model");
  for (const FileInfo& one : Result<std::vector<FileInfo>>(all).value()) found.push_back(one.version);
  return found;
}

TEST(SharedParts, AFileIsReadFromTheSharedDirectory) {
  constexpr std::size_t kFile = 300 * kKiB + 5;
  SharedRig rig({.local = 512 * kKiB});  // less than the files
  for (Version version = 1; version <= 3; ++version) write_file(rig.open(), version, kFile, "shared");
  for (Version version = 1; version <= 3; ++version) expect_file(rig.open(), version, kFile);
  rig.close();
  rig.delete_local();
  Store& elsewhere = rig.open();
  EXPECT_EQ(versions_of(elsewhere), (std::vector<Version>{1, 2, 3}));
  for (Version version = 1; version <= 3; ++version) expect_file(elsewhere, version, kFile);
}

TEST(SharedParts, AFileStaysUntilANewerOneIsInTheSharedDirectory) {
  constexpr std::size_t kFile = 50 * kKiB;
  SharedRig rig;
  rig.setup().machine.retention = {.keep_last = 1};
  Store& store = rig.open();
  write_file(store, 1, kFile, "shared");
  rig.files().fail_writes(EIO);
  write_file(store, 2, kFile, "storage");
  EXPECT_EQ(versions_of(store), (std::vector<Version>{1, 2})) << "the node may be lost with the newer one";
  expect_file(store, 1, kFile);
  rig.files().fail_writes(0);
  rig.close();
  EXPECT_EQ(versions_of(rig.open()), std::vector<Version>{2});
}

TEST(SharedParts, FilesAreRefusedWhereOnlySomeVersionsAreSent) {
  SharedRig rig;
  rig.tier().every = 2;
  const auto refused = rig.open().create_file("model", 2);
  ASSERT_EQ(code_of(refused), Errc::unsupported);
  EXPECT_NE(refused.error().message.find("shared_every=2"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace ebb::store
