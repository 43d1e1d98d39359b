#include "files/open_file.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <random>
#include <string>

#include "os/memory_guard.hpp"

namespace ebb::files {

namespace {

// A record of a file that was dropped, and whose drop a crash has lost, names no piece of the one written in its place.
Version any_version() {
  std::random_device random;
  return static_cast<Version>((std::uint64_t{random()} << 28 ^ random()) << 1);
}

// As for a store that writes: several pieces of a larger share could not be in hand at once.
std::uint64_t most_lent(const Directory& directory) { return directory.lends() ? directory.layout().largest : 0; }

}  // namespace

OpenFile::OpenFile(Directory directory, FileName name, PieceLayout layout, Reservation writer, Seconds timeout)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      layout_(layout),
      writable_(true),
      first_version_(any_version()),
      lent_(most_lent(directory_)),
      timeout_(timeout),
      writer_(std::move(writer)) {}

OpenFile::OpenFile(Directory directory, FileName name, const FileRecord& record)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      layout_(record.layout),
      writable_(false),
      lent_(most_lent(directory_)),
      whole_(true),
      size_(record.bytes) {
  for (const RecordedPiece& piece : record.pieces)
    pieces_[piece.index] = {.filled = piece.bytes, .stored = piece.bytes, .version = piece.version};
}

std::optional<Error> OpenFile::refusal(bool to_write) const {
  if (::getpid() != process_)
    return Error{Errc::closed, name_.text() + " was opened by another process, of which this one is a fork"};
  if (!open_) return Error{Errc::closed, name_.text() + " is closed"};
  if (to_write && !writable_) return Error{Errc::unsupported, name_.text() + " is open to be read"};
  return {};
}

Error OpenFile::unusable(bool reads) const {
  return {Errc::invalid_argument, name_.text() +
                                      (reads ? ": the bytes to write cannot be read: their memory"
                                             : ": the memory to read into cannot be written to: it") +
                                      " is protected, or is of a mapped file that was truncated"};
}

// --- reading and writing -------------------------------------------------------------------------------------------

Result<std::uint64_t> OpenFile::read(std::span<std::byte> to, const Interrupt& interrupted) {
  const std::lock_guard lock(mutex_);
  if (auto refused = refusal(false)) return *refused;
  const std::uint64_t wanted = position_ < size_ ? std::min<std::uint64_t>(to.size(), size_ - position_) : 0;
  if (writable_ || wanted >= kWindow) {
    if (auto done = read_at(position_, to.first(wanted), interrupted); !done) return done.error();
  } else if (wanted > 0) {
    if (position_ < window_at_ || position_ + wanted > window_at_ + window_.size()) {
      std::vector<std::byte> window(std::min<std::uint64_t>(kWindow, size_ - position_));
      if (auto done = read_at(position_, window, interrupted); !done) return done.error();
      window_ = std::move(window);
      window_at_ = position_;
    }
    if (!os::try_copy(to.data(), window_.data() + (position_ - window_at_), wanted)) return unusable(false);
  }
  position_ += wanted;
  return wanted;
}

// There are so many bytes.
Result<void> OpenFile::read_at(std::uint64_t position, std::span<std::byte> to, const Interrupt& interrupted) {
  while (!to.empty()) {
    const PieceLayout::PiecePlace place = layout_.at(position);
    const std::uint64_t from = position - place.start;
    std::uint64_t length = std::min<std::uint64_t>(to.size(), place.bytes - from);
    const auto found = pieces_.find(place.index);
    const std::uint64_t filled = found == pieces_.end() ? 0 : found->second.filled;
    if (from < filled) {
      length = std::min(length, filled - from);
      const auto bytes = to_read(place.index, found->second, interrupted);
      if (!bytes) {
        give_back();
        return bytes.error();
      }
      if (!os::try_copy(to.data(), *bytes + from, length)) {
        give_back();
        return unusable(false);
      }
    } else if (!os::try_touch([&] { std::memset(to.data(), 0, length); })) {
      give_back();
      return unusable(false);
    }
    to = to.subspan(length);
    position += length;
  }
  give_back();
  return {};
}

void OpenFile::give_back() {
  std::erase_if(loaded_, [&](std::uint64_t index) {
    std::optional<store::LoadedPiece>& loaded = pieces_.at(index).loaded;
    if (!loaded->lent()) return false;
    loaded.reset();
    return true;
  });
}

Result<void> OpenFile::write(std::span<const std::byte> from, const Interrupt& interrupted) {
  const std::lock_guard lock(mutex_);
  if (auto refused = refusal(true)) return *refused;
  if (from.size() > kMostBytes || position_ > kMostBytes - from.size())
    return Error{Errc::too_large, name_.text() + " would have more than " + std::to_string(kMostBytes) + " bytes"};
  while (!from.empty()) {
    const PieceLayout::PiecePlace place = layout_.at(position_);
    const auto piece = to_fill(place, interrupted);
    if (!piece) return piece.error();
    FilePiece& filling = **piece;
    const std::uint64_t at = position_ - place.start;
    const std::uint64_t length = std::min<std::uint64_t>(from.size(), place.bytes - at);
    std::byte* const memory = filling.memory->data();
    if (at > filling.filled) std::memset(memory + filling.filled, 0, at - filling.filled);
    if (!os::try_copy(memory + at, from.data(), length)) return unusable(true);
    filling.filled = std::max(filling.filled, at + length);
    position_ += length;
    size_ = std::max(size_, position_);
    from = from.subspan(length);
    if (filling.filled == place.bytes && at + length == place.bytes) {
      if (auto stored = store(place.index, filling, interrupted); !stored) return stored;
    }
  }
  return {};
}

Result<void> OpenFile::seek(std::uint64_t position) {
  const std::lock_guard lock(mutex_);
  if (auto refused = refusal(false)) return *refused;
  position_ = position;
  return {};
}

Result<void> OpenFile::truncate(std::uint64_t bytes, const Interrupt& interrupted) {
  const std::lock_guard lock(mutex_);
  if (auto refused = refusal(true)) return *refused;
  if (bytes > kMostBytes)
    return Error{Errc::too_large, name_.text() + " would have more than " + std::to_string(kMostBytes) + " bytes"};
  if (bytes < size_) {
    const PieceLayout::PiecePlace last = layout_.at(bytes);
    // What is stored of a piece is all of it that counts: the one that is cut is filled anew.
    const auto cut = pieces_.find(last.index);
    if (cut != pieces_.end() && last.start < bytes && bytes - last.start < cut->second.filled) {
      if (auto piece = to_fill(last, interrupted); !piece) return piece.error();
    }
    for (auto at = pieces_.lower_bound(last.index); at != pieces_.end();) {
      FilePiece& piece = at->second;
      piece.filled = at->first == last.index ? std::min(piece.filled, bytes - last.start) : 0;
      if (piece.filled == 0) {
        drop_piece(at->first, piece);
        at = pieces_.erase(at);
      } else {
        ++at;
      }
    }
  }
  size_ = bytes;
  return {};
}

std::uint64_t OpenFile::position() const {
  const std::lock_guard lock(mutex_);
  return position_;
}

std::uint64_t OpenFile::size() const {
  const std::lock_guard lock(mutex_);
  return size_;
}

// --- pieces --------------------------------------------------------------------------------------------------------

// Memory of the piece, with what it had.
Result<OpenFile::FilePiece*> OpenFile::to_fill(PieceLayout::PiecePlace place, const Interrupt& interrupted) {
  if (const auto found = pieces_.find(place.index); found != pieces_.end() && found->second.memory) {
    if (filling_.back() != place.index) {
      std::erase(filling_, place.index);
      filling_.push_back(place.index);
    }
    return &found->second;
  }
  if (auto way = make_way(filling_, interrupted); !way) return way.error();
  const auto [at, added] = pieces_.try_emplace(place.index);
  FilePiece& piece = at->second;
  if (added) piece.next = first_version_;
  const auto made = [&]() -> Result<void> {
    if (piece.filled > 0) {
      if (auto there = load(place.index, piece, interrupted); !there) return there;
    }
    History history = history_of(place.index);
    auto memory = store::PieceMemory::make(history, piece.next, place.bytes, lent(place.bytes), timeout_, interrupted);
    if (!memory) return memory.error();
    piece.next += 2;
    if (piece.filled > 0) std::memcpy(memory->data(), piece.loaded->data(), piece.filled);
    piece.memory = std::move(*memory);
    return {};
  }();
  if (!made) {
    give_back();
    if (added) pieces_.erase(at);
    return made.error();
  }
  piece.loaded.reset();
  std::erase(loaded_, place.index);
  filling_.push_back(place.index);
  return &piece;
}

Result<const std::byte*> OpenFile::to_read(std::uint64_t index, FilePiece& piece, const Interrupt& interrupted) {
  if (piece.memory) return static_cast<const std::byte*>(piece.memory->data());
  if (!piece.loaded) {
    if (auto there = load(index, piece, interrupted); !there) return there.error();
  }
  return piece.loaded->data();
}

Result<void> OpenFile::store(std::uint64_t index, FilePiece& piece, const Interrupt& interrupted) {
  History history = history_of(index);
  const auto version = piece.memory->store(history, piece.filled, interrupted);
  if (!version) return version.error();
  piece.memory.reset();
  std::erase(filling_, index);
  const bool again = piece.stored > 0;
  const Version before = std::exchange(piece.version, *version);
  piece.stored = piece.filled;
  if (again) static_cast<void>(history.drop(before));  // closed is all that it can be
  return {};
}

Result<void> OpenFile::load(std::uint64_t index, FilePiece& piece, const Interrupt& interrupted) {
  if (piece.loaded) return {};
  if (auto way = make_way(loaded_, interrupted); !way) return way;
  if (!writable_) hint_after(index);
  History history = history_of(index);
  auto loaded = store::LoadedPiece::load(history, piece.version, piece.stored, lent(piece.stored), interrupted);
  if (!loaded) return loaded.error();
  piece.hinted = false;
  piece.loaded = std::move(*loaded);
  loaded_.push_back(index);
  return {};
}

// The piece that was used longest ago goes.
Result<void> OpenFile::make_way(std::vector<std::uint64_t>& in_hand, const Interrupt& interrupted) {
  if (in_hand.size() < kInHand) return {};
  const std::uint64_t oldest = in_hand.front();
  FilePiece& piece = pieces_.at(oldest);
  if (piece.memory) return store(oldest, piece, interrupted);
  piece.loaded.reset();
  in_hand.erase(in_hand.begin());
  return {};
}

void OpenFile::hint_after(std::uint64_t index) {
  auto next = pieces_.upper_bound(index);
  for (std::size_t ahead = 0; ahead < kAhead && next != pieces_.end(); ++ahead, ++next) {
    if (next->second.hinted || next->second.loaded) continue;
    next->second.hinted = static_cast<bool>(history_of(next->first).hint({next->second.version}));
  }
}

void OpenFile::drop_piece(std::uint64_t index, FilePiece& piece) {
  piece.memory.reset();
  piece.loaded.reset();
  std::erase(filling_, index);
  std::erase(loaded_, index);
  static_cast<void>(history_of(index).drop());
}

// --- its end -------------------------------------------------------------------------------------------------------

Result<void> OpenFile::close(const Interrupt& interrupted) {
  const std::lock_guard lock(mutex_);
  if (!open_) return {};
  if (auto refused = refusal(false)) return *refused;
  if (writable_) {
    while (!filling_.empty()) {
      const std::uint64_t index = *std::ranges::min_element(filling_);
      FilePiece& piece = pieces_.at(index);
      if (auto stored = store(index, piece, interrupted); !stored) return stored;
    }
    FileRecord record{size_, layout_, {}};
    for (const auto& [index, piece] : pieces_) record.pieces.push_back({index, piece.stored, piece.version});
    const std::vector<std::byte> bytes = encode(record);
    History history = directory_.history(name_.record());
    auto memory = store::PieceMemory::make(history, 0, bytes.size(), lent(bytes.size()), timeout_, interrupted);
    if (!memory) return memory.error();
    std::ranges::copy(bytes, memory->data());
    if (auto stored = memory->store(history, bytes.size(), interrupted); !stored) return stored.error();
    whole_ = true;
  }
  let_go();
  return {};
}

void OpenFile::abandon() {
  const std::lock_guard lock(mutex_);
  if (refusal(false)) return;
  if (writable_) {
    for (auto& [index, piece] : pieces_) drop_piece(index, piece);
    pieces_.clear();
  }
  let_go();
}

void OpenFile::let_go() {
  for (auto& [index, piece] : pieces_) {
    piece.loaded.reset();
    if (std::exchange(piece.hinted, false)) static_cast<void>(history_of(index).unhint());
  }
  loaded_.clear();
  writer_.reset();
  open_ = false;
}

Result<void> OpenFile::wait(std::string_view level, std::optional<Seconds> timeout, const Interrupt& interrupted) {
  std::vector<std::pair<std::string, Version>> parts;
  {
    const std::lock_guard lock(mutex_);
    if (!whole_ || (writable_ && open_))
      return Error{Errc::invalid_argument, name_.text() + " is not in the store: close it first"};
    for (const auto& [index, piece] : pieces_) parts.emplace_back(name_.piece(index), piece.version);
  }
  parts.emplace_back(name_.record(), 0);
  const auto begun = std::chrono::steady_clock::now();
  for (const auto& [name, version] : parts) {
    std::optional<Seconds> left;
    if (timeout) left = std::max(Seconds{0}, *timeout - Seconds(std::chrono::steady_clock::now() - begun));
    if (auto waited = directory_.history(name).wait(version, level, left, interrupted); !waited) return waited;
  }
  return {};
}

}  // namespace ebb::files
