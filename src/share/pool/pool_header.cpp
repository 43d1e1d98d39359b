#include "share/pool/pool_header.hpp"

#include <algorithm>
#include <bit>

#include "share/pool/job.hpp"
#include "storage/format/sector.hpp"

namespace ebb::share {
namespace {

using storage::BytesReader;
using storage::BytesWriter;

constexpr std::string_view kMagic{"EBBPOOL\0", 8};
constexpr std::size_t kStoreAt = 512;          // in the block; the first sector is sealed by itself
constexpr std::size_t kStoreBytes = 24;        // before the directory
constexpr std::uint32_t kSmallEntries = 1024;  // of a list, beyond one for each slab

Error damaged(const std::string& why) { return {Errc::damaged, "the pool's header " + why}; }

}  // namespace

os::FileRange PoolShape::slab(std::uint32_t index) const {
  // On a boundary of huge pages.
  const std::uint64_t first = os::round_up(tables_end() + processes * list_bytes(), 2 << 20);
  return {first + index * slab_bytes(), slab_bytes()};
}

Result<PoolShape> choose_shape(std::uint64_t budget, std::uint64_t chunk_bytes, std::uint64_t ranks) {
  if (!std::has_single_bit(chunk_bytes) || chunk_bytes < os::kBlock || chunk_bytes > kMaxChunk) {
    return Error{Errc::invalid_argument, "a pool's chunk of " + std::to_string(chunk_bytes) +
                                             " bytes is not valid: expected a power of two from 4096 to " +
                                             std::to_string(kMaxChunk)};
  }
  const std::uint64_t chunks = budget / chunk_bytes;
  if (budget > kMaxBudget || chunks / 2 < std::max<std::uint64_t>(ranks, 1)) {
    return Error{Errc::invalid_argument, "a pool of " + std::to_string(budget) +
                                             " bytes is not valid: expected at least two chunks of " +
                                             std::to_string(chunk_bytes) + " bytes for each of " +
                                             std::to_string(std::max<std::uint64_t>(ranks, 1)) +
                                             " processes, and at most " + std::to_string(kMaxBudget) + " bytes"};
  }
  PoolShape shape{budget, chunk_bytes, 1, kMaxProcesses, 0};
  while (chunks / shape.slab_chunks > kMaxSlabs) shape.slab_chunks *= 2;
  shape.list_entries = shape.slabs() + kSmallEntries;
  return shape;
}

std::uint64_t cache_share(const PoolShape& shape, std::uint64_t ranks) {
  return (shape.slabs() / std::max<std::uint64_t>(ranks, 1) - 1) * shape.slab_bytes();
}

std::array<std::byte, os::kBlock> encode(const PoolHeader& header) {
  std::array<std::byte, os::kBlock> block{};
  BytesWriter out(block.data());
  out.text(kMagic);
  out.number(kPoolVersion);
  out.number(header.shape.slab_chunks);
  out.number(header.shape.budget);
  out.number(header.shape.chunk_bytes);
  out.number(header.shape.processes);
  out.number(header.shape.list_entries);
  out.number(static_cast<std::uint32_t>(header.job.size()));
  out.text(header.job);
  storage::seal_sector(block.data());
  BytesWriter store(block.data() + kStoreAt);
  store.number(header.store.capacity);
  store.number(header.store.block_bytes);
  store.number(static_cast<std::uint8_t>(header.store.synced));
  store.number(static_cast<std::uint8_t>(header.store.direct));
  store.number(header.store.engine);
  store.number(static_cast<std::uint8_t>(header.store.overflow));
  store.number(static_cast<std::uint64_t>(header.store.directory.size()));
  store.text(header.store.directory);
  store.bytes(storage::checksum_of({block.data() + kStoreAt, store.at()}));
  return block;
}

namespace {

Result<PoolStore> parse_store_of_pool(std::span<const std::byte> bytes) {
  BytesReader in(bytes);
  PoolStore store;
  store.capacity = in.number<std::uint64_t>();
  store.block_bytes = in.number<std::uint32_t>();
  store.synced = in.number<std::uint8_t>() != 0;
  store.direct = in.number<std::uint8_t>() != 0;
  store.engine = in.number<std::uint8_t>();
  store.overflow = in.number<std::uint8_t>() != 0;
  const auto length = in.number<std::uint64_t>();
  if (length > kMaxDirectory) return damaged("has a directory that is too long");
  store.directory = in.text(length);
  const auto sum = in.array<storage::Checksum>();
  if (!in.ok() || sum != storage::checksum_of(bytes.first(kStoreBytes + length))) {
    return damaged("does not match the checksum of its store");
  }
  return store;
}

}  // namespace

Result<PoolHeader> parse_pool_header(std::span<const std::byte> bytes) {
  const bool whole = bytes.size() >= os::kBlock;
  if (bytes.empty() || (whole && storage::all_zero(bytes.first(kMagic.size())))) {
    return Error{Errc::lost, "the pool's header was never written"};
  }
  if (!whole) return damaged("is truncated");
  const auto sealed = bytes.first(storage::kSealed);
  if (!storage::has_magic(bytes, kMagic)) return damaged("does not begin with EBBPOOL");
  const auto sum = BytesReader(bytes.subspan(storage::kSealed)).array<storage::Checksum>();
  if (sum != storage::checksum_of(sealed)) return damaged("does not match its checksum");
  BytesReader in(sealed.subspan(kMagic.size()));
  if (const auto version = in.number<std::uint32_t>(); version != kPoolVersion) {
    return Error{Errc::unsupported, "the pool is of version " + std::to_string(version) +
                                        "; this program knows version " + std::to_string(kPoolVersion)};
  }
  PoolHeader header;
  PoolShape& shape = header.shape;
  shape.slab_chunks = in.number<std::uint32_t>();
  shape.budget = in.number<std::uint64_t>();
  shape.chunk_bytes = in.number<std::uint64_t>();
  shape.processes = in.number<std::uint32_t>();
  shape.list_entries = in.number<std::uint32_t>();
  header.job = in.text(in.number<std::uint32_t>());
  if (!in.ok() || !is_job_identity(header.job)) return damaged("names no job");
  const auto chosen = choose_shape(shape.budget, shape.chunk_bytes, 1);
  if (!chosen || *chosen != shape) return damaged("has sizes that no pool has");
  auto store = parse_store_of_pool(bytes.subspan(kStoreAt));
  if (!store) return store.error();
  header.store = std::move(*store);
  return header;
}

Result<void> check_same(const PoolHeader& pool, const PoolHeader& wanted) {
  const auto differ = [](const char* what, std::uint64_t has, std::uint64_t asked) {
    return Error{Errc::invalid_argument, std::string("this job's pool has a ") + what + " of " + std::to_string(has) +
                                             " bytes, and this process asks for " + std::to_string(asked)};
  };
  if (pool.shape.budget != wanted.shape.budget) return differ("budget", pool.shape.budget, wanted.shape.budget);
  if (pool.shape.chunk_bytes != wanted.shape.chunk_bytes) {
    return differ("chunk", pool.shape.chunk_bytes, wanted.shape.chunk_bytes);
  }
  if (pool.store.directory != wanted.store.directory) {
    const auto what = [](const PoolStore& store) {
      return store.none() ? std::string("ephemeral stores") : "the store in \"" + store.directory + "\"";
    };
    return Error{Errc::invalid_argument, "this job's pool on this node is for " + what(pool.store) +
                                             ", and this process asks for " + what(wanted.store)};
  }
  if (!pool.store.none() && pool.store.overflow != wanted.store.overflow) {
    const auto rule = [](bool overflow) { return overflow ? "\"page cache\"" : "\"wait\""; };
    return Error{Errc::invalid_argument, std::string("this job's pool on this node has node_overflow ") +
                                             rule(pool.store.overflow) + ", and this process asks for " +
                                             rule(wanted.store.overflow)};
  }
  if (pool.store.synced != wanted.store.synced) {
    const auto level = [](bool synced) { return synced ? "\"node\" or \"storage\"" : "\"process\""; };
    return Error{Errc::invalid_argument, std::string("this job's pool on this node has durability ") +
                                             level(pool.store.synced) + ", and this process asks for " +
                                             level(wanted.store.synced)};
  }
  return {};
}

}  // namespace ebb::share
