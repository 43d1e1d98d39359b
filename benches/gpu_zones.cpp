// What a cut of a GPU's memory costs: finding the zones that changed over only reading, packing them over a bare device
// copy, and bringing them to the host over the bare link; for shares of dirty zones and sizes of zones. Every list in
// the output is [median, least, most] of the rounds.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "benches/gpu_common.hpp"
#include "benches/zone_kernels.hpp"
#include "device/cuda.hpp"
#include "device/cuda/zones.hpp"
#include "device/zone_tracker.hpp"

namespace {

using ebb::device::PlacedZone;
using ebb::device::ZoneCounts;
using ebb::device::ZoneTracker;

constexpr std::size_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = 1 << 30;

using Samples = std::vector<double>;
std::vector<double> spread(const Samples& all) {
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  return {bench::median(all), *least, *most};
}
/// Amount / sample, of each.
std::vector<double> spread_of_rates(double amount, const Samples& all) {
  Samples rates;
  for (const double one : all) rates.push_back(amount / one);
  return spread(rates);
}

std::string named(std::size_t zone) {
  return zone < kMiB ? std::to_string(zone / kKiB) + "KiB" : std::to_string(zone / kMiB) + "MiB";
}

struct Cut {
  double found = 0, gathered = 0;  // seconds
  std::uint64_t dirty = 0, bytes = 0;
  double blocked() const { return found + gathered; }
};

class Bench {
 public:
  Bench(std::size_t bytes, std::uint64_t rounds, std::size_t pinned)
      : rounds_(rounds),
        device_(ebb::device::make_cuda_device(0).value()),
        bytes_(bytes),
        memory_(bench::make_device_buffer(bytes)),
        // What is left, but for the tables of the smallest zones and what the driver takes.
        room_(std::min(bytes, (bench::free_device_bytes() - kGiB) / kMiB * kMiB)),
        packed_(bench::make_device_buffer(room_)),
        pinned_bytes_(pinned),
        pinned_(bench::make_pinned_buffer(pinned)) {
    bench::check(bench::enqueue_fill(stream_.get(), memory_.get(), bytes_, 1), "fill");
    stream_.wait();
  }

  void run(bench::Json& json) {
    bare(json);
    for (const std::size_t zone : {64 * kKiB, 4 * kKiB, 16 * kKiB, 256 * kKiB, kMiB}) {
      unchanged(json, zone);
      for (const double share : {0.05, 0.001, 0.01, 0.2, 0.5, 1.0}) cuts(json, zone, share);
      to_host(json, zone);
      put_back(json, zone);
    }
    for (const std::size_t zone : {4 * kKiB, 16 * kKiB, 64 * kKiB, kMiB}) shapes(json, zone);
  }

 private:
  double on_stream(const std::function<void()>& work) {
    before_.record(stream_);
    work();
    after_.record(stream_);
    stream_.wait();
    return after_.seconds_since(before_);
  }
  /// After a first one that is not counted.
  Samples rounds_of(const std::function<void()>& work) {
    on_stream(work);
    Samples all;
    for (std::uint64_t round = 0; round < rounds_; ++round) all.push_back(on_stream(work));
    return all;
  }

  void bare(bench::Json& json) {
    json.put("bytes", static_cast<double>(bytes_)).put("packed_room", static_cast<double>(room_));
    read_ = 0;
    for (const std::size_t stretch : {std::size_t{0}, 32 * kKiB, 64 * kKiB, 256 * kKiB, kMiB}) {
      const auto rates = spread_of_rates(
          static_cast<double>(bytes_),
          rounds_of([&] { bench::check(bench::enqueue_read(stream_.get(), memory_.get(), bytes_, stretch), "read"); }));
      json.put("bare_read_GBps_" + (stretch ? "stretches_of_" + named(stretch) : "in_turns"), in_GB(rates));
      read_ = std::max(read_, rates[0]);
    }
    const std::size_t copied = std::min({8 * kGiB, room_, bytes_});
    const auto copies = spread_of_rates(static_cast<double>(copied),
                                        rounds_of([&] { stream_.copy(packed_.get(), memory_.get(), copied); }));
    copy_ = copies[0];
    const auto links = spread_of_rates(static_cast<double>(pinned_bytes_),
                                       rounds_of([&] { stream_.copy(pinned_.get(), memory_.get(), pinned_bytes_); }));
    link_ = links[0];
    // Into the same pinned memory again and again: as much of it as is dirty at most would do.
    const auto all_to_host = rounds_of([&] {
      for (std::size_t at = 0; at < bytes_; at += pinned_bytes_) {
        stream_.copy(pinned_.get(), memory_.get() + at, std::min(pinned_bytes_, bytes_ - at));
      }
    });
    all_to_host_ = bench::median(all_to_host);
    json.put("bare_read_GBps", read_ / 1e9);
    json.put("bare_device_copy_GBps", in_GB(copies)).put("bare_link_GBps", in_GB(links));
    json.put("copy_of_all_to_host_s", spread(all_to_host));
  }

