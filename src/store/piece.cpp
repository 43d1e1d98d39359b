#include "store/piece.hpp"

#include <cstring>

namespace ebb::store {
namespace {

bool cannot_be_lent(const Error& error) { return error.code == Errc::too_large || error.code == Errc::unsupported; }

}  // namespace

Result<PieceMemory> PieceMemory::make(History& history, Version version, std::uint64_t bytes, bool lent,
                                      Seconds timeout, const Interrupt& interrupted) {
  PieceMemory made;
  made.version_ = version;
  made.timeout_ = timeout;
  made.bytes_ = bytes;
  if (lent) {
    const Source region{0, nullptr, bytes};
    auto reserved = history.reserve(version, {&region, 1}, {.timeout = timeout, .interrupted = interrupted});
    if (!reserved && !cannot_be_lent(reserved.error())) return reserved.error();
    if (reserved) made.reserved_ = std::move(*reserved);
  }
  if (!made.reserved_) made.own_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  return made;
}

Result<Version> PieceMemory::store(History& history, std::uint64_t bytes, const Interrupt& interrupted) {
  if (reserved_ && bytes < bytes_) {  // a checkpoint has all of what was reserved for it
    auto exact = make(history, version_ + 1, bytes, true, timeout_, interrupted);
    if (!exact) return exact.error();
    std::memcpy(exact->data(), data(), bytes);
    auto stored = exact->store(history, bytes, interrupted);
    if (stored) reserved_.reset();
    return stored;
  }
  if (reserved_) {
    if (auto committed = reserved_->commit(); !committed) return committed.error();
    reserved_.reset();
    return version_;
  }
  auto written = history.checkpoint(version_, {{0, data(), bytes}}, {.timeout = timeout_, .interrupted = interrupted});
  if (!written) return written.error();
  own_.reset();
  return version_;
}

Result<LoadedPiece> LoadedPiece::load(History& history, Version version, std::uint64_t bytes, bool lent,
                                      const Interrupt& interrupted) {
  LoadedPiece loaded;
  const RestoreOptions options{.keep = true, .interrupted = interrupted};
  if (lent) {
    auto loan = history.borrow(version, options);
    if (!loan && !cannot_be_lent(loan.error()) && loan.error().code != Errc::no_space) return loan.error();
    if (loan && loan->bytes() < bytes)
      return Error{Errc::damaged, "piece \"" + history.name() + "\" has " + std::to_string(loan->bytes()) +
                                      " bytes, and should have " + std::to_string(bytes)};
    if (loan) loaded.loan_ = std::move(*loan);
  }
  if (!loaded.loan_) {
    loaded.own_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    if (auto read = history.restore(version, {{0, loaded.own_.get(), bytes}}, options); !read) return read.error();
  }
  return loaded;
}

Result<void> LoadedPiece::give_back(StreamHandle stream) {
  auto done = loan_->release(true, {.stream = stream});
  loan_.reset();
  return done;
}

}  // namespace ebb::store
