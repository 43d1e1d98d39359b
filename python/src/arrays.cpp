#include "arrays.hpp"

#include <cstring>

#include "errors.hpp"

namespace ebb::python {
namespace {

constexpr int kDlCpu = 1, kDlCudaHost = 3;  // DLPack's numbers of the memories that the host reaches

std::string kind_of(nb::handle object) { return nb::cast<std::string>(nb::type_name(object.type())); }

nb::module_ helper() { return nb::module_::import_("ebbtide._arrays"); }

nb::handle numpy() {
  // The interpreter keeps sys.modules alive; looking it up costs a dictionary access.
  PyObject* module = PyImport_GetModule(nb::str("numpy").ptr());
  if (module == nullptr) module = PyImport_ImportModule("numpy");
  if (module == nullptr) throw nb::python_error();
  Py_DECREF(module);
  return module;
}

bool is_numpy(nb::handle object) { return nb::isinstance(object, numpy().attr("ndarray")); }

// Types whose bytes `numpy.dtype.str` tells whole; the rest is written by Python.
std::string dtype_text(nb::handle dtype, const std::string& where) {
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  if (kind.size() == 1 && std::strchr("biufcmMSU", kind[0]) != nullptr) return nb::cast<std::string>(dtype.attr("str"));
  return nb::cast<std::string>(helper().attr("dtype_text")(dtype, where));
}

Leaf describe_numpy(nb::handle object, const std::string& where) {
  Leaf leaf;
  leaf.array = nb::borrow(object);
  leaf.dtype = dtype_text(object.attr("dtype"), where);
  if (!leaf.buffer.get(object)) raise(Errc::invalid_argument, where + " gives no buffer: " + kind_of(object));
  const Py_buffer& view = leaf.buffer.view();
  leaf.data = view.buf;
  leaf.bytes = static_cast<std::size_t>(view.len);
  leaf.writable = !view.readonly;
  leaf.contiguous = PyBuffer_IsContiguous(&view, 'C') != 0;
  leaf.shape.assign(view.shape, view.shape + view.ndim);
  return leaf;
}

std::string dlpack_dtype(nb::handle object, nb::dlpack::dtype type, Library library, const std::string& where) {
  static constexpr char kinds[] = {'i', 'u', 'f', 0, 0, 'c', 'b'};
  if (type.lanes == 1 && type.bits % 8 == 0 && type.code < sizeof kinds && kinds[type.code] != 0) {
    const std::string size = std::to_string(type.bits / 8);
    return (type.bits == 8 ? "|" : "<") + std::string(1, kinds[type.code]) + size;
  }
  if (library == Library::torch) return "torch:" + nb::cast<std::string>(nb::str(nb::object(object.attr("dtype"))));
  raise(Errc::unsupported, where + " has the element type " +
                               nb::cast<std::string>(nb::str(nb::object(object.attr("dtype")))) +
                               ", which NumPy does not know; view it as integers of its size");
}

Leaf describe_dlpack(nb::handle object, const std::string& where) {
  const nb::tuple device(object.attr("__dlpack_device__")());
  const int kind = nb::cast<int>(nb::int_(device[0]));
  if (kind != kDlCpu && kind != kDlCudaHost) {
    raise(Errc::unsupported, where + " lies on a device (DLPack device " + std::to_string(kind) +
                                 "); this build of ebbtide reaches host memory only: copy it to the host first");
  }
  Leaf leaf;
  leaf.array = nb::borrow(object);
  const auto module = nb::cast<std::string>(nb::str(nb::object(object.type().attr("__module__"))));
  leaf.library = module == "torch" || module.starts_with("torch.") ? Library::torch : Library::numpy;
  leaf.tensor = nb::cast<nb::ndarray<nb::ro>>(object);
  const auto& tensor = leaf.tensor;
  leaf.data = const_cast<void*>(tensor.data());
  leaf.bytes = tensor.nbytes();
  leaf.dtype = dlpack_dtype(object, tensor.dtype(), leaf.library, where);
  leaf.contiguous = true;
  std::int64_t packed = 1;
  for (std::size_t i = tensor.ndim(); i-- > 0;) {
    if (tensor.shape(i) != 1 && tensor.stride(i) != packed) leaf.contiguous = false;
    packed *= static_cast<std::int64_t>(tensor.shape(i));
  }
  if (packed == 0) leaf.contiguous = true;
  for (std::size_t i = 0; i < tensor.ndim(); ++i) leaf.shape.push_back(static_cast<std::int64_t>(tensor.shape(i)));
  // A library says read-only by refusing a writable export; torch has no read-only tensors.
  nb::ndarray<> writable;
  leaf.writable = leaf.library == Library::torch || nb::try_cast(object, writable);
  return leaf;
}

}  // namespace

Buffer::~Buffer() {
  if (view_) PyBuffer_Release(view_.get());
}

bool Buffer::get(nb::handle object) {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), view.get(), PyBUF_STRIDES) != 0) {
    PyErr_Clear();
    return false;
  }
  view_ = std::move(view);
  return true;
}

Leaf describe(nb::handle object, const std::string& where) {
  if (is_numpy(object)) return describe_numpy(object, where);
  if (nb::hasattr(object, "__cuda_array_interface__")) {
    raise(Errc::unsupported, where + " is a GPU array (" + kind_of(object) +
                                 "); this build of ebbtide reaches host memory only: copy it to the host first");
  }
  if (nb::hasattr(object, "__dlpack__") && nb::hasattr(object, "__dlpack_device__"))
    return describe_dlpack(object, where);
  if (PyObject_CheckBuffer(object.ptr())) return describe_numpy(helper().attr("from_buffer")(object, where), where);
  raise(Errc::invalid_argument, where + " is of type '" + kind_of(object) +
                                    "': it would be an array (with __dlpack__, __cuda_array_interface__ or the buffer "
                                    "protocol), or one list, tuple or "
                                    "dict of arrays");
}

Leaf describe_source(nb::handle object, const std::string& where) {
  Leaf leaf = describe(object, where);
  if (leaf.contiguous) return leaf;
  const Library library = leaf.library;
  nb::object packed = helper().attr("packed")(leaf.array);
  leaf = describe(packed, where);
  leaf.library = library;
  return leaf;
}

nb::object new_array(Library library, const std::string& dtype, const std::vector<std::int64_t>& shape) {
  nb::object dims = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    PyTuple_SET_ITEM(dims.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  }
  if (library == Library::numpy && dtype.find(':') == dtype.npos) return numpy().attr("empty")(dims, dtype);
  return helper().attr("new_array")(library == Library::torch, dtype, dims);
}

std::pair<std::string, std::size_t> parse_dtype(nb::handle dtype) {
  nb::object parsed = numpy().attr("dtype")(dtype);
  return {dtype_text(parsed, "dtype"), nb::cast<std::size_t>(parsed.attr("itemsize"))};
}

nb::object array_over(nb::handle owner, const std::string& dtype, const std::vector<std::int64_t>& shape) {
  nb::list dims;
  for (const auto dim : shape) dims.append(dim);
  return helper().attr("array_over")(owner, dtype, nb::tuple(dims));
}

std::string to_text(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  if (shape.size() == 1) text += ",";
  return text + ") of " + nb::cast<std::string>(helper().attr("dtype_name")(dtype));
}

}  // namespace ebb::python
