// A time stepper that takes a snapshot every 10 steps and runs on meanwhile. Each snapshot stores what was written
// since the one before.
#include <ebbtide/store.hpp>
#include <iostream>
#include <numeric>
#include <vector>

int main() {
  constexpr int kSteps = 100;
  constexpr std::size_t kCells = 1 << 19, kMoved = kCells / 512;  // 4 MiB, of which a step writes a part
  std::vector<double> field(kCells), sums(kSteps);
  auto store =
      ebb::Store::open({.device = "cpu", .device_cache = 16 << 20, .host_cache = 64 << 20, .disk = 256 << 20}).value();

  store.protect(0, field.data(), kCells * sizeof(double)).value();
  for (int step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < kMoved; ++i) field[(step * kMoved + i) % kCells] += step;
    if (step % 10 != 0) continue;
    sums[step] = std::accumulate(field.begin(), field.end(), 0.0);
    store.snapshot(step).value();  // as it is now; it is copied while the loop goes on
  }
  for (int step = 90; step >= 0; step -= 10) {
    std::vector<double> then(kCells);
    store.restore(step, {{0, then.data(), kCells * sizeof(double)}}, {.keep = true}).value();
    if (std::accumulate(then.begin(), then.end(), 0.0) != sums[step]) return 1;
  }
  const ebb::CheckpointInfo info = store.info(90).value();
  std::cout << "version 90 has " << info.bytes << " bytes of its own, and leans on " << info.leans_on.size()
            << " others\n";
  return info.bytes < kCells * sizeof(double) ? 0 : 1;
}
