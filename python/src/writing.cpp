// Writing checkpoints: from arrays of the program, or computed inside the device cache.
#include <algorithm>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include "arguments.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "streams.hpp"
#include "waiting.hpp"

namespace ebb::python {
namespace {

// Arrays that have to be packed, straight into the device cache: that saves a copy of them. None: it has no room for
// them now, or some array is elsewhere.
std::optional<Future> pack_there(HistoryObject& self, Version version, const Bundle& bundle,
                                 const CheckpointOptions& options, Signals& signals, const Reach& reach) {
  const auto within = [&](const Leaf& leaf) { return leaf.bytes == 0 || is_within_reach(leaf, reach); };
  if (!std::ranges::all_of(bundle.leaves, within)) return {};
  CheckpointOptions now = options;
  now.timeout = Seconds(0);
  auto reserved = [&] {
    Unlocked unlocked(self.state->inside());
    return self.history.reserve(version, sources_of(bundle), now);
  }();
  signals.rethrow();
  if (!reserved) return {};
  for (std::size_t i = 0; i < bundle.leaves.size(); ++i) {
    const Leaf& leaf = bundle.leaves[i];
    if (leaf.bytes != 0) pack_at(reserved->region(static_cast<std::uint32_t>(i)).data(), leaf, reach);
  }
  Future future = reserved->future();
  waiting(*self.state, signals, [&] { return reserved->commit({.stream = options.stream}); });
  return future;
}

nb::object checkpoint(HistoryObject& self, nb::handle version, nb::handle arrays, std::optional<double> timeout,
                      nb::handle stream, bool adopt, bool compare) {
  self.state->admit();
  self.state->sweep();
  const Version number = to_version(version);
  const Reach reach = reach_of(*self.state, stream);
  Bundle bundle = gather(arrays, "arrays", Use::source, reach);
  Signals signals;
  auto options = checkpoint_options(encode(bundle), timeout, signals);
  if (std::ranges::any_of(bundle.leaves, &Leaf::indirect)) {
    if (!adopt) {
      options.stream = stream_for(*self.state, bundle, reach);
      if (auto future = pack_there(self, number, bundle, options, signals, reach))
        return new_future(self.state, std::move(*future));
    }
    for (std::size_t i = 0; i < bundle.leaves.size(); ++i)
      if (bundle.leaves[i].indirect) bundle.leaves[i] = packed(bundle.leaves[i], name_of(bundle, "arrays", i), reach);
  }
  const auto sources = sources_of(bundle);
  options.stream = stream_for(*self.state, bundle, reach);
  const auto call = [&] { return self.history.checkpoint(number, sources, options); };
  if (adopt) {
    tell_allocators(bundle, reach);
    const bool lent = lends(bundle);
    auto held = std::make_shared<Held>(Held{std::move(bundle), {}});
    options.adopt = lend(held);
    options.check = compare;
    auto future = waiting(*self.state, signals, call, [&](const Result<Future>* result) {
      options.adopt.reset();
      if (!begun(result) || !options.stream || !lent) return;  // it may have been copied in stream order
      if (result == nullptr || !*result) return get_past(*self.state, *options.stream);
      self.state->keep(**result, std::move(held), "device");
    });
    return new_future(self.state, std::move(future));
  }
  auto future = waiting(*self.state, signals, call, [&](const Result<Future>* result) {
    if (!begun(result)) return;
    tell_allocators(bundle, reach);
    if (!options.stream || !lends(bundle)) return;
    if (result == nullptr || !*result) return get_past(*self.state, *options.stream);
    std::erase_if(bundle.leaves, [](const Leaf& leaf) { return !lends(leaf); });
    self.state->keep(**result, std::make_shared<Held>(Held{std::move(bundle), {}}), "device");
  });
  return new_future(self.state, std::move(future));
}

// For ebbtide.torch, whose tensors need no description: regions of memory that stay theirs until the stream has passed
// the copy, by address and bytes. False: they are not on the store's device, and nothing was written.
bool write(HistoryObject& self, Version version, const std::vector<std::pair<std::uintptr_t, std::size_t>>& regions,
           int gpu, std::optional<StreamHandle> stream) {
  self.state->admit();
  if (gpu != self.state->gpu()) return false;
  Signals signals;
  auto options = checkpoint_options({}, 0.0, signals);
  options.stream = stream;
  std::vector<Source> sources;
  sources.reserve(regions.size());
  for (const auto& [data, bytes] : regions) {
    sources.push_back({static_cast<std::uint32_t>(sources.size()), reinterpret_cast<const void*>(data), bytes});
  }
  waiting(*self.state, signals, [&] { return self.history.checkpoint(version, sources, options); });
  return true;
}

Library library_named(nb::handle like) {
  if (like.is_none()) return Library::numpy;
  std::string name;
  if (nb::try_cast(like, name)) {
    if (name == "torch") return Library::torch;
    if (name == "cupy") return Library::cupy;
  }
  raise(Errc::invalid_argument, "like=" + repr_text(like) + " is not valid: expected None, \"torch\" or \"cupy\"");
}

nb::object reserve(HistoryObject& self, nb::handle version, nb::handle shape, nb::handle dtype,
                   std::optional<double> timeout, nb::handle stream, nb::handle like) {
  self.state->admit();
  const Version number = to_version(version);
  const Reach reach = reach_of(*self.state, stream);
  refuse_stream(reach);
  auto [text, item] = parse_dtype(dtype);
  Layout layout;
  LeafType leaf{library_named(like), std::move(text), to_shape(shape, item), reach.gpu};
  std::size_t bytes = item;
  for (const auto length : leaf.shape) bytes *= static_cast<std::size_t>(length);
  layout.leaves.push_back(leaf);
  Signals signals;
  auto options = checkpoint_options(encode(layout), timeout, signals);
  options.stream = reach.stream;
  const std::vector<Source> regions{{0, nullptr, bytes}};
  auto reservation = waiting(*self.state, signals, [&] { return self.history.reserve(number, regions, options); });
  return nb::cast(new ReservationObject(self.state, number, std::move(leaf), reach.stream, nb::borrow(like),
                                        std::move(reservation)),
                  nb::rv_policy::take_ownership);
}

}  // namespace

void bind_writing(nb::class_<HistoryObject>& history) {
  history
      .def("checkpoint", &checkpoint, nb::arg("version").none(), nb::arg("arrays").none(), nb::arg("timeout") = 0.0,
           nb::arg("stream") = nb::none(), nb::arg("adopt") = false, nb::arg("check") = false,
           nb::sig("def checkpoint(self, version: int, arrays: ebbtide.types.Tree, timeout: float | None = 0.0, "
                   "stream: ebbtide.types.Stream | None = None, adopt: bool = False, check: bool = False) -> "
                   "ebbtide._futures.Future"),
           R"(Write ``arrays`` as ``version`` and return once they may be overwritten.

Costs a copy into the device cache; the rest happens in the background (hpdc23 sec. 4.1).

An array may be in any order: transposed, sliced, ``channels_last``, backwards, expanded. Each element is stored once. One
whose memory is a single run (in Fortran's order, say) is copied byte for byte, and comes back with its strides; one with gaps
is packed first, on its device and in the order of its stream, and comes back packed, with its axes in the same order. Of
PyTorch, conjugated and negated views are resolved.

arrays: one array, one list, tuple or dict of them, or a tree: up to 100 of these in one another, with values beside the
arrays (see :data:`ebbtide.types.Tree`), which come back with their type.

timeout: seconds to wait for another thread to make room when no transfer in flight can, or for the agent of a node's
pool if that is stopped.
stream: a CUDA stream of the store's GPU (an int handle, a stream of PyTorch or CuPy, or anything with
``__cuda_stream__``). The copy runs after what is on the stream already, and later work on it waits for the copy; the
host does not wait when the device cache has room, and work on that stream may overwrite the arrays at once. Without it,
arrays of PyTorch and CuPy are ordered on their library's current stream, and an array that names a stream (``"stream"``
of its ``__cuda_array_interface__``) on that one; for any other, and when some array is in host memory or on another GPU,
the call blocks until the arrays are copied.
adopt: ``arrays`` is one array, which the program promises not to write to. In a store with ``adopted`` bytes it is not
copied: it is itself the replica in the device cache. The store keeps a reference to it until that replica is evicted, or
the version is consumed or dropped. Beyond ``adopted``, and if it is not on the store's device, it is copied.
check: with ``adopt``, a digest of the array is computed at the call and compared at each flush, restore and borrow from
it, as by :meth:`Reservation.commit`: one that was written to raises :class:`ebbtide.Damaged` there.

Raises :class:`ebbtide.VersionExists`, :class:`ebbtide.TooLarge`, :class:`ebbtide.NoSpace`,
:class:`ebbtide.InvalidArgument` (what is neither array nor value, by its path; a tree that contains itself; Python
objects inside an array; memory that cannot be read; GPU arrays on different streams), :class:`ebbtide.Unsupported` (arrays that are more than their bytes, GPU arrays in a store without a
GPU, a stream that is being captured into a graph), RuntimeError (the list or dict changed while its arrays were
read: nothing is written), :class:`ebbtide.IOFailed`, :class:`ebbtide.Closed`, and whatever the arrays' own methods
raise.

>>> f = store.checkpoint(7, {"p": pressure, "v": velocity})
>>> f.wait("local")          # until it is in a file
>>> store.checkpoint(8, activation, adopt=True)     # no copy: ``activation`` is not written to again
>>> del activation)")
      .def("_write", &write, nb::arg("version"), nb::arg("regions"), nb::arg("gpu"), nb::arg("stream").none())
      .def("reserve", &reserve, nb::arg("version").none(), nb::arg("shape").none(), nb::arg("dtype") = "float64",
           nb::arg("timeout") = 0.0, nb::arg("stream") = nb::none(), nb::arg("like") = nb::none(),
           nb::sig("def reserve(self, version: int, shape: int | collections.abc.Iterable[int], dtype: typing.Any = "
                   "'float64', timeout: float | None = 0.0, stream: ebbtide.types.Stream | None = None, "
                   "like: typing.Literal['torch', 'cupy'] | None = None) -> Reservation"),
           R"(Allocate one array inside the device cache, to compute into without any copy.

stream: the stream that will compute it, for the commit (see :meth:`checkpoint`).
like: the library of the array; without it, NumPy, or on a GPU a :class:`ebbtide.DeviceArray`.

Raises as :meth:`checkpoint` does.

>>> with store.reserve(8, (512, 512), "float32") as a:
...     a[...] = 0.25 * previous    # committed when the block ends, abandoned when it ends by an exception)");
}

}  // namespace ebb::python
