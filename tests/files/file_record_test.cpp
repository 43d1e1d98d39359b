// Where a file's pieces begin, their names, and the record that lists them.
#include "files/file_record.hpp"

#include <gtest/gtest.h>
#include <random>

#include "files/file_names.hpp"

namespace ebb::files {
namespace {

TEST(PieceLayoutTest, pieces_follow_each_other_and_grow_to_the_largest) {
  for (const PieceLayout layout : {PieceLayout{4096, 4096}, PieceLayout{4096, 8192}, PieceLayout{4096, 1 << 20}}) {
    std::uint64_t start = 0, last = 0;
    for (std::uint64_t index = 0; index < 200; ++index) {
      for (const std::uint64_t offset : {start, start + 1, start + layout.at(start).bytes - 1}) {
        const auto place = layout.at(offset);
        ASSERT_EQ(place.index, index) << offset;
        ASSERT_EQ(place.start, start);
      }
      const std::uint64_t bytes = layout.at(start).bytes;
      ASSERT_GE(bytes, last);
      ASSERT_LE(bytes, layout.largest);
      ASSERT_LE(bytes, std::max(layout.smallest, start / 4)) << "a fifth of a file is wasted at most";
      last = bytes;
      start += bytes;
    }
    EXPECT_EQ(last, layout.largest);
  }
}

TEST(FileNamesTest, what_is_read_is_what_was_named) {
  for (const std::string& name : std::vector<std::string>{"model", "a/b", "3/x", "a/.ebbtide-file/7", {"\0\xff/", 3}}) {
    for (const Version version : {Version{0}, Version{12}, Version{-3}}) {
      const FileName file{name, version};
      for (const auto& [history, part] : {std::pair(file.record(), std::string("record")), {file.piece(17), "17"}}) {
        const auto parsed = parse_history(history);
        ASSERT_TRUE(parsed) << history;
        EXPECT_EQ(parsed->file.name, name);
        EXPECT_EQ(parsed->file.version, version);
        EXPECT_EQ(parsed->part, part);
      }
    }
  }
  for (const char* other : {"", "model", "model/.ebbtide-file/", "model/.ebbtide-file/3", "m/.ebbtide-file/03/record",
                            "m/.ebbtide-file/x/record", "m/.ebbtide-file//record"})
    EXPECT_FALSE(parse_history(other)) << other;
}

TEST(FileRecordTest, comes_back_and_no_other_bytes_pass_for_one) {
  const FileRecord record{123'456, {4096, 1 << 20}, {{0, 4096, 0}, {3, 17, 5}, {9, 1 << 20, 2}}};
  const std::vector<std::byte> bytes = encode(record);
  const auto read = decode(bytes);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->bytes, record.bytes);
  EXPECT_EQ(read->pieces, record.pieces);
  for (std::size_t length = 0; length < bytes.size(); ++length) EXPECT_FALSE(decode({bytes.data(), length})) << length;
  std::mt19937_64 random(1);
  for (int round = 0; round < 20'000; ++round) {
    auto other = bytes;
    for (int n = 0; n < 3; ++n) other[random() % other.size()] = static_cast<std::byte>(random());
    const auto found = decode(other);
    if (!found) {
      EXPECT_EQ(found.error().code, Errc::damaged);
      continue;
    }
    for (std::size_t p = 0; p < found->pieces.size(); ++p) {
      EXPECT_LE(found->pieces[p].bytes, found->layout.largest);
      EXPECT_TRUE(p == 0 || found->pieces[p - 1].index < found->pieces[p].index);
    }
  }
}

}  // namespace
}  // namespace ebb::files
