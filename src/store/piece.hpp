#pragma once
// The memory of one piece of a file or of a snapshot: while it is written, and when it is read back.
#include <memory>
#include <optional>

#include "ebbtide/store.hpp"

namespace ebb::store {

/// Memory to fill: the cache's own, which a commit turns into the piece without a copy, or ordinary memory where the
/// cache has none to give (on a GPU, or larger than it).
class PieceMemory {
 public:
  /// `lent`: of the cache, if possible. Waits `timeout` for room that no transfer can make.
  static Result<PieceMemory> make(History& history, Version version, std::uint64_t bytes, bool lent, Seconds timeout,
                                  const Interrupt& interrupted);
  std::byte* data() const { return reserved_ ? reserved_->data() : own_.get(); }
  /// Stores its first `bytes`, and ends it if that succeeds. Returns the version under which they are stored: that of
  /// `make`, or the next one, where only a part is stored.
  Result<Version> store(History& history, std::uint64_t bytes, const Interrupt& interrupted);

 private:
  Version version_ = 0;
  Seconds timeout_{0};
  std::uint64_t bytes_ = 0;
  std::optional<Reservation> reserved_;
  std::unique_ptr<std::byte[]> own_;
};

/// A piece's bytes: the cache's replica, or a copy where the cache cannot lend it.
class LoadedPiece {
 public:
  static Result<LoadedPiece> load(History& history, Version version, std::uint64_t bytes, bool lent,
                                  const Interrupt& interrupted);
  const std::byte* data() const { return loan_ ? loan_->data() : own_.get(); }
  bool lent() const { return loan_.has_value(); }
  /// What was lent is read no more once `stream` has come to this point. Error lost: what was read may be wrong.
  Result<void> give_back(StreamHandle stream);

 private:
  std::optional<Loan> loan_;
  std::unique_ptr<std::byte[]> own_;
};

}  // namespace ebb::store
