#pragma once
// Which of VELOC's files a storage has.
#include <filesystem>

namespace ebb::storage {

struct VelocOf {
  int rank = 0;
  std::filesystem::path meta = {};  // VELOC's directory of metadata; empty: none
  bool sums = false;                // data files have checksum files there
};

}  // namespace ebb::storage
