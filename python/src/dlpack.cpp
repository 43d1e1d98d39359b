#include "dlpack.hpp"

#include <cstring>

#include "errors.hpp"
#include "gpu_arrays.hpp"

namespace ebb::python {
namespace {

// DLPack's managed tensors, before and since version 1.
struct Managed {
  nb::dlpack::dltensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  std::uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};
constexpr std::uint64_t kReadOnly = 1, kCopied = 2;

// An object's export, kept alive by its capsule.
struct Exported {
  nb::object capsule;
  const nb::dlpack::dltensor* tensor = nullptr;
  std::optional<std::uint64_t> flags;  // since version 1

  std::byte* data() const { return static_cast<std::byte*>(tensor->data) + tensor->byte_offset; }
};

struct DlDevice {
  int kind = 0, ordinal = 0;
};

DlDevice place_of(nb::handle object, const std::string& where) {
  const nb::object given = object.attr("__dlpack_device__")();
  DlDevice place;
  const auto number = [&](Py_ssize_t i, int& to) {
    PyObject* const item = PyTuple_GetItem(given.ptr(), i);
    if (!PyIndex_Check(item)) return false;
    const nb::object index = nb::steal(PyNumber_Index(item));  // some libraries return an enumeration
    if (!index.is_valid()) throw nb::python_error();
    return nb::try_cast(index, to);
  };
  if (PyTuple_Check(given.ptr()) && PyTuple_Size(given.ptr()) == 2 && number(0, place.kind) && number(1, place.ordinal))
    return place;
  raise(Errc::invalid_argument, where + " (" + kind_of(object) + ") gives " + repr_text(given) +
                                    " as its __dlpack_device__: expected a tuple of two ints");
}

Exported export_of(nb::handle object, std::optional<StreamHandle> stream, const std::string& where) {
  const nb::object give = object.attr("__dlpack__");
  nb::dict with;
  if (stream) with["stream"] = *stream;
  with["max_version"] = nb::make_tuple(1, 0);
  Exported made;
  try {
    made.capsule = give(**with);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  if (!made.capsule.is_valid()) {  // it predates version 1, or raises its TypeError again
    nb::del(with["max_version"]);
    made.capsule = give(**with);
  }
  const char* name = nullptr;
  if (PyCapsule_CheckExact(made.capsule.ptr())) name = PyCapsule_GetName(made.capsule.ptr());
  if (name != nullptr && std::strcmp(name, "dltensor_versioned") == 0) {
    const auto* managed = static_cast<const ManagedVersioned*>(PyCapsule_GetPointer(made.capsule.ptr(), name));
    if (managed->major == 1) {
      made.tensor = &managed->tensor;
      made.flags = managed->flags;
    }
  } else if (name != nullptr && std::strcmp(name, "dltensor") == 0) {
    made.tensor = &static_cast<const Managed*>(PyCapsule_GetPointer(made.capsule.ptr(), name))->tensor;
  }
  if (made.tensor == nullptr) {
    PyErr_Clear();
    raise(Errc::unsupported, where + " (" + kind_of(object) + ") was exported as " + repr_text(made.capsule) +
                                 ", in no version of DLPack that is known: expected a capsule of version 1");
  }
  return made;
}

// Types that NumPy gets from another package are known by the object's own `dtype`.
std::string dtype_of(nb::handle object, const nb::dlpack::dltensor& tensor, const std::string& where) {
  if (auto text = dlpack_dtype_text(tensor.dtype); !text.empty()) return text;
  nb::object own = attribute(object, "dtype");
  if (!own.is_valid()) own = nb::none();
  try {
    const nb::object dtype = nb::module_::import_("numpy").attr("dtype")(own);
    const std::size_t bits = std::size_t{tensor.dtype.bits} * tensor.dtype.lanes;
    if (!own.is_none() && 8 * nb::cast<std::size_t>(dtype.attr("itemsize")) == bits) return dtype_text(dtype, where);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  raise(Errc::unsupported, where + " has the element type " + str_text(own) +
                               ", which NumPy does not know; view it as integers of the same size");
}

// An export from before version 1 does not say; another protocol of the object's may.
bool writable_elsewhere(nb::handle object, const Leaf& leaf) {
  Buffer buffer;
  if (leaf.gpu < 0 && PyObject_CheckBuffer(object.ptr()) && buffer.get(object))
    return buffer.view().buf == leaf.data && !buffer.view().readonly;
  const auto data =
      interface_data(attribute(object, leaf.gpu < 0 ? "__array_interface__" : "__cuda_array_interface__"));
  return data && data->pointer == leaf.data && !data->read_only;
}

void prove_writable(Leaf& leaf, nb::handle object, const Exported& made, std::optional<StreamHandle> stream,
                    const std::string& where) {
  const bool copied = (made.flags.value_or(0) & kCopied) != 0;
  if (copied || export_of(object, stream, where).data() != made.data()) refuse_copy(object, where, "__dlpack__");
  if (made.flags) {
    leaf.writable = (*made.flags & kReadOnly) == 0;
    return;
  }
  leaf.writable = writable_elsewhere(object, leaf);
  if (leaf.writable) return;
  raise(
      Errc::invalid_argument,
      where + " (" + kind_of(object) +
          ") does not say that it may be written to: its __dlpack__ predates version 1, and it has no buffer or array "
          "interface that says so; expected a writable array of NumPy, PyTorch or CuPy over its memory");
}

}  // namespace

Leaf describe_dlpack(nb::handle object, const std::string& where, Use use, const Reach& reach, Library library) {
  const DlDevice place = place_of(object, where);
  Leaf leaf;
  std::optional<StreamHandle> stream;
  if (place.kind == kDlCuda || place.kind == kDlCudaManaged) {
    require_gpu(object, where, reach, ", DLPack device " + std::to_string(place.kind));
    leaf.gpu = place.ordinal;
    stream = place.ordinal == reach.gpu ? reach.stream.value_or(1) : 1;
    if (*stream == 0) stream = 1;
  } else if (place.kind != kDlCpu && place.kind != kDlCudaHost) {
    raise(Errc::unsupported, where + " is on a device (DLPack device " + std::to_string(place.kind) +
                                 ") that ebbtide does not support: copy it to the host first");
  }
  Exported made = export_of(object, stream, where);
  const auto& tensor = *made.tensor;
  leaf.library = library;
  leaf.array = nb::borrow(object);
  leaf.dtype = dtype_of(object, tensor, where);
  std::size_t count = 1;
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0) raise(Errc::invalid_argument, where + " was exported with an axis of negative length");
    leaf.shape.push_back(tensor.shape[i]);
    count *= static_cast<std::size_t>(tensor.shape[i]);
  }
  const std::size_t item = std::size_t{tensor.dtype.bits} * tensor.dtype.lanes / 8;
  leaf.bytes = count * item;
  leaf.data = made.data();
  if (use == Use::target && leaf.bytes != 0) prove_writable(leaf, object, made, stream, where);
  if (tensor.strides != nullptr) {
    std::vector<std::int64_t> steps(tensor.strides, tensor.strides + tensor.ndim);
    for (std::int64_t& step : steps) step *= static_cast<std::int64_t>(item);
    lay_out(leaf, std::move(steps), static_cast<std::int64_t>(item));
  }
  leaf.capsule = std::move(made.capsule);
  return leaf;
}

}  // namespace ebb::python
