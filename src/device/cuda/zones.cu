// Zones of a GPU's memory: digested, packed and put back at memory bandwidth.
//
// A warp handles memory a piece of 4 KiB at a time: each lane loads kLoads times 16 bytes, neighbours next to each
// other, before the first is used, which keeps enough loads in flight. A zone is a whole number of pieces, but for a
// short last one.
#include "device/cuda/zones.hpp"
#include "device/digest_mix.hpp"
#include "device/zone_checksum.hpp"

namespace ebb::device::cuda {
namespace {

constexpr unsigned kLanes = 32, kWarps = 8, kThreads = kWarps * kLanes, kLoads = 8;
constexpr unsigned kWordsAPiece = kLanes * kLoads, kPiece = kWordsAPiece * 16;
constexpr unsigned kBlocksAMultiprocessor = 4;  // 64 registers a thread, so that kLoads fit
constexpr unsigned kBytesABlock = 256 << 10;
constexpr unsigned kAllLanes = 0xffffffffu;
static_assert(kLeastZone % kPiece == 0 && sizeof(Digest) == 16 && sizeof(ulonglong2) == 16);

// --- digests ---

struct DigestJob {
  Zones zones;
  Digest* digests;
  std::uint8_t* changed;   // null: none are marked
  const PlacedZone* list;  // null: all zones
  std::uint32_t n;
  bool all_changed;
};

__device__ __forceinline__ std::uint64_t sum_of_warp(std::uint64_t low, std::uint64_t high, unsigned lane) {
  // The lower half of the warp adds up the low sums, the upper half the high ones: half as many shuffles as for both.
  const bool upper = lane >= kLanes / 2;
  std::uint64_t mine = upper ? high : low;
  mine += __shfl_xor_sync(kAllLanes, upper ? low : high, kLanes / 2);
  for (unsigned mask = kLanes / 4; mask > 0; mask /= 2) mine += __shfl_xor_sync(kAllLanes, mine, mask);
  return mine;
}

// The end of a short zone, word by word: from word `first` on, and the bytes of the last, incomplete one.
__device__ __noinline__ ulonglong2 rest_of(const std::byte* zone, std::uint32_t bytes, std::uint32_t first,
                                           unsigned thread, unsigned threads) {
  const std::uint32_t words = bytes / 16;
  std::uint64_t low = 0, high = 0;
  for (std::uint32_t i = first + thread; i < words; i += threads) {
    const ulonglong2 loaded = reinterpret_cast<const ulonglong2*>(zone)[i];
    digest_add(low, high, digest_place(i), loaded.x, loaded.y);
  }
  if (bytes % 16 > 0 && thread == 0) {
    std::uint64_t last[2] = {0, 0};
    for (std::uint32_t k = 0; k < bytes % 16; ++k) {
      last[k / 8] |= static_cast<std::uint64_t>(zone[words * 16 + k]) << (8 * (k % 8));
    }
    digest_add(low, high, digest_place(words), last[0], last[1]);
  }
  return make_ulonglong2(low, high);
}

// kTeam warps to a zone, so kWarps / kTeam zones to a block and round; a block's zones are neighbours.
template <unsigned kTeam>
__global__ void __launch_bounds__(kThreads, kBlocksAMultiprocessor) digest_zones(const DigestJob job, unsigned rounds) {
  constexpr unsigned kTeams = kWarps / kTeam;
  const unsigned lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes, team = warp / kTeam, member = warp % kTeam;
  const bool speaks = member == 0 && lane % (kLanes / 2) == 0;  // lane 0 for the low half, the other for the high one
  __shared__ std::uint64_t shared_sums[2][kWarps][2];
  std::uint64_t at = std::uint64_t{blockIdx.x} * rounds * kTeams + team;
  for (unsigned round = 0; round < rounds; ++round, at += kTeams) {
    const bool some = at < job.n;
    if (kTeam == 1 && !some) return;
    std::uint64_t number = at, sum = 0, known = 0;
    if (some) {
      if (job.list) number = job.list[at].zone;
      if (speaks && !job.all_changed) {
        known = reinterpret_cast<const std::uint64_t*>(job.digests + number)[lane / (kLanes / 2)];
      }
      const std::byte* const zone = job.zones.place_of(number);
      const std::uint32_t bytes = job.zones.bytes_of(number), pieces = bytes / kPiece;
      std::uint64_t low = 0, high = 0;
      for (std::uint32_t piece = member; piece < pieces; piece += kTeam) {
        const std::uint32_t first = piece * kWordsAPiece + lane;
        ulonglong2 loaded[kLoads];
#pragma unroll
        for (unsigned k = 0; k < kLoads; ++k) {
          loaded[k] = __ldcs(reinterpret_cast<const ulonglong2*>(zone) + first + k * kLanes);
        }
        std::uint64_t place = digest_place(first);
#pragma unroll
        for (unsigned k = 0; k < kLoads; ++k, place += kLanes * kDigestStep) {
          digest_add(low, high, place, loaded[k].x, loaded[k].y);
        }
      }
      if (bytes % kPiece) {
        const ulonglong2 rest = rest_of(zone, bytes, pieces * kWordsAPiece, member * kLanes + lane, kTeam * kLanes);
        low += rest.x;
        high += rest.y;
      }
      sum = sum_of_warp(low, high, lane);
    }
    if constexpr (kTeam > 1) {
      // Two sets of sums in turn: one barrier a round is enough.
      auto& sums = shared_sums[round % 2];
      if (lane % (kLanes / 2) == 0) sums[warp][lane / (kLanes / 2)] = sum;
      __syncthreads();
      if (speaks) {
        sum = 0;
        for (unsigned k = 0; k < kTeam; ++k) sum += sums[warp + k][lane / (kLanes / 2)];
      }
    }
    if (member != 0 || !some) continue;
    const bool changed = __any_sync(kAllLanes, speaks && (job.all_changed || sum != known));
    if (speaks && changed) reinterpret_cast<std::uint64_t*>(job.digests + number)[lane / (kLanes / 2)] = sum;
    if (lane == 0 && job.changed) job.changed[number] = changed;
  }
}

// --- the list of changed zones ---

constexpr unsigned kFlags = ZoneTables::kFlagsASum / kThreads;  // a thread's
static_assert(kFlags == 16);

// A bit for each flag of this thread of this block that is set.
__device__ std::uint32_t flags_of(const std::uint8_t* changed, std::uint32_t zones) {
  const std::uint64_t first = (std::uint64_t{blockIdx.x} * kThreads + threadIdx.x) * kFlags;
  if (first >= zones) return 0;
  std::uint32_t bits = 0;
  const uint4 loaded = *reinterpret_cast<const uint4*>(changed + first);
  const std::uint32_t words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
#pragma unroll
  for (unsigned k = 0; k < kFlags; ++k) bits |= (words[k / 4] >> (8 * (k % 4)) & 1u) << k;
  return first + kFlags <= zones ? bits : bits & ((1u << (zones - first)) - 1);
}

struct Scanned {
  std::uint32_t before, all;
};
// The sum of the values of the threads before this one, and of the whole block.
__device__ Scanned scan(std::uint32_t value) {
  __shared__ std::uint32_t of_warps[kWarps];
  const unsigned lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  std::uint32_t up_to = value;
  for (unsigned step = 1; step < kLanes; step *= 2) {
    const std::uint32_t other = __shfl_up_sync(kAllLanes, up_to, step);
    if (lane >= step) up_to += other;
  }
  __syncthreads();  // an earlier scan's reads are done
  if (lane == kLanes - 1) of_warps[warp] = up_to;
  __syncthreads();
  Scanned scanned{up_to - value, 0};
  for (unsigned k = 0; k < kWarps; ++k) {
    if (k < warp) scanned.before += of_warps[k];
    scanned.all += of_warps[k];
  }
  return scanned;
}

__global__ void __launch_bounds__(kThreads) count_changed(const ZoneTables tables, std::uint32_t zones) {
  const std::uint32_t all = scan(static_cast<std::uint32_t>(__popc(flags_of(tables.changed, zones)))).all;
  if (threadIdx.x == 0) tables.sums[blockIdx.x] = all;
}

// Each block adds up the sums of those before it itself: there are few, and they are in the cache.
__global__ void __launch_bounds__(kThreads) list_changed(const ZoneTables tables, std::uint32_t zones) {
  std::uint32_t earlier = 0;
  for (unsigned block = threadIdx.x; block < blockIdx.x; block += kThreads) earlier += tables.sums[block];
  const std::uint32_t before = scan(earlier).all;
  std::uint32_t bits = flags_of(tables.changed, zones);
  const Scanned scanned = scan(static_cast<std::uint32_t>(__popc(bits)));
  std::uint32_t* next = tables.dirty + before + scanned.before;
  const std::uint32_t first = (blockIdx.x * kThreads + threadIdx.x) * kFlags;
  for (; bits; bits &= bits - 1) *next++ = first + static_cast<std::uint32_t>(__ffs(static_cast<int>(bits))) - 1;
  if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) *tables.counts = {before + scanned.all, 0, 0, 0};
}

// --- copies ---

// By one warp: up to a piece.
__device__ __forceinline__ void copy_piece(std::byte* to, const std::byte* from, std::uint32_t bytes, unsigned lane) {
  auto* const out = reinterpret_cast<ulonglong2*>(to);
  const auto* const in = reinterpret_cast<const ulonglong2*>(from);
  if (bytes == kPiece) {
    ulonglong2 loaded[kLoads];
#pragma unroll
    for (unsigned k = 0; k < kLoads; ++k) loaded[k] = __ldcs(in + k * kLanes + lane);
#pragma unroll
    for (unsigned k = 0; k < kLoads; ++k) __stcs(out + k * kLanes + lane, loaded[k]);
    return;
  }
  for (std::uint32_t i = lane; i < bytes / 16; i += kLanes) out[i] = in[i];
  for (std::uint32_t i = bytes / 16 * 16 + lane; i < bytes; i += kLanes) to[i] = from[i];
}

// Calls copy(i, offset, bytes) for each piece of the zones number(0) to number(n - 1), with a warp each.
template <class Number, class Copy>
__device__ __forceinline__ void for_pieces(const Zones& zones, std::uint64_t n, const Number& number,
                                           const Copy& copy) {
  const unsigned shift = static_cast<unsigned>(__ffs(static_cast<int>(zones.zone / kPiece))) - 1;
  const std::uint64_t step = std::uint64_t{gridDim.x} * kWarps;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes; i < n << shift; i += step) {
    const std::uint64_t of = number(i >> shift);
    const std::uint32_t offset = static_cast<std::uint32_t>(i & ((1u << shift) - 1)) * kPiece;
    const std::uint32_t bytes = zones.bytes_of(of);
    if (offset < bytes) copy(i >> shift, of, offset, bytes - offset < kPiece ? bytes - offset : kPiece);
  }
}

