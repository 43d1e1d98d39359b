// What a snapshot of an array on a GPU costs the stream that writes to it, through an open store: the time from the
// cut until later work runs, over only reading the array and a bare device copy of what changed, and under a blocking
// copy of all to the host; and how fast the packed zones reach the host. Every list is [median, least, most].
#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "benches/gpu_common.hpp"
#include "benches/zone_kernels.hpp"
#include "ebbtide/store.hpp"

namespace {

constexpr std::size_t kMiB = 1 << 20, kGiB = 1 << 30, kZone = 64 << 10;
constexpr std::uint64_t kSeed = 7;  // always the same: the zones of a smaller share are among those of a larger one

using Samples = std::vector<double>;
std::vector<double> spread(const Samples& all) {
  const auto [least, most] = std::minmax_element(all.begin(), all.end());
  return {bench::median(all), *least, *most};
}
std::vector<double> over(const Samples& all, double by) {
  Samples out;
  for (const double one : all) out.push_back(one / by);
  return spread(out);
}

std::string percent(double share) {
  std::string text = std::to_string(share * 100);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + "%";
}

class Bench {
 public:
  Bench(std::size_t bytes, std::size_t cache, std::size_t host, std::uint64_t rounds)
      : rounds_(rounds),
        bytes_(bytes),
        memory_(bench::make_device_buffer(bytes)),
        pinned_(bench::make_pinned_buffer(kGiB)),
        cache_(cache),
        host_(host) {
    bench::check(bench::enqueue_fill(stream_.get(), memory_.get(), bytes_, 1), "fill");
    stream_.wait();
  }

  void run(bench::Json& json) {
    bare(json);
    ebb::Store store = ebb::Store::open({.device_cache = cache_, .host_cache = host_, .warm = true, .disk = 0}).value();
    store.protect(0, memory_.get(), bytes_, {.zone = kZone}).value();
    const auto first = cut(store, {});
    json.put("first_blocked_ms", first * 1e3);
    for (const double share : {0.001, 0.01, 0.05, 0.1}) {
      if (share * static_cast<double>(bytes_) > 0.8 * static_cast<double>(cache_)) continue;
      cuts(json, store, share, false);
      cuts(json, store, share, true);
    }
    restores(json, store);
    store.close().value();
  }

 private:
  double on_stream(const auto& work) {
    before_.record(stream_);
    work();
    after_.record(stream_);
    stream_.wait();
    return after_.seconds_since(before_);
  }
  Samples rounds_of(const auto& work) {
    on_stream(work);  // not counted
    Samples all;
    for (std::uint64_t round = 0; round < rounds_; ++round) all.push_back(on_stream(work));
    return all;
  }

  void bare(bench::Json& json) {
    json.put("bytes", static_cast<double>(bytes_)).put("device_cache", static_cast<double>(cache_));
    for (const std::size_t stretch : {std::size_t{0}, std::size_t{32} << 10, std::size_t{64} << 10}) {
      const auto read =
          rounds_of([&] { bench::check(bench::enqueue_read(stream_.get(), memory_.get(), bytes_, stretch), "read"); });
      const double rate = static_cast<double>(bytes_) / bench::median(read);
      read_ = std::max(read_, rate);
    }
    const std::size_t copied = std::min(bytes_ / 2, 4 * kGiB);
    {
      const bench::DeviceBuffer other = bench::make_device_buffer(copied);
      copy_ = static_cast<double>(copied) /
              bench::median(rounds_of([&] { stream_.copy(other.get(), memory_.get(), copied); }));
    }
    link_ = kGiB / bench::median(rounds_of([&] { stream_.copy(pinned_.get(), memory_.get(), kGiB); }));
    all_to_host_ = bench::median(rounds_of([&] {
      for (std::size_t at = 0; at < bytes_; at += kGiB)
        stream_.copy(pinned_.get(), memory_.get() + at, std::min<std::size_t>(kGiB, bytes_ - at));
    }));
    json.put("bare_read_GBps", read_ / 1e9).put("bare_device_copy_GBps", copy_ / 1e9);
    json.put("bare_link_GBps", link_ / 1e9).put("copy_of_all_to_host_s", all_to_host_);
  }

  ebb::LinkStats link(const ebb::Store& store) {
    for (const ebb::LinkStats& one : store.stats().links)
      if (one.name == "device>host") return one;
    throw std::runtime_error("there is no link to the host");
  }

  /// The time in which the stream could do nothing else; what it was before is done.
  double cut(ebb::Store& store, const ebb::SnapshotOptions& how) {
    ebb::SnapshotOptions options = how;
    options.stream = stream_.handle();
    stream_.wait();
    before_.record(stream_);
    const ebb::Snapshot taken = store.snapshot(version_, options).value();
    after_.record(stream_);
    stream_.wait();
    const double blocked = after_.seconds_since(before_);
    if (how.fenced) taken.before_write(0, stream_.handle()).value();
    taken.wait("ephemeral").value();
    store.wait("host").value();
    if (version_ > 1) store.drop(version_ - 1).value();
    ++version_;
    return blocked;
  }

