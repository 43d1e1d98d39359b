#include "arrays.hpp"

#include <algorithm>
#include <cstring>

#include "device_array.hpp"
#include "dlpack.hpp"
#include "errors.hpp"
#include "gpu_arrays.hpp"

namespace ebb::python {
namespace {

nb::handle numpy() {
  // The interpreter keeps sys.modules alive; looking it up costs a dictionary access.
  PyObject* module = PyImport_GetModule(nb::str("numpy").ptr());
  if (module == nullptr) module = PyImport_ImportModule("numpy");
  if (module == nullptr) throw nb::python_error();
  Py_DECREF(module);
  return module;
}

constexpr char kKinds[] = {'i', 'u', 'f', 0, 0, 'c', 'b'};  // NumPy's letters, by DLPack's code
constexpr std::uint8_t kBfloat = 4;

// An object that offers the buffer protocol and nothing else.
Leaf describe_buffer(nb::handle object, const std::string& where, Use use) {
  Leaf leaf = describe_numpy(helper().attr("from_buffer")(object, where), where);
  if (use == Use::source || leaf.bytes == 0) return leaf;
  Buffer own;
  if (!own.get(object) || own.view().buf != (leaf.strided ? leaf.strided->first : leaf.data))
    refuse_copy(object, where, "buffer");
  leaf.writable = !own.view().readonly;
  leaf.given = nb::borrow(object);
  return leaf;
}

Leaf describe_foreign(nb::handle object, const std::string& where, Use use, const Reach& reach) {
  if (attribute(object, "__dlpack__").is_valid() && attribute(object, "__dlpack_device__").is_valid())
    return describe_dlpack(object, where, use, reach, Library::numpy);
  if (nb::object gives = attribute(object, "__cuda_array_interface__"); gives.is_valid()) {
    require_gpu(object, where, reach);
    return describe_interface(object, std::move(gives), where, use, reach);
  }
  if (PyObject_CheckBuffer(object.ptr())) return describe_buffer(object, where, use);
  raise(Errc::invalid_argument, where + " is of type '" + kind_of(object) +
                                    "': expected an array (with __dlpack__, __cuda_array_interface__ or the buffer "
                                    "protocol), or lists, tuples and dicts of arrays, "
                                    "numbers, text and None");
}

struct Memory {
  void* data = nullptr;
  std::size_t bytes = 0;
  bool same_order = false;
};

// Of the arrays that programs have most of, without what else describes them.
Memory memory_of(nb::handle object, const Leaf& before, const Reach& reach) {
  const Kind kind = before.strided ? Kind::foreign : reach.kinds->of(object);
  if (kind == Kind::numpy) {
    Py_buffer view;
    if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_STRIDES) != 0) throw nb::python_error();
    const Memory memory{view.buf, static_cast<std::size_t>(view.len), PyBuffer_IsContiguous(&view, 'C') != 0};
    PyBuffer_Release(&view);
    return memory;
  }
  if (kind == Kind::torch) {
    return {reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object.attr("data_ptr")())),
            nb::cast<std::size_t>(object.attr("nbytes")), nb::cast<bool>(object.attr("is_contiguous")())};
  }
  const Leaf leaf = describe(object, "it", Use::source, reach);
  const bool same = leaf.shape == before.shape ? same_order(leaf.shape, leaf.order, before.order) : !leaf.strided;
  return {leaf.data, leaf.bytes, same && !leaf.indirect};
}

std::int64_t item_of(const Leaf& leaf) {
  if (leaf.strided) return leaf.strided->item;
  return static_cast<std::int64_t>(leaf.bytes) / std::max<std::int64_t>(1, elements_of(leaf.shape, {}));
}

// What ebbtide/_arrays.py copies from and to: the array, or one over its memory if its library can not.
nb::object copyable(const Leaf& leaf, const std::string& where, bool writable) {
  if (leaf.gpu >= 0 && !has_streams(leaf.library)) return helper().attr("known_on_gpu")(leaf.array, where, leaf.gpu);
  if (!leaf.capsule.is_valid()) return leaf.array;
  void* const first = leaf.strided ? leaf.strided->first : leaf.data;
  const nb::object steps = leaf.strided ? nb::object(to_tuple(leaf.strided->steps)) : nb::object(nb::none());
  return helper().attr("memory")(reinterpret_cast<std::uintptr_t>(first), item_of(leaf), to_tuple(leaf.shape), steps,
                                 writable);
}

void copy(nb::handle to, nb::handle from, const Leaf& leaf, const Reach& reach, bool wait) {
  helper().attr("copy")(to, from, leaf.gpu, reach.stream, reach.gpu, wait || !has_streams(leaf.library),
                        to_tuple(leaf.turned));
}

}  // namespace

