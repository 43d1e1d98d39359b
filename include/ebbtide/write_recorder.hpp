#pragma once
// Records what a program writes to its memory around a cut: an input of the simulator of the memory-zone hardware
// (`ebbtide sim zones`).
//
//   auto recorder = ebb::WriteRecorder::start(field.data(), field.size()).value();
//   step(field);
//   recorder.cut().value();
//   step(field);
//   for (const ebb::RecordedWrite& write : recorder.stop().value()) print(write.nanoseconds, write.page);
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ebbtide/error.hpp"

namespace ebb {

namespace snapshots {
class WriteRecorder;
}

/// The first write of an interval to a page of 4096 bytes.
struct RecordedWrite {
  std::int64_t nanoseconds = 0;  ///< after the cut; below 0: before it
  std::uint32_t page = 0;        ///< of the memory
};

/// Each first write costs the program a fault of some microseconds, which is in the times.
///
/// Move-only; moved-from may only be destroyed or assigned to. Thread safety: one thread at a time; any may write to
/// the memory.
class WriteRecorder {
 public:
  /// `memory` and `bytes` are multiples of 4096; the memory stays mapped until stop(). Errors: invalid_argument,
  /// unsupported, not_permitted, in_use, out_of_memory, io_error.
  static Result<WriteRecorder> start(void* memory, std::size_t bytes);
  WriteRecorder(WriteRecorder&&) noexcept;
  WriteRecorder& operator=(WriteRecorder&&) noexcept;
  ~WriteRecorder();

  /// From now on writes are those after the cut. Error invalid_argument: there was one, or it was stopped.
  Result<void> cut();
  /// Ends it; in the order of the writes. Errors: what the watch failed with; invalid_argument: without a cut.
  Result<std::vector<RecordedWrite>> stop();

 private:
  explicit WriteRecorder(std::unique_ptr<snapshots::WriteRecorder> recorder);
  std::unique_ptr<snapshots::WriteRecorder> recorder_;
};

}  // namespace ebb