  void unchanged(bench::Json& json, std::size_t zone) {
    ZoneTracker tracker = track(bytes_, zone);
    const auto settled = rounds_of([&] { tracker.settle(stream_.handle()).value(); });
    const auto found = rounds_of([&] { tracker.find(stream_.handle()).value(); });
    if (counts(tracker).dirty != 0) throw std::runtime_error("zones were found that nobody changed");
    json.put("settle_over_read_" + named(zone), relative(spread_of_rates(static_cast<double>(bytes_), settled), read_));
    json.put("digest_over_read_" + named(zone), relative(spread_of_rates(static_cast<double>(bytes_), found), read_));
  }

  void cuts(bench::Json& json, std::size_t zone, double share) {
    // As much of the memory as the room is enough for, with some to spare for the draw.
    const double fits = static_cast<double>(room_) * (share < 1 ? 0.97 : 1) / share;
    const std::size_t part = fits < static_cast<double>(bytes_) ? static_cast<std::size_t>(fits) / kMiB * kMiB : bytes_;
    ZoneTracker tracker = track(part, zone);
    tracker.settle(stream_.handle()).value();
    Samples blocked, found, over_bar, host_over;
    for (std::uint64_t round = 0; round <= rounds_; ++round) {
      const Cut cut = this->cut(tracker, share, ++seed_);
      if (round == 0) continue;
      const double bare = static_cast<double>(part) / read_ + static_cast<double>(cut.bytes) / copy_;
      blocked.push_back(cut.blocked() * 1e3);
      found.push_back(cut.found * 1e3);
      over_bar.push_back(cut.blocked() / bare);
      host_over.push_back(all_to_host_ * static_cast<double>(part) / static_cast<double>(bytes_) / cut.blocked());
    }
    std::string percent = std::to_string(share * 100);
    percent.erase(percent.find_last_not_of('0') + 1);
    if (percent.back() == '.') percent.pop_back();
    const std::string what = "_" + named(zone) + "_" + percent + "%";
    json.put("cut_GiB" + what, static_cast<double>(part) / static_cast<double>(kGiB));
    json.put("blocked_ms" + what, spread(blocked)).put("of_that_finding_ms" + what, spread(found));
    json.put("blocked_over_read_and_copy" + what, spread(over_bar));
    json.put("copy_of_all_to_host_over_blocked" + what, spread(host_over));
  }

  void to_host(bench::Json& json, std::size_t zone) {
    ZoneTracker tracker = track(bytes_, zone);
    tracker.settle(stream_.handle()).value();
    const double share = std::min(0.05, 0.9 * static_cast<double>(pinned_bytes_) / static_cast<double>(bytes_));
    const Cut cut = this->cut(tracker, share, ++seed_);
    const auto packed = rounds_of([&] {
      tracker.gather(stream_.handle(), packed_.get(), room_).value();
      stream_.copy(pinned_.get(), packed_.get(), cut.bytes);
    });
    json.put("packed_to_host_over_link_" + named(zone),
             relative(spread_of_rates(static_cast<double>(cut.bytes), packed), link_));
    const std::vector<std::uint32_t> list = dirty(tracker, std::min<std::uint64_t>(cut.dirty, 2048));
    const auto scattered = rounds_of([&] {
      for (std::size_t i = 0; i < list.size(); ++i) {
        stream_.copy(pinned_.get() + i * zone % (pinned_bytes_ - kMiB), tracker.zones().place_of(list[i]), zone);
      }
    });
    json.put("unpacked_to_host_over_link_" + named(zone),
             relative(spread_of_rates(static_cast<double>(list.size() * zone), scattered), link_));
  }

  void put_back(bench::Json& json, std::size_t zone) {
    ZoneTracker tracker = track(bytes_, zone);
    tracker.settle(stream_.handle()).value();
    const Cut cut = this->cut(tracker, 0.05, ++seed_);
    const std::vector<std::uint32_t> list = dirty(tracker, cut.dirty);
    std::vector<PlacedZone> placed;
    for (std::size_t i = 0; i < list.size(); ++i) placed.push_back({list[i], i * zone});
    const bench::DeviceBuffer there = bench::make_device_buffer(placed.size() * sizeof(PlacedZone));
    stream_.copy(there.get(), placed.data(), placed.size() * sizeof(PlacedZone));
    stream_.wait();
    const auto* const listed = reinterpret_cast<const PlacedZone*>(there.get());
    const auto n = static_cast<std::uint32_t>(placed.size());
    const auto scattered = rounds_of([&] { tracker.scatter(stream_.handle(), listed, n, packed_.get()).value(); });
    const auto settled = rounds_of([&] { tracker.settle(stream_.handle(), listed, n).value(); });
    tracker.find(stream_.handle()).value();
    if (counts(tracker).dirty != 0) throw std::runtime_error("zones that were put back are not what they were");
    json.put("scatter_over_device_copy_" + named(zone),
             relative(spread_of_rates(static_cast<double>(cut.bytes), scattered), copy_));
    json.put("settle_of_listed_over_read_" + named(zone),
             relative(spread_of_rates(static_cast<double>(cut.bytes), settled), read_));
  }

