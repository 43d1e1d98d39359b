#include "arguments.hpp"

#include "arrays.hpp"
#include "errors.hpp"

namespace ebb::python {
namespace {

// Nothing for anything that is no int or needs more than 64 bits. Exceptions of the object's own `__index__` propagate.
std::optional<std::int64_t> to_int(nb::handle object) {
  if (!PyIndex_Check(object.ptr())) return std::nullopt;
  const nb::object number = nb::steal(PyNumber_Index(object.ptr()));
  if (!number.is_valid()) throw nb::python_error();
  std::int64_t result = 0;
  if (nb::try_cast(number, result)) return result;
  PyErr_Clear();
  return std::nullopt;
}

// Calls `take` with each item. Exceptions of the iteration propagate; `wrong` refuses what cannot be iterated over.
template <class Take, class Wrong>
void for_each(nb::handle iterable, Take take, Wrong wrong) {
  const nb::object iterator = nb::steal(PyObject_GetIter(iterable.ptr()));
  if (!iterator.is_valid()) {
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw nb::python_error();
    PyErr_Clear();
    wrong();
  }
  while (nb::object item = nb::steal(PyIter_Next(iterator.ptr()))) take(item);
  if (PyErr_Occurred()) throw nb::python_error();
}

}  // namespace

Version to_version(nb::handle version) {
  if (const auto number = to_int(version)) return *number;
  raise(Errc::invalid_argument,
        "version=" + repr_text(version) + " is not valid: expected an int of 64 bits, from -2**63 to 2**63 - 1");
}

std::vector<Version> to_versions(nb::handle versions, const char* name) {
  std::vector<Version> result;
  for_each(
      versions, [&](nb::handle item) { result.push_back(to_version(item)); },
      [&] {
        raise(Errc::invalid_argument,
              std::string(name) + "=" + repr_text(versions) + " is not valid: expected an iterable of versions");
      });
  return result;
}

std::vector<std::int64_t> to_shape(nb::handle shape, std::size_t item) {
  std::vector<std::int64_t> lengths;
  const auto wrong = [&] {
    raise(Errc::invalid_argument,
          "shape=" + repr_text(shape) +
              " is not valid: expected a length, or an iterable of lengths (ints from 0 to 2**63 - 1)");
  };
  const auto take = [&](nb::handle length) {
    const auto number = to_int(length);
    if (!number || *number < 0) wrong();
    lengths.push_back(*number);
  };
  if (PyIndex_Check(shape.ptr()))
    take(shape);
  else
    for_each(shape, take, wrong);
  require_axes(lengths.size(), "shape=" + repr_text(shape));
  std::int64_t bytes = static_cast<std::int64_t>(item);
  for (const auto length : lengths) {  // NumPy also counts axes after one of length 0
    if (length != 0 && __builtin_mul_overflow(bytes, length, &bytes)) {
      raise(Errc::invalid_argument, "shape=" + repr_text(shape) + " is not valid: at " + std::to_string(item) +
                                        " bytes an element, expected less than 8 EiB");
    }
  }
  return lengths;
}

}  // namespace ebb::python
