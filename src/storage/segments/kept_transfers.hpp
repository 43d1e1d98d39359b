#pragma once
// The file engine as a kept store uses it: transfers of several files at once, each with its own ending.
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include "os/files.hpp"
#include "transfer/file_engine.hpp"

namespace ebb::storage {

/// 4096-aligned memory of whole blocks, as O_DIRECT asks for. Move-only; moved-from is empty.
class AlignedBytes {
 public:
  AlignedBytes() = default;
  explicit AlignedBytes(std::size_t bytes)
      : bytes_(platform::round_up(bytes)),
        data_(static_cast<std::byte*>(::operator new(bytes_, std::align_val_t{platform::kBlock}))) {}
  /// None: there is no memory for it.
  static std::optional<AlignedBytes> make(std::size_t bytes) {
    try {
      return AlignedBytes(bytes);
    } catch (const std::bad_alloc&) {
      return {};
    }
  }
  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return bytes_; }
  std::span<std::byte> first(std::size_t bytes) const { return {data(), bytes}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t{platform::kBlock}); }
  };
  std::size_t bytes_ = 0;
  std::unique_ptr<std::byte, Free> data_;
};

using SharedFile = std::shared_ptr<const platform::File>;

/// Thread safety: every method may be called from any thread; stop() from one.
/// 1. A transfer holds its file open until its ending was called.
class KeptTransfers {
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
