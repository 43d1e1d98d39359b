#pragma once
// What both file engines share: how a transfer is cut into requests, and what each answer of the system means.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "os/sys_result.hpp"
#include "transfer/file_engine.hpp"

namespace ebb::transfer {

/// One submit(): what all of its requests have in common.
struct FileTransfer {
  Token token = 0;
  Direction direction = Direction::read;
  const platform::File* file = nullptr;
  std::size_t open_requests = 0;
  std::optional<Error> error;  // the first
};

/// A part of a transfer small enough to be one system call at a time.
struct FileRequest {
  std::shared_ptr<FileTransfer> transfer;
  std::byte* memory = nullptr;
  std::uint64_t offset = 0;
  std::size_t length = 0;    // to be moved; on direct files a multiple of 4096
  std::size_t needed = 0;    // of which so much is the caller's
  std::size_t moved = 0;     // where to go on; on direct files a multiple of 4096
  unsigned standstills = 0;  // answers in a row that moved nothing
};

/// Appends the requests of a transfer; `open_requests` is set to their number. Throws std::logic_error when a piece of
/// a direct file is not aligned.
void cut(const std::shared_ptr<FileTransfer>& transfer, std::span<const Piece> pieces, std::size_t request_bytes,
         std::deque<FileRequest>& out);

/// All of `requests`, or none of them where there is no memory for all (which is thrown).
void append(std::deque<FileRequest>& to, std::deque<FileRequest>& requests);

enum class Next : std::uint8_t {
  again,     // more is to be moved, from `moved` on
  finished,  // all moved, or the transfer has an error now
};

/// Takes the system's answer to a request for [moved, length).
Next account(FileRequest& request, platform::SysResult answer);

/// Of a transfer whose requests have all finished.
Result<void> outcome(const FileTransfer& transfer);

}  // namespace ebb::transfer
