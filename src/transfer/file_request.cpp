#include "transfer/file_request.hpp"

#include <algorithm>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <string>

namespace ebb::transfer {
namespace {

using os::kBlock;
using os::round_up;

// A file that keeps returning EINTR or transferring nothing must end in an error, not in a busy loop.
constexpr unsigned kMostStandstills = 10'000;

Next fail(FileRequest& request, Errc code, const std::string& why) {
  FileTransfer& transfer = *request.transfer;
  if (!transfer.error) {
    const char* verb = transfer.direction == Direction::read ? "reading " : "writing ";
    transfer.error = Error{code, verb + std::to_string(request.length - request.moved) + " bytes at offset " +
                                     std::to_string(request.offset + request.moved) + " of '" + transfer.file->name() +
                                     "' failed: " + why};
  }
  return Next::finished;
}

Next stand_still(FileRequest& request, const std::string& why) {
  if (++request.standstills < kMostStandstills) return Next::again;
  return fail(request, Errc::io_error, why + ", " + std::to_string(kMostStandstills) + " times in a row");
}

}  // namespace

void cut(const std::shared_ptr<FileTransfer>& transfer, std::span<const Piece> pieces, std::size_t request_bytes,
         std::deque<FileRequest>& out) {
  const bool direct = transfer->file->direct();
  for (const Piece& piece : pieces) {
    if (direct && (piece.offset % kBlock || reinterpret_cast<std::uintptr_t>(piece.memory) % kBlock)) {
      throw std::logic_error("a piece of a direct transfer is not aligned to 4096 bytes");
    }
    for (std::size_t begin = 0; begin < piece.length; begin += request_bytes) {
      const std::size_t needed = std::min(request_bytes, piece.length - begin);
      out.push_back({transfer, piece.memory + begin, piece.offset + begin, direct ? round_up(needed) : needed, needed});
      ++transfer->open_requests;
    }
  }
}

void append(std::deque<FileRequest>& to, std::deque<FileRequest>& requests) {
  const auto before = static_cast<std::ptrdiff_t>(to.size());
  try {
    for (FileRequest& request : requests) to.push_back(std::move(request));
  } catch (const std::bad_alloc&) {
    to.erase(to.begin() + before, to.end());
    throw;
  }
}

Next account(FileRequest& request, os::SysResult answer) {
  const bool reading = request.transfer->direction == Direction::read;
  if (!answer) {
    if (answer.error == EINTR || answer.error == EAGAIN) {
      return stand_still(request, os::describe_errno(answer.error));
    }
    return fail(request, answer.error == ENOSPC ? Errc::no_space : Errc::io_error, os::describe_errno(answer.error));
  }
  if (answer.value == 0) {
    if (reading) return fail(request, Errc::io_error, "the file ends there");
    return stand_still(request, "nothing was written");
  }
  const std::size_t reached = request.moved + static_cast<std::size_t>(answer.value);
  if (reached >= request.needed) return Next::finished;
  // A direct transfer continues at a whole block, so a partial block is transferred again.
  const std::size_t next = request.transfer->file->direct() ? reached / kBlock * kBlock : reached;
  if (next == request.moved) return stand_still(request, "less than a block was moved");
  request.moved = next;
  request.standstills = 0;
  return Next::again;
}

Result<void> outcome(const FileTransfer& transfer) {
  if (transfer.error) return *transfer.error;
  return {};
}

}  // namespace ebb::transfer
