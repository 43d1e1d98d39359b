#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "ebbtide/error.hpp"
#include "os/files.hpp"

namespace ebb::trace {

/// The file that a planner's events are recorded in. Owns it. The holder of the planner's mutex gathers text in memory;
/// the thread that takes the text out writes it without that mutex.
/// Thread safety: none; `text()` belongs to the holder of the planner's mutex, write() to one thread at a time.
class EventLog {
 public:
  /// Error io_error naming the path.
  static Result<std::unique_ptr<EventLog>> create(os::Files& files, const std::filesystem::path& path);

  std::string& text() noexcept { return text_; }
  bool full() const noexcept { return text_.size() >= kWriteAt; }
  /// Appends to the file. Keeps the first error, and then writes nothing more.
  void write(std::string_view text);
  /// The first error of write(), if any.
  Result<void> result() const { return error_ ? Result<void>(*error_) : Result<void>(); }

 private:
  static constexpr std::size_t kWriteAt = 256 << 10;
  EventLog(os::Files& files, os::File file) : files_(files), file_(std::move(file)) {}
  os::Files& files_;
  os::File file_;
  std::uint64_t offset_ = 0;
  std::string text_;
  std::optional<Error> error_;
};

}  // namespace ebb::trace
