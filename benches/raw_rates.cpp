// The machine's bare rates: memory copies by one thread, O_DIRECT reads and writes in a directory.
#include <cstring>

#include "benches/common.hpp"
#include "benches/raw_io.hpp"

namespace {

double copy_rate(std::size_t bytes, int repeats) {
  const std::size_t slots = std::max<std::size_t>(1, (std::size_t{256} << 20) / bytes);
  const bench::Buffer area = bench::make_buffer(slots * bytes), source = bench::make_buffer(bytes);
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const auto start = bench::Clock::now();
    std::memcpy(area.get() + static_cast<std::size_t>(i) % slots * bytes, source.get(), bytes);
    times.push_back(bench::seconds(bench::Clock::now() - start));
  }
  return static_cast<double>(bytes) / bench::median(times);
}

void describe(bench::Json& json, const std::string& name, const bench::Way& way, const std::vector<double>& rates) {
  json.put(name + "_bytes_per_s", bench::median(rates)).put(name + "_all", rates);
  json.put(name + "_engine", way.uring ? "io_uring" : "threads").put(name + "_depth", way.depth);
  json.put(name + "_request", static_cast<double>(way.request));
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv,
                               {{"json", ""},
                                {"dir", "/tmp"},
                                {"copy", "16777216"},
                                {"probe", "67108864"},
                                {"span", "536870912"},
                                {"repeats", "5"}});
  const std::uint64_t span = options.number("span");
  bench::RawFile file(options.text("dir"));
  const bench::BestRates best = bench::find_best(file, options.number("probe"));
  std::vector<double> write, read;
  for (std::uint64_t i = 0; i < options.number("repeats"); ++i) {
    file.fresh(span);
    write.push_back(file.rate(true, span, best.write.way));
    read.push_back(file.rate(false, span, best.read.way));
  }
  bench::Json json;
  json.put("copy_bytes_per_s", copy_rate(options.number("copy"), 15));
  describe(json, "write", best.write.way, write);
  describe(json, "read", best.read.way, read);
  json.write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "raw_rates: %s\n", error.what());
  return 1;
}
