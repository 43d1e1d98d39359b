#pragma once
// The writer of a run: a process of its own that opens the captured files and writes to them what is in the pool.
#include <cstdint>
#include <sys/types.h>
#include <vector>

#include "capture/region.hpp"
#include "os/shared_memory.hpp"

namespace ebb::capture {

/// Thread safety: one thread. Processes of the program work on the same region:
/// 1. A chunk is sealed under its file's lock before it is written, and unlinked under that lock afterwards. Meanwhile
///    its bytes do not change, and readers find them in the pool.
/// 2. The writer has the region's writer_lock as long as it lives; whoever gets that lock from the dead writes the
/// rest.
class Writer {
 public:
  /// Both outlive it.
  Writer(Region* region, platform::SharedFile& memory);
  /// Serves until the program has ended, or `ebbtide run` died; all is written then.
  void run();

 private:
  void open_requested();
  bool write_due();
  bool write_some(std::uint32_t file, bool all);
  void retire();
  void grow();
  Region* const region_;
  platform::SharedFile& memory_;
  std::vector<int> fds_;
};

}  // namespace ebb::capture
