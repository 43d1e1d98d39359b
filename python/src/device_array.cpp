#include "device_array.hpp"

#include <algorithm>

#include "dlpack.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "text.hpp"

#ifdef Py_LIMITED_API
// One module serves 3.12, which has only the second, and later versions, which have the first.
extern "C" {
[[gnu::weak]] int Py_IsFinalizing();
[[gnu::weak]] int _Py_IsFinalizing();
}
#endif

namespace ebb::python {
namespace {

// The interpreter is shutting down: its objects must not be touched any more, and the process's memory is about to be
// freed.
bool interpreter_ends() {
#if defined(Py_LIMITED_API)
  return !Py_IsInitialized() || (Py_IsFinalizing ? Py_IsFinalizing() : _Py_IsFinalizing && _Py_IsFinalizing());
#elif PY_VERSION_HEX >= 0x030D0000
  return !Py_IsInitialized() || Py_IsFinalizing();
#else
  return !Py_IsInitialized() || _Py_IsFinalizing();
#endif
}

// One export: DLPack's struct as the consumer sees it, before or since version 1, and what keeps the memory alive.
template <bool versioned>
struct Export;

template <>
struct Export<false> {
  nb::dlpack::dltensor tensor;
  void* context = nullptr;
  void (*deleter)(Export*) = nullptr;
  static constexpr const char* name = "dltensor";

  std::shared_ptr<Grip> grip;
  std::vector<std::int64_t> shape, strides;
};

template <>
struct Export<true> {
  std::uint32_t major = 1, minor = 0;
  void* context = nullptr;
  void (*deleter)(Export*) = nullptr;
  std::uint64_t flags = 0;
  nb::dlpack::dltensor tensor;
  static constexpr const char* name = "dltensor_versioned";

