// The rates at which the store moves checkpoints between device and host cache behind the program, beside bare copies
// between device and pinned memory: down, up, and both at once. Down is timed from the first call until everything has
// arrived; up and both from the counters of the links, between their first and their last change.
#include <atomic>
#include <exception>
#include <functional>
#include <numeric>
#include <thread>

#include "benches/gpu_common.hpp"
#include "ebbtide/store.hpp"

namespace {

struct Moved {
  double at = 0;                   // seconds
  std::uint64_t down = 0, up = 0;  // bytes
};

Moved moved(const ebb::Store& store) {
  Moved now;
  for (const ebb::LinkStats& link : store.stats().links) {
    if (link.name == "device>host" || link.name == "app>host") now.down += link.bytes;
    if (link.name == "host>device" || link.name == "host>app") now.up += link.bytes;
  }
  now.at = bench::seconds(bench::Clock::now().time_since_epoch());
  return now;
}

/// Looks at the counters until `done` says so.
std::vector<Moved> watch(const ebb::Store& store, const std::function<bool(const std::vector<Moved>&)>& done) {
  std::vector<Moved> seen = {moved(store)};
  do {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    seen.push_back(moved(store));
  } while (!done(seen));
  return seen;
}

/// Indexes of the first and the last look at which `bytes` had changed.
std::pair<std::size_t, std::size_t> active(const std::vector<Moved>& seen, std::uint64_t Moved::* bytes) {
  std::size_t first = 0, last = 0;
  for (std::size_t i = 1; i < seen.size(); ++i) {
    if (seen[i].*bytes == seen[i - 1].*bytes) continue;
    if (first == 0) first = i;
    last = i;
  }
  if (last <= first) throw std::runtime_error("nothing was moved behind the program");
  return {first, last};
}

double rate(const Moved& from, const Moved& to, std::uint64_t Moved::* bytes) {
  return static_cast<double>(to.*bytes - from.*bytes) / (to.at - from.at);
}

std::vector<ebb::Version> range(ebb::Version first, std::size_t count) {
  std::vector<ebb::Version> versions(count);
  std::iota(versions.begin(), versions.end(), first);
  return versions;
}

class Links {
 public:
  Links(ebb::Store& store, std::size_t bytes, std::size_t slots)
      : store_(store),
        bytes_(bytes),
        slots_(slots),
        field_(bench::make_device_buffer(bytes)),
        back_(bench::make_device_buffer(bytes)),
        near_(bench::make_device_buffer(bytes * kAround)),
        far_(bench::make_pinned_buffer(2 * bytes * kAround)) {}

  double bare(bool down, bool up) {
    const auto start = bench::Clock::now();
    for (std::size_t i = 0; i < 2 * slots_; ++i) {
      std::byte* near = near_.get() + i % kAround * bytes_;
      std::byte* far = far_.get() + i % kAround * bytes_;
      if (down) down_.copy(far, near, bytes_);
      // Another place of the host, and where the other direction is not just now.
      if (up) up_.copy(near_.get() + (i + kAround / 2) % kAround * bytes_, far + kAround * bytes_, bytes_);
    }
    down_.wait();
    up_.wait();
    const double total = static_cast<double>((down ? 1 : 0) + (up ? 1 : 0)) * static_cast<double>(2 * slots_ * bytes_);
    return total / bench::seconds(bench::Clock::now() - start);
  }

  double down() {
    const auto start = bench::Clock::now();
    write(0, 2 * slots_);
    store_.wait("host").value();
    const double took = bench::seconds(bench::Clock::now() - start);
    store_.drop().value();
    return static_cast<double>(2 * slots_ * bytes_) / took;
  }

  double up() {
    prepare(slots_);
    const std::uint64_t before = moved(store_).up;
    store_.hint(range(0, slots_)).value();
    const auto seen = watch(store_, [&](const std::vector<Moved>& looks) {  // until nothing has changed for a while
      const double still_s = 0.05;
      const Moved& now = looks.back();
      const auto other = [&](const Moved& look) { return look.up != now.up; };
      const auto since = std::find_if(looks.rbegin(), looks.rend(), other);
      const double changed = since == looks.rend() ? looks.front().at : since->at;
      return now.at - changed > (now.up == before ? 20 * still_s : still_s);
    });
    const auto [first, last] = active(seen, &Moved::up);
    store_.drop().value();
    told_up_bytes_ = static_cast<double>(seen[last].up - before);
    return rate(seen[first], seen[last], &Moved::up);
  }

