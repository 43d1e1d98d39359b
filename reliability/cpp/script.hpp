#pragma once
// What a program does to a store in a trial, from a seed; and what it says of it, so that the store may be judged.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ebbtide/checkpoint.hpp"

namespace ebb::trials {

using Bytes = std::vector<std::byte>;

/// A checkpoint that a script writes. `take`: how often this version was written before.
struct Made {
  std::string history;
  Version version = 0;
  unsigned take = 0;
  std::size_t bytes = 0;
};

struct Step {
  enum class Kind : std::uint8_t { open, write, wait, drop, settle, close } kind = Kind::open;
  std::size_t made = 0;  // of write, wait and drop
};

struct Script {
  std::uint64_t seed = 0;
  std::uint64_t keep_last = 0, keep_every = 0;
  std::vector<Made> made;
  std::vector<Step> steps;

  std::vector<std::string> histories() const;
  /// What a checkpoint holds: told by the seed, its name and how often it was written.
  Bytes contents(const Made& made) const;
};

struct ScriptOptions {
  std::size_t openings = 3;
  std::size_t writes = 12;          // in each opening
  std::size_t largest = 300 << 10;  // bytes of a checkpoint
  bool retention = false;           // nothing is dropped by name, and all but a few are dropped by the store
};

/// Several histories, sizes from nothing to `largest`, waits for one and for all, drops, versions that are dropped and
/// written again; each opening is closed in the end.
Script make_script(std::uint64_t seed, const ScriptOptions& options);

/// What the program knew at a moment. Said before a call that changes something, and after one that promised something.
/// `sent`: durable in a shared directory, and so in any case.
struct Event {
  enum class Kind : std::uint8_t { opened, begun, durable, lost, dropping, closed, sent } kind = Kind::opened;
  std::size_t made = 0;
};
std::string text_of(const Event& event);
Event event_of(const std::string& text);
std::vector<Event> events_of(const std::vector<std::string>& texts);

}  // namespace ebb::trials
