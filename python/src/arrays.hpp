#pragma once
// One array of the caller's, described without copying: where its bytes are, its shape and its type.
#include <cstdint>
#include <memory>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <string>
#include <vector>

#include "ebbtide/store.hpp"
#include "kinds.hpp"
#include "strides.hpp"
#include "text.hpp"

namespace ebb::python {

struct Grip;

enum class Library : std::uint8_t { numpy, torch, cupy, jax };

/// Libraries with a current stream, in whose order they reuse an array's memory.
constexpr bool has_streams(Library library) { return library == Library::torch || library == Library::cupy; }

/// What a call can reach, and the stream that it was given.
struct Reach {
  int gpu = -1;                             ///< the store's; -1: its device is host memory
  std::optional<StreamHandle> stream = {};  ///< as given with `stream=`
  Kinds* kinds = nullptr;                   ///< the store's
};

enum class Use { source, target };  ///< targets must be writable

/// An exported buffer, released on destruction. Move-only; moved-from is empty.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept : view_(std::move(other.view_)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  ~Buffer();
  /// False (and no Python error left set) when `object` gives no strided buffer.
  bool get(nb::handle object);
  const Py_buffer& view() const { return *view_; }

 private:
  std::unique_ptr<Py_buffer> view_;
};

/// Of an array that is not in C order.
struct Strided {
  void* first = nullptr;            ///< its first element
  std::int64_t item = 0;            ///< bytes of an element
  std::vector<std::int64_t> steps;  ///< bytes between elements, along each axis
  std::size_t bytes = 0;            ///< from its lowest element to the end of its highest
  bool overlaps = false;            ///< as Placement::overlaps
};

struct Leaf {
  Library library = Library::numpy;
  Library becomes = Library::numpy;         ///< jax: a new array that becomes one of that library once it is filled
  int gpu = -1;                             ///< where the bytes are; -1: host memory
  std::optional<StreamHandle> stream = {};  ///< the one that the array itself names
  void* data = nullptr;                     ///< the lowest
  std::size_t bytes = 0;                    ///< that a checkpoint keeps of it
  bool writable = false;
  std::string dtype;  ///< `numpy.dtype.str`, or `kind:...` as ebbtide/_arrays.py writes it
  std::vector<std::int64_t> shape;
  RunOrder order;         ///< in which a checkpoint keeps it
  bool indirect = false;  ///< its memory is not that run: a source is packed, a target filled from packed memory
  std::optional<Strided> strided;    ///< none: its memory is `bytes` from `data` on, in C order
  nb::object array;                  ///< what keeps the bytes alive, with `buffer` or `capsule`
  nb::object packed;                 ///< of an indirect target: what it is filled from; `data` is its memory
  nb::object filled;                 ///< with `packed`: the target as ebbtide/_arrays.py can fill it
  std::vector<std::int64_t> turned;  ///< axes along which `packed`, a tensor, is reversed
  nb::object given;                  ///< the program's object, if `array` is a view that was made of it
  nb::object capsule;
  nb::object storage;  ///< a tensor's storage: the bytes stay there when the tensor is given another
  Buffer buffer;
  std::weak_ptr<Grip> grip;  ///< on the store's own memory
};

/// Describes `object`. `where` names it in errors: "arrays", "arrays[2]", "out['p']". Raises invalid_argument for what
/// is no array or holds Python objects, and for a target that is a copy or read-only; unsupported for memory that the
/// store cannot reach and for arrays that are more than their bytes. Exceptions of the object's own methods propagate.
/// Needs the GIL.
Leaf describe(nb::handle object, const std::string& where, Use use, const Reach& reach);

/// ebbtide/_arrays.py.
nb::module_ helper();

/// An array of NumPy's.
Leaf describe_numpy(nb::handle object, const std::string& where);

/// Says how its elements lie, `steps` bytes apart from `leaf.data` on, and changes `data` and `bytes` to what is kept.
void lay_out(Leaf& leaf, std::vector<std::int64_t> steps, std::int64_t item);

/// As `describe` for a source, but replaces an indirect array by a packed copy, unless `pack_at` can take it.
Leaf describe_source(nb::handle object, const std::string& where, const Reach& reach);

