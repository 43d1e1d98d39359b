#include "storage/segments/kept_transfers.hpp"

#include <condition_variable>
#include <optional>

namespace ebb::storage {

namespace {

thread_local bool in_ending = false;

}  // namespace

bool KeptTransfers::is_ending() { return in_ending; }

Result<void> KeptTransfers::start(platform::Files& files, const transfer::FileEngineOptions& options) {
  auto engine = transfer::make_file_engine(
      files, options, [this](transfer::Token token, Result<void> how) { ended(token, std::move(how)); });
  if (!engine) return engine.error();
  engine_ = std::move(*engine);
  return {};
}

void KeptTransfers::submit(transfer::Direction direction, SharedFile file, std::span<const transfer::Piece> pieces,
                           Ending ending) {
  transfer::Token token = 0;
  const platform::File& open = *file;
  {
    std::lock_guard lock(mutex_);
    token = next_++;
    under_way_.emplace(token, UnderWay{std::move(file), std::move(ending)});
  }
  try {
    engine_->submit(token, direction, open, pieces);
  } catch (...) {
    std::lock_guard lock(mutex_);
    under_way_.erase(token);
    throw;
  }
}

Result<void> KeptTransfers::move(transfer::Direction direction, const SharedFile& file,
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

void KeptTransfers::ended(transfer::Token token, Result<void> how) {
  UnderWay transfer;
  {
    std::lock_guard lock(mutex_);
    const auto found = under_way_.find(token);
    transfer = std::move(found->second);
    under_way_.erase(found);
  }
  in_ending = true;  // an ending does not throw, and none is called within another
  transfer.ending(std::move(how));
  in_ending = false;
}

}  // namespace ebb::storage
