#include "gpu_arrays.hpp"

#include <cstring>

#include "device_array.hpp"
#include "errors.hpp"
#include "platform/cuda.hpp"

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
  std::uint64_t flags;  // bit 0: read-only
  nb::dlpack::dltensor tensor;
};

void take_shape(Leaf& leaf, nb::handle shape) {
  for (nb::handle dim : shape) leaf.shape.push_back(nb::cast<std::int64_t>(dim));
}

bool packed(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides, std::int64_t item) {
  std::int64_t step = item;
  bool gaps = false;
  for (std::size_t i = shape.size(); i-- > 0;) {
    gaps |= shape[i] != 1 && strides[i] != step;
    step *= shape[i];
  }
  return !gaps || step == 0;
}

// Asks the producer for a capsule whose bytes are complete for what comes on `stream`.
nb::object capsule_of(nb::handle object, StreamHandle stream, const std::string& where) {
  try {
    nb::object give = object.attr("__dlpack__");
    try {
      return give(nb::arg("stream") = stream, nb::arg("max_version") = nb::make_tuple(1, 0));
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;  // else it is older than version 1
    }
    return give(nb::arg("stream") = stream);
  } catch (nb::python_error& error) {
    raise(Errc::unsupported,
          where + " (" + kind_of(object) + ") could not be exported: " + nb::cast<std::string>(nb::str(error.value())));
  }
}

}  // namespace

void require_gpu(nb::handle object, const std::string& where, const Reach& reach, const std::string& more) {
  if (reach.gpu >= 0) return;
  raise(Errc::unsupported,
        where + " is a GPU array (" + kind_of(object) + more +
            "), and this store's device is host memory: open the store with device=\"cuda\", or copy "
            "the array to the host first");
}

Leaf describe_lent(nb::handle object, const std::string& where, const Reach& reach) {
  require_gpu(object, where, reach);
  const auto& array = nb::cast<const DeviceArray&>(object);
  const auto grip = array.require_open();
  Leaf leaf;
  leaf.array = nb::borrow(object);
  leaf.gpu = array.gpu();
  leaf.grip = grip;
  if (!reach.stream) leaf.stream = grip->stream();
  leaf.data = array.memory().data;
  leaf.bytes = array.memory().bytes;
  leaf.dtype = array.memory().dtype;
  leaf.shape = array.memory().shape;
  leaf.writable = array.memory().writable;
  leaf.contiguous = true;
  return leaf;
}

Leaf describe_torch(nb::handle tensor, const std::string& where, const Reach& reach) {
  Leaf leaf;
  leaf.library = Library::torch;
  leaf.array = nb::borrow(tensor);
  if (nb::cast<bool>(tensor.attr("is_cuda"))) {
    require_gpu(tensor, where, reach);
    leaf.gpu = nb::cast<int>(tensor.attr("get_device")());
  } else if (nb::object device = tensor.attr("device"); nb::cast<std::string>(device.attr("type")) != "cpu") {
    raise(Errc::unsupported, where + " lies on the device '" + nb::cast<std::string>(nb::str(device)) +
                                 "', which ebbtide does not reach: copy it to the CPU first");
  }
  leaf.dtype = torch_dtype_text(tensor.attr("dtype"));
  bool lazy = nb::cast<bool>(tensor.attr("is_neg")());
  if (leaf.dtype.find('c') != leaf.dtype.npos) lazy |= nb::cast<bool>(tensor.attr("is_conj")());
  if (lazy) {
    raise(Errc::unsupported, where +
                                 " is a negated or conjugated view, whose memory holds other numbers: "
                                 "tensor.resolve_neg().resolve_conj() makes one of its own");
  }
  try {
    leaf.contiguous = nb::cast<bool>(tensor.attr("is_contiguous")());
    leaf.bytes = nb::cast<std::size_t>(tensor.attr("nbytes"));
    leaf.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(tensor.attr("data_ptr")()));
  } catch (nb::python_error& error) {
    raise(Errc::unsupported, where + " is a tensor without plain memory of its own (" +
                                 nb::cast<std::string>(nb::str(nb::object(tensor.attr("layout")))) +
                                 "): a dense one would be right");
  }
  if (leaf.data == nullptr && leaf.bytes > 0) {
    raise(Errc::unsupported, where + " (" + kind_of(tensor) +
                                 ") is a tensor without memory of its own: give the ones "
                                 "that it is made of");
  }
  take_shape(leaf, tensor.attr("shape"));
  leaf.writable = true;
  return leaf;
}

