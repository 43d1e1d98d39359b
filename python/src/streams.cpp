#include "streams.hpp"

#include <algorithm>

#include "errors.hpp"
#include "waiting.hpp"

namespace ebb::python {
namespace {

constexpr StreamHandle kLegacy = 1;  // 0 is another name for it

nb::object stream_object(Library library, int gpu) {
  if (library == Library::torch) return loaded("torch").attr("cuda").attr("current_stream")(gpu);
  return loaded("cupy").attr("cuda").attr("get_current_stream")(gpu);
}

// The library's current stream.
StreamHandle current_stream(Library library, int gpu) {
  nb::object handle;
  if (library == Library::torch) {
    const nb::object torch = loaded("torch");
    const nb::object raw = nb::getattr(nb::object(torch.attr("_C")), "_cuda_getCurrentRawStream", nb::none());
    handle = raw.is_none() ? nb::object(stream_object(library, gpu).attr("cuda_stream")) : raw(gpu);
  } else {
    handle = stream_object(library, gpu).attr("ptr");
  }
  const auto stream = nb::cast<StreamHandle>(handle);
  return stream == 0 ? kLegacy : stream;
}

std::string hex(StreamHandle stream) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  do text.insert(text.begin(), digits[stream & 15]);
  while ((stream >>= 4) != 0);
  return "0x" + text;
}

// The stream on which one of the arrays is computed.
struct Found {
  Library library = Library::numpy;
  int gpu = -1;
  StreamHandle stream = kLegacy;
  bool operator==(const Found&) const = default;
};

void await(StoreState& state, const Found& found) {
  if (!has_streams(found.library)) return check(finish(state, found.gpu, found.stream));
  const char* const library = found.library == Library::torch ? "torch" : "cupy";
  nb::module_::import_("ebbtide._arrays").attr("synchronize")(library, found.gpu);
}

}  // namespace

std::optional<StreamHandle> to_stream(nb::handle stream) {
  if (stream.is_none()) return std::nullopt;
  StreamHandle handle = 0;
  if (PyLong_Check(stream.ptr()) && !PyBool_Check(stream.ptr())) {
    if (nb::try_cast(stream, handle)) return handle;
  } else {
    for (const char* name : {"cuda_stream", "ptr"}) {  // PyTorch's, CuPy's
      const nb::object value = nb::getattr(stream, name, nb::none());
      if (PyLong_Check(value.ptr()) && nb::try_cast(value, handle)) return handle;
    }
    if (nb::hasattr(stream, "__cuda_stream__")) {
      nb::object gives = stream.attr("__cuda_stream__");
      if (PyCallable_Check(gives.ptr())) gives = gives();
      if (PySequence_Check(gives.ptr()) && PySequence_Size(gives.ptr()) == 2 &&
          nb::try_cast(nb::object(gives[1]), handle))
        return handle;
    }
  }
  PyErr_Clear();
  raise(Errc::invalid_argument,
        "stream=" + repr_text(stream) +
            " is not valid: expected None, a handle as an int, a stream of PyTorch or CuPy, or an object with "
            "__cuda_stream__");
}

std::optional<StreamHandle> stream_for(StoreState& state, const Bundle& bundle, const Reach& reach, bool may_order,
                                       bool mixed) {
  if (reach.gpu < 0) return reach.stream;  // refused there, by name
  bool host = false, blocks = !may_order;
  std::vector<Found> found;
  for (const Leaf& leaf : bundle.leaves) {
    if (leaf.bytes == 0) continue;
    host |= leaf.gpu < 0 && !mixed;
    if (leaf.gpu < 0) continue;
    const bool elsewhere = leaf.gpu != reach.gpu;
    Found one{leaf.library, leaf.gpu};
    if (reach.stream) {
      // Ordered on the legacy stream of its own GPU, which no copy of this call uses.
      if (!elsewhere || !leaf.capsule.is_valid()) continue;
    } else if (has_streams(leaf.library)) {
      // Usually all arrays are of one library and one GPU.
      const bool known = !found.empty() && found.back().library == one.library && found.back().gpu == one.gpu;
      if (known) continue;
      one.stream = current_stream(leaf.library, leaf.gpu);
    } else if (leaf.stream) {
      one.stream = *leaf.stream == 0 ? kLegacy : *leaf.stream;
    } else if (!elsewhere) {
      blocks = true;  // complete for what follows on the legacy default stream
      continue;
    }
    blocks |= elsewhere;
    if (std::find(found.begin(), found.end(), one) == found.end()) found.push_back(one);
  }
  if (reach.stream && host) {
    raise(Errc::invalid_argument,
          "stream= orders arrays on a GPU, and some arrays are in host memory: leave it out, and "
          "the call blocks until they are copied");
  }
  blocks |= host;
  if (blocks) {
    for (const Found& one : found) {
      if (one.stream != kLegacy || one.gpu != reach.gpu) await(state, one);
    }
    return reach.stream;
  }
  if (reach.stream) return reach.stream;
  if (found.empty()) return std::nullopt;
  for (const Found& one : found) {
    if (one.stream == found[0].stream) continue;
    raise(Errc::invalid_argument, "the arrays of this call are computed on different streams (" + hex(found[0].stream) +
                                      " and " + hex(one.stream) +
                                      "): let one wait for the other, and name with stream= "
                                      "the one to order the call on");
  }
  return found[0].stream;
}

}  // namespace ebb::python
