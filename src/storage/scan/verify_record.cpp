#include "storage/scan/record_reader.hpp"
#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

Result<Header> verify_record(platform::Files& files, const std::filesystem::path& directory, const RecordHead& head,
                             const std::function<void(std::uint64_t)>& progress) {
  RecordReader reader(files, directory, head);
  if (auto opened = reader.open(); !opened) return opened.error();
  if (progress) progress(head.header_bytes);
  for (;;) {
    auto piece = reader.next();
    if (!piece) return piece.error();
    if (piece->empty()) return reader.header();
    if (progress) progress(piece->size());
  }
}

}  // namespace ebb::storage
