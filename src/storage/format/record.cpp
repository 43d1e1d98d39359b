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
  head.payload_bytes = info.bytes;
  head.record_bytes = head.header_bytes + round_up(info.bytes);
  head.version = description.version;
  head.name_bytes = static_cast<std::uint32_t>(description.history.size());
  head.regions = static_cast<std::uint32_t>(info.regions.size());
  head.metadata_bytes = static_cast<std::uint32_t>(info.metadata.size());

  std::vector<std::byte> out(head.header_bytes);
  BytesWriter to(out.data() + kSector);
  to.text(description.history);
  for (const RegionInfo& region : info.regions) {
    to.number(region.id);
    to.number(std::uint64_t{region.bytes});
    to.number(std::uint64_t{region.offset});
  }
  for (const Checksum& sum : blocks) to.bytes(sum);
  to.text(info.metadata);
  head.body = checksum_of(std::span(out).subspan(kSector));
  BytesWriter(out.data()).bytes(encode(head));
  return out;
}

Result<Header> parse_header(std::span<const std::byte> bytes, const RecordHead& head) {
  if (head.kind == RecordHead::Kind::nothing) return damaged(head, "it is not a record");
  if (const std::string wrong = misfit(head); !wrong.empty())
    return damaged(head, "the record's sizes are wrong: " + wrong);
  if (bytes.size() != head.header_bytes) return damaged(head, "the record's header is truncated");
  const auto body = bytes.subspan(kSector);
  if (checksum_of(body) != head.body) return damaged(head, "the record's header does not match its checksum");

  // The sizes fit the bytes (misfit), so nothing exceeds them.
  Header out{head, {}, {}};
  BytesReader in(body);
  CheckpointInfo& info = out.description.info;
  out.description.history = in.text(head.name_bytes);
  out.description.version = head.version;
  info.bytes = head.payload_bytes;
  info.regions.reserve(head.regions);
  for (std::uint32_t i = 0; i < head.regions; ++i) {
    const auto id = in.number<std::uint32_t>();
    const auto length = in.number<std::uint64_t>();
    info.regions.push_back({id, length, in.number<std::uint64_t>()});
  }
  out.blocks.resize(block_count(head.payload_bytes, head.block_bytes));
  for (Checksum& sum : out.blocks) sum = in.array<Checksum>();
  info.metadata = in.text(head.metadata_bytes);
  if (!in.ok()) throw std::logic_error("a record's header is as long as its fields");
  if (!all_zero(in.rest())) return damaged(head, "the record's header is not zero after its fields");
  if (const std::string wrong = misfit(info.regions, info.bytes); !wrong.empty()) return damaged(head, wrong);
  return out;
}

}  // namespace ebb::storage