  /// How the digests could be shared out among the threads otherwise.
  void shapes(bench::Json& json, std::size_t zone) {
    ZoneTracker tracker = track(bytes_, zone);
    tracker.settle(stream_.handle()).value();
    for (const unsigned warps : {1u, 2u, 4u, 8u}) {
      for (const std::size_t stretch : {std::size_t{0}, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB}) {
        const std::size_t a_round = 8 / warps * zone;
        if (stretch > 0 && stretch <= a_round) continue;
        const auto rounds = static_cast<unsigned>(std::max<std::size_t>(1, stretch / a_round));
        const auto found = rounds_of([&] {
          bench::check(ebb::device::cuda::enqueue_zones(
                           stream_.get(), ebb::device::FindDirtyZones{tracker.zones(), tracker.tables(), false},
                           {warps, rounds}),
                       "digest");
        });
        json.put(
            "shape_over_read_" + named(zone) + "_warps_" + std::to_string(warps) + "_rounds_" + std::to_string(rounds),
            relative(spread_of_rates(static_cast<double>(bytes_), found), read_));
      }
    }
  }

  /// Some zones are changed, then found and packed; all that were changed must be found.
  Cut cut(ZoneTracker& tracker, double share, std::uint64_t seed) {
    const ebb::device::Zones& zones = tracker.zones();
    bench::check(bench::enqueue_touch(stream_.get(), zones.memory, zones.zone, zones.count(), share, seed), "touch");
    stream_.wait();
    before_.record(stream_);
    tracker.find(stream_.handle()).value();
    between_.record(stream_);
    tracker.gather(stream_.handle(), packed_.get(), room_).value();
    after_.record(stream_);
    stream_.wait();
    const ZoneCounts counted = counts(tracker);
    std::uint64_t expected = 0;
    for (std::uint32_t zone = 0; zone < zones.count(); ++zone) expected += bench::chosen(zone, share, seed);
    if (counted.dirty != expected || counted.packed != expected) {
      throw std::runtime_error("of " + std::to_string(expected) + " changed zones of " + named(zones.zone) + ", " +
                               std::to_string(counted.dirty) + " were found and " + std::to_string(counted.packed) +
                               " packed");
    }
    return {between_.seconds_since(before_), after_.seconds_since(between_), counted.dirty, counted.end};
  }

  ZoneTracker track(std::size_t bytes, std::size_t zone) {
    return ZoneTracker::make(device_, memory_.get(), bytes, zone).value();
  }
  ZoneCounts counts(const ZoneTracker& tracker) {
    ZoneCounts counted;
    stream_.copy(&counted, tracker.tables().counts, sizeof counted);
    stream_.wait();
    return counted;
  }
  std::vector<std::uint32_t> dirty(const ZoneTracker& tracker, std::uint64_t n) {
    std::vector<std::uint32_t> list(n);
    stream_.copy(list.data(), tracker.tables().dirty, n * sizeof(std::uint32_t));
    stream_.wait();
    return list;
  }
  static std::vector<double> relative(std::vector<double> all, double to) {
    for (double& one : all) one /= to;
    return all;
  }
  static std::vector<double> in_GB(const std::vector<double>& all) { return relative(all, 1e9); }

  const std::uint64_t rounds_;
  const std::shared_ptr<ebb::device::Device> device_;
  const std::size_t bytes_;
  const bench::DeviceBuffer memory_;
  const std::size_t room_;
  const bench::DeviceBuffer packed_;
  const std::size_t pinned_bytes_;
  const bench::PinnedBuffer pinned_;
  bench::Stream stream_;
  bench::Event before_, between_, after_;
  double read_ = 0, copy_ = 0, link_ = 0, all_to_host_ = 0;  // bytes a second, but for the last: seconds
  std::uint64_t seed_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  // mib: of memory that is cut; 0: 64 GiB, or three fifths of what is free.
  const bench::Options options(argc, argv, {{"json", ""}, {"mib", "0"}, {"rounds", "5"}, {"pinned_mib", "4096"}});
  bench::warm_up();
  std::size_t bytes = options.number("mib") * kMiB;
  if (bytes == 0) bytes = std::min<std::size_t>(64 * kGiB, bench::free_device_bytes() / 5 * 3 / kMiB * kMiB);
  bench::Json json;
  std::string failed;
  try {
    Bench(bytes, options.number("rounds"), options.number("pinned_mib") * kMiB).run(json);
  } catch (const std::exception& error) {
    failed = error.what();
    json.put("failed", failed);
  }
  json.write(options.text("json"));  // what was measured until then counts
  if (!failed.empty()) throw std::runtime_error(failed);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_zones: %s\n", error.what());
  return 1;
}
