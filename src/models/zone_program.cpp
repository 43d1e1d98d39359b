#include "models/zone_program.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "sim/random.hpp"

namespace ebb::models {
namespace {

constexpr std::uint32_t kPages = kZoneBlock / kZonePage;  // of a block

bool share(double x) { return x >= 0 && x <= 1; }

using enum ZoneOrder;
constexpr NamedPattern kPatterns[] = {
    {"sweep", "few clean zones, in the same order each time (SNAP)", {.dirty = 0.95, .pace = 5e9}},
    {"refining", "few clean zones, in any order (MiniAMR)", {.dirty = 0.95, .order = shuffled, .pace = 6e9}},
    {"particles", "parts of zones, in any order (CoMD)", {.dirty = 0.5, .filled = 0.25, .order = shuffled}},
    {"multigrid", "parts of zones, and some others each time (HPGMG)", {.dirty = 0.6, .filled = 0.25, .reuse = 0.8}},
    {"solver", "few writes (Nekbone)", {.dirty = 0.1, .pace = 1e9}},
    {"small_set", "a small working set, in any order (MiniContact)", {.dirty = 0.03, .order = shuffled, .pace = 2e9}},
    {"two_halves", "the other half of memory each time", {.dirty = 0.5, .reuse = 0}},
    {"one_zone", "the only zone that is owed, at once", {.dirty = 0x1p-14}, true},
    {"few_reversed", "few zones from behind, at once", {.dirty = 0.002, .order = reversed, .pace = 400e9}, true},
    {"all_at_once", "all memory as fast as it takes writes", {.dirty = 0.95, .order = shuffled, .pace = 400e9}, true},
};

// The blocks that are written after the cut.
std::vector<std::uint32_t> next_blocks(std::uint32_t blocks, std::uint32_t dirty, const ZonePattern& pattern) {
  const auto again = static_cast<std::uint32_t>(std::lround(pattern.reuse * dirty));
  std::vector<std::uint32_t> out(again + std::min(dirty - again, blocks - dirty));
  std::iota(out.begin(), out.begin() + again, 0u);
  std::iota(out.begin() + again, out.end(), dirty);
  if (pattern.order == ZoneOrder::reversed) std::ranges::reverse(out);
  if (pattern.order == ZoneOrder::shuffled) {
    sim::Random random(pattern.seed);
    for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[random.below(i)]);
  }
  return out;
}

}  // namespace

std::span<const NamedPattern> zone_patterns() { return kPatterns; }

ZoneProgram make_program(Bytes memory, const ZonePattern& pattern) {
  if (memory < kZoneBlock || memory % kZoneBlock != 0 || memory / kZonePage > UINT32_MAX)
    throw std::logic_error("memory: it is whole blocks of 64 KiB, at least one");
  if (!share(pattern.dirty) || !share(pattern.filled) || !share(pattern.reuse))
    throw std::logic_error("dirty, filled and reuse are shares from 0 to 1");
  if (!(pattern.pace > 0 && std::isfinite(pattern.pace))) throw std::logic_error("a pace is above 0");
  const auto blocks = static_cast<std::uint32_t>(memory / kZoneBlock);
  const auto dirty = static_cast<std::uint32_t>(std::lround(pattern.dirty * blocks));
  const auto pages = std::max(1u, static_cast<std::uint32_t>(std::lround(pattern.filled * kPages)));
  ZoneProgram program{.memory = memory, .before = {}, .after = {}};
  for (std::uint32_t block = 0; block < dirty; ++block)
    for (std::uint32_t page = 0; page < pages; ++page) program.before.push_back(block * kPages + page);
  const double visit = static_cast<double>(kZoneBlock) / pattern.pace * 1e9;
  double at = 0;
  for (const std::uint32_t block : next_blocks(blocks, dirty, pattern)) {
    for (std::uint32_t page = 0; page < pages; ++page)
      program.after.push_back({static_cast<Time>(at + visit * page / pages), block * kPages + page});
    at += visit;
  }
  return program;
}

}  // namespace ebb::models
