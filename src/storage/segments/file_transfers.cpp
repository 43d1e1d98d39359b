#include "storage/segments/file_transfers.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>

namespace ebb::storage {

namespace {

thread_local bool completing = false;

}  // namespace

bool FileTransfers::in_completion() { return completing; }

Result<void> FileTransfers::start(os::Files& files, const transfer::FileEngineOptions& options) {
  auto engine = transfer::make_file_engine(files, options, on_done);
  if (!engine) return engine.error();
  engine_ = std::move(*engine);
  return {};
}

void FileTransfers::submit(transfer::Direction direction, SharedFile file, std::span<const transfer::Piece> pieces,
                           Completion completion) {
  auto transfer = std::make_unique<Transfer>(Transfer{std::move(file), std::move(completion)});
  engine_->submit(reinterpret_cast<transfer::Token>(transfer.get()), direction, *transfer->file, pieces);
  static_cast<void>(transfer.release());  // owned by on_done() now, which may already have run
}

Result<void> FileTransfers::move(transfer::Direction direction, const SharedFile& file,
                                 std::span<const transfer::Piece> pieces) {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<void>> result;
  submit(direction, file, pieces, [&](Result<void> how) {
    std::lock_guard lock(mutex);
    result = std::move(how);
    changed.notify_all();  // under the lock: the waiting thread destroys all of this at once
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return result.has_value(); });
  return *result;
}

void FileTransfers::on_done(transfer::Token token, Result<void> how) {
  const std::unique_ptr<Transfer> transfer(reinterpret_cast<Transfer*>(token));
  completing = true;  // completions do not throw and are not nested
  transfer->completion(std::move(how));
  completing = false;
}

}  // namespace ebb::storage