__global__ void __launch_bounds__(kThreads, kBlocksAMultiprocessor) gather_zones(const GatherZones job) {
  const ZonePacking packing = packing_of(job);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    job.tables.counts->packed = packing.packed;
    job.tables.counts->begin = packing.begin;
    job.tables.counts->end = packing.end;
  }
  for_pieces(
      job.zones, packing.packed, [&](std::uint64_t i) { return job.tables.dirty[job.from + i]; },
      [&](std::uint64_t i, std::uint64_t number, std::uint32_t offset, std::uint32_t bytes) {
        copy_piece(job.to + packing.begin + i * job.zones.zone + offset, job.zones.place_of(number) + offset, bytes,
                   threadIdx.x % kLanes);
      });
}

__global__ void __launch_bounds__(kThreads, kBlocksAMultiprocessor) scatter_zones(const ScatterZones job) {
  for_pieces(
      job.zones, job.n, [&](std::uint64_t i) { return job.list[i].zone; },
      [&](std::uint64_t i, std::uint64_t number, std::uint32_t offset, std::uint32_t bytes) {
        copy_piece(job.zones.place_of(number) + offset, job.packed + job.list[i].at + offset, bytes,
                   threadIdx.x % kLanes);
      });
}

// --- checksums ---

constexpr unsigned kSumPairs = kSumLanes / 2, kBlocksAtOnce = kThreads / kSumPairs;
__constant__ SumKeys sum_table = sum_keys();