nb::module_ helper() { return nb::module_::import_("ebbtide._arrays"); }

Leaf describe_numpy(nb::handle object, const std::string& where) {
  Leaf leaf;
  leaf.array = nb::borrow(object);
  leaf.dtype = dtype_text(object.attr("dtype"), where);
  if (!leaf.buffer.get(object)) raise(Errc::invalid_argument, where + " exports no buffer: " + kind_of(object));
  const Py_buffer& view = leaf.buffer.view();
  leaf.data = view.buf;
  leaf.bytes = static_cast<std::size_t>(view.len);
  leaf.writable = !view.readonly;
  leaf.shape.assign(view.shape, view.shape + view.ndim);
  if (PyBuffer_IsContiguous(&view, 'C') == 0) lay_out(leaf, {view.strides, view.strides + view.ndim}, view.itemsize);
  return leaf;
}

void lay_out(Leaf& leaf, std::vector<std::int64_t> steps, std::int64_t item) {
  if (leaf.bytes == 0 || in_c_order(leaf.shape, steps, item)) return;
  Placement placement = placement_of(leaf.shape, steps, item);
  leaf.strided =
      Strided{leaf.data, item, std::move(steps), static_cast<std::size_t>(placement.bytes), placement.overlaps};
  leaf.indirect = !placement.run || leaf.library == Library::jax;
  if (leaf.library == Library::jax) return;  // its arrays have no order
  leaf.data = static_cast<std::byte*>(leaf.data) - placement.before;
  leaf.bytes = static_cast<std::size_t>(placement.elements * item);
  leaf.order = std::move(placement.order);
}

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

// The texts of torch's types; one that NumPy does not know keeps torch's name.
std::string torch_dtype_text(nb::handle dtype) {
  static constexpr std::pair<std::string_view, const char*> known[] = {
      {"float32", "<f4"}, {"float64", "<f8"}, {"float16", "<f2"},   {"int64", "<i8"},      {"int32", "<i4"},
      {"int16", "<i2"},   {"int8", "|i1"},    {"uint8", "|u1"},     {"uint16", "<u2"},     {"uint32", "<u4"},
      {"uint64", "<u8"},  {"bool", "|b1"},    {"complex64", "<c8"}, {"complex128", "<c16"}};
  const auto text = nb::cast<std::string>(nb::str(dtype));
  const std::string_view name = std::string_view(text).substr(text.rfind('.') + 1);
  for (const auto& [torch, numpy] : known) {
    if (name == torch) return numpy;
  }
  return "torch:" + text;
}

bool is_quantised(const std::string& dtype) { return dtype.starts_with("torch:torch.q"); }

// Types that `numpy.dtype.str` describes fully; Python writes the others.
std::string dtype_text(nb::handle dtype, const std::string& where) {
  constexpr int kRegistered = 2;  // by another package, maybe as one of NumPy's kinds
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  const bool plain = kind.size() == 1 && std::strchr("biufcmMSU", kind[0]) != nullptr;
  if (plain && nb::cast<int>(dtype.attr("isbuiltin")) != kRegistered) return nb::cast<std::string>(dtype.attr("str"));
  return nb::cast<std::string>(helper().attr("dtype_text")(dtype, where));
}

std::string dlpack_dtype_text(nb::dlpack::dtype type) {
  if (type.lanes != 1 || type.bits % 8 != 0 || type.code >= sizeof kKinds || kKinds[type.code] == 0) return {};
  std::string text(type.bits == 8 ? "|" : "<");
  text += kKinds[type.code];
  return text += std::to_string(type.bits / 8);
}

std::optional<nb::dlpack::dtype> to_dlpack_dtype(const std::string& text) {
  if (text == "torch:torch.bfloat16" || text == "name:bfloat16") return nb::dlpack::dtype{kBfloat, 16, 1};
  if (text.size() < 3 || text[0] == '>' || text.find(':') != text.npos) return std::nullopt;
  const char* const kind = static_cast<const char*>(std::memchr(kKinds, text[1], sizeof kKinds));
  if (kind == nullptr) return std::nullopt;
  const int bytes = std::stoi(text.substr(2));
  if (bytes > 16) return std::nullopt;
  return nb::dlpack::dtype{static_cast<std::uint8_t>(kind - kKinds), static_cast<std::uint8_t>(8 * bytes), 1};
}

std::string kind_of(nb::handle object) { return nb::cast<std::string>(nb::type_name(object.type())); }

nb::object loaded(const char* module) {
  PyObject* found = PyDict_GetItemString(PyImport_GetModuleDict(), module);
  if (found == nullptr || found == Py_None) return {};
  return nb::borrow(found);
}

