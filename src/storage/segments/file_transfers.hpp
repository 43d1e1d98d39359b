#pragma once
// The file engine as a kept store uses it: transfers of several files at once, each with its own ending.
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "os/files.hpp"
#include "storage/file_io.hpp"
#include "transfer/file_engine.hpp"

namespace ebb::storage {

using SharedFile = std::shared_ptr<const platform::File>;

/// Thread safety: every method may be called from any thread; stop() from one.
/// 1. A transfer holds its file open until its ending was called.
class FileTransfers {
 public:
  using Ending = std::function<void(Result<void>)>;
  Result<void> start(platform::Files& files, const transfer::FileEngineOptions& options);
  /// `ending` is called once, on a thread of the engine's.
  void submit(transfer::Direction direction, SharedFile file, std::span<const transfer::Piece> pieces, Ending ending);
  /// Waits for the end of it. Not for a thread of the engine's.
  Result<void> move(transfer::Direction direction, const SharedFile& file, std::span<const transfer::Piece> pieces);
  /// Whether this thread is calling an ending: transfers may hang on its return, and it must not wait for any.
  static bool is_ending();
  std::string_view name() const { return engine_->name(); }
  void stop() {
    if (engine_) engine_->stop();
  }

 private:
  struct Transfer {  // its address is its token
    SharedFile file;
    Ending ending;
  };
  static void ended(transfer::Token token, Result<void> how);

  std::unique_ptr<transfer::FileEngine> engine_;
};

}  // namespace ebb::storage
