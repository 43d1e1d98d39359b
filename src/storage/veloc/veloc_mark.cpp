#include "storage/veloc/veloc_mark.hpp"

#include "storage/format/sector.hpp"

namespace ebb::storage {
namespace {

constexpr std::string_view kMagic = "EBBVELOC";
constexpr std::string_view kWhat = "the mark beside a VELOC file";

}  // namespace

std::vector<std::byte> encode_veloc_mark(const VelocMarkOf& mark) {
  RecordHead head;
  head.sequence = mark.sequence;
  head.written_ns = mark.written_ns;
  head.block_bytes = mark.block_bytes;
  Checksum body{};
  Description elsewhere = mark.description;
  elsewhere.history.insert(0, mark.prefix);
  if (compact_bytes(elsewhere) > 0) {
    RecordHead compact = head;
    encode_compact(compact, elsewhere, mark.payload);
    body = compact.body;
  } else {
    RecordHead raw = head;
    encode(raw, elsewhere, mark.raw);
    body = raw.body;
  }
  const std::vector<std::byte> record = encode(head, mark.description, mark.blocks);
  std::vector<std::byte> out(kSector + record.size());
  BytesWriter to = begin_sector(out.data(), kMagic);
  to.number(mark.file.bytes);
  to.number(mark.file.changed_ns);
  to.bytes(body);
  seal_sector(out.data());
  BytesWriter(out.data() + kSector).bytes(record);
  return out;
}

Result<VelocMarkBegin> parse_veloc_mark_begin(std::span<const std::byte> bytes) {
  auto in = open_sector(bytes, kMagic, kWhat);
  if (!in) return in.error();
  VelocMarkBegin begin;
  begin.file.bytes = in->number<std::uint64_t>();
  begin.file.changed_ns = in->number<std::int64_t>();
  begin.body = in->array<Checksum>();
  auto head = parse_head(bytes.subspan(kSector), {}, kMaxOffset);
  if (!head) return head.error();
  begin.head = *head;
  return begin;
}

Result<Header> parse_veloc_mark(std::span<const std::byte> bytes) {
  const auto begin = parse_veloc_mark_begin(bytes);
  if (!begin) return begin.error();
  return parse_header(bytes.subspan(kSector), begin->head);
}

}  // namespace ebb::storage