bool is_of(const char* module, const char* type, nb::handle object) {
  const nb::object from = loaded(module);
  if (!from.is_valid()) return false;
  const nb::object kind = nb::getattr(from, type, nb::none());
  return PyType_Check(kind.ptr()) && nb::isinstance(object, kind);
}

nb::object attribute(nb::handle object, const char* name) {
  nb::object found = nb::steal(PyObject_GetAttrString(object.ptr(), name));
  if (found.is_valid()) return found;
  if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return {};
}

std::optional<InterfaceData> interface_data(const nb::object& gives) {
  if (!gives.is_valid() || !PyDict_Check(gives.ptr())) return std::nullopt;
  const nb::handle data = PyDict_GetItemString(gives.ptr(), "data");  // borrowed
  if (!data.is_valid() || !PyTuple_Check(data.ptr()) || PyTuple_Size(data.ptr()) != 2) return std::nullopt;
  std::uintptr_t pointer = 0;
  if (!nb::try_cast(nb::handle(PyTuple_GetItem(data.ptr(), 0)), pointer)) return std::nullopt;
  const int read_only = PyObject_IsTrue(PyTuple_GetItem(data.ptr(), 1));
  if (read_only < 0) throw nb::python_error();
  return InterfaceData{reinterpret_cast<void*>(pointer), read_only != 0};
}

void refuse_copy(nb::handle object, const std::string& where, const char* protocol) {
  raise(Errc::invalid_argument, where + " (" + kind_of(object) + ") hands out a copy of its memory by its " + protocol +
                                    ", so bytes read into it would not be in " + where +
                                    ": expected an array that shares its memory");
}

void refuse_partial(nb::handle object, const std::string& where) {
  raise(Errc::unsupported, where + nb::cast<std::string>(helper().attr("why_partial")(object)));
}

void require_axes(std::size_t axes, const std::string& where) {
  constexpr std::size_t always = 32;
  if (axes <= always) return;
  const auto most = nb::cast<std::size_t>(helper().attr("MOST_AXES"));
  if (axes <= most) return;
  raise(Errc::invalid_argument, where + " has " + std::to_string(axes) + " axes, and NumPy arrays have at most " +
                                    std::to_string(most) + ": reshape it");
}

Leaf describe(nb::handle object, const std::string& where, Use use, const Reach& reach) {
  switch (reach.kinds->of(object)) {
    case Kind::numpy: return describe_numpy(object, where);
    case Kind::scalar: return describe_numpy(helper().attr("from_scalar")(object, where), where);
    case Kind::torch: return describe_torch(object, where, reach);
    case Kind::cupy: return describe_cupy(object, where, reach);
    case Kind::lent: return describe_lent(object, where, reach);
    case Kind::partial: refuse_partial(object, where);
    case Kind::jax:
      if (use == Use::source) return describe_dlpack(object, where, use, reach, Library::jax);
      raise(Errc::invalid_argument, where + " is read-only: arrays of JAX (" + kind_of(object) +
                                        ") are immutable; omit out=: new arrays are returned");
    case Kind::foreign: break;
  }
  return describe_foreign(object, where, use, reach);
}

Leaf describe_source(nb::handle object, const std::string& where, const Reach& reach) {
  Leaf leaf = describe(object, where, Use::source, reach);
  require_axes(leaf.shape.size(), where);
  if (leaf.indirect && !is_within_reach(leaf, reach)) return packed(leaf, where, reach);
  return leaf;
}

bool is_within_reach(const Leaf& leaf, const Reach& reach) {
  return leaf.gpu == reach.gpu && (leaf.gpu < 0 || has_streams(leaf.library));
}

Leaf packed(const Leaf& leaf, const std::string& where, const Reach& reach) {
  Leaf room = room_like(leaf, leaf.order, where, reach);
  copy(room.array, copyable(leaf, where, false), leaf, reach, false);
  return room;
}

void pack_at(void* memory, const Leaf& leaf, const Reach& reach) {
  const nb::object from = copyable(leaf, "arrays", false);
  const nb::object run = helper().attr("run_at")(reinterpret_cast<std::uintptr_t>(memory), leaf.bytes, from, leaf.gpu);
  copy(laid_out(run, leaf.shape, leaf.order), from, leaf, reach, false);
}

