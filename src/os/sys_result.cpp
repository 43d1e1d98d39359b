#include "os/sys_result.hpp"

#include <cerrno>
#include <cstring>

namespace ebb::os {

std::string describe_errno(int error) {
  const char* name = strerrorname_np(error);
  const char* text = strerrordesc_np(error);
  return (name ? std::string(name) : "errno " + std::to_string(error)) + " (" + (text ? text : "unknown") + ")";
}

Errc reason_of(int error) noexcept {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return Errc::no_space;
    case ENOMEM: return Errc::out_of_memory;
    case EACCES:
    case EPERM:
    case ELOOP: return Errc::not_permitted;
    case ENOSYS:
    case EOPNOTSUPP: return Errc::unsupported;
    default: return Errc::io_error;
  }
}

Error system_error(const std::string& what, int error) {
  return {reason_of(error), what + ": " + describe_errno(error)};
}

}  // namespace ebb::os
