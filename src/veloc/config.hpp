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
  Seconds interval{0};                   ///< between versions that go to `persistent`; 0: all do
  std::filesystem::path node_directory;  ///< of the one store of a node's ranks, where they have a backend
  std::filesystem::path relay;           ///< where they meet it
  std::string level;                     ///< at which a checkpoint is durable
  Options options;                       ///< of the store; its directories are those of all ranks
  std::vector<std::string> notes;        ///< what has no effect, to be said once
};

/// Error invalid_argument or unsupported: names the key, its value, and what would be right.
Result<Config> read_config(const std::string& file);
/// The options of a rank whose host cache is in a pool of its node, of so many bytes.
Options pooled(const Config& config, std::uint64_t bytes);

}  // namespace ebb::veloc
