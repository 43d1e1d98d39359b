#pragma once
// Reasons become Python exceptions; the classes themselves are written in ebbtide/errors.py.
#include <nanobind/nanobind.h>
#include <string>
#include <string_view>

#include "ebbtide/error.hpp"

namespace ebb::python {

/// As Python's text. Names of files and histories may hold bytes that are none: they are shown as "\\xff".
nanobind::object to_text(std::string_view bytes);

/// `repr(object)` and `str(object)` for a message, cut where they are long. What the object raises comes through.
std::string repr_text(nanobind::handle object);
std::string str_text(nanobind::handle object);

/// Raises the Python class of `code`. Needs the GIL.
[[noreturn]] void raise(Errc code, const std::string& message);

[[noreturn]] inline void raise(const Error& error) { raise(error.code, error.message); }

inline void check(const Result<void>& result) {
  if (!result) raise(result.error());
}

template <class T>
T check(Result<T>&& result) {
  if (!result) raise(result.error());
  return std::move(result).value();
}

}  // namespace ebb::python
