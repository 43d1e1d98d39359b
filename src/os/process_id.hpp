#pragma once
#include <cstdint>
#include <sys/types.h>

#include "ebbtide/error.hpp"
#include "os/files.hpp"

namespace ebb::os {

/// A process of this node since it was booted: numbers are reused, a number and a start together are not.
struct ProcessId {
  pid_t pid = 0;
  std::uint64_t start = 0;  // clock ticks since the boot
  bool operator==(const ProcessId&) const = default;
};

/// From /proc. Error io_error: there is no such process.
Result<ProcessId> process_id(Files& files, pid_t pid);
/// This process. Errors: io_error, unsupported (/proc shows the processes of another PID namespace).
Result<ProcessId> this_process(Files& files);

/// The PID namespace of this process. 0: the machine's first, or unknown.
std::uint64_t pid_namespace();

/// Whether it has not ended. One that its parent has yet to wait for has: its memory is unmapped.
bool is_running(Files& files, const ProcessId& process);

/// Whether it was stopped, by a signal or a debugger, and goes on only when it is told to.
bool is_stopped(Files& files, pid_t pid);

}  // namespace ebb::os
