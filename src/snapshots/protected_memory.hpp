#pragma once
// Protected memory as regions of a map and zones of a plan. Only whole pages can be protected, so memory that does not
// begin and end at a page has *edges*: less than a page before and behind its *body*. Zones of the plan are those of
// bodies, numbered one region after the other, those on a GPU last; edges are copied at each cut.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ebbtide/snapshot.hpp"
#include "os/write_watch.hpp"

namespace ebb::snapshots {

/// What `protect` was given.
struct Protection {
  std::uint32_t region = 0;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  Track track = Track::automatic;
  bool on_device = false;  // memory of the store's GPU: all of it is the body
};

/// Whole pages of a protection, in zones; the last one may be short.
struct Body {
  std::uint32_t region = 0;  // the user's
  std::byte* memory = nullptr;
  std::uint64_t bytes = 0;
  std::uint32_t first = 0, zones = 0;  // in the plan

  os::PageRange pages() const { return {memory, static_cast<std::size_t>(bytes)}; }
  bool same_memory(const Body& other) const { return region == other.region && pages() == other.pages(); }
};

/// A region of the map, ascending by region and place.
struct MapRegion {
  std::uint32_t region = 0;  // the user's
  std::uint64_t at = 0;      // in the user's region
  std::byte* memory = nullptr;
  std::uint64_t bytes = 0;
  std::optional<std::uint32_t> first;  // zone in the plan; none: an edge, which is one zone, or an empty region

  bool is_edge() const { return !first && bytes > 0; }
};

/// Constant, so any thread may read it.
class ProtectedMemory {
 public:
  ProtectedMemory() = default;
  /// Ascending by region; std::logic_error if two overlap.
  ProtectedMemory(std::span<const Protection> protections, std::uint32_t zone_bytes);

  std::uint32_t zone_bytes() const { return zone_bytes_; }
  std::uint32_t zones() const { return zones_; }
  std::uint32_t host_zones() const { return host_zones_; }                                 // the first ones
  std::span<const Body> bodies() const { return std::span(bodies_).first(host_bodies_); }  // by zone
  std::span<const Body> device_bodies() const { return std::span(bodies_).subspan(host_bodies_); }
  std::span<const MapRegion> parts() const { return parts_; }
  std::uint64_t edges() const { return edges_; }  // how many

  const Body& body_of(std::uint32_t zone) const;
  /// Null: it has none, only edges.
  const Body* body_of_region(std::uint32_t region, bool on_device) const;
  os::PageRange range_of(std::uint32_t zone) const;
  /// The range of several zones of one body.
  os::PageRange range_of(std::uint32_t first, std::uint32_t count) const;
  std::optional<std::uint32_t> zone_at(const std::byte* address) const;
  struct Zones {
    std::uint32_t first = 0, count = 0;
  };
  /// The zones that this range has a byte of, in one body.
  static Zones zones_in(const Body& body, os::PageRange range, std::uint32_t zone_bytes);

 private:
  std::uint32_t zone_bytes_ = 4096;
  std::uint32_t zones_ = 0, host_zones_ = 0;
  std::uint64_t edges_ = 0;
  std::vector<Body> bodies_;
  std::size_t host_bodies_ = 0;
  std::vector<std::uint32_t> by_address_;  // bodies
  std::vector<MapRegion> parts_;
};

}  // namespace ebb::snapshots
