#pragma once
// One array of the caller's, described without copying: where its bytes lie, its shape and its type.
#include <cstdint>
#include <memory>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <string>
#include <vector>

namespace ebb::python {

namespace nb = nanobind;

enum class Library : std::uint8_t { numpy, torch };

/// An exported buffer, let go of on destruction. Move-only; moved-from is empty.
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

struct Leaf {
  Library library = Library::numpy;
  void* data = nullptr;
  std::size_t bytes = 0;
  bool writable = false;
  bool contiguous = false;  ///< in C order
  std::string dtype;        ///< `numpy.dtype.str`, or `kind:...` as ebbtide/_arrays.py writes it
  std::vector<std::int64_t> shape;
  nb::object array;  ///< what keeps the bytes alive, with `buffer` or `tensor`
  Buffer buffer;
  nb::ndarray<nb::ro> tensor;
};

/// Describes `object`. `where` names it in a refusal: "arrays", "arrays[2]", "out['p']". Raises invalid_argument for
/// what is no array or holds Python objects, unsupported for memory that the host cannot reach. Needs the GIL.
Leaf describe(nb::handle object, const std::string& where);

/// `describe`, and an array with gaps between its elements is replaced by a packed copy.
Leaf describe_source(nb::handle object, const std::string& where);

/// A new array of `library`.
nb::object new_array(Library library, const std::string& dtype, const std::vector<std::int64_t>& shape);

/// The item size in bytes of a dtype given as anything that `numpy.dtype` takes, and its text.
std::pair<std::string, std::size_t> parse_dtype(nb::handle dtype);

/// `bytes` of memory as an array of `dtype` and `shape` whose base is `owner`, which exports them as a buffer.
nb::object array_over(nb::handle owner, const std::string& dtype, const std::vector<std::int64_t>& shape);

/// "(3, 4) float32", for a person.
std::string to_text(const std::string& dtype, const std::vector<std::int64_t>& shape);

}  // namespace ebb::python
