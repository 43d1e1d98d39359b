// Writes and reads of the local tier's storage from and to memory that its host cache has: pinned, and on huge pages
// where the system gives them, as the bare way's is (see storage_rates.hpp).
#include "benches/gpu_common.hpp"
#include "benches/storage_rates.hpp"
#include "device/cuda.hpp"

int main(int argc, char** argv) try {
  auto defaults = bench::storage_options();
  defaults["depth"] = "8";  // as a store's file links on a disk this fast
  const bench::Options options(argc, argv, defaults);
  const std::shared_ptr<ebb::device::Device> device = ebb::device::make_cuda_device(0).value();
  const auto allocate = [&](std::size_t bytes) -> bench::Memory {
    const auto give_back = [device, bytes](std::byte* memory) { device->free_host(memory, bytes); };
    return {device->allocate_host(bytes).value(), give_back};
  };
  bench::storage_rates(options, allocate).write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_files: %s\n", error.what());
  return 1;
}
