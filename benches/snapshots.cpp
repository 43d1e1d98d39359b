// What snapshots of protected memory cost a program on processors, against what it could do without them. Each figure
// is a ratio of two things measured in turns, in one run; benches/snapshots.py makes the tables of them.
//
// cut        until snapshot() returns, over a one-thread copy of the same memory: by share of dirty zones and pages
// fault      the first write to a zone that is owed, over a fault thread that copies the zone and disarms it
// trackers   intervals that write a share of the zones, each with a snapshot: by way of tracking, time in all
// plain      a program that writes everything: time lost to snapshots over that lost to checkpoints
// restore    a version with 8 sources over a full one, and what `have` moves
// writers    intervals of 1 to 16 writers that write while snapshots drain
#include <atomic>
#include <cstring>
#include <iostream>
#include <numeric>
#include <random>
#include <sys/mman.h>
#include <thread>

#include "benches/common.hpp"
#include "ebbtide/store.hpp"
#include "os/files.hpp"
#include "os/pages.hpp"
#include "os/write_watch.hpp"

namespace {

using namespace ebb;
using os::kBlock;
using os::PageRange;

constexpr std::array kTracks{Track::faults, Track::scan, Track::digest, Track::everything, Track::automatic};
constexpr std::array kTrackNames{"faults", "scan", "digest", "everything", "auto"};
constexpr std::array kShares{0.001, 0.01, 0.1, 0.3, 0.6, 1.0};

double took(const auto& what) {
  const auto start = bench::Clock::now();
  what();
  return bench::seconds(bench::Clock::now() - start);
}

/// Pages of one size, touched.
class Memory {
 public:
  Memory(std::size_t bytes, bool huge) : bytes_(bytes), data_(os::map_pages(bytes).value()) {
    ::madvise(data_, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(data_, 1, bytes);
  }
  ~Memory() { os::unmap_pages(data_, bytes_); }
  Memory(const Memory&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  std::byte* data_;
};

Store open_store(std::size_t cache) {
  return Store::open({.device = "cpu", .device_cache = cache, .host_cache = 0, .disk = 0}).value();
}

/// A cache's memory that is touched once, so that no figure has its first touch in it.
void warm(Store& store, const Memory& memory, std::size_t cache) {
  const Version last = static_cast<Version>(cache / memory.bytes());
  for (Version v = 0; v < last; ++v) store.checkpoint(v, {{0, memory.data(), memory.bytes()}}).value();
  for (Version v = 0; v < last; ++v) store.drop(v).value();
}

/// "0.1%"
std::string percent(double share) {
  std::ostringstream text;
  text << share * 100 << "%";
  return text.str();
}

/// So many of the zones, spread over all of them, another choice each time.
std::vector<std::size_t> some(std::size_t zones, double share, std::mt19937& dice) {
  std::vector<std::size_t> all(zones);
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), dice);
  all.resize(std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(share * static_cast<double>(zones)))));
  return all;
}

// --- cut -------------------------------------------------------------------------------------------------------------

void measure_cut(bench::Json& json, std::size_t bytes, std::uint64_t repeats) {
  for (const bool huge : {false, true}) {
    const Memory memory(bytes, huge), copy(bytes, huge);
    for (const std::size_t zone : {std::size_t{64} << 10, kBlock}) {
      for (const double share : {0.001, 0.01, 0.1}) {
        Store store = open_store(4 * bytes);
        warm(store, memory, 4 * bytes);
        store.protect(0, memory.data(), bytes, {.zone = zone, .track = Track::faults}).value();
        std::mt19937 dice(1);
        std::vector<double> first, cut, copied;
        for (std::uint64_t i = 0; i <= repeats; ++i) {
          const Version version = static_cast<Version>(i);
          Snapshot taken;
          const double seconds = took([&] { taken = store.snapshot(version).value(); });
          (i == 0 ? first : cut).push_back(seconds);
          taken.wait("device").value();
          copied.push_back(took([&] { std::memcpy(copy.data(), memory.data(), bytes); }));
          for (const std::size_t z : some(bytes / zone, share, dice)) memory.data()[z * zone] = std::byte{2};
          if (i > 0) store.drop(version - 1).value();
        }
        std::string name = "cut_" + std::to_string(zone >> 10) + "k_" + percent(share) + (huge ? "_huge" : "");
        json.put(name + "_s", cut).put(name + "_first_s", first).put(name + "_copy_s", copied);
        store.close().value();
      }
    }
  }
}

