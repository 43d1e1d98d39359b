// Writes and reads of the local tier's storage, ordinary memory on our side too (see storage_rates.hpp).
#include "benches/raw_io.hpp"
#include "benches/storage_rates.hpp"

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv, bench::storage_options());
  const auto allocate = [](std::size_t bytes) -> bench::Memory { return bench::make_buffer(bytes); };
  bench::storage_rates(options, allocate).write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "file_rates: %s\n", error.what());
  return 1;
}
