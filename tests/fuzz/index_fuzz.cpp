#include <stdexcept>

#include "storage/format/sector.hpp"
#include "storage/scan/segment_scan.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/storage/store_image.hpp"

namespace ebb::fuzz {

void index(const std::uint8_t* data, std::size_t size) {
  const test::StoreImage image;
  const auto given = std::as_bytes(std::span(data, size));
  test::Bytes bytes(given.begin(), given.end());
  static_cast<void>(storage::parse_index(bytes, image.head));
  if (bytes.size() < storage::kSector) return;
  storage::BytesWriter head = storage::begin_sector(bytes.data(), storage::kIndexMagic);
  head.number(std::uint32_t{0});
  head.bytes(image.head.store);
  head.number(std::uint64_t{bytes.size()});
  storage::BytesWriter(bytes.data() + 48).bytes(storage::checksum_of(std::span(bytes).subspan(storage::kSector)));
  storage::seal_sector(bytes.data());
  auto parsed = storage::parse_index(bytes, image.head);
  if (!parsed) return;
  for (const auto& segment : parsed->segments) {
    for (const auto& record : segment.records) {
      if (record.head.place.offset + record.head.record_bytes > segment.bytes) {
        throw std::logic_error("a record past its segment's end was accepted");
      }
    }
  }
  if (!storage::parse_index(storage::encode_index(*parsed), image.head)) {
    throw std::logic_error("an index that was read cannot be written");
  }
}

}  // namespace ebb::fuzz
