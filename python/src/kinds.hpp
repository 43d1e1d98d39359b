#pragma once
// Which kind of array an object is, by its type.
#include <cstdint>
#include <nanobind/nanobind.h>
#include <unordered_map>

namespace ebb::python {

namespace nb = nanobind;

/// Of the libraries that ebbtide knows, only types that are whole in their bytes, shape and element type are taken.
enum class Kind : std::uint8_t {
  numpy,    ///< numpy.ndarray, numpy.memmap
  scalar,   ///< one element, as NumPy's arrays give it
  torch,    ///< torch.Tensor, torch.nn.Parameter, torch.nn.Buffer
  cupy,     ///< cupy.ndarray
  jax,      ///< jax.Array
  lent,     ///< ebbtide.DeviceArray
  partial,  ///< any other type of those libraries: more than its bytes
  foreign,  ///< of no library that is known: taken by the protocols that it offers, which may run the program's code
};

/// Remembers the kind of each type. Thread safety: used under the GIL.
class Kinds {
 public:
  Kind of(nb::handle object);

 private:
  struct Known {
    nb::object type;  // a weak reference: another type may come to the address of one that is gone
    Kind kind;
  };
  std::unordered_map<PyTypeObject*, Known> known_;
};

}  // namespace ebb::python