// --- fault -----------------------------------------------------------------------------------------------------------

// As little as a duplicate can be: told of a write, it copies the zone and lets the writer go on.
class BareCopier {
 public:
  BareCopier(os::WriteWatch& watch, const Memory& memory, std::size_t zone)
      : watch_(watch), memory_(memory), zone_(zone), buffer_(16 << 20, false), thread_([this] { run(); }) {}
  ~BareCopier() {
    ending_.store(true);
    watch_.ring();
    thread_.join();
  }

 private:
  void run() {
    std::size_t place = 0;
    while (!ending_.load()) {
      const os::WatchEvent event = watch_.next(std::chrono::seconds(60)).value();
      if (event.kind != os::WatchEvent::Kind::written) continue;
      const auto offset = static_cast<std::size_t>(event.range.begin - memory_.data()) / zone_ * zone_;
      std::memcpy(buffer_.data() + place, memory_.data() + offset, zone_);
      place = (place + zone_) % buffer_.bytes();
      watch_.disarm({memory_.data() + offset, zone_}).value();
    }
  }
  os::WriteWatch& watch_;
  const Memory& memory_;
  std::size_t zone_;
  Memory buffer_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

/// Microseconds of the first write to each zone, from the last to the first, some time apart.
std::vector<double> first_writes(const Memory& memory, std::size_t zone, std::size_t count) {
  std::vector<double> us;
  for (std::size_t i = 0; i < count; ++i) {
    volatile std::byte* at = memory.data() + memory.bytes() - (i + 1) * zone;
    us.push_back(took([&] { *at = std::byte{3}; }) * 1e6);
  }
  return us;
}

void measure_fault(bench::Json& json, std::size_t bytes, std::uint64_t repeats) {
  for (const std::size_t zone : {std::size_t{64} << 10, kBlock}) {
    constexpr std::size_t kWrites = 96;  // fewer than the buffer has places, and a few per cent of what is owed
    std::vector<double> bare, ours, duplicates;
    for (std::uint64_t i = 0; i < repeats; ++i) {
      {
        const Memory memory(bytes, false);
        const auto watch = os::SystemWriteWatches().open(os::WatchForm::userfaultfd_sync).value();
        const PageRange all{memory.data(), bytes};
        watch->watch(all).value();
        {
          BareCopier copier(*watch, memory, zone);
          watch->arm(all).value();
          bare.push_back(bench::median(first_writes(memory, zone, kWrites)));
        }
        watch->forget(all);
      }
      const Memory memory(bytes, false);
      Store store = open_store(4 * bytes);
      warm(store, memory, 4 * bytes);
      store.protect(0, memory.data(), bytes, {.zone = zone, .track = Track::faults}).value();
      const auto before = store.snapshot_stats().duplicates;
      store.snapshot(0).value();  // all of it is owed
      ours.push_back(bench::median(first_writes(memory, zone, kWrites)));
      store.wait("device").value();
      duplicates.push_back(static_cast<double>(store.snapshot_stats().duplicates - before));
      store.close().value();
    }
    const std::string name = "fault_" + std::to_string(zone >> 10) + "k_";
    json.put(name + "bare_us", bare).put(name + "ours_us", ours).put(name + "duplicates", duplicates);
  }
}

// --- trackers --------------------------------------------------------------------------------------------------------

/// Seconds of an interval: its writes and its snapshot, and at the end of all until everything is copied. `track`: none
/// takes no snapshots.
double intervals(std::size_t bytes, std::size_t zone, double share, std::optional<Track> track, bool checkpoints,
                 bool huge) {
  constexpr int kBefore = 4, kCounted = 40;  // `auto` has made its choice by then, and probes twice
  const Memory memory(bytes, huge);
  Store store = open_store(16 * bytes);
  warm(store, memory, 16 * bytes);
  if (track) store.protect(0, memory.data(), bytes, {.zone = zone, .track = *track}).value();
  std::mt19937 dice(1);
  std::vector<std::vector<std::size_t>> written;
  for (int i = 0; i < kBefore + kCounted; ++i) written.push_back(some(bytes / zone, share, dice));
  double total = 0;
  for (int i = 0; i < kBefore + kCounted; ++i) {
    Snapshot last;
    const double seconds = took([&] {
      for (const std::size_t z : written[static_cast<std::size_t>(i)]) std::memset(memory.data() + z * zone, i, zone);
      if (track) last = store.snapshot(i).value();
      if (checkpoints) store.checkpoint(i, {{0, memory.data(), bytes}}).value();
      if (track && i == kBefore + kCounted - 1) last.wait("copied").value();
    });
    if (i >= kBefore) total += seconds;
    if ((track || checkpoints) && i > 0) store.drop(i - 1).value();
  }
  return total / kCounted;
}

void measure_trackers(bench::Json& json, std::size_t bytes, std::uint64_t repeats) {
  for (const std::size_t zone : {std::size_t{64} << 10, kBlock}) {
    for (const double share : kShares) {
      const std::string name = "track_" + std::to_string(zone >> 10) + "k_" + percent(share) + "_";
      std::vector<std::vector<double>> took_s(kTracks.size());
      std::vector<double> alone;
      // Small zones take most of the time, and have no bar.
      for (std::uint64_t i = 0; i < (zone == kBlock ? std::min<std::uint64_t>(repeats, 2) : repeats); ++i) {
        alone.push_back(intervals(bytes, zone, share, {}, false, false));
        for (std::size_t t = 0; t < kTracks.size(); ++t)
          took_s[t].push_back(intervals(bytes, zone, share, kTracks[t], false, false));
      }
      json.put(name + "alone_s", alone);
      for (std::size_t t = 0; t < kTracks.size(); ++t) json.put(name + kTrackNames[t] + "_s", took_s[t]);
    }
  }
}

void measure_plain(bench::Json& json, std::size_t bytes, std::uint64_t repeats) {
  std::vector<double> alone, checkpoints, snapshots;
  for (std::uint64_t i = 0; i < repeats; ++i) {
    alone.push_back(intervals(bytes, 64 << 10, 1.0, {}, false, true));
    checkpoints.push_back(intervals(bytes, 64 << 10, 1.0, {}, true, true));
    snapshots.push_back(intervals(bytes, 64 << 10, 1.0, Track::automatic, false, true));
  }
  json.put("plain_alone_s", alone).put("plain_checkpoint_s", checkpoints).put("plain_snapshot_s", snapshots);
}

// --- restore ---------------------------------------------------------------------------------------------------------

void measure_restore(bench::Json& json, std::size_t bytes, std::uint64_t repeats) {
  constexpr std::size_t kZone = 64 << 10;
  const Memory memory(bytes, false), out(bytes, false);
  Store store = open_store(8 * bytes);
  warm(store, memory, 8 * bytes);
  store.protect(0, memory.data(), bytes, {.zone = kZone, .track = Track::declared}).value();
  std::mt19937 dice(1);
  const std::size_t zones = bytes / kZone;
  const auto write = [&](double share, int value) {
    const auto chosen = some(zones, share, dice);
    for (const std::size_t z : chosen) {
      std::memset(memory.data() + z * kZone, value, kZone);
      store.touch(0, z * kZone, kZone).value();
    }
    return chosen;
  };
  store.snapshot(0).value();
  Version last = 0;
  std::vector<double> over;  // bytes of a snapshot, over its dirty zones and its map
  while (store.info(last).value().leans_on.size() < 7 && last < 60) {
    const auto chosen = write(0.05, static_cast<int>(last + 2));
    const auto used = [&] { return static_cast<double>(store.stats().tiers[0].used); };
    const double before = used();
    store.snapshot(++last).value();
    store.info(last).value();                              // it is stored
    const double map = 32.0 * static_cast<double>(zones);  // at most: docs/format.md
    over.push_back((used() - before) / (static_cast<double>(chosen.size() * kZone) + map));
  }
  store.snapshot(last + 1, {.full = true}).value();
  std::vector<double> eight, full, moved;
  const std::vector<std::byte> then(memory.data(), memory.data() + bytes);
  for (std::uint64_t i = 0; i < repeats; ++i) {
    for (auto* const times : {&eight, &full}) {
      const Version version = times == &eight ? last : last + 1;
      times->push_back(took([&] { store.restore(version, {{0, out.data(), bytes}}, {.keep = true}).value(); }));
      if (std::memcmp(out.data(), then.data(), bytes) != 0) throw std::runtime_error("wrong bytes");
    }
    // Zones that do not differ are not written to: they keep what no version has.
    const auto chosen = write(0.1, static_cast<int>(100 + i));
    const Version version = last + 2 + static_cast<Version>(i);
    store.snapshot(version).value();
    std::memset(out.data(), 0xee, bytes);
    store.restore(version, {{0, out.data(), bytes}}, {.keep = true, .have = version - 1}).value();
    double different = 0;
    for (std::size_t at = 0; at < bytes; ++at) different += out.data()[at] != std::byte{0xee};
    moved.push_back(different / static_cast<double>(chosen.size() * kZone));
  }
  json.put("restore_sources", static_cast<double>(store.info(last).value().leans_on.size() + 1));
  json.put("restore_eight_s", eight).put("restore_full_s", full).put("have_moved", moved).put("stored_over", over);
}

// --- writers ---------------------------------------------------------------------------------------------------------

void measure_writers(bench::Json& json, std::size_t bytes, std::uint64_t repeats) {
  constexpr std::size_t kZone = 64 << 10;
  for (const int count : {1, 2, 4, 8, 16}) {
    std::vector<double> alone, with, blocked;
    for (std::uint64_t i = 0; i < repeats; ++i) {
      for (const bool snapshots : {false, true}) {
        const Memory memory(bytes, false);
        Store store = open_store(4 * bytes);
        warm(store, memory, 4 * bytes);
        if (snapshots) store.protect(0, memory.data(), bytes, {.zone = kZone, .track = Track::faults}).value();
        std::atomic<bool> stop{false};
        std::atomic<std::uint64_t> written{0};
        std::vector<std::jthread> writers;
        const std::size_t zones = bytes / kZone / static_cast<std::size_t>(count);
        for (int w = 0; w < count; ++w) {
          writers.emplace_back([&, w] {
            std::mt19937 dice(static_cast<unsigned>(w));
            while (!stop.load()) {
              const std::size_t z = static_cast<std::size_t>(w) * zones + dice() % zones;
              std::memset(memory.data() + z * kZone, w, kZone);
              ++written;
              std::this_thread::sleep_for(std::chrono::microseconds(200 * count));
            }
          });
        }
        constexpr double kSeconds = 1;
        const double before = store.snapshot_stats().blocked_s;
        Version version = 0;
        const auto start = bench::Clock::now();
        while (bench::seconds(bench::Clock::now() - start) < kSeconds) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          if (!snapshots) continue;
          store.snapshot(version).value();
          if (version > 0) store.drop(version - 1).value();
          ++version;
        }
        stop = true;
        writers.clear();
        (snapshots ? with : alone).push_back(static_cast<double>(written.load()) / kSeconds);
        if (snapshots) blocked.push_back((store.snapshot_stats().blocked_s - before) / kSeconds / count);
        store.close().value();
      }
    }
    const std::string name = "writers_" + std::to_string(count) + "_";
    json.put(name + "alone_zones", alone).put(name + "zones", with).put(name + "blocked", blocked);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv, {{"mib", "256"}, {"repeats", "5"}, {"only", ""}, {"json", ""}});
  const std::size_t bytes = options.number("mib") << 20;
  const std::uint64_t repeats = options.number("repeats");
  bench::Json json;
  json.put("bytes", static_cast<double>(bytes));
  const auto wanted = [&](const std::string& name) {
    return options.text("only").empty() || options.text("only") == name;
  };
  if (wanted("cut")) measure_cut(json, bytes, repeats);
  if (wanted("fault")) measure_fault(json, bytes, repeats);
  if (wanted("trackers")) measure_trackers(json, bytes / 4, repeats);
  if (wanted("plain")) measure_plain(json, bytes / 4, repeats);
  if (wanted("restore")) measure_restore(json, bytes / 2, repeats);
  if (wanted("writers")) measure_writers(json, bytes / 4, repeats);
  json.write(options.text("json"));
  return 0;
} catch (const std::exception& e) {
  std::cerr << "snapshots: " << e.what() << "\n";
  return 1;
}
