#include <stdexcept>

#include "storage/format/sector.hpp"
#include "storage/scan/segment_scan.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/storage/store_image.hpp"

namespace ebb::fuzz {
namespace {

using storage::RecordHead;

void require(bool holds) {
  if (!holds) throw std::logic_error("what was read cannot be");
}

// The uuid, segment and checksums that a hostile writer would put in.
void make_right(test::Bytes& segment, const storage::StoreHead& store) {
  for (std::size_t at = os::kBlock; at + os::kBlock <= segment.size(); at += os::kBlock) {
    const auto here = std::span(segment).subspan(at);
    if (!storage::has_magic(here, storage::kRecordMagic)) continue;
    storage::BytesWriter place(here.data() + 16);
    place.bytes(store.store);
    place.number(std::uint64_t{1});
    place.number(std::uint64_t{at});
    const auto header = storage::BytesReader(here.subspan(48)).number<std::uint64_t>();
    if (header >= storage::kSector && header <= here.size()) {
      storage::BytesWriter(here.data() + 112)
          .bytes(storage::checksum_of(here.subspan(storage::kSector, header - storage::kSector)));
    }
    storage::seal_sector(here.data());
  }
}

void read(test::StoreImage& image) {
  test::ImageFiles files;
  files.files = image.files;
  auto store = storage::scan_store(files, test::ImageFiles::kDirectory, false);
  if (!store) return;
  for (const auto& segment : store->segments) {
    std::uint64_t end = os::kBlock;
    for (const auto& record : segment.records) {
      require(record.head.place.offset >= end);
      end = record.head.place.offset + record.head.record_bytes;
      require(end <= segment.bytes && end <= segment.end);
      auto header = test::read_record(files, test::ImageFiles::kDirectory, record.head);
      if (!header) continue;
      require(header->description.history == record.history);
      for (const auto& region : header->description.info.regions) {
        require(region.offset <= record.head.payload_bytes &&
                region.bytes <= record.head.payload_bytes - region.offset);
      }
    }
  }
  // What a scan says can be written down and read again.
  require(static_cast<bool>(storage::parse_index(storage::encode_index(*store), store->head)));
}

}  // namespace

void record(const std::uint8_t* data, std::size_t size) {
  test::StoreImage image;
  test::Bytes& segment = image.segment(1);
  const auto bytes = std::as_bytes(std::span(data, size));
  segment.insert(segment.end(), bytes.begin(), bytes.end());
  read(image);
  make_right(segment, image.head);
  read(image);
}

}  // namespace ebb::fuzz
