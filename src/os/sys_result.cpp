#include "os/sys_result.hpp"

#include <cstring>

namespace ebb::platform {

std::string describe_errno(int error) {
  const char* name = strerrorname_np(error);
  const char* text = strerrordesc_np(error);
  return (name ? std::string(name) : "errno " + std::to_string(error)) + " (" + (text ? text : "unknown") + ")";
}

}  // namespace ebb::platform
