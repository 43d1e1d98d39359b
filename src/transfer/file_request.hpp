#pragma once
// What both file engines share: how a transfer is cut into requests, and what each result of the system means.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "os/sys_result.hpp"
#include "transfer/file_engine.hpp"

namespace ebb::transfer {

/// One submit(): what its requests have in common.
struct FileTransfer {
  Token token = 0;
  Direction direction = Direction::read;
  const os::File* file = nullptr;
  std::size_t open_requests = 0;
  std::optional<Error> error;  // the first
};

/// A part of a transfer small enough to be one system call at a time.
struct FileRequest {
  std::shared_ptr<FileTransfer> transfer;
  std::byte* memory = nullptr;
  std::uint64_t offset = 0;
  std::size_t length = 0;    // to transfer; a multiple of 4096 on direct files
  std::size_t needed = 0;    // the caller's part of it
  std::size_t moved = 0;     // where to continue; a multiple of 4096 on direct files
  unsigned standstills = 0;  // results in a row that transferred nothing
};

/// Appends the requests of a transfer; `open_requests` is set to their number. Throws std::logic_error when a piece of
/// a direct file is not aligned.
void cut(const std::shared_ptr<FileTransfer>& transfer, std::span<const Piece> pieces, std::size_t request_bytes,
         std::deque<FileRequest>& out);

/// All of `requests`, or, when memory runs out (which throws), none of them.
void append(std::deque<FileRequest>& to, std::deque<FileRequest>& requests);

enum class Next : std::uint8_t {
  again,     // more to transfer, from `moved` on
  finished,  // all transferred, or the transfer has failed
};

/// Takes the system's result for [moved, length).
Next account(FileRequest& request, os::SysResult answer);

/// The result of a transfer whose requests have all finished.
Result<void> outcome(const FileTransfer& transfer);

}  // namespace ebb::transfer