  void cuts(bench::Json& json, ebb::Store& store, double share, bool fenced) {
    Samples blocked, bars, stored, packed;
    for (std::uint64_t round = 0; round <= rounds_; ++round) {
      const auto zones = static_cast<std::uint32_t>(bytes_ / kZone);
      bench::check(bench::enqueue_touch(stream_.get(), memory_.get(), kZone, zones, share, kSeed), "touch");
      const auto gathered = store.snapshot_stats().bytes_gathered;
      const ebb::LinkStats before = link(store);
      const double seconds = cut(store, {.fenced = fenced});
      ebb::LinkStats after = link(store);
      const double bytes = static_cast<double>(store.snapshot_stats().bytes_gathered - gathered);
      // All of its pieces, and nothing else, come to the host.
      while (static_cast<double>(after.bytes - before.bytes) < bytes) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        after = link(store);
      }
      if (round == 0) continue;  // the first has the zones of the larger share before it
      blocked.push_back(seconds);
      bars.push_back(seconds / (static_cast<double>(bytes_) / read_ + (fenced ? 0 : bytes / copy_)));
      stored.push_back(bytes / static_cast<double>(bytes_));
      if (after.busy_s > before.busy_s)
        packed.push_back(static_cast<double>(after.bytes - before.bytes) / (after.busy_s - before.busy_s) / link_);
    }
    const std::string what = (fenced ? "_fenced_" : "_") + percent(share);
    json.put("blocked_ms" + what, over(blocked, 1e-3)).put("stored_share" + what, spread(stored));
    json.put(fenced ? "blocked_over_read" + what : "blocked_over_read_and_copy" + what, spread(bars));
    Samples host;
    for (const double one : blocked) host.push_back(all_to_host_ / one);
    json.put("copy_of_all_to_host_over_blocked" + what, spread(host));
    if (!packed.empty()) json.put("packed_to_host_over_link" + what, spread(packed));
  }

  /// From the host cache into the array, all of it, and only the zones in which two versions differ.
  void restores(bench::Json& json, ebb::Store& store) {
    constexpr double kShare = 0.05;
    const double up = kGiB / bench::median(rounds_of([&] { stream_.copy(memory_.get(), pinned_.get(), kGiB); }));
    const auto take = [&] {
      stream_.wait();
      const auto gathered = store.snapshot_stats().bytes_gathered;
      store.snapshot(version_, {.stream = stream_.handle()}).value().wait("ephemeral").value();
      store.wait("host").value();
      ++version_;
      return static_cast<double>(store.snapshot_stats().bytes_gathered - gathered);
    };
    take();
    const auto zones = static_cast<std::uint32_t>(bytes_ / kZone);
    bench::check(bench::enqueue_touch(stream_.get(), memory_.get(), kZone, zones, kShare, kSeed), "touch");
    const double differ = take();
    const ebb::Version before = version_ - 2, after = version_ - 1;
    const auto seconds = [&](ebb::Version version, ebb::RestoreOptions options) {
      options.keep = true;
      const auto begin = std::chrono::steady_clock::now();
      store.restore(version, {{0, memory_.get(), bytes_}}, options).value();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    Samples all, some;
    seconds(before, {});
    for (std::uint64_t round = 0; round < rounds_; ++round) {
      some.push_back(differ / up / seconds(after, {.have = before}));
      some.push_back(differ / up / seconds(before, {.have = after}));
    }
    for (std::uint64_t round = 0; round < std::min<std::uint64_t>(rounds_, 3); ++round)
      all.push_back(static_cast<double>(bytes_) / up / seconds(before, {}));
    json.put("bare_link_up_GBps", up / 1e9).put("restore_of_all_over_link", spread(all));
    json.put("restore_of_differing_over_link_" + percent(kShare), spread(some));
  }

  const std::uint64_t rounds_;
  const std::size_t bytes_;
  bench::DeviceBuffer memory_;
  bench::PinnedBuffer pinned_;
  const std::size_t cache_, host_;
  bench::Stream stream_;
  bench::Event before_, after_;
  double read_ = 0, copy_ = 0, link_ = 0, all_to_host_ = 0;
  ebb::Version version_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  // mib: of the array; 0: 64 GiB, or what the GPU has beside the cache. cache_mib: of the device cache; 0: an eighth of
  // what is free. host_mib: of the host cache; 0: enough for the array and an increment.
  const bench::Options options(argc, argv,
                               {{"json", ""}, {"mib", "0"}, {"cache_mib", "0"}, {"host_mib", "0"}, {"rounds", "7"}});
  bench::warm_up();
  const std::size_t free = bench::free_device_bytes();
  std::size_t cache = options.number("cache_mib") * kMiB, bytes = options.number("mib") * kMiB;
  if (cache == 0) cache = free / 8 / kMiB * kMiB;
  if (bytes == 0) bytes = std::min<std::size_t>(64 * kGiB, (free - cache - 2 * kGiB) / kGiB * kGiB);
  std::size_t host = options.number("host_mib") * kMiB;
  if (host == 0) host = bytes + bytes / 4 + kGiB;
  bench::Json json;
  std::string failed;
  try {
    Bench(bytes, cache, host, options.number("rounds")).run(json);
  } catch (const std::exception& error) {
    failed = error.what();
    json.put("failed", failed);
  }
  json.write(options.text("json"));  // what was measured until then counts
  if (!failed.empty()) throw std::runtime_error(failed);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_snapshots: %s\n", error.what());
  return 1;
}
