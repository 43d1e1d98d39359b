// What commit(check) costs on a GPU: the digest of memory beside a copy of it, and the host's and the stream's time of
// a commit, and of a restore, with and without it.
#include <functional>

#include "benches/gpu_common.hpp"
#include "device/cuda.hpp"
#include "ebbtide/store.hpp"

namespace {

/// The median of `rounds` samples, after a first one that is not counted.
double median_of(std::uint64_t rounds, const std::function<double()>& sample) {
  sample();
  std::vector<double> all;
  for (std::uint64_t round = 0; round < rounds; ++round) all.push_back(sample());
  return bench::median(all);
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv, {{"json", ""}, {"dir", "/tmp"}, {"rounds", "21"}});
  const std::uint64_t rounds = options.number("rounds");
  bench::warm_up();
  bench::Json json;
  const auto device = ebb::device::make_cuda_device(0).value();
  bench::Stream stream;
  bench::Event before, after;
  const auto on_stream = [&](const std::function<void()>& work) {
    before.record(stream);
    work();
    after.record(stream);
    stream.wait();
    return after.seconds_since(before);
  };
  auto* const parts = device->allocate_host(ebb::device::kDigestParts * sizeof(ebb::device::Digest)).value();
  for (const std::size_t mib : {1, 8, 128, 1024, 4096}) {
    const std::size_t bytes = mib << 20;
    const bench::DeviceBuffer from = bench::make_device_buffer(bytes), to = bench::make_device_buffer(bytes);
    const double digest = median_of(rounds, [&] {
      return on_stream([&] {
        device->digest(stream.handle(), from.get(), bytes, reinterpret_cast<ebb::device::Digest*>(parts)).value();
      });
    });
    const double copy = median_of(rounds, [&] { return on_stream([&] { stream.copy(to.get(), from.get(), bytes); }); });
    const std::string size = std::to_string(mib) + "MiB";
    json.put("digest_us_" + size, digest * 1e6);
    json.put("digest_read_GBps_" + size, static_cast<double>(bytes) / digest / 1e9);
    json.put("copy_us_" + size, copy * 1e6);
    json.put("copy_read_and_write_GBps_" + size, 2 * static_cast<double>(bytes) / copy / 1e9);
  }
  device->free_host(parts, ebb::device::kDigestParts * sizeof(ebb::device::Digest));

  constexpr std::size_t kBytes = 128 << 20;
  ebb::Options store_options;
  store_options.directory = options.text("dir");
  store_options.device = "cuda";
  store_options.device_cache = 4 * kBytes;
  store_options.host_cache = 0;
  store_options.disk = 0;
  ebb::Store store = ebb::Store::open(store_options).value();
  const bench::DeviceBuffer out = bench::make_device_buffer(kBytes);
  const std::vector<ebb::Source> regions = {{0, nullptr, kBytes}};
  const std::vector<ebb::Target> targets = {{0, out.get(), kBytes}};
  ebb::Version next = 0;
  for (const bool check : {false, true}) {
    std::vector<double> host, streamed, restored;
    for (std::uint64_t round = 0; round <= rounds; ++round, ++next) {
      ebb::Reservation room = store.reserve(next, regions).value();
      before.record(stream);
      const auto begun = bench::Clock::now();
      room.commit({.stream = stream.handle(), .check = check}).value();
      const double took = bench::seconds(bench::Clock::now() - begun);
      after.record(stream);
      stream.wait();
      store.wait("device").value();
      const auto asked = bench::Clock::now();
      store.restore(next, targets, {.stream = stream.handle()}).value();
      const double back = bench::seconds(bench::Clock::now() - asked);
      stream.wait();
      if (round == 0) continue;
      host.push_back(took);
      streamed.push_back(after.seconds_since(before));
      restored.push_back(back);
    }
    const std::string kind = check ? "_checked" : "";
    json.put("commit" + kind + "_host_us", bench::median(host) * 1e6);
    json.put("commit" + kind + "_stream_us", bench::median(streamed) * 1e6);
    json.put("restore" + kind + "_host_us", bench::median(restored) * 1e6);
  }
  store.close().value();
  json.write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_digest: %s\n", error.what());
  return 1;
}
