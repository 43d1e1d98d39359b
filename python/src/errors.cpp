#include "errors.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace ebb::python {

nb::object to_text(std::string_view bytes) {
  nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace"));
  if (!text.is_valid()) throw nb::python_error();
  return text;
}

void raise(Errc code, const std::string& message) {
  const std::string_view reason = name_of(code);
  nb::object classes = nb::module_::import_("ebbtide.errors").attr("BY_REASON");
  nb::object type = classes[nb::str(reason.data(), reason.size())];
  PyErr_SetObject(type.ptr(), to_text(message).ptr());
  throw nb::python_error();
}

}  // namespace ebb::python
