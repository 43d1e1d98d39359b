// Computing inside the cache: `reserve` lends its memory for writing, `borrow` for reading. Nothing is copied.
#include <ebbtide/store.hpp>
#include <iostream>
#include <numeric>

int main() {
  constexpr std::size_t kCells = 1 << 17;  // 1 MiB
  constexpr int kSteps = 32;
  auto store =
      ebb::Store::open({.device = "cpu", .device_cache = 8 << 20, .host_cache = 8 << 20, .disk = 64 << 20}).value();

  for (int step = 0; step < kSteps; ++step) {
    const ebb::Source region[] = {{.id = 0, .data = nullptr, .bytes = kCells * sizeof(double)}};
    auto place = store.reserve(step, region, {.timeout = ebb::Seconds(10)}).value();
    auto* cells = reinterpret_cast<double*>(place.region(0).data());
    std::iota(cells, cells + kCells, step);
    place.commit().value();
    store.hint_front(step).value();
  }
  double total = 0;
  for (int step = kSteps; step-- > 0;) {
    auto loan = store.borrow(step).value();
    const auto* cells = reinterpret_cast<const double*>(loan.region(0).data());
    if (cells[0] != step) return 1;
    total += cells[kCells - 1];
    loan.release().value();
  }
  std::cout << "the last cells add up to " << total << "\n";
  return total == kSteps * (kCells - 1.0) + kSteps * (kSteps - 1) / 2 ? 0 : 1;
}
