#pragma once
// Files in a store: what torch.save, numpy.save and pickle write, at the price of a copy.
//
//   ebb::File file = store.create_file("model", 3).value();
//   file.write(std::as_bytes(std::span(weights))).value();
//   file.close().value();                            // now it is there
//   ebb::File again = store.open_file("model").value();   // the newest version
//   again.read(std::as_writable_bytes(std::span(weights))).value();
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ebbtide/checkpoint.hpp"
#include "ebbtide/error.hpp"

namespace ebb {

class Store;

namespace files {
class OpenFile;
}  // namespace files

/// A file that is in the store, whole.
struct FileInfo {
  std::string name;
  Version version = 0;
  std::uint64_t bytes = 0;
};

/// An open file of a store. One that is being written (Store::create_file) can be written, read and truncated anywhere;
/// `close` makes it visible under its version, whole. Destroyed before that, or in a process that dies, it leaves
/// nothing. One that is read (Store::open_file) never changes.
///
/// A file is stored in pieces, each a checkpoint: written pieces drain to the disk while the next are filled, and read
/// ones are prefetched in the file's order. Move-only; a moved-from file is closed. Thread safety: every method may be
/// called from any thread; one is carried out at a time. The position belongs to the file, not to the thread.
class File {
 public:
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  std::string name() const;
  Version version() const;
  bool writable() const;

  /// Reads at the position, which moves on. Returns how many bytes were read: fewer than asked for only at the end.
  /// Errors: those of History::restore, closed.
  Result<std::uint64_t> read(std::span<std::byte> to, const Interrupt& interrupted = {});
  /// Writes at the position, which moves on; what lies between the end and the position becomes zeros. On an error the
  /// position is behind what was written. Errors: no_space (no piece of the cache can be had), too_large (more than
  /// 2^60 bytes), unsupported (it is open to be read), those of History::checkpoint.
  Result<void> write(std::span<const std::byte> from, const Interrupt& interrupted = {});
  /// The position may be beyond the end.
  Result<void> seek(std::uint64_t position);
  std::uint64_t tell() const;
  std::uint64_t size() const;
  /// Makes it so long: cut off, or zeros at its end. The position stays. Errors: as `write`.
  Result<void> truncate(std::uint64_t bytes, const Interrupt& interrupted = {});

  /// Ends it. One that was being written is a file of the store from now on, as durable as a checkpoint that was just
  /// written (see `wait`). On an error it stays open, and may be closed again. Closing a closed file does nothing.
  Result<void> close(const Interrupt& interrupted = {});
  /// Ends it without a trace, if it was being written.
  void abandon();

  /// Waits until all of a file that was closed is on tier `level` or as durable as `level` (History::wait). Errors:
  /// those of History::wait, invalid_argument (it is still being written).
  Result<void> wait(std::string_view level, std::optional<Seconds> timeout = {}, const Interrupt& interrupted = {});

 private:
  friend class Store;
  explicit File(std::unique_ptr<files::OpenFile> open);
  std::unique_ptr<files::OpenFile> open_;
};

}  // namespace ebb
