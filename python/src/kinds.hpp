#pragma once
// Classifies arrays by their Python type.
#include <cstdint>
#include <nanobind/nanobind.h>
#include <unordered_map>

namespace ebb::python {

namespace nb = nanobind;

/// Of the known libraries, only types that are fully described by bytes, shape and element type are accepted.
enum class Kind : std::uint8_t {
  numpy,    ///< numpy.ndarray, numpy.memmap
  scalar,   ///< one element of a NumPy array
  torch,    ///< torch.Tensor, torch.nn.Parameter, torch.nn.Buffer
  cupy,     ///< cupy.ndarray
  jax,      ///< jax.Array
  lent,     ///< ebbtide.DeviceArray
  partial,  ///< any other type of those libraries: more than its bytes
  foreign,  ///< of an unknown library: read through its protocols, which may run the program's code
};

/// Remembers the kind of each type. Thread safety: used under the GIL.
class Kinds {
 public:
  Kind of(nb::handle object);

 private:
  struct Known {
    nb::object type;  // a weak reference: a new type may get the address of a dead one
    Kind kind;
  };
  std::unordered_map<PyTypeObject*, Known> known_;
};

}  // namespace ebb::python
