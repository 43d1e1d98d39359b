#include "objects.hpp"
namespace ebb::python {
void bind_sim(nb::module_&) {}
}  // namespace ebb::python
