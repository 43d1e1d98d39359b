#pragma once
// VELOC's configuration: a file of `key = value` lines, and VELOC_<KEY> in the environment, which wins.
#include <filesystem>
#include <string>
#include <vector>

#include "ebbtide/options.hpp"

namespace ebb::veloc {

struct Config {
  bool sync = false;
  bool caches = false;            ///< a cache size is given
  bool keeps_in_scratch = false;  ///< checkpoints go nowhere but to `scratch`
  std::filesystem::path scratch;
  Seconds interval{0};             ///< between versions that go to `persistent`; 0: all do
  std::string level;               ///< at which a checkpoint is durable
  Options options;                 ///< of the store; its directories are those of all ranks
  std::vector<std::string> notes;  ///< what has no effect, to be said once
};

/// Error invalid_argument or unsupported: names the key, its value, and what would be right.
Result<Config> read_config(const std::string& file);

}  // namespace ebb::veloc
