// The head sectors of a record, a segment and a store.
#include "os/files.hpp"
#include "storage/format/record.hpp"
#include "storage/format/sector.hpp"

namespace ebb::storage {
namespace {

using os::kBlock;
using os::round_up;

constexpr std::uint32_t kProcess = 1, kStorage = 2;  // levels in the store's head

Error damaged(std::string what, const RecordPlace& place) {
  return {Errc::damaged, std::move(what) + " (segment " + std::to_string(place.segment) + ", offset " +
                             std::to_string(place.offset) + ")"};
}

bool whole_blocks(std::uint64_t bytes) { return bytes % kBlock == 0; }

// The first block of a file: a sector, then zeros.
template <class Fill>
std::vector<std::byte> first_block(std::string_view magic, Fill&& fill) {
  std::vector<std::byte> out(kBlock);
  BytesWriter to = begin_sector(out.data(), magic);
  fill(to);
  seal_sector(out.data());
  return out;
}

Result<BytesReader> open_first_block(std::span<const std::byte> bytes, std::string_view magic, std::string_view what) {
  auto in = open_sector(bytes, magic, what);
  if (!in) return in;
  const std::string name(what);
  if (bytes.size() < kBlock) return Error{Errc::damaged, name + " is truncated"};
  if (!all_zero(bytes.first(kBlock).subspan(kSector)))
    return Error{Errc::damaged, name + " is not zero after its fields"};
  return in;
}

}  // namespace

std::uint32_t RecordHead::format() const {
  if (kind == Kind::written) return 3;
  return compact() || shares_block() || kind == Kind::drops ? 2 : 1;
}

namespace {

// Of a compact record, or of a part of a block that has none: it is made of whole sectors of one block.
std::string compact_misfit(const RecordHead& head) {
  if (head.record_bytes == 0 || head.record_bytes % kSector || head.place.offset % kSector) {
    return "it is not made of whole sectors of 512 bytes";
  }
  if (head.place.offset % kBlock + head.record_bytes > kBlock) return "it ends past its block's end";
  if (head.kind == RecordHead::Kind::nothing) return {};
  if (head.kind == RecordHead::Kind::drops) {
    const RecordHead drops{.kind = head.kind,
                           .place = head.place,
                           .header_bytes = kSector,
                           .record_bytes = head.record_bytes,
                           .regions = head.regions};
    if (head != drops) return "a list of drops has a record's fields";
    return head.regions == 0 || head.regions > kDropsInSector ? "it lists no drops, or more than it has room for" : "";
  }
  if (head.block_bytes != 0) return "its payload has checksums of its own";
  if (head.name_bytes > kMaxName) return "its name is longer than a name can be";
  if (head.sequence > kMaxSequence) return "its sequence is higher than one can be";
  if (head.payload_bytes > kBlock) return "its payload is larger than a block";
  const std::uint64_t needed = compact_bytes(head.name_bytes, head.regions, head.metadata_bytes, head.payload_bytes);
  if (head.header_bytes != needed) return "its header's length does not match its contents";
  if (head.record_bytes < head.header_bytes) return "it is shorter than its header";
  return {};
}

std::string misfit(const RecordHead& head, std::uint32_t format) {
  if (head.place.offset > kMaxOffset || head.record_bytes > kMaxOffset - head.place.offset) {
    return "it would end past the end of any file";
  }
  if (format == 2) return compact_misfit(head);
  if (head.record_bytes == 0 || !whole_blocks(head.record_bytes) || !whole_blocks(head.place.offset)) {
    return "it is not made of whole blocks of 4096 bytes";
  }
  if (head.kind == RecordHead::Kind::nothing) return {};
  if (head.payload_bytes > kMaxOffset) return "its payload is larger than any file";
  if (!whole_blocks(head.block_bytes) || head.block_bytes > kMaxBlock) {
    return "its payload's blocks are no multiple of 4096 bytes up to 64 MiB";
  }
  if (head.name_bytes > kMaxName) return "its name is longer than a name can be";
  if (head.sequence > kMaxSequence) return "its sequence is higher than one can be";
  // None of these can overflow: at most 2^16 + 2^32 * 20 + 2^50 * 16 + 2^32.
  const std::uint64_t needed = kSector + head.name_bytes + std::uint64_t{head.regions} * kRegionBytes +
                               block_count(head.payload_bytes, head.block_bytes) * sizeof(Checksum) +
                               head.metadata_bytes;
  if (needed > kMaxHeader) return "its header is longer than a header can be";
  if (head.header_bytes != round_up(needed)) return "its header's length does not match its contents";
  if (head.record_bytes != head.header_bytes + round_up(head.payload_bytes)) {
    return "its length does not fit its header and payload";
  }
  return {};
}

}  // namespace

std::string misfit(const RecordHead& head) { return misfit(head, head.format()); }

namespace {

// All but the seal.
BytesWriter put_head(std::byte* sector, const RecordHead& from) {
  BytesWriter to = begin_sector(sector, kRecordMagic, from.format());
  to.number(static_cast<std::uint32_t>(from.kind));
  to.bytes(from.place.store);
  to.number(from.place.segment);
  to.number(from.place.offset);
  to.number(from.header_bytes);
  to.number(from.payload_bytes);
  to.number(from.record_bytes);
  to.number(from.sequence);
  to.number(from.version);
  to.number(from.name_bytes);
  to.number(from.regions);
  to.number(from.metadata_bytes);
  to.number(from.block_bytes);
  to.number(from.written_ns);
  to.bytes(from.body);
  to.bytes(from.history);
  return to;
}

// What a list holds of one: a record begins at a multiple of a sector, so there is room for its kind.
std::uint64_t packed(const Drop& drop) { return drop.offset + static_cast<std::uint64_t>(drop.now); }

Drop unpacked(std::uint64_t number) {
  return {number / kSector * kSector, static_cast<RecordHead::Kind>(number % kSector)};
}

// Of the list's own place: records before it in its segment, behind the segment's head.
bool can_be(const Drop& drop, const RecordPlace& place) {
  const bool kind = drop.now == RecordHead::Kind::dropped || drop.now == RecordHead::Kind::nothing;
  return kind && drop.offset >= kBlock && drop.offset < place.offset;
}

}  // namespace

std::array<std::byte, kSector> encode(const RecordHead& head) {
  std::array<std::byte, kSector> out{};
  const RecordHead nothing{.kind = RecordHead::Kind::nothing, .place = head.place, .record_bytes = head.record_bytes};
  put_head(out.data(), head.kind == RecordHead::Kind::nothing ? nothing : head);
  seal_sector(out.data());
  return out;
}

std::vector<std::byte> encode(RecordPlace place, std::span<const Drop> drops) {
  std::vector<std::byte> out(drops_bytes(drops.size()));
  for (std::byte* sector = out.data(); !drops.empty(); sector += kSector) {
    const auto some = drops.first(std::min(drops.size(), kDropsInSector));
    drops = drops.subspan(some.size());
    const std::uint64_t rest = kBlock - place.offset % kBlock;  // the last of them has the rest of its block
    const RecordHead head{.kind = RecordHead::Kind::drops,
                          .place = place,
                          .header_bytes = kSector,
                          .record_bytes = drops.empty() ? rest : kSector,
                          .regions = static_cast<std::uint32_t>(some.size())};
    BytesWriter to = put_head(sector, head);
    for (const Drop& drop : some) to.number(packed(drop));
    seal_sector(sector);
    place.offset += kSector;
  }
  return out;
}

std::vector<Drop> parse_drops(std::span<const std::byte> sector, const RecordHead& head) {
  std::vector<Drop> out;
  BytesReader in(sector.subspan(kCompactBody));
  for (std::uint32_t i = 0; i < head.regions; ++i) out.push_back(unpacked(in.number<std::uint64_t>()));
  return out;
}

RecordHead written_head(RecordHead head, const Uuid& boot) {
  head.kind = RecordHead::Kind::written;
  head.history = boot;
  return head;
}

RecordHead live_head(RecordHead written) {
  written.kind = RecordHead::Kind::live;
  written.history = {};
  return written;
}

RecordHead tombstone(RecordHead head, std::string_view history) {
  head.kind = RecordHead::Kind::dropped;
  head.history = checksum_of(std::as_bytes(std::span(history)));
  return head;
}

bool is_tombstone_of(const RecordHead& now, const RecordHead& was) {
  if (now.kind == RecordHead::Kind::nothing) return now.place == was.place && now.record_bytes == was.record_bytes;
  RecordHead gone = was;
  gone.kind = RecordHead::Kind::dropped;
  gone.history = now.history;
  return now == gone;
}

Result<RecordHead> parse_head(std::span<const std::byte> sector, const RecordPlace& place,
                              std::uint64_t segment_bytes) {
  std::uint32_t format = 0;
  auto in = open_sector(sector, kRecordMagic, "the record's head", &format);
  if (!in) {
    Error error = damaged(in.error().message, place);
    error.code = in.error().code;
    return error;
  }
  RecordHead head;
  const auto kind = in->number<std::uint32_t>();
  head.place.store = in->array<Uuid>();
  head.place.segment = in->number<std::uint64_t>();
  head.place.offset = in->number<std::uint64_t>();
  head.header_bytes = in->number<std::uint64_t>();
  head.payload_bytes = in->number<std::uint64_t>();
  head.record_bytes = in->number<std::uint64_t>();
  head.sequence = in->number<std::uint64_t>();
  head.version = in->number<std::int64_t>();
  head.name_bytes = in->number<std::uint32_t>();
  head.regions = in->number<std::uint32_t>();
  head.metadata_bytes = in->number<std::uint32_t>();
  head.block_bytes = in->number<std::uint32_t>();
  head.written_ns = in->number<std::int64_t>();
  head.body = in->array<Checksum>();
  head.history = in->array<Checksum>();
  if (kind < 1 || kind > format + 2)
    return damaged("the record's head is of kind " + std::to_string(kind) + ", which does not exist", place);
  head.kind = static_cast<RecordHead::Kind>(kind);
  if (head.kind == RecordHead::Kind::drops) {
    for (std::uint32_t i = 0; i < std::min<std::uint32_t>(head.regions, kDropsInSector); ++i) {
      if (!can_be(unpacked(in->number<std::uint64_t>()), place))
        return damaged("a list of drops names a place where no record can be", place);
    }
  }
  const bool ends = format != 2 || head.kind != RecordHead::Kind::live;  // otherwise the body begins here
  if (ends && !all_zero(in->rest())) return damaged("the record's head is not zero after its fields", place);
  if (head.kind == RecordHead::Kind::live && head.history != Checksum{}) {
    return damaged("the head of a live record is not zero after its fields", place);
  }
  if (head.place.store != place.store) return damaged("the record's head is of another store", place);
  if (head.place != place) {
    return damaged("the record's head says that it is at offset " + std::to_string(head.place.offset) + " of segment " +
                       std::to_string(head.place.segment),
                   place);
  }
  if (const std::string wrong = misfit(head, format); !wrong.empty()) {
    return damaged("the record's sizes are wrong: " + wrong, place);
  }
  if (format != head.format())
    return damaged("the record's head is of format " + std::to_string(format) + ", which has no such records", place);
  if (head.kind == RecordHead::Kind::nothing) {
    const RecordHead nothing{.kind = head.kind, .place = head.place, .record_bytes = head.record_bytes};
    if (head != nothing) return damaged("the head of abandoned space has a record's fields", place);
  }
  if ((head.kind == RecordHead::Kind::live || head.kind == RecordHead::Kind::written) &&
      (place.offset > segment_bytes || head.record_bytes > segment_bytes - place.offset)) {
    return damaged("version " + std::to_string(head.version) +
                       ": the segment ends before the record does: it should have " +
                       std::to_string(place.offset + head.record_bytes) + " bytes at least and has " +
                       std::to_string(segment_bytes),
                   place);
  }
  return head;
}

std::vector<std::byte> encode(const SegmentHead& head) {
  return first_block(kSegmentMagic, [&](BytesWriter& to) {
    to.number(std::uint32_t{0});
    to.bytes(head.store);
    to.number(head.segment);
  });
}

Result<SegmentHead> parse_segment(std::span<const std::byte> bytes) {
  auto in = open_first_block(bytes, kSegmentMagic, "the segment's head");
  if (!in) return in.error();
  SegmentHead head;
  const auto unused = in->number<std::uint32_t>();
  head.store = in->array<Uuid>();
  head.segment = in->number<std::uint64_t>();
  if (unused != 0 || !all_zero(in->rest()))
    return Error{Errc::damaged, "the segment's head is not zero after its fields"};
  return head;
}

std::vector<std::byte> encode(const StoreHead& head) {
  return first_block(kStoreMagic, [&](BytesWriter& to) {
    to.number(head.level == Durability::process ? kProcess : kStorage);
    to.bytes(head.store);
    to.number(head.owner);
    to.number(head.created_ns);
  });
}

Result<StoreHead> parse_store(std::span<const std::byte> bytes) {
  auto in = open_first_block(bytes, kStoreMagic, "the store's head");
  if (!in) return in.error();
  StoreHead head;
  const auto level = in->number<std::uint32_t>();
  head.store = in->array<Uuid>();
  head.owner = in->number<std::uint64_t>();
  head.created_ns = in->number<std::int64_t>();
  if (!all_zero(in->rest())) return Error{Errc::damaged, "the store's head is not zero after its fields"};
  if (level != kProcess && level != kStorage) {
    return Error{Errc::damaged,
                 "the store's head names durability level " + std::to_string(level) + ", which does not exist"};
  }
  head.level = level == kProcess ? Durability::process : Durability::storage;
  return head;
}

}  // namespace ebb::storage
