#pragma once
// Writes and reads of the local tier's storage beside the best bare O_DIRECT rate, one after the other in one loop.
//
// Both write space that was preallocated and never written. Ours gets what the runtime gives it: chunks of whole
// checkpoints, at most `depth` of them under way. Told beside it: the bare way through as much memory as ours goes
// through, `depth` chunks.
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "benches/common.hpp"

namespace bench {

using Memory = std::shared_ptr<std::byte[]>;
/// Gives memory to write from and read to, 4096-aligned and touched.
using Allocate = std::function<Memory(std::size_t bytes)>;

/// The options that `storage_rates` needs.
inline std::map<std::string, std::string> storage_options() {
  return {{"json", ""},         {"dir", "/tmp"},      {"probe", "67108864"}, {"span", "536870912"},
          {"size", "16777216"}, {"chunk", "4194304"}, {"depth", "2"},        {"repeats", "7"},
          {"io", "auto"},       {"threads", "0"},     {"entries", "0"}};
}

/// Throws when anything fails.
Json storage_rates(const Options& options, const Allocate& allocate);

}  // namespace bench
