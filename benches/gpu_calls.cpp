// Calls that need no transfer but the copy to or from the device cache, beside a bare copy of the same bytes: blocking,
// in stream order, and without a copy (reserve, borrow).
//
// Call and bare copy take turns in one loop, so that both see the same traffic of ours on the other links: none in a
// store that has the device cache alone ("alone"), flushes to the host in one that has more ("beside").
// In stream order both are put behind a long copy: the stream reaches them when the host is long done with them, so
// that the events around them show what the stream sees; "idle": it waits for them, and sees the host's time too.
#include <cmath>

#include "benches/gpu_common.hpp"
#include "ebbtide/store.hpp"

namespace {

/// What was measured under each name: every repeat's samples, in microseconds.
class Samples {
 public:
  void forget() { *this = Samples(); }
  void next_repeat() { ++repeat_; }
  void add(const std::string& name, double seconds) {
    auto& repeats = of_[name];
    repeats.resize(repeat_ + 1);
    repeats.back().push_back(std::round(seconds * 1e9) / 1e3);
  }
  /// `name_us`: the median of each repeat; `raw_name_us`: every sample.
  void write(bench::Json& json) const {
    for (const auto& [name, repeats] : of_) {
      std::vector<double> medians, all;
      for (const auto& repeat : repeats) {
        medians.push_back(bench::median(repeat));
        all.insert(all.end(), repeat.begin(), repeat.end());
      }
      json.put(name + "_us", medians).put("raw_" + name + "_us", all);
    }
  }

 private:
  std::map<std::string, std::vector<std::vector<double>>> of_;
  std::size_t repeat_ = 0;
};

class Loop {
 public:
  Loop(ebb::Store& store, std::string where, std::size_t bytes, std::size_t slots, Samples& samples)
      : store_(store),
        where_(std::move(where)),
        bytes_(bytes),
        slots_(slots),
        samples_(samples),
        field_(bench::make_device_buffer(bytes)),
        area_(bench::make_device_buffer(bytes * slots)),
        gate_(bench::make_device_buffer(bytes * slots)),
        source_{{0, field_.get(), bytes}},
        target_{{0, field_.get(), bytes}} {}

  void run() {
    blocking();
    ordered(true);
    ordered(false);
    without_copy();
  }

 private:
  void blocking() {
    const auto versions = fresh();
    for (std::size_t i = 0; i < slots_; ++i) {
      turns(
          i, [&] { time("checkpoint_blocking", [&] { store_.checkpoint(versions[i], source_).value(); }); },
          [&] { time("checkpoint_bare", [&] { copy_and_wait(slot(i), field_.get()); }); });
    }
    for (std::size_t i = slots_; i-- > 0;) {
      turns(
          i, [&] { time("restore_blocking", [&] { store_.restore(versions[i], target_).value(); }); },
          [&] { time("restore_bare", [&] { copy_and_wait(field_.get(), slot(i)); }); });
    }
  }

  void ordered(bool behind_work) {
    const std::string kind = behind_work ? "" : "_idle";
    const auto versions = fresh();
    ebb::CheckpointOptions checkpoint;
    checkpoint.stream = stream_.handle();
    ebb::RestoreOptions restore;
    restore.stream = stream_.handle();
    for (std::size_t i = 0; i < slots_; ++i) {
      turns(
          i,
          [&] {
            on_stream(behind_work, "checkpoint_ordered" + kind,
                      [&] { store_.checkpoint(versions[i], source_, checkpoint).value(); });
          },
          [&] {
            on_stream(behind_work, "checkpoint_ordered_bare" + kind,
                      [&] { stream_.copy(slot(i), field_.get(), bytes_); });
          });
    }
    for (std::size_t i = slots_; i-- > 0;) {
      turns(
          i,
          [&] {
            on_stream(behind_work, "restore_ordered" + kind,
                      [&] { store_.restore(versions[i], target_, restore).value(); });
          },
          [&] {
            on_stream(behind_work, "restore_ordered_bare" + kind, [&] { stream_.copy(field_.get(), slot(i), bytes_); });
          });
    }
  }