/// Whether it is on the store's device, of a library that copies in the order of its streams.
bool is_within_reach(const Leaf& leaf, const Reach& reach);
/// A packed copy of an indirect array, made in the order of its stream.
Leaf packed(const Leaf& leaf, const std::string& where, const Reach& reach);
/// Copies an array within reach to memory of the store's device, as a checkpoint keeps it.
void pack_at(void* memory, const Leaf& leaf, const Reach& reach);

/// New memory of `like`'s library and shape in that order, as a leaf whose array is over all of it.
Leaf room_like(const Leaf& like, const RunOrder& order, const std::string& where, const Reach& reach);

/// From here on the target is read by way of new memory in that order.
void read_by_way(Leaf& leaf, const RunOrder& order, const std::string& where, const Reach& reach);
/// Copies what was read there to the target, in the order of its stream, and waits for a GPU if `wait`; `load`: copies
/// what the target has, there.
void fill(const Leaf& leaf, const Reach& reach, bool load, bool wait);

/// How the program's object differs from what it was when it was described: "has 80 bytes, and had 40", "is at another
/// address than", for a sentence that ends with "when"; none: it has the same memory, in the same order. Its own
/// exceptions count as such.
std::optional<std::string> moved(const Leaf& leaf, const Reach& reach);

/// The memory of an array according to its `__array_interface__` or `__cuda_array_interface__` (`gives`); none: it does
/// not say.
struct InterfaceData {
  void* pointer = nullptr;
  bool read_only = true;
};
std::optional<InterfaceData> interface_data(const nb::object& gives);

/// `object.name`, or an empty object if there is none. Exceptions of a property propagate.
nb::object attribute(nb::handle object, const char* name);

/// Refuses a target whose `protocol` exports a copy.
[[noreturn]] void refuse_copy(nb::handle object, const std::string& where, const char* protocol);

/// Refuses an array that is more than its bytes, and says which expression makes a plain one.
[[noreturn]] void refuse_partial(nb::handle object, const std::string& where);

/// Refuses more axes than a NumPy array can have: no restore could return it.
void require_axes(std::size_t axes, const std::string& where);

/// A view of a new array of one axis, with that shape and order.
nb::object laid_out(nb::handle run, const std::vector<std::int64_t>& shape, const RunOrder& order);

/// A new array of `library`; in host memory if `gpu` is -1 or does not exist. Work on the given stream (none: on the
/// current one) may use it at once.
nb::object new_array(Library library, const std::string& dtype, const std::vector<std::int64_t>& shape, int gpu,
                     const Reach& reach);

/// A type's text, as NumPy or ebbtide/_arrays.py writes it.
std::string dtype_text(nb::handle dtype, const std::string& where);
std::string torch_dtype_text(nb::handle dtype);
/// Whether numbers of that type need the scale and the zero point of their tensor.
bool is_quantised(const std::string& dtype);
/// The same for a type as DLPack writes it; empty: NumPy has no such type.
std::string dlpack_dtype_text(nb::dlpack::dtype type);
/// The inverse; nothing for a type that DLPack does not know.
std::optional<nb::dlpack::dtype> to_dlpack_dtype(const std::string& text);

/// The type's name, for messages.
std::string kind_of(nb::handle object);
/// A module if the program has imported it, else an empty object.
nb::object loaded(const char* module);
/// Whether `object` is a `module.type`; imports nothing.
bool is_of(const char* module, const char* type, nb::handle object);

/// The item size in bytes of a dtype given as anything that `numpy.dtype` takes, and its text.
std::pair<std::string, std::size_t> parse_dtype(nb::handle dtype);

/// `bytes` of memory as an array of `dtype` and `shape` whose base is `owner`, which exports them as a buffer.
nb::object array_over(nb::handle owner, const std::string& dtype, const std::vector<std::int64_t>& shape);

nb::tuple to_tuple(const std::vector<std::int64_t>& numbers);

/// "(3, 4) float32", for messages.
std::string to_text(const std::string& dtype, const std::vector<std::int64_t>& shape);

}  // namespace ebb::python
