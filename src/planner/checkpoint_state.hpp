#pragma once
// The life of a checkpoint, beside that of its replicas (lifecycle.hpp), as three tables: what of it is written, what
// holds its name, and what is known of its copy in each file. Together they are its state: no flag says any of it
// again.
#include <cstdint>
#include <span>

#include "planner/state_table.hpp"

namespace ebb::planner {

enum class WriteState : std::uint8_t {
  unwritten,  // only hinted, or given up
  lost,       // no tier could take its bytes, or give them back
  writing,    // the application's bytes are being copied, or wait for room
  reserved,   // the application computes into it, or waits for room to
  submitted,  // it did so in stream order: `commit` follows
  stored      // the application's bytes are all here
};

enum class NameState : std::uint8_t {
  named,     // the version is this checkpoint
  consumed,  // (persistent stores) the same; it was restored, and no hint names it
  dropped,   // the version is another checkpoint's to write; this one goes as soon as nothing uses it
  restored,  // the same, because a restore consumed it
  free       // nothing is left of it: its slot is not in use
};

enum class FileState : std::uint8_t {
  pending,    // not durable there yet, or not there
  failed,     // it could not be made durable
  durable,    // this process wrote it
  recovered,  // an earlier process wrote it: durable, and perhaps damaged
  intact      // the same, and all of it was read since
};

using WriteTransition = TransitionOf<WriteState>;
using NameTransition = TransitionOf<NameState>;
using FileTransition = TransitionOf<FileState>;

const char* name_of(WriteState state);
const char* name_of(NameState state);
const char* name_of(FileState state);
std::span<const WriteTransition> write_transitions();
std::span<const NameTransition> name_transitions();
std::span<const FileTransition> file_transitions();

// `to`, if the table has it; throws std::logic_error naming both states otherwise, in every build.
WriteState transition(WriteState from, WriteState to);
NameState transition(NameState from, NameState to);
FileState transition(FileState from, FileState to);

// Whether it is written or being written.
constexpr bool exists(WriteState state) { return state >= WriteState::writing; }
// Whether its version is no longer this checkpoint.
constexpr bool nameless(NameState state) { return state >= NameState::dropped; }
constexpr bool durable(FileState state) { return state >= FileState::durable; }
constexpr bool of_earlier_process(FileState state) { return state >= FileState::recovered; }

}  // namespace ebb::planner
