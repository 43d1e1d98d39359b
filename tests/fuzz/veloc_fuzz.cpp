#include <stdexcept>

#include "storage/veloc/veloc_file.hpp"
#include "tests/fuzz/targets.hpp"

namespace ebb::fuzz {
namespace {

// A table that was accepted covers its file, each byte once.
void check(std::span<const std::byte> bytes) {
  const std::uint64_t header =
      storage::veloc_header_bytes(bytes.first(std::min<std::size_t>(bytes.size(), 8)), bytes.size());
  if (header > bytes.size()) throw std::logic_error("a table longer than its file was accepted");
  const auto info = storage::parse_veloc_header(bytes.first(header), bytes.size());
  if (!info) return;
  const auto layout = storage::VelocLayout::of(*info);
  std::uint64_t covered = layout.header_bytes;
  layout.for_each(0, info->bytes, [&](std::uint64_t from, std::uint64_t length, std::uint64_t at) {
    if (at + length > bytes.size() || from + length > info->bytes)
      throw std::logic_error("a region past the file's end");
    covered += length;
  });
  if (covered != bytes.size() || layout.file_bytes != bytes.size()) throw std::logic_error("bytes of no region");
  if (storage::encode_veloc_header(*info).size() != header) throw std::logic_error("a table of another length");
}

// Ranks of an aggregated file have parts that follow each other, up to its end.
void check_table(std::span<const std::byte> bytes) {
  const std::uint64_t file_bytes = 16 * bytes.size();
  std::uint64_t end = 0;
  for (int rank = 0;; ++rank) {
    const auto part = storage::parse_veloc_table(bytes, rank, file_bytes);
    if (!part && rank > 0 && end != file_bytes) throw std::logic_error("bytes of no rank");
    if (!part) return;
    if (rank > 0 && part->begin != end) throw std::logic_error("bytes of two ranks, or of none");
    end = part->begin + part->bytes;
    if (part->begin > file_bytes || end > file_bytes) throw std::logic_error("a part past the file's end");
  }
}

}  // namespace

void veloc(const std::uint8_t* data, std::size_t size) {
  const auto given = std::as_bytes(std::span(data, size));
  check(given);
  check_table(given);
  const auto name = storage::parse_file_name({reinterpret_cast<const char*>(data), size});
  if (name && storage::parse_file_name(storage::file_name(*name)) != name) throw std::logic_error("another name");
}

}  // namespace ebb::fuzz
