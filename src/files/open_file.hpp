#pragma once
// What a File holds: the pieces of one file, those that are in hand, and the position.
#include <map>
#include <mutex>
#include <sys/types.h>
#include <unistd.h>
#include <vector>

#include "ebbtide/file.hpp"
#include "files/directory.hpp"
#include "store/piece.hpp"

namespace ebb::files {

/// Thread safety: every method may be called from any thread; `mutex_` makes them take turns, so that a call may wait
/// for another's transfers.
/// 1. Bytes of a piece beyond `filled` are zeros, up to the file's end; they are not stored.
/// 2. Memory to fill is in hand for kInHand pieces at most. A piece that is filled to its end is stored at once. One
///    that is stored and written again is stored under a later version, and the earlier one dropped.
/// 3. Between calls nothing is borrowed from the cache: any number of files may be open to be read.
/// 4. The record is written last. So nobody sees a file of which a piece was not given to the store.
class OpenFile {
 public:
  /// A file to be written. `writer` keeps others from writing it; `timeout`: see Store::create_file.
  OpenFile(Directory directory, FileName name, PieceLayout layout, Reservation writer, Seconds timeout);
  /// A file to be read.
  OpenFile(Directory directory, FileName name, const FileRecord& record);

  const FileName& name() const { return name_; }
  bool writable() const { return writable_; }
  std::optional<Error> suspended(const Interrupt& interrupted) const { return directory_.suspended(interrupted); }
  Result<std::uint64_t> read(std::span<std::byte> to, const Interrupt& interrupted);
  Result<void> write(std::span<const std::byte> from, const Interrupt& interrupted);
  Result<void> seek(std::uint64_t position);
  Result<void> truncate(std::uint64_t bytes, const Interrupt& interrupted);
  std::uint64_t position() const;
  std::uint64_t size() const;
  Result<void> close(const Interrupt& interrupted);
  void abandon();
  Result<void> wait(std::string_view level, std::optional<Seconds> timeout, const Interrupt& interrupted);

 private:
  static constexpr std::size_t kInHand = 4, kAhead = 2;
  static constexpr std::size_t kWindow = 64 << 10;

  struct FilePiece {
    std::uint64_t filled = 0;
    std::uint64_t stored = 0;                    // bytes; 0: it is not
    Version version = 0;                         // under which it is
    Version next = 0;                            // no version from here on was used for this file
    std::optional<store::PieceMemory> memory{};  // to be filled
    std::optional<store::LoadedPiece> loaded{};  // as it is stored
    bool hinted = false;
  };

  History history_of(std::uint64_t index) const { return directory_.history(name_.piece(index)); }
  std::optional<Error> refusal(bool to_write) const;
  /// For the program's memory of a call; `reads`: the call reads it.
  Error unusable(bool reads) const;
  bool lent(std::uint64_t bytes) const { return bytes <= lent_; }
  Result<void> read_at(std::uint64_t position, std::span<std::byte> to, const Interrupt& interrupted);
  void give_back();
  Result<FilePiece*> to_fill(PieceLayout::PiecePlace place, const Interrupt& interrupted);
  Result<const std::byte*> to_read(std::uint64_t index, FilePiece& piece, const Interrupt& interrupted);
  Result<void> store(std::uint64_t index, FilePiece& piece, const Interrupt& interrupted);
  Result<void> load(std::uint64_t index, FilePiece& piece, const Interrupt& interrupted);
  Result<void> make_way(std::vector<std::uint64_t>& in_hand, const Interrupt& interrupted);
  void hint_after(std::uint64_t index);
  void drop_piece(std::uint64_t index, FilePiece& piece);
  void let_go();

  const pid_t process_ = ::getpid();
  const Directory directory_;
  const FileName name_;
  const PieceLayout layout_;
  const bool writable_;
  const Version first_version_ = 0;  // of pieces that are written
  const std::uint64_t lent_;         // the largest piece that the cache lends
  const Seconds timeout_{0};
  mutable std::mutex mutex_;
  // All below by `mutex_`.
  bool open_ = true;
  bool whole_ = false;  // it is in the store
  std::uint64_t position_ = 0, size_ = 0;
  std::map<std::uint64_t, FilePiece> pieces_;    // those with bytes, or with memory
  std::vector<std::uint64_t> filling_, loaded_;  // in hand, the last used at the end
  std::vector<std::byte> window_;                // of one to be read, for small reads: the bytes from window_at_ on
  std::uint64_t window_at_ = 0;
  std::optional<Reservation> writer_;
};

}  // namespace ebb::files
