// The header of a record: its head, then the body, which names the checkpoint and describes its contents.
#include "storage/format/record.hpp"

#include <algorithm>
#include <stdexcept>

#include "os/files.hpp"
#include "storage/format/sector.hpp"

namespace ebb::storage {
namespace {

using os::round_up;

// Empty, or what is wrong with regions of a payload of `bytes`.
std::string misfit(const std::vector<RegionInfo>& regions, std::uint64_t bytes) {
  std::uint64_t end = 0;
  std::vector<std::uint32_t> ids;
  ids.reserve(regions.size());
  for (const RegionInfo& region : regions) {
    const std::string name = "region " + std::to_string(region.id);
    if (region.offset < end) return name + " begins before the one before it ends";
    if (region.offset > bytes || region.bytes > bytes - region.offset) return name + " ends past the payload's end";
    end = region.offset + region.bytes;
    ids.push_back(region.id);
  }
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  return twice == ids.end() ? std::string() : "region " + std::to_string(*twice) + " appears twice";
}

// Exact, or more than kMaxHeader: no sum overflows.
std::uint64_t unpadded(const Description& description, std::uint32_t block_bytes) {
  const CheckpointInfo& info = description.info;
  if (std::max<std::uint64_t>(info.regions.size(), info.metadata.size()) > kMaxHeader) return kMaxHeader + 1;
  return kSector + description.history.size() + info.regions.size() * kRegionBytes +
         block_count(info.bytes, block_bytes) * sizeof(Checksum) + info.metadata.size();
}

// What the body of a record begins with: the history's name and the regions.
void put_regions(BytesWriter& to, const Description& description) {
  to.text(description.history);
  for (const RegionInfo& region : description.info.regions) {
    to.number(region.id);
    to.number(std::uint64_t{region.bytes});
    to.number(std::uint64_t{region.offset});
  }
}

void take_regions(BytesReader& from, const RecordHead& head, Description& description) {
  description.history = from.text(head.name_bytes);
  description.version = head.version;
  description.info.bytes = head.payload_bytes;
  description.info.regions.reserve(head.regions);
  for (std::uint32_t i = 0; i < head.regions; ++i) {
    const auto id = from.number<std::uint32_t>();
    const auto length = from.number<std::uint64_t>();
    description.info.regions.push_back({id, length, from.number<std::uint64_t>()});
  }
}

void set_sizes(RecordHead& head, const Description& description) {
  head.payload_bytes = description.info.bytes;
  head.version = description.version;
  head.name_bytes = static_cast<std::uint32_t>(description.history.size());
  head.regions = static_cast<std::uint32_t>(description.info.regions.size());
  head.metadata_bytes = static_cast<std::uint32_t>(description.info.metadata.size());
}

// The body of a compact record: what its head leaves of the first sector, and the other sectors.
std::vector<std::byte> compact_body(std::span<const std::byte> record) {
  std::vector<std::byte> out(record.begin() + kCompactBody, record.begin() + kSealed);
  out.insert(out.end(), record.begin() + kSector, record.end());
  return out;
}

Error damaged(const RecordHead& head, const std::string& what) {
  return {Errc::damaged, "version " + std::to_string(head.version) + ": " + what + " (segment " +
                             std::to_string(head.place.segment) + ", offset " + std::to_string(head.place.offset) +
                             ")"};
}

}  // namespace

Result<void> check(const Description& description, std::uint32_t block_bytes) {
  if (description.history.size() > kMaxName) {
    return Error{Errc::invalid_argument, "a history's name of " + std::to_string(description.history.size()) +
                                             " bytes cannot be kept: at most " + std::to_string(kMaxName)};
  }
  if (block_bytes % os::kBlock != 0 || block_bytes > kMaxBlock) {
    return Error{Errc::invalid_argument, "a payload's blocks must be a multiple of 4096 bytes up to 64 MiB, not " +
                                             std::to_string(block_bytes)};
  }
  if (description.info.bytes > kMaxOffset) return Error{Errc::too_large, "a checkpoint larger than any file"};
  if (const std::string wrong = misfit(description.info.regions, description.info.bytes); !wrong.empty()) {
    return Error{Errc::invalid_argument, wrong};
  }
  if (unpadded(description, block_bytes) > kMaxHeader) {
    return Error{Errc::too_large, "names, regions, metadata and checksums of one checkpoint take more than " +
                                      std::to_string(kMaxHeader) + " bytes"};
  }
  return {};
}

std::uint64_t header_bytes(const Description& description, std::uint32_t block_bytes) {
  return round_up(unpadded(description, block_bytes));
}

std::vector<std::byte> encode(RecordHead& head, const Description& description, std::span<const Checksum> blocks) {
  const CheckpointInfo& info = description.info;
  if (const auto fits = check(description, head.block_bytes); !fits) throw std::logic_error(fits.error().message);
  if (blocks.size() != block_count(info.bytes, head.block_bytes)) {
    throw std::logic_error("a record needs one checksum for each block of its payload");
  }
  head.header_bytes = header_bytes(description, head.block_bytes);
  head.record_bytes = head.header_bytes + round_up(info.bytes);
  set_sizes(head, description);

  std::vector<std::byte> out(head.header_bytes);
  BytesWriter to(out.data() + kSector);
  put_regions(to, description);
  for (const Checksum& sum : blocks) to.bytes(sum);
  to.text(info.metadata);
  head.body = checksum_of(std::span(out).subspan(kSector));
  BytesWriter(out.data()).bytes(encode(head));
  return out;
}

std::uint64_t compact_bytes(const Description& description) {
  const CheckpointInfo& info = description.info;
  if (std::max({description.history.size(), info.regions.size(), info.metadata.size(), std::size_t{info.bytes}}) >
      kCompactBelow)
    return 0;
  const std::uint64_t bytes =
      compact_bytes(description.history.size(), info.regions.size(), info.metadata.size(), info.bytes);
  return bytes < kCompactBelow ? bytes : 0;
}

std::vector<std::byte> encode_compact(RecordHead& head, const Description& description,
                                      std::span<const std::byte> payload) {
  if (const auto fits = check(description, 0); !fits) throw std::logic_error(fits.error().message);
  head.header_bytes = compact_bytes(description);
  if (head.header_bytes == 0) throw std::logic_error("a checkpoint is too large for a compact record");
  if (payload.size() != description.info.bytes) throw std::logic_error("a compact record has all of its payload");
  head.block_bytes = 0;
  set_sizes(head, description);
  std::vector<std::byte> body(head.header_bytes - kCompactHead);
  BytesWriter to(body.data());
  put_regions(to, description);
  to.text(description.info.metadata);
  to.bytes(payload);
  head.body = checksum_of(body);

  const std::size_t first = kSealed - kCompactBody;  // bytes of the body that its first sector has
  std::vector<std::byte> out(head.header_bytes);
  BytesWriter(out.data()).bytes(encode(head));
  BytesWriter(out.data() + kCompactBody).bytes(std::span(body).first(first));
  BytesWriter(out.data() + kSector).bytes(std::span(body).subspan(first));
  seal_sector(out.data());
  return out;
}

bool is_named(std::span<const std::byte> block, const RecordHead& head, std::string_view history) {
  const auto begins = head.compact() ? block.subspan(kCompactBody, kSealed - kCompactBody) : block.subspan(kSector);
  return history.starts_with(BytesReader(begins).text(std::min(history.size(), begins.size())));
}

std::string name_in(std::span<const std::byte> bytes, const RecordHead& head) {
  if (bytes.size() < kSector) return {};
  const std::vector<std::byte> gathered = head.compact() ? compact_body(bytes) : std::vector<std::byte>();
  const auto body = head.compact() ? std::span(gathered) : bytes.subspan(kSector);
  return std::string(BytesReader(body).text(std::min<std::size_t>(head.name_bytes, body.size())));
}

Result<Header> parse_header(std::span<const std::byte> bytes, const RecordHead& head) {
  if (head.kind != RecordHead::Kind::live && head.kind != RecordHead::Kind::dropped)
    return damaged(head, "it is not a record");
  if (const std::string wrong = misfit(head); !wrong.empty())
    return damaged(head, "the record's sizes are wrong: " + wrong);
  if (bytes.size() != head.header_bytes) return damaged(head, "the record's header is truncated");
  const std::vector<std::byte> gathered = head.compact() ? compact_body(bytes) : std::vector<std::byte>();
  const auto body = head.compact() ? std::span(gathered) : bytes.subspan(kSector);
  if (checksum_of(body) != head.body) return damaged(head, "the record's header does not match its checksum");

  // The sizes fit the bytes (misfit), so nothing exceeds them.
  Header out{head, {}, {}, {}};
  BytesReader in(body);
  CheckpointInfo& info = out.description.info;
  take_regions(in, head, out.description);
  out.blocks.resize(block_count(head.payload_bytes, head.block_bytes));
  for (Checksum& sum : out.blocks) sum = in.array<Checksum>();
  info.metadata = in.text(head.metadata_bytes);
  if (head.compact()) {
    const auto payload = in.bytes(head.payload_bytes);
    out.payload.assign(payload.begin(), payload.end());
  }
  if (!in.ok()) throw std::logic_error("a record's header is as long as its fields");
  if (!all_zero(in.rest())) return damaged(head, "the record's header is not zero after its fields");
  if (const std::string wrong = misfit(info.regions, info.bytes); !wrong.empty()) return damaged(head, wrong);
  return out;
}

}  // namespace ebb::storage
