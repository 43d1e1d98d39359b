// What a checkpoint or restore call that hits the device cache costs beside its copy, from C++.
//
// Each call is paired with a bare copy of the same bytes into memory of the same age, in the same loop.
#include <cstring>

#include "benches/common.hpp"
#include "benches/raw_io.hpp"
#include "ebbtide/store.hpp"

namespace {

constexpr int kVersions = 64;

struct Round {
  double checkpoint_s = 0, restore_s = 0;  // medians of call minus copy
};

class Loop {
 public:
  Loop(ebb::Store& store, std::size_t bytes)
      : store_(store), bytes_(bytes), field_(bench::make_buffer(bytes)), area_(bench::make_buffer(bytes * kVersions)) {}

  Round run() {
    std::vector<double> checkpoint, restore;
    std::vector<ebb::Version> order(kVersions);
    for (int i = 0; i < kVersions; ++i) order[static_cast<std::size_t>(i)] = next_ + kVersions - 1 - i;
    store_.hint(order).value();
    for (int i = 0; i < kVersions; ++i) {
      checkpoint.push_back(beyond_copy(i, slot(i), field_.get(), [&] {
        store_.checkpoint(next_ + i, {{0, field_.get(), bytes_}}).value();
      }));
    }
    for (int i = 0; i < kVersions; ++i) {
      restore.push_back(beyond_copy(i, field_.get(), slot(i), [&] {
        store_.restore(order[static_cast<std::size_t>(i)], {{0, field_.get(), bytes_}}).value();
      }));
    }
    next_ += kVersions;
    return {bench::median(checkpoint), bench::median(restore)};
  }

 private:
  std::byte* slot(int i) { return area_.get() + static_cast<std::size_t>(i) * bytes_; }
  /// Seconds of `call` less those of the bare copy; the two take turns in coming first, with the caches still cold.
  template <class Call>
  double beyond_copy(int turn, std::byte* to, const std::byte* from, const Call& call) const {
    double times[2];
    for (const int which : {turn % 2, 1 - turn % 2}) {
      const auto start = bench::Clock::now();
      if (which == 0) call();
      else std::memcpy(to, from, bytes_);
      asm volatile("" : : "r"(to) : "memory");  // the copy is wanted though nobody reads it
      times[which] = bench::seconds(bench::Clock::now() - start);
    }
    return times[0] - times[1];
  }

  ebb::Store& store_;
  std::size_t bytes_;
  bench::Buffer field_, area_;
  ebb::Version next_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv, {{"json", ""}, {"dir", "/tmp"}, {"repeats", "15"}});
  bench::Json json;
  for (const bool tiers_below : {false, true}) {
    for (const std::size_t bytes : {std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{1} << 20}) {
      ebb::Options store_options;
      store_options.directory = options.text("dir");
      store_options.device_cache = 2 * kVersions * bytes + (1 << 20);  // every call hits
      store_options.host_cache = tiers_below ? *store_options.device_cache : 0;
      store_options.disk = tiers_below ? 4 * *store_options.device_cache : 0;
      ebb::Store store = ebb::Store::open(store_options).value();
      Loop loop(store, bytes);
      loop.run();  // touches the cache
      loop.run();
      std::vector<double> checkpoint, restore;
      for (std::uint64_t i = 0; i < options.number("repeats"); ++i) {
        const Round round = loop.run();
        checkpoint.push_back(round.checkpoint_s * 1e6);
        restore.push_back(round.restore_s * 1e6);
      }
      store.close().value();
      const std::string name = std::string(tiers_below ? "all_tiers_" : "device_only_") + std::to_string(bytes >> 10);
      json.put("checkpoint_us_" + name + "KiB", checkpoint).put("restore_us_" + name + "KiB", restore);
    }
  }
  json.write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "call_overhead: %s\n", error.what());
  return 1;
}
