#pragma once
// The file engine as a segment store uses it: transfers of several files, each with its own completion callback.
#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "os/files.hpp"
#include "storage/file_io.hpp"
#include "transfer/file_engine.hpp"

namespace ebb::storage {

using SharedFile = std::shared_ptr<const os::File>;

/// Thread safety: every method may be called from any thread; stop() from one.
/// 1. A transfer keeps its file open until its completion has returned.
class FileTransfers {
 public:
  using Completion = std::function<void(Result<void>)>;
  Result<void> start(os::Files& files, const transfer::FileEngineOptions& options);
  /// Calls `completion` once, on a thread of the engine.
  void submit(transfer::Direction direction, SharedFile file, std::span<const transfer::Piece> pieces,
              Completion completion);
  /// Waits until it is done. Not for the engine's own threads.
  Result<void> move(transfer::Direction direction, const SharedFile& file, std::span<const transfer::Piece> pieces);
  /// Whether this thread is running a completion. It must not wait for transfers, which may depend on its return.
  static bool in_completion();
  std::string_view name() const { return engine_->name(); }
  void stop() {
    if (engine_) engine_->stop();
  }

 private:
  struct Transfer {  // its address is its token
    SharedFile file;
    Completion completion;
  };
  static void on_done(transfer::Token token, Result<void> how);

  std::unique_ptr<transfer::FileEngine> engine_;
};

}  // namespace ebb::storage
