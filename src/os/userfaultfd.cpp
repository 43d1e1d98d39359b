#include "os/userfaultfd.hpp"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "os/sys_result.hpp"

namespace ebb::os::uffd {
namespace {

constexpr int kUserModeOnly = 1;                           // UFFD_USER_MODE_ONLY, Linux 5.11
constexpr unsigned long kNewDescriptor = _IO(0xAA, 0x00);  // USERFAULTFD_IOC_NEW, Linux 6.1
constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;

int call_userfaultfd(int flags) { return static_cast<int>(::syscall(SYS_userfaultfd, flags)); }

// Whoever may open the device takes the kernel's faults as well; a container may be given it.
int ask_device() {
  const int device = ::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (device < 0) return -1;
  const int fd = ::ioctl(device, kNewDescriptor, kFlags);
  ::close(device);
  return fd;
}

Result<Opened> open_any() {
  OwnDescriptor opened([] { return call_userfaultfd(kFlags); });
  const int refused = errno;
  if (opened) return Opened{std::move(opened), false};
  opened = OwnDescriptor(ask_device);
  if (opened) return Opened{std::move(opened), false};
  if (refused == EPERM) {
    opened = OwnDescriptor([] { return call_userfaultfd(kFlags | kUserModeOnly); });
    if (opened) return Opened{std::move(opened), true};
  }
  return system_error(refused == ENOSYS ? "this kernel has no userfaultfd" : "userfaultfd is refused", refused);
}

}  // namespace

// A descriptor is told its features once, so one is spent on the question which there are.
Result<Opened> open(std::uint64_t features) {
  auto asked = open_any();
  if (!asked) return asked;
  uffdio_api api{UFFD_API, 0, 0};
  if (::ioctl(asked->descriptor.fd(), UFFDIO_API, &api) != 0) return system_error("UFFDIO_API failed", errno);
  if (const std::uint64_t missing = features & ~api.features) {
    const char* const since = missing == kWpAsync ? "6.7" : "6.4";
    return Error{Errc::unsupported, std::string("this kernel's userfaultfd cannot do that: it needs Linux ") + since};
  }
  auto opened = open_any();
  if (!opened) return opened;
  api = {UFFD_API, features, 0};
  if (::ioctl(opened->descriptor.fd(), UFFDIO_API, &api) != 0) return system_error("UFFDIO_API failed", errno);
  return opened;
}

}  // namespace ebb::os::uffd
