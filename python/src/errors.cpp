#include "errors.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace ebb::python {

void raise(Errc code, const std::string& message) {
  const std::string_view reason = name_of(code);
  nb::object classes = nb::module_::import_("ebbtide.errors").attr("BY_REASON");
  nb::object type = classes[nb::str(reason.data(), reason.size())];
  PyErr_SetObject(type.ptr(), nb::str(message.data(), message.size()).ptr());
  throw nb::python_error();
}

}  // namespace ebb::python
