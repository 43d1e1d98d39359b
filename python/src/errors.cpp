#include "errors.hpp"

#include <nanobind/nanobind.h>

#include "text.hpp"

namespace nb = nanobind;

namespace ebb::python {
namespace {

std::string shown(PyObject* made) {
  const nb::object text = nb::steal(made);
  if (!text.is_valid()) throw nb::python_error();
  std::string result;
  Py_ssize_t size = 0;
  if (const char* const utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size)) {
    result.assign(utf8, static_cast<std::size_t>(size));
  } else {  // it holds text that UTF-8 cannot encode
    PyErr_Clear();
    const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
    if (!bytes.is_valid()) throw nb::python_error();
    result.assign(PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr())));
  }
  constexpr std::size_t most = 200;
  if (result.size() > most) {
    std::size_t end = most;
    while ((result[end] & 0xc0) == 0x80) --end;  // not inside a character
    result = result.substr(0, end) + "...";
  }
  return result;
}

}  // namespace

std::string repr_text(nb::handle object) {
  if (PyLong_Check(object.ptr())) {  // Python refuses to convert very long ones
    const nb::object bits = object.attr("bit_length")();
    if (nb::cast<std::size_t>(bits) > 512) return "an int of " + nb::cast<std::string>(nb::str(bits)) + " bits";
  }
  return shown(PyObject_Repr(object.ptr()));
}

std::string str_text(nb::handle object) { return shown(PyObject_Str(object.ptr())); }

nb::object to_text(std::string_view bytes) {
  nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace"));
  if (!text.is_valid()) throw nb::python_error();
  return text;
}

std::string to_name(const char* key, std::string text) {
  const nb::object valid = nb::steal(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size())));
  if (valid.is_valid()) return text;
  PyErr_Clear();
  raise(Errc::invalid_argument, std::string(key) + "=\"" + text +
                                    "\" is not valid: expected text that UTF-8 can encode, without lone surrogates");
}

void raise(Errc code, const std::string& message) {
  const std::string_view reason = name_of(code);
  nb::object classes = nb::module_::import_("ebbtide.errors").attr("BY_REASON");
  nb::object type = classes[nb::str(reason.data(), reason.size())];
  PyErr_SetObject(type.ptr(), to_text(message).ptr());
  throw nb::python_error();
}

}  // namespace ebb::python