  std::shared_ptr<Grip> grip;
  std::vector<std::int64_t> shape, strides;
};

std::int64_t item_of(const DeviceMemory& memory) {
  const std::int64_t elements = elements_of(memory.shape, memory.order);
  return elements == 0 ? 0 : static_cast<std::int64_t>(memory.bytes) / elements;
}

void* first_of(const DeviceMemory& memory) {
  return memory.bytes > 0 ? static_cast<std::byte*>(memory.data) + memory.order.first * item_of(memory) : nullptr;
}

// In elements.
std::vector<std::int64_t> strides_of(const DeviceMemory& memory) {
  if (!memory.order.strides.empty()) return memory.order.strides;
  std::vector<std::int64_t> strides(memory.shape.size());
  std::int64_t step = 1;
  for (std::size_t i = memory.shape.size(); i-- > 0;) {
    strides[i] = step;
    step *= std::max<std::int64_t>(memory.shape[i], 1);
  }
  return strides;
}

// Called by the consumer, on any of its threads.
template <bool versioned>
void let_go(Export<versioned>* exported) {
  if (interpreter_ends()) return;
  nb::gil_scoped_acquire gil;
  delete exported;
}

template <bool versioned>
nb::object capsule(std::shared_ptr<Grip> grip, const DeviceMemory& memory, nb::dlpack::dtype dtype, int gpu) {
  auto made = std::make_unique<Export<versioned>>();
  made->deleter = &let_go<versioned>;
  made->context = made.get();
  if constexpr (versioned) made->flags = memory.writable ? 0 : 1;
  made->grip = std::move(grip);
  made->shape = memory.shape;
  made->strides = strides_of(memory);
  nb::dlpack::dltensor& tensor = made->tensor;
  tensor.data = first_of(memory);
  tensor.device.device_type = kDlCuda;
  tensor.device.device_id = gpu;
  tensor.ndim = static_cast<std::int32_t>(memory.shape.size());
  tensor.dtype = dtype;
  tensor.shape = made->shape.data();
  tensor.strides = made->strides.data();
  PyObject* result = PyCapsule_New(made.get(), Export<versioned>::name, [](PyObject* unused) {
    // A consumer that took the capsule has renamed it, and calls the deleter itself.
    if (!PyCapsule_IsValid(unused, Export<versioned>::name)) return;
    delete static_cast<Export<versioned>*>(PyCapsule_GetPointer(unused, Export<versioned>::name));
  });
  if (result == nullptr) throw nb::python_error();
  static_cast<void>(made.release());
  return nb::steal(result);
}

[[noreturn]] void refuse(const std::string& message) {
  PyErr_SetString(PyExc_BufferError, message.c_str());
  throw nb::python_error();
}

}  // namespace

void Grip::taken_on(StreamHandle stream) {
  if (stream == 0) stream = 1;
  if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
}

void Grip::taken_by_anyone() {
  for (nb::handle stream : nb::module_::import_("ebbtide._arrays").attr("current_streams")(state->gpu()))
    taken_on(nb::cast<StreamHandle>(stream));
}

std::optional<StreamHandle> Grip::stream() const {
  if (streams.empty()) return std::nullopt;
  if (streams.size() == 1) return streams[0];
  raise(Errc::invalid_argument,
        "the memory of version " + std::to_string(version) +
            " was taken on several streams (__cuda_array_interface__ does not say on which, so the current one of each "
            "loaded library counts): let one of them wait for the others, and name it with stream=");
}

std::shared_ptr<Grip> DeviceArray::require_open() const {
  state_->check();
  auto grip = grip_.lock();
  if (!grip || grip->ended) {
    raise(Errc::closed,
          "this array's memory was given back to the store: the reservation was committed or abandoned, or the loan "
          "was released");
  }
  return grip;
}

nb::object DeviceArray::dlpack(nb::handle stream, nb::handle max_version, nb::handle dl_device, nb::handle copy) {
  auto grip = require_open();
  if (!copy.is_none() && nb::cast<bool>(nb::bool_(nb::borrow(copy)))) {
    refuse("copy=True: the store's own memory is exported as it is; copy the result");
  }
  if (!dl_device.is_none()) {
    const nb::object wanted = nb::borrow(dl_device);
    if (nb::cast<int>(nb::int_(nb::object(wanted[0]))) != kDlCuda ||
        nb::cast<int>(nb::int_(nb::object(wanted[1]))) != gpu())
      refuse("dl_device: the array is on cuda:" + std::to_string(gpu()) + " and is exported only there");
  }
  const auto dtype = to_dlpack_dtype(memory_.dtype);
  if (!dtype) refuse("DLPack has no element type for " + memory_.dtype + ": use __cuda_array_interface__, or bytes");
  std::int64_t on = 1;  // None is the legacy default stream; -1: the consumer needs no ordering
  if (!stream.is_none()) on = nb::cast<std::int64_t>(nb::int_(nb::borrow(stream)));
  if (on < 0)
    grip->taken_by_anyone();
  else
    grip->taken_on(static_cast<StreamHandle>(on));
  const bool versioned = !max_version.is_none() && nb::cast<int>(nb::int_(nb::object(nb::borrow(max_version)[0]))) >= 1;
  return versioned ? capsule<true>(std::move(grip), memory_, *dtype, gpu())
                   : capsule<false>(std::move(grip), memory_, *dtype, gpu());
}

nb::dict DeviceArray::interface() {
  auto grip = require_open();
  grip->taken_by_anyone();
  nb::dict gives;
  gives["shape"] = shape();
  gives["typestr"] = dtype().attr("str");
  gives["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(first_of(memory_)), !memory_.writable);
  gives["strides"] = nb::none();
  if (!memory_.order.strides.empty()) {
    std::vector<std::int64_t> steps = memory_.order.strides;
    for (std::int64_t& step : steps) step *= item_of(memory_);
    gives["strides"] = to_tuple(steps);
  }
  gives["version"] = 3;
  gives["stream"] = nb::none();  // the bytes are complete already
  kept_ = std::move(grip);
  return gives;
}

nb::object DeviceArray::dtype() const {
  return nb::module_::import_("ebbtide._arrays").attr("dtype_from")(memory_.dtype);
}

nb::tuple DeviceArray::shape() const { return to_tuple(memory_.shape); }

std::string DeviceArray::text() const {
  return "<ebbtide.DeviceArray " + to_text(memory_.dtype, memory_.shape) + " on cuda:" + std::to_string(gpu()) + ">";
}

nb::object as_like(nb::object array, nb::handle like) {
  if (like.is_none()) return array;
  return nb::module_::import_("ebbtide._arrays").attr("as_like")(array, like);
}

void bind_device_array(nb::module_& module) {
  nb::class_<DeviceArray>(module, "DeviceArray", nb::is_weak_referenceable(),
                          R"(Memory of a store on a GPU, lent by ``reserve`` and ``borrow``.

It computes nothing itself: ``torch.from_dlpack(a)``, ``cupy.from_dlpack(a)`` or ``cupy.asarray(a)`` make an array over
the same memory. That array may outlive the reservation or the loan: the memory stays mapped, and is not reused before
the array is gone (after an exception it may be reused, though it stays mapped). Borrowed memory must not be written to,
whether or not the library prevents it.)")
      .def("__dlpack__", &DeviceArray::dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing.Any"),
           "The memory as a DLPack capsule, marked read-only (if ``max_version`` allows it) when it was borrowed.")
      .def("__dlpack_device__", &DeviceArray::dlpack_device, nb::sig("def __dlpack_device__(self) -> tuple[int, int]"),
           "(2, the GPU's ordinal).")
      .def_prop_ro("__cuda_array_interface__", &DeviceArray::interface,
                   nb::sig("def __cuda_array_interface__(self) -> dict[str, typing.Any]"),
                   "The memory in version 3 of that protocol, read-only when it was borrowed. The protocol does not "
                   "name the reader's stream: if PyTorch and CuPy are on different ones, ``commit`` and ``release`` "
                   "need ``stream``.")
      .def_prop_ro("shape", &DeviceArray::shape, nb::sig("def shape(self) -> tuple[int, ...]"), "Lengths of the axes.")
      .def_prop_ro("dtype", &DeviceArray::dtype, nb::sig("def dtype(self) -> typing.Any"), "The type as NumPy's.")
      .def_prop_ro(
          "nbytes", [](const DeviceArray& self) { return self.memory().bytes; }, "Bytes.")
      .def("__repr__", &DeviceArray::text);
}

}  // namespace ebb::python
