// How much device memory a store takes beyond its device cache, the context and what bare copies need being there
// already: the most of several looks, from open to the end of some traffic in every direction.
#include "benches/gpu_common.hpp"
#include "ebbtide/store.hpp"

int main(int argc, char** argv) try {
  const bench::Options options(
      argc, argv, {{"json", ""}, {"dir", "/tmp"}, {"device", "cuda"}, {"size", "134217728"}, {"slots", "8"}});
  const std::size_t bytes = options.number("size"), slots = options.number("slots");
  bench::warm_up();
  const bench::DeviceBuffer field = bench::make_device_buffer(bytes);
  bench::Stream stream;
  ebb::Options store_options;
  store_options.directory = options.text("dir");
  store_options.device = options.text("device");
  store_options.device_cache = slots * bytes;
  store_options.host_cache = slots * bytes;
  store_options.disk = 2 * slots * bytes;
  const std::uint64_t before = bench::free_device_bytes();
  ebb::Store store = ebb::Store::open(store_options).value();
  const std::uint64_t opened = bench::free_device_bytes();
  std::uint64_t least = opened;
  const auto count = static_cast<ebb::Version>(3 * slots);
  ebb::CheckpointOptions checkpoint;
  ebb::RestoreOptions restore;
  for (ebb::Version version = 0; version < count; ++version) {
    checkpoint.stream = version % 2 ? std::optional(stream.handle()) : std::nullopt;
    store.checkpoint(version, {{0, field.get(), bytes}}, checkpoint).value();
    store.hint_front(version).value();
    least = std::min(least, bench::free_device_bytes());
  }
  for (ebb::Version version = count; version-- > 0;) {
    restore.stream = version % 2 ? std::optional(stream.handle()) : std::nullopt;
    store.restore(version, {{0, field.get(), bytes}}, restore).value();
    least = std::min(least, bench::free_device_bytes());
  }
  stream.wait();
  store.close().value();
  const std::uint64_t closed = bench::free_device_bytes();
  const auto since = [&](std::uint64_t now) { return static_cast<double>(before) - static_cast<double>(now); };
  const auto cache = static_cast<double>(slots * bytes);
  bench::Json json;
  json.put("device_cache_bytes", cache).put("beyond_at_open_bytes", since(opened) - cache);
  json.put("beyond_bytes", since(least) - cache).put("left_after_close_bytes", since(closed));
  json.write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_memory: %s\n", error.what());
  return 1;
}