  void without_copy() {
    const auto versions = fresh();
    const std::vector<ebb::Source> regions = {{0, nullptr, bytes_}};
    for (std::size_t i = 0; i < slots_; ++i) {
      time("reserve_commit", [&] {
        ebb::Reservation room = store_.reserve(versions[i], regions).value();
        room.commit({.stream = stream_.handle()}).value();
      });
      stream_.wait();
    }
    for (std::size_t i = slots_; i-- > 0;) {
      time("borrow_release", [&] {
        ebb::Loan loan = store_.borrow(versions[i]).value();
        loan.release(false, {.stream = stream_.handle()}).value();
      });
      stream_.wait();
    }
  }

  /// Numbers for `slots` checkpoints, hinted in reverse.
  std::vector<ebb::Version> fresh() {
    std::vector<ebb::Version> versions;
    for (std::size_t i = 0; i < slots_; ++i) versions.push_back(next_++);
    store_.hint(std::vector<ebb::Version>(versions.rbegin(), versions.rend())).value();
    return versions;
  }
  std::byte* slot(std::size_t i) { return area_.get() + i * bytes_; }
  void copy_and_wait(std::byte* to, const std::byte* from) {
    stream_.copy(to, from, bytes_);
    stream_.wait();
  }
  /// One after the other, each first every other time.
  template <class One, class Other>
  static void turns(std::size_t turn, const One& one, const Other& other) {
    if (turn % 2) other();
    one();
    if (turn % 2 == 0) other();
  }
  template <class Call>
  void time(const std::string& name, const Call& call) {
    const auto start = bench::Clock::now();
    call();
    samples_.add(name + "_" + where_, bench::seconds(bench::Clock::now() - start));
  }
  /// `name_host`: the call; `name_stream`: between the events around it.
  template <class Call>
  void on_stream(bool behind_work, const std::string& name, const Call& call) {
    const std::size_t half = slots_ / 2 * bytes_;
    if (behind_work) stream_.copy(gate_.get() + half, gate_.get(), half);
    before_.record(stream_);
    time(name + "_host", call);
    after_.record(stream_);
    stream_.wait();
    samples_.add(name + "_stream_" + where_, after_.seconds_since(before_));
  }

  ebb::Store& store_;
  std::string where_;
  std::size_t bytes_, slots_;
  Samples& samples_;
  bench::Stream stream_;
  bench::Event before_, after_;
  bench::DeviceBuffer field_, area_, gate_;
  const std::vector<ebb::Source> source_;
  const std::vector<ebb::Target> target_;
  ebb::Version next_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv,
                               {{"json", ""},
                                {"dir", "/tmp"},
                                {"device", "cuda"},
                                {"size", "134217728"},
                                {"slots", "16"},
                                {"rounds", "4"},
                                {"repeats", "5"}});
  const std::size_t bytes = options.number("size"), slots = options.number("slots");
  bench::warm_up();
  bench::Json json;
  json.put("bytes", static_cast<double>(bytes));
  for (const std::string where : {"alone", "beside"}) {  // one after the other: each has the device to itself
    ebb::Options store_options;
    store_options.directory = options.text("dir");
    store_options.device = options.text("device");
    store_options.device_cache = 2 * slots * bytes;  // whatever is written finds room
    store_options.host_cache = where == "alone" ? 0 : 2 * slots * bytes;
    store_options.disk = 0;
    ebb::Store store = ebb::Store::open(store_options).value();
    Samples samples;
    Loop loop(store, where, bytes, slots, samples);
    loop.run();
    samples.forget();
    for (std::uint64_t repeat = 0; repeat < options.number("repeats"); ++repeat) {
      for (std::uint64_t round = 0; round < options.number("rounds"); ++round) loop.run();
      samples.next_repeat();
    }
    samples.write(json);
    store.close().value();
  }
  json.write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_calls: %s\n", error.what());
  return 1;
}