Leaf room_like(const Leaf& like, const RunOrder& order, const std::string& where, const Reach& reach) {
  Library library = like.library;
  std::string dtype = like.dtype;
  if (like.gpu >= 0 && !has_streams(library)) {
    library = nb::cast<bool>(helper().attr("packs_with_torch")(where)) ? Library::torch : Library::cupy;
  } else if (like.gpu < 0 && like.capsule.is_valid()) {
    dtype = "|V" + std::to_string(item_of(like));
  }
  const nb::object run = new_array(library, dtype, {elements_of(like.shape, order)}, like.gpu, reach);
  Leaf room = describe(run, where, Use::target, reach);
  room.library = like.library;
  room.array = laid_out(run, like.shape, order);
  room.dtype = like.dtype;
  room.shape = like.shape;
  room.order = order;
  return room;
}

void read_by_way(Leaf& leaf, const RunOrder& order, const std::string& where, const Reach& reach) {
  const Leaf room = room_like(leaf, order, where, reach);
  leaf.filled = copyable(leaf, where, true);
  leaf.packed = room.array;
  if (is_of("torch", "Tensor", room.array)) {
    for (std::size_t i = 0; i < order.strides.size(); ++i)
      if (order.strides[i] < 0) leaf.turned.push_back(static_cast<std::int64_t>(i));
  }
  leaf.data = room.data;
  leaf.bytes = room.bytes;
}

void fill(const Leaf& leaf, const Reach& reach, bool load, bool wait) {
  if (!leaf.packed.is_valid()) return;
  load ? copy(leaf.packed, leaf.filled, leaf, reach, wait) : copy(leaf.filled, leaf.packed, leaf, reach, wait);
}

nb::object laid_out(nb::handle run, const std::vector<std::int64_t>& shape, const RunOrder& order) {
  return helper().attr("laid_out")(run, to_tuple(shape), to_tuple(order.strides), order.first);
}

nb::tuple to_tuple(const std::vector<std::int64_t>& numbers) {
  nb::object made = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(numbers.size())));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    PyTuple_SetItem(made.ptr(), static_cast<Py_ssize_t>(i), PyLong_FromLongLong(numbers[i]));
  return nb::borrow<nb::tuple>(made);
}

nb::object new_array(Library library, const std::string& dtype, const std::vector<std::int64_t>& shape, int gpu,
                     const Reach& reach) {
  const nb::tuple dims = to_tuple(shape);
  static constexpr const char* names[] = {"numpy", "torch", "cupy", "jax"};
  const char* const name = names[static_cast<int>(library)];
  if (gpu >= 0 && library != Library::numpy && reach.gpu >= 0)
    return helper().attr("new_gpu_array")(name, dtype, dims, gpu, reach.stream, reach.gpu);
  const bool plain = library == Library::numpy || library == Library::cupy;
  if (plain && dtype.find(':') == dtype.npos) return numpy().attr("empty")(dims, dtype);
  return helper().attr("new_array")(name, dtype, dims);
}

std::optional<std::string> moved(const Leaf& leaf, const Reach& reach) {
  try {
    const Memory now = memory_of(leaf.given.is_valid() ? leaf.given : leaf.array, leaf, reach);
    if (now.bytes != leaf.bytes)
      return "has " + std::to_string(now.bytes) + " bytes, and had " + std::to_string(leaf.bytes);
    if (now.bytes == 0) return {};
    if (now.data != leaf.data) return "is at another address than";
    if (!now.same_order)
      return leaf.strided ? "is no longer in the order in which it was" : "is no longer in C order, as it was";
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    return "no longer says where its memory is (" + str_text(error.value()) + "), as it did";
  }
  return {};
}

std::pair<std::string, std::size_t> parse_dtype(nb::handle dtype) {
  if (is_of("torch", "dtype", dtype)) {
    auto text = torch_dtype_text(dtype);
    if (is_quantised(text)) {
      raise(Errc::unsupported, "dtype=" + str_text(dtype) +
                                   " is not valid: numbers of that type need their scale and zero point; "
                                   "expected an integer type of the same size");
    }
    return {std::move(text), nb::cast<std::size_t>(dtype.attr("itemsize"))};
  }
  nb::object parsed;
  try {
    parsed = numpy().attr("dtype")(dtype);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError) && !error.matches(PyExc_ValueError)) throw;
    raise(Errc::invalid_argument,
          "dtype=" + repr_text(dtype) + " is not valid: expected what numpy.dtype takes, or a torch type");
  }
  return {dtype_text(parsed, "dtype"), nb::cast<std::size_t>(parsed.attr("itemsize"))};
}

nb::object array_over(nb::handle owner, const std::string& dtype, const std::vector<std::int64_t>& shape) {
  return helper().attr("array_over")(owner, dtype, to_tuple(shape));
}

std::string to_text(const std::string& dtype, const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  if (shape.size() == 1) text += ",";
  return text + ") of " + nb::cast<std::string>(helper().attr("dtype_name")(dtype));
}

}  // namespace ebb::python
