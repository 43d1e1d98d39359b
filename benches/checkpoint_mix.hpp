#pragma once
// The writes of one process's checkpoint, as in figure 2 of the paper on write aggregation (wag-dbi, sec. II).
#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

namespace bench {

/// Writes of one class: how many of a thousand, how much of a thousand of the bytes, and how large one may be.
struct WriteClass {
  int writes, bytes;
  double least, most;
};
// LU.C.64: half below 64 bytes with under 0.5% of the bytes; 37% of 4 to 64 KiB with 12%; 1% above 512 KiB with 86%.
inline constexpr std::array<WriteClass, 4> kWriteClasses{
    {{513, 1, 8, 64}, {107, 14, 64, 4096}, {370, 120, 4096, 65536}, {10, 865, 524288, 8 << 20}}};

inline std::vector<std::size_t> write_sizes(int writes, double bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::size_t> sizes;
  for (const WriteClass& one : kWriteClasses) {
    const int count = std::max(1, writes * one.writes / 1000);
    std::vector<double> weights;
    double sum = 0;
    for (int i = 0; i < count; ++i)
      sum += weights.emplace_back(std::uniform_real_distribution<double>(0.5, 1.5)(random));
    for (const double weight : weights) {
      sizes.push_back(
          static_cast<std::size_t>(std::clamp(bytes * one.bytes / 1000 * weight / sum, one.least, one.most)));
    }
  }
  while (sizes.size() < static_cast<std::size_t>(writes)) sizes.push_back(32);
  std::shuffle(sizes.begin(), sizes.end(), random);
  return sizes;
}

/// "LU.C.64" or "BT.C.64".
inline std::vector<std::size_t> write_sizes(const std::string& mix, unsigned process) {
  return mix == "LU.C.64" ? write_sizes(975, 23e6, process + 1) : write_sizes(1057, 40e6, process + 1);
}

}  // namespace bench
