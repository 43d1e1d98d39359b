#pragma once
// A second reader of a store's files: of docs/format.md alone, and of no code that the store reads itself with. What a
// trial holds against what the store hands out.
#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ebbtide/checkpoint.hpp"
#include "os/files.hpp"
#include "reliability/cpp/script.hpp"

namespace ebb::trials {

struct Stranger {
  /// A record whose header holds; a dropped one only beside others of its name.
  struct Writing {
    std::uint64_t sequence = 0;
    bool dropped = false;
    bool intact = false;  // live, and so is its payload; `bytes` are its regions, one behind the other
    Bytes bytes;
    bool operator==(const Writing&) const = default;
  };
  using Name = std::pair<std::string, Version>;

  bool synced = false;            // its durability is "storage"
  bool index = false;             // there is a file of that name, whatever it says
  std::string refused;            // why it must not be read at all; mostly empty
  std::string refused_unindexed;  // so it must without an index; who has one need not see it
  std::map<Name, std::vector<Writing>> writings;
  /// With an index also what lies where no record is to be looked for: it may list that.
  std::map<Name, std::vector<Writing>> anywhere;

  /// What counts of one name: those with the highest sequence. None of a name that is not there.
  std::vector<const Writing*> newest(const Name& name) const;
};

/// Reads each segment from its first byte to its last; of `index` only whether it is there and of a newer format.
Stranger read_as_stranger(os::Files& files, const std::filesystem::path& directory);

}  // namespace ebb::trials
