#include "snapshots/protected_memory.hpp"

#include <algorithm>
#include <stdexcept>

#include "os/files.hpp"

namespace ebb::snapshots {
namespace {

std::uint64_t address_of(const std::byte* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

ProtectedMemory::ProtectedMemory(std::span<const Protection> protections, std::uint32_t zone_bytes)
    : zone_bytes_(zone_bytes) {
  std::vector<const Protection*> order;
  for (const Protection& one : protections)
    if (one.bytes > 0) order.push_back(&one);
  std::ranges::sort(order, {}, [](const Protection* one) { return one->memory; });
  for (std::size_t i = 1; i < order.size(); ++i)
    if (order[i - 1]->memory + order[i - 1]->bytes > order[i]->memory)
      throw std::logic_error("protected memory overlaps");

  const auto add_body = [&](const Protection& one, std::uint64_t at, std::uint64_t bytes) {
    const auto zones = static_cast<std::uint32_t>((bytes + zone_bytes - 1) / zone_bytes);
    bodies_.push_back({one.region, one.memory + at, bytes, zones_, zones});
    zones_ += zones;
  };
  for (const Protection& one : protections) {
    if (one.on_device) continue;
    if (one.bytes == 0) parts_.push_back({one.region, 0, nullptr, 0, {}});
    const std::uint64_t begin = address_of(one.memory), end = begin + one.bytes;
    const std::uint64_t from = os::round_up(begin), to = end / os::kBlock * os::kBlock;
    const auto add = [&](std::uint64_t first, std::uint64_t last, std::optional<std::uint32_t> zone) {
      if (first >= last) return;
      parts_.push_back({one.region, first - begin, one.memory + (first - begin), last - first, zone});
      edges_ += !zone;
    };
    if (from >= to) {
      // Two edges even so: an edge is in one page.
      add(begin, std::min(from, end), {});
      add(std::min(from, end), end, {});
      continue;
    }
    add(begin, from, {});
    add(from, to, zones_);
    add(to, end, {});
    add_body(one, from - begin, to - from);
  }
  for (std::uint32_t body = 0; body < bodies_.size(); ++body) by_address_.push_back(body);
  host_bodies_ = bodies_.size();
  host_zones_ = zones_;
  for (const Protection& one : protections) {
    if (!one.on_device) continue;
    parts_.push_back({one.region, 0, one.memory, one.bytes, zones_});
    add_body(one, 0, one.bytes);
  }
  std::ranges::stable_sort(parts_, {}, &MapRegion::region);
  std::ranges::sort(by_address_, {}, [&](std::uint32_t body) { return bodies_[body].memory; });
}

const Body& ProtectedMemory::body_of(std::uint32_t zone) const {
  const auto after = std::ranges::upper_bound(bodies_, zone, {}, &Body::first);
  return *(after - 1);
}

const Body* ProtectedMemory::body_of_region(std::uint32_t region, bool on_device) const {
  const std::span<const Body> all = on_device ? device_bodies() : bodies();
  const auto found = std::ranges::lower_bound(all, region, {}, &Body::region);
  return found == all.end() || found->region != region ? nullptr : &*found;
}

os::PageRange ProtectedMemory::range_of(std::uint32_t zone) const { return range_of(zone, 1); }

os::PageRange ProtectedMemory::range_of(std::uint32_t first, std::uint32_t count) const {
  const Body& body = body_of(first);
  const std::uint64_t begin = std::uint64_t{first - body.first} * zone_bytes_;
  const std::uint64_t end = std::min(begin + std::uint64_t{count} * zone_bytes_, body.bytes);
  return {body.memory + begin, static_cast<std::size_t>(end - begin)};
}

std::optional<std::uint32_t> ProtectedMemory::zone_at(const std::byte* address) const {
  const auto after =
      std::ranges::upper_bound(by_address_, address, {}, [&](std::uint32_t body) { return bodies_[body].memory; });
  if (after == by_address_.begin()) return {};
  const Body& body = bodies_[*(after - 1)];
  const auto offset = static_cast<std::uint64_t>(address - body.memory);
  if (offset >= body.bytes) return {};
  return body.first + static_cast<std::uint32_t>(offset / zone_bytes_);
}

ProtectedMemory::Zones ProtectedMemory::zones_in(const Body& body, os::PageRange range, std::uint32_t zone_bytes) {
  const std::uint64_t memory = address_of(body.memory), memory_end = memory + body.bytes;
  const std::uint64_t begin = std::max(address_of(range.begin), memory);
  const std::uint64_t end = std::min(address_of(range.begin) + range.bytes, memory_end);
  if (begin >= end) return {};
  const auto first = static_cast<std::uint32_t>((begin - memory) / zone_bytes);
  const auto last = static_cast<std::uint32_t>((end - 1 - memory) / zone_bytes);
  return {body.first + first, last - first + 1};
}

}  // namespace ebb::snapshots
