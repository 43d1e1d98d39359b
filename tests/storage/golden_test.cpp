// A store of every released format, in files next to this one, stays readable. EBB_WRITE_GOLDEN=1 writes
// the one of the present format again, with a separate writer (store_image.hpp): only for a format that is not
// released.
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "storage/scan/segment_scan.hpp"
#include "tests/storage/store_image.hpp"

namespace ebb::storage {
namespace {

namespace fs = std::filesystem;
using test::Bytes;
using test::describe;
using test::StoreImage;

const fs::path kGolden = fs::path(EBB_SOURCE_DIR) / "tests/storage/golden";

// Bytes that a reader in any language can make again: 0, 7, 14, ... modulo 251, from `start` on.
Bytes pattern(std::size_t bytes, std::size_t start) {
  Bytes out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((start + 7 * i) % 251);
  return out;
}

StoreImage format_1() {
  StoreImage image(0xA5);
  const Description a = describe("adjoint", 7, {1000, 0, 5000}, "step=7");
  image.add(1, a, pattern(a.info.bytes, 1));
  const Description b = describe("adjoint", 8, {300});
  image.drop(image.add(1, b, pattern(b.info.bytes, 2)));
  const Description c = describe("", -3, {});
  image.add(1, c, {});
  image.leave(1, 2, std::byte{0x33});
  const Description d = describe(std::string("odd\0/..\xff", 8), 8, {4096}, std::string("\0binary", 7));
  image.add(1, d, pattern(d.info.bytes, 3));
  const Description e = describe("adjoint", 7, {10});
  image.add(2, e, pattern(e.info.bytes, 4));
  return image;
}

// A format 1 store in which small checkpoints were written since, alone and together, and some dropped.
StoreImage format_2() {
  StoreImage image(0xA6);
  const auto small = [](std::string history, Version version, std::vector<std::size_t> sizes, std::size_t start,
                        std::string metadata = {}) {
    Description out = describe(std::move(history), version, std::move(sizes), std::move(metadata));
    Bytes bytes = pattern(out.info.bytes, start);
    return std::pair(std::move(out), std::move(bytes));
  };
  const Description a = describe("adjoint", 7, {9000}, "step=7");
  image.add(1, a, pattern(a.info.bytes, 1));
  image.add_block(1, {small("adjoint", 8, {512}, 2, "step=8"), small("adjoint", 9, {512}, 3),
                      small("odd\xff", 8, {1, 0, 300}, 4), small("", -3, {}, 0)});
  const auto more = image.add_block(1, {small("adjoint", 10, {100}, 5), small("adjoint", 11, {3000}, 6)});
  image.drop(more[0]);
  image.leave(1, 2, std::byte{0x33});
  image.add_block(1, {small("adjoint", 7, {10}, 7)});  // newer than the large one
  return image;
}

std::map<std::string, Bytes> read(const fs::path& directory) {
  std::map<std::string, Bytes> out;
  for (const auto& entry : fs::directory_iterator(directory)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto bytes = std::as_bytes(std::span(text));
    out[entry.path().filename().string()] = Bytes(bytes.begin(), bytes.end());
  }
  return out;
}

void expect_read(const fs::path& directory, bool use_index) {
  test::ImageFiles files;
  files.files = read(directory);
  auto store = scan_store(files, "/store", use_index);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->from_index, use_index);
  EXPECT_TRUE(store->damages.empty());
  EXPECT_THAT(test::names(*store),
              ::testing::ElementsAre("adjoint/7", "/-3", std::string("odd\0/..\xff/8", 10), "adjoint/7"));
  std::size_t start[] = {1, 0, 3, 4};
  std::size_t i = 0;
  for (const ScannedSegment& segment : store->segments) {
    for (const ScannedRecord& record : segment.records) {
      auto header = test::read_record(files, "/store", record.head);
      ASSERT_TRUE(header) << header.error().message;
      const Bytes& bytes = files.files.at(segment_name(segment.segment));
      const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(record.head.place.offset + record.head.header_bytes);
      EXPECT_EQ(Bytes(at, at + static_cast<std::ptrdiff_t>(record.head.payload_bytes)),
                pattern(record.head.payload_bytes, start[i]));
      ++i;
    }
  }
  const RecordHead& first = store->segments[0].records[0].head;
  EXPECT_EQ(first.payload_bytes, 6024u);
  EXPECT_EQ(first.sequence, 1u);
  EXPECT_EQ(store->segments[1].records[0].head.sequence, 5u);
  EXPECT_EQ(store->next_sequence, 6u);
}

class Golden : public ::testing::TestWithParam<bool> {};

TEST_P(Golden, Format1IsRead) {
  if (std::getenv("EBB_WRITE_GOLDEN")) {
    auto image = format_1();
    image.files["index"] = encode_index(test::scan(image.files).value());
    fs::create_directories(kGolden / "format-1");
    for (const auto& [name, bytes] : image.files) {
      std::ofstream(kGolden / "format-1" / name, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  expect_read(kGolden / "format-1", GetParam());
}

// Written before a dropped head said of which history it was.
TEST_P(Golden, Format1AsItWasBeforeItsReleaseIsRead) { expect_read(kGolden / "format-1-unreleased", GetParam()); }

TEST_P(Golden, Format2IsRead) {
  if (std::getenv("EBB_WRITE_GOLDEN")) {
    auto image = format_2();
    image.files["index"] = encode_index(test::scan(image.files).value());
    fs::create_directories(kGolden / "format-2");
    for (const auto& [name, bytes] : image.files) {
      std::ofstream(kGolden / "format-2" / name, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
  }
  test::ImageFiles files;
  files.files = read(kGolden / "format-2");
  auto store = scan_store(files, "/store", GetParam());
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(store->from_index, GetParam());
  EXPECT_TRUE(store->damages.empty());
  EXPECT_THAT(test::names(*store), ::testing::ElementsAre("adjoint/7", "adjoint/8", "adjoint/9", "odd\xff/8", "/-3",
                                                          "adjoint/11", "adjoint/7"));
  const std::vector<ScannedRecord>& records = store->segments[0].records;
  const std::map<std::size_t, std::size_t> starts{{1, 2}, {2, 3}, {3, 4}, {4, 0}, {5, 6}, {6, 7}};
  for (const auto& [i, start] : starts) {
    EXPECT_EQ(records[i].head.format(), 2u);
    const auto header = test::read_record(files, "/store", records[i].head);
    ASSERT_TRUE(header) << header.error().message;
    EXPECT_EQ(header->payload, pattern(header->payload.size(), start)) << i;
  }
  EXPECT_EQ(records[1].head.place.offset + 1024, records[2].head.place.offset) << "512 bytes in two sectors";
  EXPECT_EQ(store->next_sequence, 9u);
}

// A store without small checkpoints has the bytes that it always had.
TEST_P(Golden, TheFormatsAreStillWrittenSo) {
  for (auto [name, image] : {std::pair("format-1", format_1()), {"format-2", format_2()}}) {
    image.files["index"] = encode_index(test::scan(image.files).value());
    EXPECT_TRUE(read(kGolden / name) == image.files)
        << name << ": other bytes are another format: count kFormat up, keep the old";
  }
}

INSTANTIATE_TEST_SUITE_P(, Golden, ::testing::Bool());

}  // namespace
}  // namespace ebb::storage
