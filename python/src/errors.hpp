#pragma once
// Errors become Python exceptions; ebbtide/errors.py defines the classes.
#include <nanobind/nanobind.h>
#include <string>
#include <string_view>

#include "ebbtide/error.hpp"

namespace ebb::python {

/// As Python text. Names of files and histories may hold any bytes: invalid ones are shown as "\\xff".
nanobind::object to_text(std::string_view bytes);

/// `repr(object)` and `str(object)` for a message, shortened if long. The object's exceptions propagate.
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
