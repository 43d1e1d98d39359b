// What a checkpoint or restore call that hits the device cache costs beside its copy, from C++.
//
// Each call is paired with a bare copy of the same bytes into memory of the same age, in the same loop. Where there are
// tiers below, the program computes before each pair for as long as it takes to flush what it wrote; once more it
// sleeps instead, which says what a processor costs that has to wake up and find all of its caches cold.
#include <cstring>
#include <thread>

#include "benches/common.hpp"
#include "benches/raw_io.hpp"
#include "ebbtide/store.hpp"

namespace {

constexpr int kVersions = 64;
constexpr std::chrono::microseconds kPause{1000};

enum class Pause { none, compute, sleep };

/// A program between two checkpoints: a stencil over 8 MiB of its own.
class Program {
 public:
  void compute(std::chrono::microseconds time) {
    const auto until = bench::Clock::now() + time;
    while (bench::Clock::now() < until) {
      for (int n = 0; n < 4096; ++n, at_ = at_ + 2 < from_.size() ? at_ + 1 : 1) {
        to_[at_] = 0.5f * from_[at_] + 0.25f * (from_[at_ - 1] + from_[at_ + 1]);
      }
    }
  }

 private:
  std::vector<float> from_ = std::vector<float>(1 << 20, 1.0f), to_ = std::vector<float>(1 << 20);
  std::size_t at_ = 1;
};

struct Round {
  double checkpoint_s = 0, restore_s = 0;  // medians of call minus copy
};

class Loop {
 public:
  Loop(ebb::Store& store, std::size_t bytes, Pause pause)
      : store_(store),
        bytes_(bytes),
        pause_(pause),
        field_(bench::make_buffer(bytes)),
        area_(bench::make_buffer(bytes * kVersions)) {}

  Round run() {
    Pairs checkpoint, restore;
    std::vector<ebb::Version> order(kVersions);
    for (int i = 0; i < kVersions; ++i) order[static_cast<std::size_t>(i)] = next_ + kVersions - 1 - i;
    store_.hint(order).value();
    for (int i = 0; i < kVersions; ++i) {
      pair(checkpoint, i, slot(i), field_.get(),
           [&] { store_.checkpoint(next_ + i, {{0, field_.get(), bytes_}}).value(); });
    }
    for (int i = 0; i < kVersions; ++i) {
      pair(restore, i, field_.get(), slot(i),
           [&] { store_.restore(order[static_cast<std::size_t>(i)], {{0, field_.get(), bytes_}}).value(); });
    }
    next_ += kVersions;
    return {checkpoint.median(), restore.median()};
  }

 private:
  std::byte* slot(int i) { return area_.get() + static_cast<std::size_t>(i) * bytes_; }
  /// Differences of calls and copies. The two take turns in coming first, where the processor's caches are still cold:
  /// the mean of both turns' medians has nothing of that left.
  struct Pairs {
    std::vector<double> of_turn[2];
    double median() const { return (bench::median(of_turn[0]) + bench::median(of_turn[1])) / 2; }
  };
  template <class Call>
  void pair(Pairs& pairs, int turn, std::byte* to, const std::byte* from, const Call& call) {
    if (pause_ == Pause::sleep) std::this_thread::sleep_for(kPause);
    if (pause_ == Pause::compute) program_.compute(kPause);
    double times[2];
    for (const int which : {turn % 2, 1 - turn % 2}) {
      const auto start = bench::Clock::now();
      if (which == 0)
        call();
      else
        std::memcpy(to, from, bytes_);
      asm volatile("" : : "r"(to) : "memory");  // the copy is wanted though nobody reads it
      times[which] = bench::seconds(bench::Clock::now() - start);
    }
    pairs.of_turn[turn % 2].push_back(times[0] - times[1]);
  }

  ebb::Store& store_;
  std::size_t bytes_;
  Pause pause_;
  Program program_;
  bench::Buffer field_, area_;
  ebb::Version next_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv, {{"json", ""}, {"dir", "/tmp"}, {"repeats", "15"}});
  bench::Json json;
  for (const auto& [name, pause] : {std::pair("device_only_", Pause::none), std::pair("all_tiers_", Pause::compute),
                                    std::pair("asleep_", Pause::sleep)}) {
    const bool tiers_below = pause != Pause::none;
    for (const std::size_t bytes : {std::size_t{4} << 10, std::size_t{64} << 10, std::size_t{1} << 20}) {
      ebb::Options store_options;
      store_options.directory = options.text("dir");
      store_options.device_cache = 2 * kVersions * bytes + (1 << 20);  // every call hits
      store_options.host_cache = tiers_below ? *store_options.device_cache : 0;
      store_options.disk = tiers_below ? 4 * *store_options.device_cache : 0;
      ebb::Store store = ebb::Store::open(store_options).value();
      Loop loop(store, bytes, pause);
      loop.run();  // touches the cache
      loop.run();
      std::vector<double> checkpoint, restore;
      for (std::uint64_t i = 0; i < options.number("repeats"); ++i) {
        const Round round = loop.run();
        checkpoint.push_back(round.checkpoint_s * 1e6);
        restore.push_back(round.restore_s * 1e6);
      }
      store.close().value();
      const std::string what = name + std::to_string(bytes >> 10) + "KiB";
      json.put("checkpoint_us_" + what, checkpoint).put("restore_us_" + what, restore);
    }
  }
  json.write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "call_overhead: %s\n", error.what());
  return 1;
}
