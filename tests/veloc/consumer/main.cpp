#include <stdexcept>
#include <veloc.hpp>

int main() {
  try {
    veloc::get_client(0U, "none.cfg");
  } catch (const std::runtime_error&) {
    return 0;
  }
  return 1;
}
