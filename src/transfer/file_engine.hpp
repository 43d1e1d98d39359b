#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "ebbtide/error.hpp"
#include "os/files.hpp"
#include "transfer/token.hpp"

namespace ebb::transfer {

enum class Direction : std::uint8_t { read, write };

/// A part of a transfer: `length` bytes between `memory` and the file's `offset`. With a direct file both are aligned
/// to 4096, and both have room up to the next multiple of 4096, because that much is transferred.
struct Piece {
  std::uint64_t offset = 0;
  std::byte* memory = nullptr;  // only read when writing
  std::size_t length = 0;
};

/// Moves bytes between memory and files in the background.
///
/// Thread safety: submit() and pending() may be called from any thread; stop() and the destructor from one.
/// 1. Every submit() is followed by exactly one `done`, after all of its pieces, with the first error if there was one.
///    Nothing of the transfer is in flight then.
/// 2. Transfers are not ordered among each other.
/// 3. Short transfers, EINTR and EAGAIN are continued; any other errno is an Error (no_space for ENOSPC, else io_error)
///    naming file, offset, length and errno. The end of the file before `length` bytes were read is an Error too.
class FileEngine {
 public:
  virtual ~FileEngine() = default;
  /// "io_uring" or "threads".
  virtual std::string_view name() const noexcept = 0;
  /// `pieces` is copied; `file` must stay open until `done`. No pieces, or empty ones: `done` is called all the same.
  virtual void submit(Token token, Direction direction, const os::File& file, std::span<const Piece> pieces) = 0;
  /// Submitted and not reported yet.
  virtual std::size_t pending() const = 0;
  /// Reports everything in flight, then joins. Later submits throw std::logic_error. May be called twice.
  virtual void stop() = 0;
};

struct FileEngineOptions {
  enum class Kind : std::uint8_t { automatic, uring, threads } kind = Kind::automatic;
  unsigned threads = 4;                 // of the thread engine
  unsigned entries = 64;                // requests that the ring takes at once
  std::size_t request_bytes = 1 << 20;  // pieces are cut into requests of at most this, a multiple of 4096
};

/// automatic: io_uring, or threads where it is missing or refused. Error unsupported: `uring` where there is none.
/// `files` must outlive the engine.
Result<std::unique_ptr<FileEngine>> make_file_engine(os::Files& files, const FileEngineOptions& options, Done done);

}  // namespace ebb::transfer
