// The fuzz targets over their corpus, with every flip of a few and every length: so that they cannot rot where there is
// no fuzzer. A corpus is a tar archive (corpus.py); EBB_WRITE_CORPUS=FOLDER writes the seeds into FOLDER/TARGET, to be
// packed with what a fuzzer found.
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>

#include "storage/scan/segment_scan.hpp"
#include "tests/fuzz/pool_image.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/share/message_samples.hpp"
#include "tests/storage/store_image.hpp"
#include "tests/storage/zone_map_samples.hpp"

namespace ebb::fuzz {
namespace {

namespace fs = std::filesystem;
using test::Bytes;
using test::describe;

using Target = void (*)(const std::uint8_t*, std::size_t);
const fs::path kCorpus = fs::path(EBB_SOURCE_DIR) / "tests/fuzz/corpus";

test::StoreImage store() {
  test::StoreImage image;
  image.add(1, describe("a", 1, {600, 3}, "meta"));
  image.drop(image.add(1, describe("b", 2, {300})));
  image.leave(1, 2, std::byte{0x77});
  image.add(1, describe("c", 3, {0}));
  return image;
}

void write(const char* kind, const std::string& name, const Bytes& bytes) {
  const fs::path folder = fs::path(std::getenv("EBB_WRITE_CORPUS")) / kind;
  fs::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// A pool whose process did what a seed says.
Bytes pool_image(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const share::PoolHeader header{share::choose_shape(std::uint64_t{8} << (12 + seed % 12), 4096, 1).value(), "job-x"};
  PoolMemory memory(header.shape);
  share::PoolTables tables = memory.view();
  const share::Member member = tables.next_member().value();
  tables.admit({member, {7, seed}, 4096});
  for (std::uint32_t slab = 0; slab < 8; ++slab) {
    if (random() % 4 != 0 && tables.lend(slab, member) && random() % 4 == 0) tables.recall(slab, member);
  }
  share::HandoverList list = memory.list_of(member);
  const std::size_t entries = random() % 8;
  for (std::size_t i = 0; i < entries; ++i) {
    share::HandedOver entry{
        .object = i / 3, .at = i % 3 * 100, .part = {static_cast<std::uint32_t>(random() % 8), 8, 100}};
    if (i % 3 == 2) entry.description = {static_cast<std::uint32_t>(random() % 8), 1000, 50};
    list.add(entry).value();
    if (random() % 4 == 0) list.finish(1 + random() % (i + 1));
  }
  PoolImage image = memory.image(entries);
  const auto block = share::encode(header);
  std::ranges::copy(block, image.header.begin());
  return image.write();
}

void write_seeds() {
  for (std::uint64_t seed = 10; seed < 70; ++seed) write("pool", "seed-" + std::to_string(seed), pool_image(seed));
  int kind = 0;
  for (const share::message::Any& one : share::test::message_samples()) {
    write("message", "seed-" + std::to_string(10 + kind++), share::message::encode(one));
  }
  for (std::uint64_t seed = 10; seed < 70; ++seed) {
    write("zones", "seed-" + std::to_string(seed), storage::encode(test::sample_map(seed)));
  }
  // Two regions of 3 and 2 bytes, 1 and -1; none; the same twice; longer than the file; a name.
  for (const std::string& text : {std::string("\2\0\0\0\0\0\0\0"
                                              "\1\0\0\0"
                                              "\3\0\0\0\0\0\0\0"
                                              "\377\377\377\377"
                                              "\2\0\0\0\0\0\0\0"
                                              "abcde",
                                              37),
                                  std::string(8, '\0'),
                                  std::string("\2\0\0\0\0\0\0\0"
                                              "\1\0\0\0"
                                              "\0\0\0\0\0\0\0\0"
                                              "\1\0\0\0"
                                              "\0\0\0\0\0\0\0\0",
                                              32),
                                  std::string("\1\0\0\0\0\0\0\0"
                                              "\1\0\0\0"
                                              "\377\377\377\377\377\377\377\177",
                                              20),
                                  std::string("\2\0\0\0\0\0\0\0"
                                              "\0\0\0\0\0\0\0\0"
                                              "\50\0\0\0\0\0\0\0",
                                              24),
                                  std::string("heat-agg-7.dat"), std::string("heat.2-13-400.dat")}) {
    const auto bytes = std::as_bytes(std::span(text));
    write("veloc", "seed-" + std::to_string(text.size()), Bytes(bytes.begin(), bytes.end()));
  }
  test::StoreImage image = store();
  const Bytes segment = image.segment(1);
  write("record", "seed-four", Bytes(segment.begin() + 4096, segment.end()));
  write("record", "seed-one", Bytes(segment.begin() + 4096, segment.begin() + 4096 + 8192));
  write("index", "seed", storage::encode_index(test::scan(image.files).value()));
  write("index", "seed-empty", storage::encode_index({.head = image.head, .segments = {}, .damages = {}}));
  int number = 0;
  for (const std::string& text : {std::string("disk\0"
                                              "1.5 GiB",
                                              12),
                                  std::string("close_timeout\0"
                                              "10ms",
                                              18),
                                  std::string("durability\0"
                                              "storage",
                                              18),
                                  std::string("io\0threads", 10),
                                  std::string("host_cache\0"
                                              "18446744073709551616",
                                              31),
                                  std::string("readonly\0yes", 12)}) {
    const auto bytes = std::as_bytes(std::span(text));
    write("config", "seed-" + std::to_string(number++), Bytes(bytes.begin(), bytes.end()));
  }
}

std::vector<Bytes> corpus(const char* kind) {
  static const bool written = std::getenv("EBB_WRITE_CORPUS") ? (write_seeds(), true) : false;
  static_cast<void>(written);
  std::ifstream file(kCorpus / (std::string(kind) + ".tar"), std::ios::binary);
  const std::string archive((std::istreambuf_iterator<char>(file)), {});
  // POSIX's ustar: a block of header, with the length in octal digits, then the input in whole blocks; at the end
  // zeros.
  constexpr std::size_t kTarBlock = 512, kLengthAt = 124, kLengthDigits = 11;
  std::vector<Bytes> out;
  for (std::size_t at = 0; at + kTarBlock <= archive.size() && archive[at] != '\0';) {
    const std::size_t length = std::stoull(archive.substr(at + kLengthAt, kLengthDigits), nullptr, 8);
    at += kTarBlock;
    if (length > archive.size() - at) throw std::runtime_error(std::string(kind) + ".tar ends within an input");
    const auto bytes = std::as_bytes(std::span(archive).subspan(at, length));
    out.emplace_back(bytes.begin(), bytes.end());
    at += (length + kTarBlock - 1) / kTarBlock * kTarBlock;
  }
  return out;
}

void run(Target target, const Bytes& bytes) {
  target(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

class Corpus : public ::testing::TestWithParam<std::pair<const char*, Target>> {};

TEST_P(Corpus, GivesAValueOrANamedError) {
  const auto& [kind, target] = GetParam();
  const std::vector<Bytes> all = corpus(kind);
  ASSERT_GE(all.size(), 2u);
  run(target, {});
  std::mt19937_64 random(1);
  for (const Bytes& whole : all) {
    ASSERT_NO_THROW(run(target, whole));
    for (int i = 0; i < 200; ++i) {
      Bytes bytes = whole;
      for (std::uint64_t n = random() % 4; n-- > 0 && !bytes.empty();) {
        bytes[random() % std::min<std::size_t>(bytes.size(), 1024)] = static_cast<std::byte>(random());
      }
      if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 1));
      ASSERT_NO_THROW(run(target, bytes));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , Corpus,
    ::testing::Values(std::pair<const char*, Target>("record", record), std::pair<const char*, Target>("index", index),
                      std::pair<const char*, Target>("zones", zones), std::pair<const char*, Target>("veloc", veloc),
                      std::pair<const char*, Target>("message", message), std::pair<const char*, Target>("pool", pool),
                      std::pair<const char*, Target>("config", config)),
    [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace ebb::fuzz
