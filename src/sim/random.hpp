#pragma once
// Random numbers that are the same on every machine and with every library.
#include <cstdint>

namespace ebb::sim {

// One well-mixed number of a number (the finaliser of splitmix64).
constexpr std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(mixed(seed)) {}
  std::uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15u); }
  std::uint64_t below(std::uint64_t n) { return next() % n; }  // n > 0
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + below(high - low + 1); }
  bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }

 private:
  std::uint64_t state_;
};

}  // namespace ebb::sim
