#include "node/stage.hpp"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>

#include "os/files.hpp"

namespace ebb::node {

Result<void> Stage::create(std::uint64_t slot_bytes) {
  slot_ = platform::round_up(slot_bytes);
  file_ = platform::OwnDescriptor([] { return ::memfd_create("ebbtide-stage", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  platform::OwnDescriptor other([&] { return ::fcntl(file_.fd(), F_DUPFD_CLOEXEC, 0); });
  if (!file_ || !other)
    return Error{Errc::out_of_memory, "shared memory for a large checkpoint: " + platform::describe_errno(errno)};
  platform::DescriptorSharedFile file(std::move(other), "shared memory for a large checkpoint");
  const platform::FileRange all{0, slot_ * kSlots};
  if (auto done = file.allocate(all); !done) return Error{Errc::out_of_memory, done.error().message};
  if (::fcntl(file_.fd(), F_ADD_SEALS, F_SEAL_SHRINK) != 0)
    return Error{Errc::out_of_memory, "shared memory cannot be sealed"};
  auto mapped = file.map(std::array{all});
  if (!mapped) return mapped.error();
  memory_ = std::move(*mapped);
  for (std::size_t slot = 0; slot < kSlots; ++slot) free_.push_back(slot * slot_);
  return {};
}

std::uint64_t Stage::take() {
  const std::uint64_t offset = free_.back();
  free_.pop_back();
  return offset;
}

}  // namespace ebb::node
