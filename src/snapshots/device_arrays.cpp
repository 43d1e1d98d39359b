#include "snapshots/device_arrays.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

namespace ebb::snapshots {

using device::StreamId;
using device::ZoneCounts;

namespace {

// The counts of a list, and the list, in host memory.
constexpr std::size_t kCounts = sizeof(ZoneCounts);

Result<void> check(const Protection& made, std::uint32_t zone_bytes) {
  const std::string region = "region " + std::to_string(made.region);
  if (made.track == Track::faults || made.track == Track::scan)
    return Error{Errc::unsupported,
                 region + " is memory of a GPU, where no page protection exists: writes cannot be tracked by " +
                     (made.track == Track::scan ? "scan" : "faults") + " there, but by digest, declared or automatic"};
  if (zone_bytes > device::kMostZone)
    return Error{Errc::invalid_argument,
                 "zone=" + std::to_string(zone_bytes) + " is not valid for memory of a GPU: expected at most 1 MiB"};
  if (reinterpret_cast<std::uintptr_t>(made.memory) % device::kZoneAlignment != 0)
    return Error{Errc::unsupported, region + " is memory of a GPU that does not begin at a multiple of 16 bytes"};
  return {};
}

}  // namespace

struct DeviceArrays::Array {
  std::uint32_t region;
  Track track;
  device::ZoneTracker tracker;
  device::DeviceBuffer host;  // kCounts, then the list
  Body body = {};             // as the memory numbers it
  bool known = false;         // since the last cut, all that was written is found
  std::vector<std::uint8_t> touched = {};
  bool any_touched = false;
  std::size_t listed = 0;

  ZoneCounts& counts() const { return *host.as<ZoneCounts>(); }
  std::span<std::uint32_t> list() const { return {reinterpret_cast<std::uint32_t*>(host.data() + kCounts), listed}; }
  void list_touched() {
    listed = 0;
    for (std::uint32_t zone = 0; zone < body.zones; ++zone)
      if (touched[zone] || !known) listed_at(listed++) = zone;
  }
  std::uint32_t& listed_at(std::size_t i) const { return reinterpret_cast<std::uint32_t*>(host.data() + kCounts)[i]; }
};

DeviceArrays::DeviceArrays(std::shared_ptr<device::Device> device) : device_(std::move(device)) {}

DeviceArrays::~DeviceArrays() { clear(); }

void DeviceArrays::clear() {
  // Work that failed to be followed may still be under way.
  if (!arrays_.empty()) static_cast<void>(static_cast<bool>(device_->synchronize()));
  arrays_.clear();
  if (event_) device_->destroy_event(*event_);
  event_.reset();
}

Result<void> DeviceArrays::add(const Protection& made, std::uint32_t zone_bytes) {
  if (auto good = check(made, zone_bytes); !good) return good;
  if (!event_) {
    auto event = device_->create_event();
    if (!event) return event.error();
    event_ = *event;
  }
  auto tracker = device::ZoneTracker::make(device_, made.memory, made.bytes, zone_bytes);
  if (!tracker) return tracker.error();
  const std::size_t zones = tracker->zones().count();
  auto host =
      device::DeviceBuffer::make(device_, device::DeviceBuffer::Where::host, kCounts + zones * sizeof(std::uint32_t));
  if (!host) return host.error();
  const auto place = std::ranges::upper_bound(arrays_, made.region, {}, [](const auto& one) { return one->region; });
  const Track track = made.track == Track::automatic ? Track::digest : made.track;
  arrays_.insert(place, std::unique_ptr<Array>(new Array{made.region, track, std::move(*tracker), std::move(*host)}));
  return {};
}

void DeviceArrays::remove(std::span<const std::uint32_t> regions) {
  const auto gone = [&](const auto& one) { return std::ranges::binary_search(regions, one->region); };
  if (std::ranges::none_of(arrays_, gone)) return;
  static_cast<void>(static_cast<bool>(device_->synchronize()));
  std::erase_if(arrays_, gone);
}

DeviceArrays::Array* DeviceArrays::find_array(std::uint32_t region) const {
  const auto found = std::ranges::lower_bound(arrays_, region, {}, [](const auto& one) { return one->region; });
  return found == arrays_.end() || (*found)->region != region ? nullptr : found->get();
}

void DeviceArrays::begin(std::shared_ptr<const ProtectedMemory> memory) {
  memory_ = std::move(memory);
  for (const Body& body : memory_->device_bodies()) {
    Array& array = *find_array(body.region);
    array.body = body;
    array.touched.assign(body.zones, 0);
  }
  forget();
}

void DeviceArrays::forget() {
  for (const auto& array : arrays_) {
    array->known = false;
    array->tracker.forget();
  }
}

bool DeviceArrays::tracks(std::uint32_t region) const { return find_array(region)->track != Track::everything; }

bool DeviceArrays::untracked() const {
  return std::ranges::all_of(arrays_, [](const auto& one) { return one->track == Track::everything; });
}

std::optional<Error> DeviceArrays::lost() const {
  for (const auto& array : arrays_)
    if (!device_->owns(array->body.memory, array->body.bytes))
      return Error{Errc::lost, "the memory of region " + std::to_string(array->region) +
                                   ", of a GPU, was freed while it was protected: unprotect it to go on"};
  return {};
}

void DeviceArrays::touch(ProtectedMemory::Zones zones) {
  const Body& body = memory_->body_of(zones.first);
  Array& array = *find_array(body.region);
  std::fill_n(array.touched.begin() + (zones.first - body.first), zones.count, std::uint8_t{1});
  array.any_touched = true;
}

Result<void> DeviceArrays::wait(StreamId stream) {
  if (auto recorded = device_->record(*event_, stream); !recorded) return recorded;
  return device_->wait(*event_);
}

Result<void> DeviceArrays::find(StreamId stream, std::span<std::uint8_t> dirty,
                                const std::function<void()>& meanwhile) {
  const auto digested = [](const auto& one) { return one->track == Track::digest; };
  for (const auto& array : arrays_) {
    if (!digested(array)) continue;
    if (auto found = array->tracker.find(stream); !found) return found;
    if (auto told = device_->copy(stream, &array->counts(), array->tracker.tables().counts, kCounts); !told)
      return told;
  }
  meanwhile();
  // Also where nothing is digested: what the last cut's list was copied from is written anew.
  if (auto waited = wait(stream); !waited) return waited;
  bool any = false;
  for (const auto& array : arrays_) {
    if (!digested(array)) continue;
    array->listed = array->counts().dirty;
    if (array->listed == 0) continue;
    any = true;
    const std::span<std::uint32_t> list = array->list();
    if (auto told = device_->copy(stream, list.data(), array->tracker.tables().dirty, list.size_bytes()); !told)
      return told;
  }
  if (any)
    if (auto waited = wait(stream); !waited) return waited;
  for (const auto& array : arrays_) {
    if (!digested(array)) array->list_touched();
    for (const std::uint32_t zone : array->list()) dirty[array->body.first + zone] = 1;
  }
  return {};
}

Result<std::vector<DevicePiece>> DeviceArrays::list(StreamId stream, bool full,
                                                    std::span<const ProtectedMemory::Zones> also,
                                                    std::uint32_t piece_zones) {
  std::vector<DevicePiece> pieces;
  const std::uint64_t zone_bytes = memory_->zone_bytes();
  for (const auto& array : arrays_) {
    const Body& body = array->body;
    std::vector<std::uint32_t> list(array->list().begin(), array->list().end());
    // What touch() said of memory that is digested as well.
    if (full || array->any_touched)
      for (std::uint32_t zone = 0; zone < body.zones; ++zone)
        if (full || array->touched[zone]) list.push_back(zone);
    for (const ProtectedMemory::Zones& zones : also)
      if (memory_->body_of(zones.first).region == body.region)
        for (std::uint32_t i = 0; i < zones.count; ++i) list.push_back(zones.first - body.first + i);
    const bool more = list.size() > array->listed;
    if (more) {
      std::ranges::sort(list);
      list.erase(std::unique(list.begin(), list.end()), list.end());
    }
    if (more || array->track != Track::digest) {
      array->listed = list.size();
      std::ranges::copy(list, array->list().begin());
      array->counts() = {list.size(), 0, 0, 0};
      const auto& tables = array->tracker.tables();
      Result<void> put;
      if (!list.empty()) {
        put = device_->copy(stream, tables.dirty, array->list().data(), list.size() * sizeof(list[0]));
        if (put) put = device_->copy(stream, tables.counts, &array->counts(), kCounts);
      }
      if (!put) return put.error();
    }
    for (std::size_t from = 0; from < list.size();) {
      if (pieces.empty() || pieces.back().zones.size() == piece_zones) pieces.emplace_back();
      DevicePiece& piece = pieces.back();
      const auto place = static_cast<std::uint32_t>(piece.zones.size());
      const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(piece_zones - place, list.size() - from));
      for (std::uint32_t i = 0; i < count; ++i) piece.zones.push_back(body.first + list[from + i]);
      const std::uint64_t whole = (count - 1) * zone_bytes;
      piece.runs.push_back({array->region, from, count, place, whole + memory_->range_of(piece.zones.back()).bytes});
      from += count;
    }
    array->known = array->track != Track::everything;
    if (std::exchange(array->any_touched, false)) std::ranges::fill(array->touched, std::uint8_t{0});
  }
  return pieces;
}

