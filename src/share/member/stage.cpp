#include "share/member/stage.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/files.hpp"

namespace ebb::share {
namespace {

const char* const kName = "shared memory for a large checkpoint";

}  // namespace

Result<void> Stage::create(std::uint64_t slot_bytes) {
  const std::uint64_t slot = os::round_up(slot_bytes), all = slot * kSlots;
  os::OwnDescriptor made([] { return ::memfd_create("ebbtide-stage", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  os::OwnDescriptor other([&] { return ::fcntl(made.fd(), F_DUPFD_CLOEXEC, 0); });
  if (!made || !other || ::ftruncate(made.fd(), static_cast<off_t>(all)) != 0 ||
      ::fcntl(made.fd(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return Error{Errc::out_of_memory, std::string(kName) + ": " + os::describe_errno(errno)};
  }
  os::DescriptorSharedFile file(std::move(other), kName);
  auto mapped = file.map(std::array{os::FileRange{0, all}});
  if (!mapped) return mapped.error();
  descriptor_ = std::move(made);
  file_.emplace(std::move(file));
  memory_ = std::move(*mapped);
  for (std::uint64_t at = all; at > 0; at -= slot) free_.push_back(at - slot);
  return {};
}

Result<std::uint64_t> Stage::take(std::uint64_t bytes) {
  const std::uint64_t offset = free_.back();
  if (auto there = file_->allocate({offset, os::round_up(bytes)}); !there) {
    return Error{Errc::out_of_memory, there.error().message};
  }
  free_.pop_back();
  return offset;
}

void Stage::clear() { static_cast<void>(file_->punch({0, memory_.size()})); }

}  // namespace ebb::share
