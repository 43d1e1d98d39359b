#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ebbtide/write_recorder.hpp"
#include "snapshots/watch_thread.hpp"

namespace ebb::snapshots {

/// Records in which order, and when, a program first writes to the pages of its memory before a cut and after it: what
/// the simulator of the memory-zone hardware runs. Each first write costs a fault, which is in the times.
///
/// Thread safety: every method may be called from any thread; the mutex guards what is recorded. Nothing is allocated
/// and no watched memory is touched while it is held, so a writer is answered whatever it holds.
class WriteRecorder {
 public:
  static constexpr std::size_t kPage = 4096;
  using Write = RecordedWrite;

  /// Records the writes to whole pages, which stay mapped until stop(). Errors: those of WriteWatches::open and of
  /// WriteWatch::watch.
  static Result<std::unique_ptr<WriteRecorder>> start(os::WriteWatches& watches, os::PageRange memory);

  /// From now on writes are those after the cut. Errors: invalid_argument (there was one), those of WriteWatch::arm.
  Result<void> cut();
  /// Ends the recording, and returns the writes in order. Errors: how the watch failed; invalid_argument: without a
  /// cut.
  Result<std::vector<Write>> stop();

 private:
  explicit WriteRecorder(os::PageRange memory);
  void told(os::WriteWatch& watch, const Result<os::WatchEvent>& event);
  static std::int64_t now();

  const os::PageRange memory_;
  std::mutex mutex_;
  std::vector<bool> written_;  // in this interval
  std::vector<Write> writes_;  // of both intervals; their first writes fit
  std::optional<std::int64_t> cut_;
  std::optional<Error> failed_;
  os::WatchResult refused_;             // by disarm()
  std::unique_ptr<WatchThread> watch_;  // calls told() until it is gone
};

}  // namespace ebb::snapshots
