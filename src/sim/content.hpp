#pragma once
// Which bytes are where: the simulator's memory and files hold stamps instead of bytes, and reject corrupting commands.
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "planner/commands.hpp"
#include "sim/machine.hpp"

namespace ebb::sim {

// A run of bytes of one write: byte i of the range is byte i + shift of write `serial`.
class Stamps {
 public:
  void put(Bytes begin, Bytes length, std::uint64_t serial, Bytes first);
  void erase(Bytes begin, Bytes length);
  // The write whose bytes [first, first + length) are at `begin`; 0: other bytes, or none.
  std::uint64_t whose(Bytes begin, Bytes length, Bytes first) const;

 private:
  struct Run {
    Bytes end = 0;
    std::uint64_t serial = 0;
    Bytes first = 0;
  };
  void split(Bytes at);
  std::map<Bytes, Run> runs_;
};

// Thread safety: none. Throws std::logic_error when a command, a loan or a freed range
//   1. reads bytes that are not those of its checkpoint (never written, overwritten, freed or of another write);
//   2. writes where another use is live, or frees memory in use;
//   3. gives a restore bytes that were not written by the checkpoint that it names.
class Content {
 public:
  explicit Content(const planner::Machine& machine);

  // `serial` names a write (its request). The bytes that the application's memory of `request` holds or will get.
  void begin_write(std::uint64_t request);
  void begin_restore(std::uint64_t request, std::uint64_t serial, Bytes bytes);
  // The restore has all bytes that it asked for.
  void end_restore(std::uint64_t request);
  void forget(std::uint64_t request);

  // Whether the bytes that the command reads from a tier of memory are those of a checkpoint.
  bool has_source(const planner::Command& command);
  void start(const planner::Command& command);
  void finish(const planner::Command& command);
  void fail(const planner::Command& command);
  // A copy to the application that followed a failed one: its bytes are invalid.
  void spoil(const planner::Command& command);
  // Bytes that an earlier run left in a tier's file, as write `serial`.
  void add_recovered(planner::CheckpointRef checkpoint, TierIndex tier, Bytes bytes, std::uint64_t serial);
  void freed(const planner::Freed& freed);
  // Makes a memory tier larger. Its contents become invalid, even those in use.
  void extend(TierIndex tier, Bytes bytes);
  void scribble(TierIndex tier, Bytes offset, Bytes bytes);

  // Lent memory: to compute into (serial of the future write) or to read.
  void lend(std::uint64_t loan, const planner::Place& place, Bytes bytes, std::uint64_t serial, bool to_write);
  void commit(std::uint64_t loan);
  void give_back(std::uint64_t loan);

 private:
  struct Access {
    std::uint64_t id = 0;  // of a command (even) or a loan (odd)
    Bytes begin = 0, length = 0;
    bool writes = false;
  };
  struct Memory {
    Stamps stamps;
    std::vector<Access> uses;
    Bytes capacity = 0;
  };
  struct Landing {
    std::uint64_t serial = 0;
    Bytes bytes = 0;
    Stamps got;
  };
  struct Loan {
    planner::Place place;
    Bytes bytes = 0;
    std::uint64_t serial = 0;
    bool writes = false;
    bool lost = false;  // its memory was overwritten
  };
  static std::uint64_t key(planner::CheckpointRef ref) { return std::uint64_t{ref.slot} << 32 | ref.generation; }
  // The memory behind a place, null for the application; `begin` is the place's offset in it.
  Memory* memory(const planner::Place& place, planner::CheckpointRef ref, bool create);
  std::uint64_t source_serial(const planner::Command& command);
  void use(Memory& memory, const Access& use, const char* what);
  void end_use(Memory& memory, std::uint64_t id);
  [[noreturn]] static void wrong(const std::string& what, const planner::Command& command);

  std::vector<Memory> arenas_;
  std::vector<bool> file_;
  std::vector<Memory> rings_;  // by node
  std::vector<std::unordered_map<std::uint64_t, Memory>> files_;
  std::unordered_map<std::uint64_t, Landing> landings_;
  std::unordered_map<std::uint64_t, bool> writes_;
  std::unordered_map<std::uint64_t, Loan> loans_;
  std::unordered_map<std::uint64_t, std::uint64_t> moving_;  // command -> serial of the bytes it moves
};

}  // namespace ebb::sim
