// Which wait of the runtime this process leaves out: the one that EBB_WITHOUT_WAIT names, looked up once.
#include <cstdlib>

#include "base/wait_points.hpp"

namespace ebb::base {

bool wait_in_place(std::string_view name) noexcept {
  static const char* const without = std::getenv("EBB_WITHOUT_WAIT");
  return without == nullptr || name != without;
}

}  // namespace ebb::base