// A block of threads to a zone: each thread adds up two lanes of a block of the zone, then eight fold what all found.
__global__ void __launch_bounds__(kThreads, kBlocksAMultiprocessor) checksum_zones(const ChecksumZones job) {
  __shared__ std::uint64_t sums[kBlocksAtOnce][kSumLanes], keys[24], states[kSumLanes];
  if (threadIdx.x < 24) keys[threadIdx.x] = sum_table.stripes[threadIdx.x];
  const unsigned pair = threadIdx.x % kSumPairs, mine = threadIdx.x / kSumPairs;
  const std::uint32_t blocks = job.zones.zone / kSumBlock;
  const auto* const words = reinterpret_cast<const ulonglong2*>(job.zones.place_of(blockIdx.x));
  std::uint64_t state = sum_start(threadIdx.x % kSumLanes);
  __syncthreads();
  for (std::uint32_t first = 0; first < blocks; first += kBlocksAtOnce) {
    const std::uint32_t block = first + mine;
    if (block < blocks) {
      const auto* const in = words + block * (kSumBlock / 16) + pair;
      std::uint64_t even = 0, odd = 0;
#pragma unroll
      for (unsigned stripe = 0; stripe < kSumStripes; ++stripe) {
        const bool last = stripe == kSumStripes - 1 && block == blocks - 1;
        const std::uint64_t* const of = last ? sum_table.last : keys + stripe;
        const ulonglong2 loaded = __ldcs(in + stripe * kSumPairs);
        sum_add(even, odd, loaded.x, loaded.y, of[2 * pair], of[2 * pair + 1]);
      }
      sums[mine][2 * pair] = even;
      sums[mine][2 * pair + 1] = odd;
    }
    __syncthreads();
    if (threadIdx.x < kSumLanes) {
      const std::uint32_t n = blocks - first < kBlocksAtOnce ? blocks - first : kBlocksAtOnce;
      for (std::uint32_t k = 0; k < n; ++k) {
        state += sums[k][threadIdx.x];
        if (first + k + 1 < blocks) state = sum_scramble(state, keys[16 + threadIdx.x]);
      }
      states[threadIdx.x] = state;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) job.sums[blockIdx.x].low = sum_end(states, sum_table.low, job.zones.zone, false);
  if (threadIdx.x == 1) job.sums[blockIdx.x].high = sum_end(states, sum_table.high, job.zones.zone, true);
}

// --- enqueueing ---

unsigned multiprocessors() {
  int device = 0, n = 0;
  if (cudaGetDevice(&device) == cudaSuccess) cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
  return n > 0 ? static_cast<unsigned>(n) : 1;
}

// As many blocks as run at once, or as there are pieces for.
unsigned blocks_for(std::uint64_t most_zones, const Zones& zones) {
  const std::uint64_t needed = (most_zones * (zones.zone / kPiece) + kWarps - 1) / kWarps;
  const unsigned resident = multiprocessors() * kBlocksAMultiprocessor;
  return needed < resident ? static_cast<unsigned>(needed) : resident;
}

void enqueue_digests(cudaStream_t stream, const DigestJob& job, ZoneShape shape) {
  if (job.n == 0) return;
  const std::uint32_t zone = job.zones.zone;
  if (shape.warps == 0) shape.warps = zone >= 64 << 10 ? 8 : zone >= 32 << 10 ? 4 : zone >= 16 << 10 ? 2 : 1;
  const unsigned zones_a_round = kWarps / shape.warps;
  const std::uint32_t all_rounds = (job.n + zones_a_round - 1) / zones_a_round;
  if (shape.rounds == 0) {
    // Long enough that starting a block costs little; more blocks than run at once, so that all finish together.
    const std::uint32_t long_enough = kBytesABlock / (zones_a_round * zone);
    const std::uint32_t short_enough = all_rounds / (4 * multiprocessors() * kBlocksAMultiprocessor);
    shape.rounds = long_enough < short_enough ? long_enough : short_enough;
    if (shape.rounds == 0) shape.rounds = 1;
  }
  const unsigned blocks = (all_rounds + shape.rounds - 1) / shape.rounds;
  const auto kernel = shape.warps == 1   ? digest_zones<1>
                      : shape.warps == 2 ? digest_zones<2>
                      : shape.warps == 4 ? digest_zones<4>
                                         : digest_zones<8>;
  kernel<<<blocks, kThreads, 0, stream>>>(job, shape.rounds);
}

struct Enqueue {
  cudaStream_t stream;
  ZoneShape shape;

  void operator()(const FindDirtyZones& job) const {
    const std::uint32_t n = job.zones.count();
    const DigestJob digests{job.zones, job.tables.digests, job.tables.changed, nullptr, n, job.first};
    enqueue_digests(stream, digests, shape);
    const unsigned blocks = (n + ZoneTables::kFlagsASum - 1) / ZoneTables::kFlagsASum;
    count_changed<<<blocks, kThreads, 0, stream>>>(job.tables, n);
    list_changed<<<blocks, kThreads, 0, stream>>>(job.tables, n);
  }
  void operator()(const GatherZones& job) const {
    const std::uint64_t fit = job.room / job.zones.zone + 1, all = job.zones.count();
    gather_zones<<<blocks_for(fit < all ? fit : all, job.zones), kThreads, 0, stream>>>(job);
  }
  void operator()(const ScatterZones& job) const {
    if (job.n > 0) scatter_zones<<<blocks_for(job.n, job.zones), kThreads, 0, stream>>>(job);
  }
  void operator()(const SettleZones& job) const {
    const std::uint32_t n = job.list ? job.n : job.zones.count();
    enqueue_digests(stream, {job.zones, job.tables.digests, nullptr, job.list, n, true}, shape);
  }
  void operator()(const ChecksumZones& job) const {
    const auto n = static_cast<unsigned>(job.zones.bytes / job.zones.zone);
    if (n > 0) checksum_zones<<<n, kThreads, 0, stream>>>(job);
  }
};

}  // namespace

cudaError_t enqueue_zones(cudaStream_t stream, const ZoneJob& job, ZoneShape shape) {
  std::visit(Enqueue{stream, shape}, job);
  return cudaGetLastError();
}

}  // namespace ebb::device::cuda
