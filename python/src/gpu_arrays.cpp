#include "gpu_arrays.hpp"

#include <nanobind/stl/vector.h>

#include "device_array.hpp"
#include "ebbtide/machine.hpp"
#include "errors.hpp"

namespace ebb::python {
namespace {

void take_shape(Leaf& leaf, nb::handle shape) {
  for (nb::handle dim : shape) leaf.shape.push_back(nb::cast<std::int64_t>(dim));
}

std::vector<std::int64_t> numbers_of(nb::handle given) {
  std::vector<std::int64_t> numbers;
  for (nb::handle number : given) numbers.push_back(nb::cast<std::int64_t>(number));
  return numbers;
}

bool is_nested(nb::handle tensor) {
  const nb::object nested = attribute(tensor, "is_nested");
  return nested.ptr() == Py_True;
}

// Tensors had names before PyTorch 2.13.
bool is_named(nb::handle tensor) {
  return nb::hasattr(tensor, "has_names") && nb::cast<bool>(tensor.attr("has_names")());
}

// The tangent that forward mode gave the tensor is in other memory. Outside of forward mode no tensor has one.
bool is_dual(nb::handle tensor) {
  const nb::object forward = loaded("torch.autograd.forward_ad");
  if (!forward.is_valid() || nb::cast<int>(forward.attr("_current_level")) < 0) return false;
  return nb::cast<bool>(helper().attr("is_dual")(tensor));
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
  leaf.order = array.memory().order;
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
    raise(Errc::unsupported, where + " is on the device '" + nb::cast<std::string>(nb::str(device)) +
                                 "', which ebbtide does not support: copy it to the CPU first");
  }
  leaf.dtype = torch_dtype_text(tensor.attr("dtype"));
  const bool partial = is_quantised(leaf.dtype) || is_nested(tensor) || is_named(tensor) || is_dual(tensor);
  if (partial) refuse_partial(tensor, where);
  bool contiguous = false;
  try {
    contiguous = nb::cast<bool>(tensor.attr("is_contiguous")());
    leaf.bytes = nb::cast<std::size_t>(tensor.attr("nbytes"));
    leaf.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(tensor.attr("data_ptr")()));
    leaf.storage = tensor.attr("untyped_storage")();  // set_ may replace the tensor's storage, also during the copy
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_RuntimeError)) throw;
    refuse_partial(tensor, where);
  }
  if (leaf.data == nullptr && leaf.bytes > 0) refuse_partial(tensor, where);
  take_shape(leaf, tensor.attr("shape"));
  leaf.writable = true;
  if (!contiguous) {
    const auto item = nb::cast<std::int64_t>(tensor.attr("element_size")());
    std::vector<std::int64_t> steps = numbers_of(tensor.attr("stride")());
    for (std::int64_t& step : steps) step *= item;
    lay_out(leaf, std::move(steps), item);
  }
  // The memory of a negated or conjugated view has other numbers.
  leaf.indirect |= nb::cast<bool>(tensor.attr("is_neg")());
  if (leaf.dtype.find('c') != leaf.dtype.npos) leaf.indirect |= nb::cast<bool>(tensor.attr("is_conj")());
  return leaf;
}

Leaf describe_cupy(nb::handle array, const std::string& where, const Reach& reach) {
  require_gpu(array, where, reach);
  Leaf leaf;
  leaf.library = Library::cupy;
  leaf.array = nb::borrow(array);
  leaf.gpu = nb::cast<int>(array.attr("device").attr("id"));
  leaf.dtype = dtype_text(array.attr("dtype"), where);
  leaf.bytes = nb::cast<std::size_t>(array.attr("nbytes"));
  leaf.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(array.attr("data").attr("ptr")));
  take_shape(leaf, array.attr("shape"));
  leaf.writable = true;
  if (!nb::cast<bool>(array.attr("flags").attr("c_contiguous")))
    lay_out(leaf, numbers_of(array.attr("strides")), nb::cast<std::int64_t>(array.attr("itemsize")));
  return leaf;
}

Leaf describe_interface(nb::handle object, nb::object gives, const std::string& where, Use use, const Reach& reach) {
  Leaf leaf;
  leaf.array = nb::borrow(object);
  const auto wrong = [&](const char* key) {
    raise(Errc::invalid_argument, where + " (" + kind_of(object) + ") gives a __cuda_array_interface__ whose " + key +
                                      " is not valid: " + repr_text(gives));
  };
  if (!PyDict_Check(gives.ptr())) wrong("type");
  const auto get = [&](const char* key) -> nb::object {
    const nb::handle found = PyDict_GetItemString(gives.ptr(), key);
    return found.is_valid() ? nb::borrow(found) : nb::object(nb::none());
  };
  const auto lengths = [&](const char* key) {
    std::vector<std::int64_t> result;
    if (!nb::try_cast(get(key), result)) wrong(key);
    return result;
  };
  if (!get("mask").is_none()) raise(Errc::unsupported, where + " has a mask: only plain arrays are supported");
  nb::object dtype;
  try {
    dtype = nb::module_::import_("numpy").attr("dtype")(nb::str(get("typestr")));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    wrong("typestr");
  }
  const auto item = nb::cast<std::size_t>(dtype.attr("itemsize"));
  leaf.dtype = dtype_text(dtype, where);
  leaf.shape = lengths("shape");
  leaf.bytes = item;
  for (const auto dim : leaf.shape) {
    if (dim < 0) wrong("shape");
    leaf.bytes *= static_cast<std::size_t>(dim);
  }
  const auto data = interface_data(gives);
  if (!data) wrong("data");
  leaf.data = data->pointer;
  leaf.writable = !data->read_only;
  if (use == Use::target && leaf.bytes != 0) {
    const auto again = interface_data(attribute(object, "__cuda_array_interface__"));
    if (!again || again->pointer != leaf.data) refuse_copy(object, where, "__cuda_array_interface__");
  }
  if (const nb::object stream = get("stream"); !stream.is_none()) {
    StreamHandle handle = 0;
    if (!nb::try_cast(stream, handle)) wrong("stream");
    leaf.stream = handle;
  }
  // Memory that belongs to no GPU is pinned host memory.
  leaf.gpu = leaf.bytes == 0 ? reach.gpu : machine::gpu_of(leaf.data).value_or(-1);
  if (!get("strides").is_none()) {
    std::vector<std::int64_t> steps = lengths("strides");
    if (steps.size() != leaf.shape.size()) wrong("strides");
    lay_out(leaf, std::move(steps), static_cast<std::int64_t>(item));
  }
  return leaf;
}

}  // namespace ebb::python
