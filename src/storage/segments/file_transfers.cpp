#include "storage/segments/file_transfers.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>

namespace ebb::storage {

namespace {

thread_local bool in_ending = false;

}  // namespace

bool FileTransfers::is_ending() { return in_ending; }

Result<void> FileTransfers::start(platform::Files& files, const transfer::FileEngineOptions& options) {
  auto engine = transfer::make_file_engine(files, options, ended);
  if (!engine) return engine.error();
  engine_ = std::move(*engine);
  return {};
}

void FileTransfers::submit(transfer::Direction direction, SharedFile file, std::span<const transfer::Piece> pieces,
                           Ending ending) {
  auto transfer = std::make_unique<Transfer>(Transfer{std::move(file), std::move(ending)});
  engine_->submit(reinterpret_cast<transfer::Token>(transfer.get()), direction, *transfer->file, pieces);
  static_cast<void>(transfer.release());  // ended() has it, perhaps already
}

Result<void> FileTransfers::move(transfer::Direction direction, const SharedFile& file,
                                 std::span<const transfer::Piece> pieces) {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Result<void>> result;
  submit(direction, file, pieces, [&](Result<void> how) {
    std::lock_guard lock(mutex);
    result = std::move(how);
    changed.notify_all();  // under the lock: whoever waits destroys all of this at once
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return result.has_value(); });
  return *result;
}

void FileTransfers::ended(transfer::Token token, Result<void> how) {
  const std::unique_ptr<Transfer> transfer(reinterpret_cast<Transfer*>(token));
  in_ending = true;  // an ending does not throw, and none is called within another
  transfer->ending(std::move(how));
  in_ending = false;
}

}  // namespace ebb::storage
