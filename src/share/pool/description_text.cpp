#include "share/pool/description_text.hpp"

namespace ebb::share {

using storage::RecordHead;

std::vector<std::byte> encode_description(const storage::Description& description) {
  RecordHead head;
  head.sequence = 1;
  return storage::encode(head, description, {});
}

Result<storage::Description> parse_description(std::span<const std::byte> bytes) {
  if (bytes.size() < storage::kSector) return Error{Errc::damaged, "a description in the pool is truncated"};
  auto head = storage::parse_head(bytes.first(storage::kSector), {}, storage::kMaxOffset);
  if (!head) return head.error();
  if (head->header_bytes != bytes.size()) return Error{Errc::damaged, "a description in the pool has a wrong length"};
  auto header = storage::parse_header(bytes, *head);
  if (!header) return header.error();
  return std::move(header->description);
}

}  // namespace ebb::share
