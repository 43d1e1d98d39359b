// What it costs to notice writes, in each form that this machine has: milliseconds per GiB of arming memory for the
// first time, of a scan that finds nothing, of one that finds all pages written and arms them again, and of arming
// again without a scan; microseconds of the first write to a page, the fault thread's answer included.
#include "os/write_watch.hpp"

#include <atomic>
#include <cstring>
#include <iostream>
#include <sys/mman.h>
#include <thread>

#include "benches/common.hpp"
#include "os/files.hpp"
#include "os/pages.hpp"

namespace {

using namespace ebb::os;

// Answers by disarming the page, and does nothing else.
class FaultThread {
 public:
  explicit FaultThread(WriteWatch& watch) : watch_(watch), thread_([this] { run(); }) {}
  ~FaultThread() {
    ending_.store(true);
    watch_.ring();
    thread_.join();
  }

 private:
  void run() {
    while (!ending_.load()) {
      const WatchEvent event = watch_.next(std::chrono::seconds(60)).value();
      if (event.kind == WatchEvent::Kind::written) watch_.disarm(event.range).value();
    }
  }
  WriteWatch& watch_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

double took_ms(const auto& what) {
  const auto start = bench::Clock::now();
  what();
  return bench::seconds(bench::Clock::now() - start) * 1e3;
}

void write_each_page(PageRange range) {
  for (std::byte* page = range.begin; page < range.end(); page += kBlock) {
    *static_cast<volatile std::byte*>(page) = std::byte{2};
  }
}

struct Costs {
  std::vector<double> first_arm, clean_scan, dirty_scan, arm_again;  // ms per GiB
  std::vector<double> first_write, plain_write;                      // us a page
};

void measure(WatchForm form, bool huge, std::size_t bytes, Costs& costs) {
  const PageRange memory{map_pages(bytes).value(), bytes};
  ::madvise(memory.begin, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  std::memset(memory.begin, 1, bytes);
  const double gib = static_cast<double>(bytes) / (std::size_t{1} << 30);
  const double pages = static_cast<double>(bytes / kBlock);
  {
    const bool async = form == WatchForm::userfaultfd_async;
    const auto watch = SystemWriteWatches().open(form).value();
    std::vector<PageRange> written;
    const auto scan = [&] {
      written.clear();
      watch->take_written(memory, written).value();
    };
    watch->watch(memory).value();
    {
      FaultThread faults(*watch);
      costs.first_arm.push_back(took_ms([&] { watch->arm(memory).value(); }) / gib);
      if (async) costs.clean_scan.push_back(took_ms(scan) / gib);
      costs.first_write.push_back(took_ms([&] { write_each_page(memory); }) * 1e3 / pages);
      costs.plain_write.push_back(took_ms([&] { write_each_page(memory); }) * 1e3 / pages);
      if (async) {
        costs.dirty_scan.push_back(took_ms(scan) / gib);
        if (written != std::vector{memory}) throw std::runtime_error("a scan found other pages than were written");
        write_each_page(memory);
      }
      costs.arm_again.push_back(took_ms([&] { watch->arm(memory).value(); }) / gib);
      watch->disarm(memory).value();
    }
    watch->forget(memory);
  }
  unmap_pages(memory.begin, bytes);
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv, {{"bytes", "1073741824"}, {"repeats", "3"}, {"json", ""}});
  const std::size_t bytes = round_up(options.number("bytes"), kHugePage);
  bench::Json json;
  json.put("bytes", static_cast<double>(bytes)).put("huge_pages", huge_pages().setting);
  constexpr std::array kNames{"userfaultfd_async", "userfaultfd_sync", "mprotect"};
  for (const WatchAbility& ability : SystemWriteWatches().abilities()) {
    const std::string name = kNames[static_cast<std::size_t>(ability.form)];
    json.put(name, ability.usable ? "usable" : "not usable");
    if (!ability.usable) {
      std::cerr << name << ": " << ability.note << "\n";
      continue;
    }
    for (const bool huge : {false, true}) {
      Costs costs;
      for (std::uint64_t i = 0; i < options.number("repeats"); ++i) measure(ability.form, huge, bytes, costs);
      const std::string prefix = name + (huge ? "_huge_" : "_small_");
      json.put(prefix + "first_arm_ms", costs.first_arm).put(prefix + "arm_again_ms", costs.arm_again);
      if (!costs.clean_scan.empty()) {
        json.put(prefix + "clean_scan_ms", costs.clean_scan).put(prefix + "dirty_scan_ms", costs.dirty_scan);
      }
      json.put(prefix + "first_write_us", costs.first_write).put(prefix + "plain_write_us", costs.plain_write);
    }
  }
  json.write(options.text("json"));
  return 0;
} catch (const std::exception& e) {
  std::cerr << "write_watch: " << e.what() << "\n";
  return 1;
}
