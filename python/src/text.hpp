#pragma once
// Text of a caller, as std::string: in place of nanobind/stl/string.h, whose refusal of lone surrogates names no
// argument.
#include <nanobind/nanobind.h>
#include <string>

namespace ebb::python {

/// `text`, the name of a history or a file. Raises InvalidArgument, naming `key`, for lone surrogates. Words out of a
/// list need no such check: none of them has any.
std::string to_name(const char* key, std::string text);

}  // namespace ebb::python

template <>
struct nanobind::detail::type_caster<std::string> {
  NB_TYPE_CASTER(std::string, const_name("str"))

  // A lone surrogate becomes the bytes that it would have as a character, which are no UTF-8.
  bool from_python(handle from, std::uint32_t, cleanup_list*) noexcept {
    if (!PyUnicode_Check(from.ptr())) return false;
    const object bytes = steal(PyUnicode_AsEncodedString(from.ptr(), "utf-8", "surrogatepass"));
    if (!bytes.is_valid()) {
      PyErr_Clear();
      return false;
    }
    value.assign(PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr())));
    return true;
  }
  static handle from_cpp(const std::string& text, rv_policy, cleanup_list*) noexcept {
    return PyUnicode_FromStringAndSize(text.c_str(), static_cast<Py_ssize_t>(text.size()));
  }
};