  /// One thread reads what waits on the host, another writes; the sum of both directions while both are at work.
  double both() {
    const std::size_t count = slots_ + slots_ / 4;
    prepare(count);
    std::atomic<int> working{2};
    std::exception_ptr failed[2];
    const auto guarded = [&](int which, auto work) {
      return std::thread([&working, &failed, which, work] {
        try {
          work();
        } catch (...) {
          failed[which] = std::current_exception();
        }
        --working;
      });
    };
    store_.hint(range(0, count)).value();
    std::thread writer = guarded(0, [&] { write(static_cast<ebb::Version>(4 * slots_), count); });
    std::thread reader = guarded(1, [&] {
      for (const ebb::Version version : range(0, count)) store_.restore(version, {{0, back_.get(), bytes_}}).value();
    });
    const auto seen = watch(store_, [&](const std::vector<Moved>&) { return working == 0; });
    writer.join();
    reader.join();
    for (const std::exception_ptr& error : failed) {
      if (error) std::rethrow_exception(error);
    }
    const auto down = active(seen, &Moved::down), up = active(seen, &Moved::up);
    const Moved& from = seen[std::max(down.first, up.first)];
    const Moved& to = seen[std::min(down.second, up.second)];
    if (to.at <= from.at) throw std::runtime_error("the two directions were not at work at the same time");
    told_both_s_ = to.at - from.at;
    store_.drop().value();
    return rate(from, to, &Moved::down) + rate(from, to, &Moved::up);
  }

  double told_up_bytes() const { return told_up_bytes_; }
  double told_both_s() const { return told_both_s_; }

 private:
  static constexpr std::size_t kAround = 8;

  void write(ebb::Version first, std::size_t count) {
    for (const ebb::Version version : range(first, count)) {
      store_.checkpoint(version, {{0, field_.get(), bytes_}}).value();
    }
  }
  /// `count` versions on the host alone, an empty device cache: whatever else was written pushed them out and is gone.
  void prepare(std::size_t count) {
    write(0, count + slots_);
    store_.wait("host").value();
    for (const ebb::Version version : range(static_cast<ebb::Version>(count), slots_)) store_.drop(version).value();
  }

  ebb::Store& store_;
  std::size_t bytes_, slots_;
  bench::DeviceBuffer field_, back_, near_;
  bench::PinnedBuffer far_;
  bench::Stream down_, up_;
  double told_up_bytes_ = 0, told_both_s_ = 0;
};

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(
      argc, argv,
      {{"json", ""}, {"dir", "/tmp"}, {"device", "cuda"}, {"size", "134217728"}, {"slots", "32"}, {"repeats", "5"}});
  const std::size_t bytes = options.number("size"), slots = options.number("slots");
  bench::warm_up();
  ebb::Options store_options;
  store_options.directory = options.text("dir");
  store_options.device = options.text("device");
  store_options.device_cache = slots * bytes;
  store_options.host_cache = 3 * slots * bytes;
  store_options.disk = 0;
  const auto opening = bench::Clock::now();
  ebb::Store store = ebb::Store::open(store_options).value();
  const double open_s = bench::seconds(bench::Clock::now() - opening);
  Links links(store, bytes, slots);
  links.down();
  std::map<std::string, std::vector<double>> found;
  for (std::uint64_t i = 0; i < options.number("repeats"); ++i) {
    found["down_bare"].push_back(links.bare(true, false));
    found["down"].push_back(links.down());
    found["up_bare"].push_back(links.bare(false, true));
    found["up"].push_back(links.up());
    found["both_bare"].push_back(links.bare(true, true));
    found["both"].push_back(links.both());
    found["up_bytes"].push_back(links.told_up_bytes());
    found["both_s"].push_back(links.told_both_s());
  }
  store.close().value();
  bench::Json json;
  json.put("open_s", open_s).put("host_cache_bytes", static_cast<double>(*store_options.host_cache));
  for (const auto& [name, values] : found) {
    const bool is_rate = name != "up_bytes" && name != "both_s";
    json.put(is_rate ? name + "_bytes_per_s" : name, values);
  }
  json.write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_links: %s\n", error.what());
  return 1;
}
