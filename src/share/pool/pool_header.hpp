#pragma once
// The shape of a pool's file, and its first block. Values and bytes only: no I/O here. docs/node.md has the layout.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ebbtide/error.hpp"
#include "os/files.hpp"
#include "os/shared_memory.hpp"

namespace ebb::share {

/// Of everything in the file. Programs of another version refuse it.
inline constexpr std::uint32_t kPoolVersion = 3;
inline constexpr std::size_t kLine = 64;  // a cache line: each has one writer
inline constexpr std::uint64_t kDefaultChunk = 4 << 20;
inline constexpr std::uint64_t kMaxChunk = 1 << 30;
inline constexpr std::uint64_t kMaxBudget = 1ull << 46;
inline constexpr std::uint32_t kMaxSlabs = 4096;  // so that a process's list is below 1 MiB
inline constexpr std::uint32_t kMaxProcesses = 1024;
inline constexpr std::uint64_t kEntryBytes = 2 * kLine;

/// What the creator of a pool chose, and where everything is in the file: the header, the tables (the agent's line,
/// processes, slabs), a list for each process, the slabs.
struct PoolShape {
  std::uint64_t budget = 0;        // bytes of all slabs, at most
  std::uint64_t chunk_bytes = 0;   // a power of two
  std::uint32_t slab_chunks = 0;   // chunks of a slab
  std::uint32_t processes = 0;     // that the table has room for
  std::uint32_t list_entries = 0;  // of each process

  std::uint64_t slab_bytes() const { return chunk_bytes * slab_chunks; }
  std::uint32_t slabs() const { return static_cast<std::uint32_t>(budget / slab_bytes()); }
  std::uint64_t process_at(std::uint32_t slot) const { return os::kBlock + kLine + std::uint64_t{slot} * kLine; }
  std::uint64_t slab_word_at(std::uint32_t slab) const { return process_at(processes) + std::uint64_t{slab} * 8; }
  std::uint64_t tables_end() const { return os::round_up(slab_word_at(slabs())); }
  std::uint64_t marks_at() const { return list_entries * kEntryBytes; }  // in a list
  std::uint64_t list_bytes() const { return os::round_up(marks_at() + std::uint64_t{list_entries} * 8); }
  os::FileRange tables() const { return {0, tables_end()}; }
  os::FileRange list(std::uint32_t slot) const { return {tables_end() + slot * list_bytes(), list_bytes()}; }
  os::FileRange slab(std::uint32_t index) const;
  bool operator==(const PoolShape&) const = default;
};

/// A shape for `ranks` processes. Errors invalid_argument: a chunk that is no power of two from 4096 to kMaxChunk, a
/// budget below two chunks for each process or above kMaxBudget.
Result<PoolShape> choose_shape(std::uint64_t budget, std::uint64_t chunk_bytes, std::uint64_t ranks);

/// The store that the agent of a pool writes, and how it opens it: whoever becomes the agent can.
struct PoolStore {
  std::string directory;       // absolute, of at most kMaxDirectory bytes; empty: none, the pool is memory alone
  std::uint64_t capacity = 0;  // PersistentOptions, as the others
  std::uint32_t block_bytes = 0;
  bool synced = true;
  bool direct = true;
  std::uint8_t engine = 0;  // FileEngineOptions::Kind
  bool overflow = true;     // what has no room goes through the page cache
  bool none() const { return directory.empty(); }
  bool operator==(const PoolStore&) const = default;
};
inline constexpr std::size_t kMaxDirectory = 3072;

/// The cache memory of each of `ranks` processes: its run of slabs, less the one for descriptions.
std::uint64_t cache_share(const PoolShape& shape, std::uint64_t ranks);

struct PoolHeader {
  PoolShape shape;
  std::string job;  // job_identity()
  PoolStore store{};
  bool operator==(const PoolHeader&) const = default;
};

/// The first block of the file.
std::array<std::byte, os::kBlock> encode(const PoolHeader& header);
/// No field is trusted before the checksum matches, and none that choose_shape() could not have chosen. Errors:
/// damaged, unsupported (another version; names both).
Result<PoolHeader> parse_pool_header(std::span<const std::byte> bytes);
/// Error invalid_argument, with both values: a process asks for another budget, chunk or store than the pool has.
Result<void> check_same(const PoolHeader& pool, const PoolHeader& wanted);

}  // namespace ebb::share
