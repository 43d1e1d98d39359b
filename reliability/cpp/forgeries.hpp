#pragma once
// What somebody may do to the files of a store who knows the format and means no good: all checksums are right.
#include <random>
#include <span>

#include "reliability/cpp/harmed.hpp"

namespace ebb::trials {

using Random = std::mt19937_64;

struct Forgery {
  const char* name;
  /// Changes `files`, which are those of `image`.
  void (*make)(const Image& image, MemoryFiles& files, Random& random);
};
std::span<const Forgery> forgeries();

}  // namespace ebb::trials
