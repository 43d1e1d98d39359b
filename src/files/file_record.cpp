#include "files/file_record.hpp"

#include <bit>
#include <cstring>
#include <string>

namespace ebb::files {
namespace {

constexpr std::uint64_t kMagic = 0x31454c4946424245;  // "EBBFILE1"
constexpr std::size_t kHead = 5, kPiece = 3;          // numbers of 8 bytes, little-endian

Error damaged(const std::string& what) { return {Errc::damaged, "the file's record is wrong: " + what}; }

}  // namespace

std::vector<std::byte> encode(const FileRecord& record) {
  std::vector<std::uint64_t> numbers{kMagic, record.bytes, record.layout.smallest, record.layout.largest,
                                     record.pieces.size()};
  for (const RecordedPiece& piece : record.pieces) {
    for (const std::uint64_t number : {piece.index, piece.bytes, static_cast<std::uint64_t>(piece.version)})
      numbers.push_back(number);
  }
  static_assert(std::endian::native == std::endian::little);
  std::vector<std::byte> bytes(numbers.size() * 8);
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

Result<FileRecord> decode(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> numbers(bytes.size() / 8);
  if (bytes.size() % 8 != 0 || numbers.size() < kHead) return damaged(std::to_string(bytes.size()) + " bytes");
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  if (numbers[0] != kMagic) return damaged("it does not begin with EBBFILE1");
  FileRecord record{numbers[1], {numbers[2], numbers[3]}, {}};
  const PieceLayout& layout = record.layout;
  if (!std::has_single_bit(layout.smallest) || !std::has_single_bit(layout.largest) ||
      layout.smallest > layout.largest || layout.largest > kMostBytes || record.bytes > kMostBytes)
    return damaged("its sizes");
  if (numbers[4] != (numbers.size() - kHead) / kPiece || (numbers.size() - kHead) % kPiece != 0)
    return damaged("its number of pieces");
  std::uint64_t next = 0;
  for (std::size_t at = kHead; at < numbers.size(); at += kPiece) {
    const RecordedPiece piece{numbers[at], numbers[at + 1], static_cast<Version>(numbers[at + 2])};
    if (piece.index < next || piece.bytes == 0 || piece.bytes > layout.largest || piece.version < 0)
      return damaged("piece " + std::to_string(piece.index));
    next = piece.index + 1;
    record.pieces.push_back(piece);
  }
  return record;
}

}  // namespace ebb::files
