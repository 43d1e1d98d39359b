// The time that the planner takes for one event: over the papers' shot (384 checkpoints of 128 MiB, hpdc23 sec. 5.3),
// over shots so long that about 1,000 and 10,000 replicas live, and over small checkpoints that fill the caches of a
// persistent store, with 10,000 and 100,000 replicas. Every event is timed; a list of hints counts per hint.
#include <algorithm>
#include <array>
#include <iostream>

#include "benches/common.hpp"
#include "benches/planner_shot.hpp"
#include "trace/event_text.hpp"

namespace {

using namespace ebb;

constexpr std::size_t kKinds = std::variant_size_v<planner::event::Any>;

struct Times {
  std::array<std::string_view, kKinds> names;
  std::array<std::vector<double>, kKinds> by_kind;
  std::vector<double> all;
  std::uint32_t replicas = 0;  // most at once
};

double percentile(std::vector<double>& sorted, double p) {
  return sorted.empty()
             ? 0
             : sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(p * static_cast<double>(sorted.size())))];
}

/// Times the events from the moment on at which the caches hold so many replicas, until so many checkpoints later.
Times measure(sim::Simulation simulation, std::uint32_t from = 0, std::size_t checkpoints = SIZE_MAX) {
  Times out;
  simulation.feed = [&](planner::Planner& planner, const planner::Event& event, planner::Output& output) {
    if (out.all.empty() && bench::replicas_of(planner, 2) < from) return planner.on(event, output);
    const auto start = bench::Clock::now();
    planner.on(event, output);
    const auto* const hint = std::get_if<planner::event::Hint>(&event.what);
    const double took = bench::seconds(bench::Clock::now() - start) * 1e6 /
                        static_cast<double>(std::max<std::size_t>(1, hint ? hint->versions.size() : 1));
    out.names[event.what.index()] = trace::name_of(event);
    out.by_kind[event.what.index()].push_back(took);
    out.all.push_back(took);
    checkpoints -= std::holds_alternative<planner::event::Checkpoint>(event.what);
    out.replicas = std::max(out.replicas, bench::replicas_of(planner));
  };
  while (checkpoints > 0 && simulation.step()) {
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv, {{"json", ""}, {"largest", "10000"}});
  bench::Json json;
  std::ostream& table = options.text("json").empty() ? std::cerr : std::cout;
  const std::uint64_t largest = options.number("largest");
  for (const auto& [label, checkpoints] :
       {std::pair<std::string, std::size_t>{"shot", 384}, {"1000", 1000}, {"10000", 10000}}) {
    if (checkpoints > largest) continue;
    std::vector<double> p99, replicas;
    for (const auto order : {sim::Shot::Order::reverse, sim::Shot::Order::sequential, sim::Shot::Order::irregular}) {
      Times times = measure(bench::planner_shot(checkpoints, 128 << 20, order));
      std::sort(times.all.begin(), times.all.end());
      p99.push_back(percentile(times.all, 0.99));
      replicas.push_back(times.replicas);
      table << label << ", order " << static_cast<int>(order) << ": " << times.all.size() << " events, at most "
            << times.replicas << " replicas; us p50 " << percentile(times.all, 0.5) << ", p99 " << p99.back()
            << ", max " << times.all.back() << "\n";
      if (order != sim::Shot::Order::reverse) continue;
      for (std::size_t k = 0; k < kKinds; ++k) {
        auto& kind = times.by_kind[k];
        if (kind.empty()) continue;
        std::sort(kind.begin(), kind.end());
        const std::string name(times.names[k]);
        json.put(name + "_us_" + label,
                 std::vector<double>{percentile(kind, 0.5), percentile(kind, 0.99), kind.back()});
        table << "    " << name << " (" << kind.size() << "): p50 " << percentile(kind, 0.5) << ", p99 "
              << percentile(kind, 0.99) << ", max " << kind.back() << "\n";
      }
    }
    json.put("p99_us_" + label, p99);  // one an order: reverse, sequential, irregular
    json.put("replicas_" + label, replicas);
  }
  for (const std::size_t replicas : {10'000, 100'000}) {
    if (replicas > 10 * largest) continue;
    constexpr std::size_t kCheckpoints = 2'000;
    Times times =
        measure(bench::small_checkpoints(replicas, 2 * replicas), static_cast<std::uint32_t>(replicas), kCheckpoints);
    double sum = 0;
    for (const double one : times.all) sum += one;
    std::sort(times.all.begin(), times.all.end());
    const std::string label = "full_caches_" + std::to_string(replicas);
    json.put("p99_us_" + label, percentile(times.all, 0.99));
    json.put("us_a_checkpoint_" + label, sum / kCheckpoints);
    table << label << ": us p50 " << percentile(times.all, 0.5) << ", p99 " << percentile(times.all, 0.99) << "; "
          << sum / kCheckpoints << " a checkpoint\n";
  }
  json.write(options.text("json"));
} catch (const std::exception& e) {
  std::cerr << "planner_events: " << e.what() << "\n";
  return 1;
}
