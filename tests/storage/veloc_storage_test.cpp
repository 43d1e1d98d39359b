// VELOC's files under power failures and refused calls: a file under its final name is whole, and what was reported
// persistent is there.
#include "storage/veloc/veloc_storage.hpp"

#include <array>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <span>

#include "tests/doubles/faulty_files.hpp"
#include "tests/doubles/power_loss.hpp"
#include "tests/storage/persisted_objects.hpp"
#include "tests/transfer/completions.hpp"

namespace ebb::storage {
namespace {

using doubles::FaultyFiles;
using doubles::FileCall;
using doubles::MemoryFiles;
using doubles::PowerLoss;

const std::filesystem::path kDirectory = "/pfs", kMeta = "/meta";
constexpr int kRank = 2;
constexpr std::uint32_t kBlock = 4096;
constexpr std::size_t kTotal = 3 * kBlock + 700;

using Bytes = std::vector<std::byte>;

Bytes content(std::uint64_t seed) {
  Bytes bytes(os::round_up(kTotal));
  std::uint64_t state = seed * 2654435761 + 1;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>((state = state * 6364136223846793005 + 1) >> 56);
  return bytes;
}

// Two regions with a gap between them; their order in the file is the other one.
Description description(Version version) {
  Description made{"heat", version, {}};
  made.info.regions = {{7, 5000, 0}, {4'000'000'000, kTotal - 5120, 5120}};
  made.info.bytes = kTotal;
  return made;
}

// What VELOC reads, by itself.
Bytes in_file(const Bytes& content) {
  Bytes out(content.begin() + 5120, content.begin() + kTotal);
  out.insert(out.end(), content.begin(), content.begin() + 5000);
  return out;
}

std::optional<Bytes> read_file(os::Files& files, const std::filesystem::path& path) {
  const auto opened = files.open(path, os::Open::read, false);
  if (!opened) return {};
  const os::File file(files, static_cast<int>(opened.value), path, false);
  os::FileStatus status;
  EXPECT_TRUE(files.status(file.fd(), status));
  Bytes bytes(status.bytes);
  EXPECT_TRUE(files.read(file.fd(), bytes.data(), bytes.size(), 0));
  return bytes;
}

std::string file_of(Version version) { return "heat-2-" + std::to_string(version) + ".dat"; }

std::filesystem::path own_file(const std::string& name) { return kDirectory / ".ebbtide" / "rank-2" / name; }

std::optional<Bytes> payload_of(os::Files& files, Version version) {
  const auto bytes = read_file(files, kDirectory / file_of(version));
  const std::size_t header = 8 + 2 * 12;
  if (!bytes) return {};
  return bytes->size() < header ? Bytes() : Bytes(bytes->begin() + header, bytes->end());
}

/// Whether VELOC restarts from a file that is there with `chksum`.
bool has_its_sum(os::Files& files, Version version, const std::filesystem::path& meta = kMeta) {
  const auto bytes = read_file(files, kDirectory / file_of(version));
  const auto sum = read_file(files, meta / (file_of(version) + ".chksum"));
  auto expected = Sha256::begin();
  EXPECT_TRUE(expected);
  if (!expected || !bytes) return false;
  expected->add(*bytes);
  return sum && std::ranges::equal(*sum, expected->sum());
}

/// Why checksum files cannot be made here.
std::optional<std::string> no_sums() {
  const auto begun = Sha256::begin();
  return begun ? std::nullopt : std::optional(begun.error().message);
}

/// An open storage, and a program that writes to it.
class Writer {
 public:
  explicit Writer(os::Files& files, bool sums = false, const std::filesystem::path& meta = kMeta) {
    PersistentOptions options;
    options.directory = kDirectory;
    options.capacity = 1 << 20;
    options.block_bytes = kBlock;
    auto opened = open_veloc_storage(files, options, {kRank, meta, sums}, completions_.done(), persisted_.callback());
    if (opened)
      storage_ = std::move(*opened);
    else
      failed_ = opened.error();
  }
  const std::optional<Error>& failed() const { return failed_; }
  PersistentStorage& storage() { return *storage_; }
  /// Its object, once it has been reported; the error, if it is not persistent.
  Result<ObjectId> write(Version version, std::uint64_t seed) {
    const ObjectId id = kFirstObject + ++objects_;
    const Bytes bytes = content(seed);
    if (auto begun = storage_->begin(id, std::make_shared<const Description>(description(version))); !begun)
      return begun.error();
    for (const std::uint64_t at : {std::uint64_t{2 * kBlock}, std::uint64_t{0}}) {
      const std::size_t length = at == 0 ? 2 * kBlock : kTotal - at;
      const Token token = ++tokens_;
      if (auto put = storage_->put(token, id, kTotal, at, bytes.data() + at, length); !put) return put.error();
      if (auto done = completions_.of(token); !done) return done.error();
    }
    if (auto kept = persisted_.of(id); !kept) return kept.error();
    return id;
  }
  /// The regions' bytes, in the file's order.
  Result<Bytes> read(const Found& one) {
    Bytes bytes(os::round_up(one.bytes)), out;
    const Token token = ++tokens_;
    if (auto got = storage_->get(token, one.object, 0, bytes.data(), one.bytes); !got) return got.error();
    if (auto done = completions_.of(token); !done) return done.error();
    const auto described = storage_->load_description(one.object);
    if (!described) return described.error();
    for (const std::uint32_t id : {4'000'000'000U, 7U})
      for (const RegionInfo& region : (*described)->info.regions)
        if (region.id == id)
          out.insert(out.end(), bytes.begin() + static_cast<std::ptrdiff_t>(region.offset),
                     bytes.begin() + static_cast<std::ptrdiff_t>(region.offset + region.bytes));
    return out;
  }
  void await_drops() {
    while (storage_->drops_done() < storage_->drops()) std::this_thread::yield();
  }

 private:
  test::Completions completions_;
  PersistedObjects persisted_;
  std::unique_ptr<PersistentStorage> storage_;
  std::optional<Error> failed_;
  ObjectId objects_ = 0;
  Token tokens_ = 0;
};

// By version: what it was ever written with.
using Written = std::map<Version, std::set<std::uint64_t>>;

std::string violation(MemoryFiles& files, bool sums, const Written& written,
                      const std::map<Version, std::uint64_t>& kept) {
  for (const auto& [version, seeds] : written) {
    const auto there = payload_of(files, version);
    const auto matches = [&](std::uint64_t seed) { return *there == in_file(content(seed)); };
    if (there && std::ranges::none_of(seeds, matches)) return "version " + std::to_string(version) + " is not whole";
    if (!there && kept.contains(version)) return "version " + std::to_string(version) + " is gone";
    if (there && kept.contains(version) && !matches(kept.at(version)))
      return "version " + std::to_string(version) + " is not what was reported";
    if (there && sums && !has_its_sum(files, version))
      return "version " + std::to_string(version) + " does not match its checksum file";
  }
  Writer next(files, sums);
  if (next.failed()) return next.failed()->message;
  for (const Found& one : next.storage().found()) {
    const auto read = next.read(one);
    // These files have no times, so a mark may fit the file of another write, until either is reported.
    if (!read && read.error().code == Errc::damaged && !kept.contains(one.version)) continue;
    if (!read) return read.error().message;
    if (std::ranges::none_of(written.at(one.version), [&](auto seed) { return *read == in_file(content(seed)); }))
      return "version " + std::to_string(one.version) + " was read as something else";
  }
  return {};
}

/// With checksum files and without.
class VelocPower : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Sums, VelocPower, ::testing::Bool());

TEST_P(VelocPower, IsWholeInEveryStateAfterAFailure) {
  const bool sums = GetParam();
  if (const auto why = no_sums(); sums && why) GTEST_SKIP() << *why;
  MemoryFiles files;
  const Written written{{1, {1}}, {2, {2, 22}}, {3, {3}}};
  std::vector<std::pair<std::size_t, std::map<Version, std::uint64_t>>> reported{{0, {}}};
  const auto report = [&](Version version, std::optional<std::uint64_t> seed) {
    auto now = reported.back().second;
    now.erase(version);
    if (seed) now[version] = *seed;
    reported.emplace_back(files.changes(), now);
  };
  {
    Writer writer(files, sums);
    ASSERT_FALSE(writer.failed()) << writer.failed()->message;
    const auto write = [&](Version version, std::uint64_t seed) {
      report(version, {});  // until it is reported: either
      const auto id = writer.write(version, seed);
      EXPECT_TRUE(id) << id.error().message;
      report(version, seed);
      return *id;
    };
    write(1, 1);
    const ObjectId second = write(2, 2);
    report(2, {});
    writer.storage().drop(second);
    write(2, 22);
    const ObjectId third = write(3, 3);
    report(3, {});
    writer.storage().drop(third);
    writer.await_drops();
  }
  const PowerLoss power(files.journal());
  const auto kept = [&](std::size_t n) {
    return std::prev(std::ranges::upper_bound(reported, n, {}, [](const auto& one) { return one.first; }))->second;
  };
  for (std::size_t n = 0; n <= power.size(); ++n) {
    ASSERT_EQ(violation(*power.prefix(n), sums, written, kept(n)), "") << "prefix " << n;
    for (std::uint64_t seed = 0; seed < 12; ++seed)
      ASSERT_EQ(violation(*power.crash(n, seed), sums, written, kept(n)), "") << "crash " << n << ", seed " << seed;
  }
  for (const auto kind : {PowerLoss::Kind::sync, PowerLoss::Kind::sync_directory}) {  // each is needed
    const PowerLoss without = power.without_all(kind);
    bool wrong = false;
    for (std::size_t n = 0; n <= power.size() && !wrong; ++n)
      for (std::uint64_t seed = 0; seed < 12 && !wrong; ++seed)
        wrong = !violation(*without.crash(n, seed), sums, written, kept(n)).empty();
    EXPECT_TRUE(wrong);
  }
}

// At every moment VELOC finds one edition whole, and the next process every one that was reported.
TEST_P(VelocPower, HasAnEditionOfAVersionThatIsWrittenAgain) {
  const bool sums = GetParam();
  if (const auto why = no_sums(); sums && why) GTEST_SKIP() << *why;
  constexpr Version kFirst = 1, kSecond = kFirst + kVelocEdition, kThird = kSecond + kVelocEdition,
                    kVoid = kThird + kVelocEdition;
  MemoryFiles files;
  std::vector<std::pair<std::size_t, std::map<Version, std::uint64_t>>> reported{{0, {}}};
  {
    Writer writer(files, sums);
    ASSERT_FALSE(writer.failed()) << writer.failed()->message;
    std::map<Version, ObjectId> objects;
    const auto write = [&](Version version, std::uint64_t seed) {
      const auto id = writer.write(version, seed);
      ASSERT_TRUE(id) << id.error().message;
      objects[version] = *id;
      auto now = reported.back().second;
      now[version] = seed;
      reported.emplace_back(files.changes(), now);
    };
    const auto drop = [&](Version version) {
      auto now = reported.back().second;
      now.erase(version);
      reported.emplace_back(files.changes(), now);
      writer.storage().drop(objects.at(version));
    };
    write(kFirst, 1);
    write(kSecond, 11);
    EXPECT_EQ(payload_of(files, 1), in_file(content(1))) << "the older edition keeps the name";
    drop(kFirst);
    writer.await_drops();
    EXPECT_EQ(payload_of(files, 1), in_file(content(11)));
    write(kThird, 111);
    write(kVoid, 1111);
    drop(kVoid);
    drop(kSecond);
    writer.await_drops();
    EXPECT_EQ(payload_of(files, 1), in_file(content(111)));
    EXPECT_TRUE(!sums || has_its_sum(files, 1));
    EXPECT_EQ(writer.storage().failed_drops(), std::vector<std::string>{});
  }
  const auto wrong = [&](MemoryFiles& left, const std::map<Version, std::uint64_t>& kept) -> std::string {
    const auto there = payload_of(left, 1);
    const std::array<std::uint64_t, 3> named{1, 11, 111};
    if (!there && !kept.empty()) return "there is neither";
    if (there && std::ranges::none_of(named, [&](auto seed) { return *there == in_file(content(seed)); }))
      return "VELOC's file is no edition";
    Writer next(left, sums);
    if (next.failed()) return next.failed()->message;
    std::map<Version, ObjectId> found;
    for (const Found& one : next.storage().found()) {
      const auto seed = kept.find(one.version);
      if (seed == kept.end()) continue;
      const auto read = next.read(one);
      if (!read) return read.error().message;
      if (*read != in_file(content(seed->second))) return "an edition has other bytes";
      found[one.version] = one.object;
    }
    if (found.size() < kept.size()) return "an edition that was reported is gone";
    for (const Gone& one : next.storage().gone())
      if (kept.contains(one.version)) return "an edition that is there counts as deleted";
    if (kept.empty()) return {};
    // The newest takes the name when it is alone, whoever wrote it.
    for (const Found& one : next.storage().found())
      if (one.version != kept.rbegin()->first) next.storage().drop(one.object);
    next.await_drops();
    next.storage().stop();
    if (payload_of(left, 1) != in_file(content(kept.rbegin()->second))) return "the newest has not got the name";
    return !sums || has_its_sum(left, 1) ? "" : "its checksum file is another's";
  };
  const PowerLoss power(files.journal());
  for (std::size_t n = 0; n <= power.size(); ++n) {
    const auto kept =
        std::prev(std::ranges::upper_bound(reported, n, {}, [](const auto& one) { return one.first; }))->second;
    ASSERT_EQ(wrong(*power.prefix(n), kept), "") << "prefix " << n;
    for (std::uint64_t seed = 0; seed < 12; ++seed)
      ASSERT_EQ(wrong(*power.crash(n, seed), kept), "") << "crash " << n << ", seed " << seed;
  }
}

/// A call, with checksum files and without.
class VelocRefused : public ::testing::TestWithParam<std::tuple<FileCall, bool>> {};
INSTANTIATE_TEST_SUITE_P(Calls, VelocRefused,
                         ::testing::Combine(::testing::Values(FileCall::write, FileCall::sync, FileCall::sync_directory,
                                                              FileCall::rename, FileCall::open, FileCall::status,
                                                              FileCall::read),
                                            ::testing::Bool()));

TEST_P(VelocRefused, IsToldAndTriedAgain) {
  const auto [call, sums] = GetParam();
  if (const auto why = no_sums(); sums && why) GTEST_SKIP() << *why;
  for (std::uint64_t nth = 1; nth < 40; ++nth) {
    MemoryFiles memory;
    {
      const Writer made(memory, sums);
    }
    FaultyFiles files(memory, nth);
    std::optional<Writer> program(std::in_place, files, sums);
    Writer& writer = *program;
    ASSERT_FALSE(writer.failed());
    files.fail_nth(call, nth, call == FileCall::write ? ENOSPC : EIO);
    std::map<Version, std::uint64_t> kept;
    bool refused = false;
    for (Version version = 1; version <= 2; ++version) {
      auto id = writer.write(version, static_cast<std::uint64_t>(version));
      if (!id) {
        refused = true;
        const std::string& message = id.error().message;
        EXPECT_TRUE(message.find("/pfs") != message.npos || message.find("/meta") != message.npos) << message;
        id = writer.write(version, static_cast<std::uint64_t>(version));  // as another object, as the store does
      }
      ASSERT_TRUE(id) << id.error().message;
      kept[version] = static_cast<std::uint64_t>(version);
    }
    program.reset();
    ASSERT_EQ(violation(memory, sums, {{1, {1}}, {2, {2}}}, kept), "") << "call " << nth;
    if (!refused && nth > 10) return;
  }
}

// A kill at any moment of two writes and a drop, and an opening after it whose n-th read fails: the one after that
// takes nothing for deleted by its user, and believes no file of ours without its checksums.
TEST(VelocStorage, AnOpeningThatCannotReadLeavesWhatTheNextNeeds) {
  MemoryFiles files;
  {
    Writer writer(files);
    ASSERT_TRUE(writer.write(1, 1));
    const auto second = writer.write(2, 2);
    ASSERT_TRUE(second);
    writer.storage().drop(*second);
    writer.await_drops();
  }
  const PowerLoss power(files.journal());
  for (std::size_t n = 0; n <= power.size(); ++n) {
    for (std::uint64_t nth = 1; nth <= 8; ++nth) {
      const auto killed = power.prefix(n);
      FaultyFiles faulty(*killed, nth);
      faulty.fail_nth(FileCall::read, nth, EIO);
      {
        const Writer refused(faulty);
      }
      Writer next(*killed);
      ASSERT_FALSE(next.failed()) << next.failed()->message;
      ASSERT_TRUE(next.storage().gone().empty()) << "moment " << n << ", read " << nth;
      for (const Found& one : next.storage().found())
        ASSERT_NE(one.body, Checksum{}) << "moment " << n << ", read " << nth;
    }
  }
}

void put_file(MemoryFiles& files, const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const auto opened = files.open_write(path);
  ASSERT_TRUE(opened);
  const os::File file(files, static_cast<int>(opened.value), path, false);
  ASSERT_TRUE(files.write(file.fd(), bytes.data(), bytes.size(), 0));
}

TEST(VelocStorage, NoChecksumFileIsMadeOfAnEditionThatIsDamaged) {
  if (const auto why = no_sums()) GTEST_SKIP() << *why;
  constexpr Version kSecond = 1 + kVelocEdition;
  MemoryFiles files;
  {
    Writer writer(files, true);
    ASSERT_TRUE(writer.write(1, 1));
    ASSERT_TRUE(writer.write(kSecond, 11));
  }
  const auto waiting = own_file("heat-" + std::to_string(kSecond) + ".next");
  Bytes bytes = read_file(files, waiting).value();
  bytes[100] ^= std::byte{1};
  put_file(files, waiting, bytes);
  {
    Writer next(files, true);
    for (const Found& one : next.storage().found())
      if (one.version == 1) next.storage().drop(one.object);
    next.await_drops();
  }
  EXPECT_EQ(payload_of(files, 1), in_file(content(1))) << "the older edition stays";
  EXPECT_TRUE(has_its_sum(files, 1));
}

// It has an edition's file, and the mark of another that is not to be read.
TEST(VelocStorage, AnEditionThatTakesThePlaceOfADamagedOneKeepsItsMark) {
  constexpr Version kSecond = 1 + kVelocEdition;
  MemoryFiles files;
  ASSERT_TRUE(Writer(files).write(1, 1));
  put_file(files, own_file("heat-1"), Bytes(4 * kBlock));
  ASSERT_TRUE(Writer(files).write(kSecond, 11));
  const PowerLoss power(files.journal());
  bool renamed = false;
  for (std::size_t n = 0; n <= power.size(); ++n) {
    const auto left = power.prefix(n);
    if (payload_of(*left, 1) != in_file(content(11))) continue;
    renamed = true;
    Writer next(*left);
    ASSERT_FALSE(next.failed()) << next.failed()->message;
    ASSERT_EQ(next.storage().found().size(), 1U) << "prefix " << n;
    EXPECT_EQ(next.storage().found().front().version, kSecond) << "prefix " << n;
  }
  EXPECT_TRUE(renamed);
}

TEST(VelocStorage, AFileThatIsNoMarkIsLeftAlone) {
  MemoryFiles files;
  ASSERT_TRUE(Writer(files).write(1, 1));
  put_file(files, kDirectory / "notes-2-1.dat", *read_file(files, kDirectory / file_of(1)));
  for (const char* name : {"notes-01", "notes-1x", "notes-", "notes--1", "notes-9223372036854775807"})
    put_file(files, own_file(name), Bytes(7));
  Writer next(files);
  ASSERT_FALSE(next.failed()) << next.failed()->message;
  ASSERT_EQ(next.storage().found().size(), 2U);
  for (const Found& one : next.storage().found()) EXPECT_EQ(next.read(one).value(), in_file(content(1)));
  EXPECT_EQ(read_file(files, own_file("notes-01")), Bytes(7));
}

TEST(VelocStorage, AVersionThatCanHaveNoNewerEditionIsRefused) {
  constexpr Version kMost = Version{1} << 62;
  MemoryFiles files;
  Writer writer(files);
  EXPECT_TRUE(writer.write(kMost, 1));
  EXPECT_EQ(writer.write(kMost + 1, 1).error().code, Errc::invalid_argument);
}

TEST(VelocStorage, AVersionWrittenAgainAfterItsFileWasDeletedHasItsChecksums) {
  MemoryFiles files;
  {
    Writer writer(files);
    ASSERT_TRUE(writer.write(1, 1));
  }
  ASSERT_TRUE(files.remove(kDirectory / file_of(1)));
  {
    Writer writer(files);
    ASSERT_EQ(writer.storage().gone().size(), 1u);
    ASSERT_TRUE(writer.write(1, 11));
  }
  Writer next(files);
  EXPECT_TRUE(next.storage().gone().empty());
  ASSERT_EQ(next.storage().found().size(), 1u);
  EXPECT_NE(next.storage().found().front().body, Checksum{}) << "its mark was removed";
}

// Whatever becomes of a version that was written with checksum files, and of the process that goes back to it without.
TEST(VelocStorage, AChecksumFileOfAnEarlierWriteCondemnsNoLaterOne) {
  if (const auto why = no_sums()) GTEST_SKIP() << *why;
  MemoryFiles files;
  const auto go_back = [](os::Files& to) {
    Writer writer(to);
    ASSERT_FALSE(writer.failed()) << writer.failed()->message;
    for (const Found& one : writer.storage().found()) writer.storage().drop(one.object);
    writer.await_drops();
    ASSERT_TRUE(writer.write(1, 11));
  };
  const auto holds = [](os::Files& in) {
    Writer next(in, true);
    ASSERT_FALSE(next.failed()) << next.failed()->message;
    for (const Found& one : next.storage().found()) {
      const auto read = next.read(one);
      const std::string why = read ? "" : read.error().message;
      ASSERT_EQ(why.find("does not match its checksum file"), std::string::npos) << why;
    }
  };
  {
    Writer writer(files, true);
    const auto id = writer.write(1, 1);
    ASSERT_TRUE(id);
    writer.storage().drop(*id);
    writer.await_drops();
    ASSERT_TRUE(writer.write(1, 2));
  }
  const PowerLoss earlier(files.journal());
  go_back(files);
  const PowerLoss power(files.journal());
  for (std::size_t n = 0; n <= power.size(); ++n) {
    if (n <= earlier.size()) {
      const auto killed = earlier.prefix(n);
      go_back(*killed);
      holds(*killed);
    }
    for (std::uint64_t seed = 0; seed < 4; ++seed) holds(*power.crash(n, seed));
    if (HasFatalFailure()) FAIL() << "moment " << n;
  }
}

/// Another rank takes a file of VELOC's away just before this one moves it.
class AnotherIsFaster final : public doubles::ForwardFiles<AnotherIsFaster> {
 public:
  using ForwardFiles::ForwardFiles;
  template <class Whole>
  os::SysResult around(const doubles::FileRecord& call, Whole&& whole) noexcept {
    if (call.call == FileCall::rename && call.path.parent_path() == kDirectory) {
      EXPECT_TRUE(inner_.remove(call.path));
    }
    return whole();
  }
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned entries) override { return inner_.open_ring(entries); }
};

TEST(VelocStorage, RanksThatDropAnAggregatedVersionTogetherHaveAllDroppedIt) {
  MemoryFiles memory;
  const auto make = [&](const std::filesystem::path& path, std::span<const std::byte> bytes) {
    const auto opened = memory.open_write(path);
    ASSERT_TRUE(opened);
    const os::File file(memory, static_cast<int>(opened.value), path, false);
    ASSERT_TRUE(memory.write(file.fd(), bytes.data(), bytes.size(), 0));
  };
  const std::string name = file_name({"heat", kAllRanks, 1});
  ASSERT_TRUE(memory.make_directory(kDirectory));
  ASSERT_TRUE(memory.make_directory(kMeta));
  const std::array<std::uint64_t, 4> ranks{3, 0, 0, 0};  // only rank 2 has something in it
  make(kMeta / name, std::as_bytes(std::span(ranks)));
  Bytes bytes = encode_veloc_header(description(1).info);
  std::ranges::copy(in_file(content(1)), std::back_inserter(bytes));
  make(kDirectory / name, bytes);
  AnotherIsFaster files(memory);
  Writer writer(files);
  ASSERT_FALSE(writer.failed()) << writer.failed()->message;
  ASSERT_EQ(writer.storage().found().size(), 1u);
  ASSERT_TRUE(writer.write(1 + kVelocEdition, 11));
  EXPECT_FALSE(payload_of(memory, 1)) << "the aggregated file is there for the other ranks";
  writer.storage().drop(writer.storage().found().front().object);
  writer.await_drops();
  EXPECT_EQ(writer.storage().failed_drops(), std::vector<std::string>{});
  EXPECT_EQ(payload_of(memory, 1), in_file(content(11)));
}

TEST(VelocStorage, TheDirectoryOfChecksumFilesIsThereAfterAPowerFailure) {
  if (const auto why = no_sums()) GTEST_SKIP() << *why;
  const std::filesystem::path meta = "/other/meta";
  MemoryFiles files;
  ASSERT_TRUE(files.make_directory("/other"));
  ASSERT_TRUE(files.sync_directory("/"));
  {
    Writer writer(files, true, meta);
    ASSERT_TRUE(writer.write(1, 1));
  }
  const PowerLoss power(files.journal());
  for (std::uint64_t seed = 0; seed < 12; ++seed)
    EXPECT_TRUE(has_its_sum(*power.crash(power.size(), seed), 1, meta)) << "seed " << seed;
}

TEST(VelocStorage, ADirectoryOfChecksumFilesDoesNotFollowTheWorkingDirectory) {
  if (const auto why = no_sums()) GTEST_SKIP() << *why;
  MemoryFiles files;
  std::filesystem::path here = "/";
  for (const auto& part : std::filesystem::current_path().relative_path())
    ASSERT_TRUE(files.make_directory(here /= part));
  Writer writer(files, true, "meta");
  ASSERT_FALSE(writer.failed()) << writer.failed()->message;
  ASSERT_TRUE(writer.write(1, 1));
  EXPECT_TRUE(has_its_sum(files, 1, here / "meta"));
}

TEST(VelocStorage, FilesThatWereNotNamedAreRemovedByTheNext) {
  MemoryFiles files;
  {
    Writer writer(files);
    ASSERT_TRUE(writer.write(1, 1));
  }
  const auto left = veloc_own_directory(kDirectory, kRank) / "heat-2.5.new";
  ASSERT_TRUE(files.open_write(left));
  {
    const Writer next(files);
  }
  os::FileStatus status;
  EXPECT_EQ(files.status(left, status).error, ENOENT);
}

}  // namespace
}  // namespace ebb::storage