Leaf describe_cupy(nb::handle array, const std::string& where, const Reach& reach) {
  require_gpu(array, where, reach);
  Leaf leaf;
  leaf.library = Library::cupy;
  leaf.array = nb::borrow(array);
  leaf.gpu = nb::cast<int>(array.attr("device").attr("id"));
  leaf.dtype = dtype_text(array.attr("dtype"), where);
  leaf.contiguous = nb::cast<bool>(array.attr("flags").attr("c_contiguous"));
  leaf.bytes = nb::cast<std::size_t>(array.attr("nbytes"));
  leaf.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(array.attr("data").attr("ptr")));
  take_shape(leaf, array.attr("shape"));
  leaf.writable = true;
  return leaf;
}

Leaf describe_gpu_dlpack(nb::handle object, int ordinal, const std::string& where, const Reach& reach) {
  Leaf leaf;
  leaf.array = nb::borrow(object);
  leaf.gpu = ordinal;
  const auto module = nb::cast<std::string>(nb::str(nb::object(object.type().attr("__module__"))));
  if (module.starts_with("jax")) leaf.library = Library::jax;
  const StreamHandle stream = ordinal == reach.gpu ? reach.stream.value_or(1) : 1;
  leaf.capsule = capsule_of(object, stream == 0 ? 1 : stream, where);
  const char* name = PyCapsule_GetName(leaf.capsule.ptr());
  const nb::dlpack::dltensor* tensor = nullptr;
  leaf.writable = leaf.library != Library::jax;  // whose arrays never change
  if (name != nullptr && std::strcmp(name, "dltensor_versioned") == 0) {
    const auto* managed = static_cast<const ManagedVersioned*>(PyCapsule_GetPointer(leaf.capsule.ptr(), name));
    if (managed->major == 1) tensor = &managed->tensor;
    leaf.writable = leaf.writable && (managed->flags & 1) == 0;
  } else if (name != nullptr && std::strcmp(name, "dltensor") == 0) {
    tensor = &static_cast<const Managed*>(PyCapsule_GetPointer(leaf.capsule.ptr(), name))->tensor;
  }
  if (tensor == nullptr) {
    PyErr_Clear();
    raise(Errc::unsupported, where + " (" + kind_of(object) + ") was exported in no version of DLPack that is known");
  }
  leaf.dtype = dlpack_dtype_text(tensor->dtype);
  if (leaf.dtype.empty()) {
    nb::object dtype = nb::getattr(object, "dtype", nb::none());
    try {
      leaf.dtype = dtype_text(nb::module_::import_("numpy").attr("dtype")(dtype), where);
    } catch (nb::python_error&) {
      raise(Errc::unsupported,
            where + " has an element type that NumPy does not know; view it as integers of its size");
    }
  }
  std::vector<std::int64_t> strides;
  std::size_t count = 1;
  for (int i = 0; i < tensor->ndim; ++i) {
    leaf.shape.push_back(tensor->shape[i]);
    if (tensor->strides != nullptr) strides.push_back(tensor->strides[i]);
    count *= static_cast<std::size_t>(tensor->shape[i]);
  }
  leaf.contiguous = tensor->strides == nullptr || packed(leaf.shape, strides, 1);
  leaf.bytes = count * (static_cast<std::size_t>(tensor->dtype.bits) * tensor->dtype.lanes / 8);
  leaf.data = static_cast<std::byte*>(tensor->data) + tensor->byte_offset;
  return leaf;
}

Leaf describe_interface(nb::handle object, const std::string& where, const Reach& reach) {
  const nb::dict gives(object.attr("__cuda_array_interface__"));
  Leaf leaf;
  leaf.array = nb::borrow(object);
  const auto get = [&](const char* key) -> nb::object {
    return gives.contains(key) ? nb::object(gives[key]) : nb::object(nb::none());
  };
  if (!get("mask").is_none()) raise(Errc::unsupported, where + " has a mask: only plain arrays can be kept");
  nb::object dtype = nb::module_::import_("numpy").attr("dtype")(get("typestr"));
  const auto item = nb::cast<std::size_t>(dtype.attr("itemsize"));
  leaf.dtype = dtype_text(dtype, where);
  take_shape(leaf, get("shape"));
  leaf.bytes = item;
  for (const auto dim : leaf.shape) leaf.bytes *= static_cast<std::size_t>(dim);
  const nb::object data = get("data");
  leaf.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(data[0]));
  leaf.writable = !nb::cast<bool>(nb::bool_(nb::object(data[1])));
  leaf.contiguous = true;
  if (const nb::object steps = get("strides"); !steps.is_none()) {
    std::vector<std::int64_t> strides;
    for (nb::handle step : steps) strides.push_back(nb::cast<std::int64_t>(step));
    leaf.contiguous = packed(leaf.shape, strides, static_cast<std::int64_t>(item));
  }
  if (const nb::object stream = get("stream"); !stream.is_none()) leaf.stream = nb::cast<StreamHandle>(stream);
  // What no GPU owns is pinned memory of the host.
  leaf.gpu = leaf.bytes == 0 ? reach.gpu : platform::device_of_pointer(leaf.data).value_or(-1);
  return leaf;
}

}  // namespace ebb::python