Result<void> DeviceArrays::gather(StreamId stream, const DeviceRun& run, std::byte* piece) {
  const std::uint64_t zone = memory_->zone_bytes();
  return find_array(run.region)->tracker.gather(stream, piece + run.place * zone, run.bytes, run.from);
}

bool DeviceArrays::settle(StreamId stream, std::uint32_t region, std::span<const ProtectedMemory::Zones> zones) {
  Array& array = *find_array(region);
  std::uint32_t count = 0;
  for (const ProtectedMemory::Zones& one : zones) count += one.count;
  const bool all = count == array.body.zones;
  if (!all && !array.known) return false;
  if (array.track == Track::digest && count > 0) {
    Result<void> settled;
    device::DeviceBuffer list;
    std::vector<device::PlacedZone> placed;
    if (all) {
      settled = array.tracker.settle(stream);
    } else {
      for (const ProtectedMemory::Zones& one : zones)
        for (std::uint32_t i = 0; i < one.count; ++i) placed.push_back({one.first - array.body.first + i, 0});
      auto made = device::DeviceBuffer::make(device_, device::DeviceBuffer::Where::device, count * sizeof(placed[0]));
      if (!made) return false;
      list = std::move(*made);
      settled = device_->copy(stream, list.data(), placed.data(), count * sizeof(placed[0]));
      if (settled) settled = array.tracker.settle(stream, list.as<const device::PlacedZone>(), count);
    }
    if (const auto waited = wait(stream); !settled || !waited) return false;
  }
  array.known = array.track != Track::everything;
  for (const ProtectedMemory::Zones& one : zones)
    std::fill_n(array.touched.begin() + (one.first - array.body.first), one.count, std::uint8_t{0});
  return true;
}

}  // namespace ebb::snapshots
