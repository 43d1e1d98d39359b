// The public handle of WriteRecorder.
#include "ebbtide/write_recorder.hpp"
#include "snapshots/write_recorder.hpp"

namespace ebb {

WriteRecorder::WriteRecorder(std::unique_ptr<snapshots::WriteRecorder> recorder) : recorder_(std::move(recorder)) {}
WriteRecorder::WriteRecorder(WriteRecorder&&) noexcept = default;
WriteRecorder& WriteRecorder::operator=(WriteRecorder&&) noexcept = default;
WriteRecorder::~WriteRecorder() = default;

Result<WriteRecorder> WriteRecorder::start(void* memory, std::size_t bytes) {
  os::SystemWriteWatches watches;
  auto started = snapshots::WriteRecorder::start(watches, {static_cast<std::byte*>(memory), bytes});
  if (!started) return started.error();
  return WriteRecorder(std::move(*started));
}

Result<void> WriteRecorder::cut() { return recorder_->cut(); }
Result<std::vector<RecordedWrite>> WriteRecorder::stop() { return recorder_->stop(); }

}  // namespace ebb
