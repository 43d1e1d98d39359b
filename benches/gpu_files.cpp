// Writes and reads of the local tier's storage from and to pinned memory (see storage_rates.hpp).
#include "benches/gpu_common.hpp"
#include "benches/storage_rates.hpp"

int main(int argc, char** argv) try {
  auto defaults = bench::storage_options();
  defaults["depth"] = "8";  // as a store's file links on a disk this fast
  const bench::Options options(argc, argv, defaults);
  const auto allocate = [](std::size_t bytes) -> bench::Memory { return bench::make_pinned_buffer(bytes); };
  bench::storage_rates(options, allocate).write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_files: %s\n", error.what());
  return 1;
}
