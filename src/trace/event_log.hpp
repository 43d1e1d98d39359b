#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "ebbtide/error.hpp"
#include "os/files.hpp"

namespace ebb::runtime {

/// The file that a planner's events go to. Owns it. Text is gathered in memory by who holds the planner's mutex and
/// written by whoever took it out, without that mutex.
/// Thread safety: none; `text()` belongs to the holder of the planner's mutex, write() to one thread at a time.
class EventLog {
 public:
  /// Error io_error naming the path.
  static Result<std::unique_ptr<EventLog>> create(platform::Files& files, const std::filesystem::path& path);

  std::string& text() noexcept { return text_; }
  bool full() const noexcept { return text_.size() >= kWriteAt; }
  /// Appends to the file. The first error is kept, and all that follows is left out.
  void write(std::string_view text);
  /// The first error of write(), if there was one.
  Result<void> result() const { return error_ ? Result<void>(*error_) : Result<void>(); }

 private:
  static constexpr std::size_t kWriteAt = 256 << 10;
  EventLog(platform::Files& files, platform::File file) : files_(files), file_(std::move(file)) {}
  platform::Files& files_;
  platform::File file_;
  std::uint64_t offset_ = 0;
  std::string text_;
  std::optional<Error> error_;
};

}  // namespace ebb::runtime
