#include "veloc/say.hpp"

#include <algorithm>
#include <cstdio>

namespace ebb::veloc {

void say(const char* call, const std::string& message) noexcept {
  try {
    std::string line = message;
    std::ranges::replace(line, '\n', ' ');
    std::fprintf(stderr, "VELOC: %s: %s\n", call, line.c_str());
  } catch (...) {
    std::fprintf(stderr, "VELOC: %s: no memory left to say why\n", call);
  }
}

}  // namespace ebb::veloc
