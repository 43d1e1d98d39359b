#include "kinds.hpp"

#include <string_view>
#include <utility>

#include "arrays.hpp"
#include "device_array.hpp"

namespace ebb::python {
namespace {

// A type of a module that the program has imported; null if it has not.
nb::object type_in(const nb::object& module, const char* name) {
  if (!module.is_valid()) return {};
  nb::object type = nb::getattr(module, name, nb::none());
  return PyType_Check(type.ptr()) ? type : nb::object();
}

// By inheritance only: some metaclasses override isinstance.
bool derives(PyTypeObject* type, const nb::object& base) {
  return base.is_valid() && PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(base.ptr())) != 0;
}

bool is_type(PyTypeObject* type, const nb::object& other) {
  return reinterpret_cast<PyTypeObject*>(other.ptr()) == type;
}

Kind kind_of_type(nb::handle object) {
  PyTypeObject* const type = Py_TYPE(object.ptr());
  const nb::object numpy = loaded("numpy");
  if (const auto base = type_in(numpy, "ndarray"); derives(type, base))
    return is_type(type, base) || is_type(type, type_in(numpy, "memmap")) ? Kind::numpy : Kind::partial;
  if (derives(type, type_in(numpy, "generic"))) return Kind::scalar;
  const nb::object torch = loaded("torch");
  if (const auto base = type_in(torch, "Tensor"); derives(type, base)) {
    const nb::object layers = loaded("torch.nn");
    return is_type(type, base) || is_type(type, type_in(layers, "Parameter")) ||
                   is_type(type, type_in(layers, "Buffer"))
               ? Kind::torch
               : Kind::partial;
  }
  if (const auto base = type_in(loaded("cupy"), "ndarray"); derives(type, base))
    return is_type(type, base) ? Kind::cupy : Kind::partial;
  if (nb::isinstance<DeviceArray>(object)) return Kind::lent;
  // Traced values and random number keys count as arrays without deriving from them.
  if (const auto base = type_in(loaded("jax"), "Array"); base.is_valid() && nb::isinstance(object, base)) {
    const bool whole =
        is_type(type, base) ||
        (derives(type, base) && std::string_view(nb::type_name(object.type()).c_str()).ends_with("ArrayImpl"));
    return whole ? Kind::jax : Kind::partial;
  }
  return Kind::foreign;
}

bool refers_to(nb::handle reference, PyTypeObject* type) {
  PyObject* found = nullptr;
#if PY_VERSION_HEX >= 0x030D0000 && !defined(Py_LIMITED_API)
  if (PyWeakref_GetRef(reference.ptr(), &found) > 0) Py_DECREF(found);
#else
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // the stable interface of 3.12 has no other
  found = PyWeakref_GetObject(reference.ptr());
#pragma GCC diagnostic pop
#endif
  return found == reinterpret_cast<PyObject*>(type);
}

}  // namespace

Kind Kinds::of(nb::handle object) {
  PyTypeObject* const type = Py_TYPE(object.ptr());
  if (const auto found = known_.find(type); found != known_.end() && refers_to(found->second.type, type))
    return found->second.kind;
  const Kind kind = kind_of_type(object);
  constexpr std::size_t most = 256;  // for programs that keep creating types
  if (known_.size() >= most) known_.clear();
  nb::object reference = nb::steal(PyWeakref_NewRef(reinterpret_cast<PyObject*>(type), nullptr));
  if (!reference.is_valid()) throw nb::python_error();
  known_.insert_or_assign(type, Known{std::move(reference), kind});
  return kind;
}

}  // namespace ebb::python
