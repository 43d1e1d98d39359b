// Reading checkpoints: into arrays of the program, or borrowed from the device cache.
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

// The arrays to read into, given or new, and where each region goes.
struct Reading {
  Bundle bundle;
  nb::object arrays;
  std::vector<Target> targets;
};

Reading prepare(const CheckpointInfo& info, Version version, nb::handle out, const Reach& reach) {
  Reading reading;
  const Layout layout = layout_of(info);
  reading.bundle = out.is_none() ? allocate(layout, reach) : gather_into(layout, out, version, reach);
  const bool given = !out.is_none() && layout.structure != Structure::tree;
  reading.arrays = given ? nb::borrow(out) : assemble(reading.bundle);
  reading.targets = targets_of(reading.bundle, info, version, reach);
  return reading;
}

nb::object borrow(HistoryObject& self, nb::handle version, bool keep, std::optional<double> timeout,
                  nb::handle stream) {
  self.state->admit();
  const Version number = to_version(version);
  const Reach reach = reach_of(*self.state, stream);
  refuse_stream(reach);
  Signals signals;
  auto options = restore_options(keep, timeout, signals);
  options.stream = reach.stream;
  for (;;) {
    CheckpointInfo info = info_of(self, number, signals, timeout);
    auto loan = waiting(*self.state, signals, [&] {
      auto borrowed = self.history.borrow(number, options);
      // If a signal handler's exception replaces the result, the loan must not be consumed unseen; if the store is
      // closed, there is nothing to keep.
      if (borrowed && signals.raised()) static_cast<void>(borrowed->release(true));
      return borrowed;
    });
    if (!is_still(self, number, info)) continue;  // gives the loan back
    const Layout layout = layout_of(info);
    return nb::cast(
        new LoanObject(self.state, number, layout, std::move(info.regions), reach.stream, std::move(loan), keep),
        nb::rv_policy::take_ownership);
  }
}

// The arrays of a loan that has ended, and holds its memory until the last of them is gone. Empty: there is no room.
nb::object restore_lent(HistoryObject& self, nb::handle version, bool keep, std::optional<double> timeout,
                        nb::handle stream) {
  nb::object loan;
  try {
    loan = borrow(self, version, keep, timeout, stream);
  } catch (const nb::python_error& failed) {
    const nb::module_ errors = nb::module_::import_("ebbtide.errors");
    if (!failed.matches(errors.attr("TooLarge")) && !failed.matches(errors.attr("NoSpace"))) throw;
    return {};
  }
  auto& lent = nb::cast<LoanObject&>(loan);
  nb::object arrays = lent.arrays(loan, /*like_written=*/true);
  lent.release(keep, stream);
  return arrays;
}

// Consumes what a restore into `targets` kept, as that would have: its hint is put back, and used up by a restore of
// nothing.
void consume(HistoryObject& self, Version version, std::span<const Target> targets, RestoreOptions options,
             Signals& signals) {
  options.keep = false;
  options.some = true;
  options.have = version;
  check(self.history.hint_front(version));
  waiting(*self.state, signals, [&] {
    auto done = self.history.restore(version, std::span<const Target>(), options);
    // A snapshot needs all targets; none of its zones differs from itself.
    if (!done && done.error().code == Errc::size_mismatch) done = self.history.restore(version, targets, options);
    const bool gone = !done && (done.error().code == Errc::consumed || done.error().code == Errc::unknown_version);
    return gone ? Result<void>() : done;  // by another call
  });
}

nb::object restore(HistoryObject& self, nb::handle version, nb::handle out, bool keep, std::optional<double> timeout,
                   nb::handle stream, nb::handle have, bool adopt) {
  self.state->admit();
  self.state->sweep();
  const Version number = to_version(version);
  if (adopt) {
    if (!out.is_none() || !have.is_none())
      raise(Errc::invalid_argument, "adopt= returns memory of the cache: it takes neither out= nor have=");
    if (nb::object arrays = restore_lent(self, version, keep, timeout, stream); arrays.is_valid()) return arrays;
  }
  Signals signals;
  auto options = restore_options(keep, timeout, signals);
  if (!have.is_none()) {
    if (out.is_none())
      raise(Errc::invalid_argument, "have= needs out=: the arrays that have the bytes of that version");
    options.have = to_version(have);
  }
  const Reach reach = reach_of(*self.state, stream);
  for (;;) {
    const CheckpointInfo info = info_of(self, number, signals, timeout);
    Reading reading = prepare(info, number, out, reach);
    if (options.have) fill(reading.bundle, reach, /*load=*/true);
    options.stream = stream_for(*self.state, reading.bundle, reach);
    const bool by_way = is_packed(reading.bundle);
    options.keep = keep || by_way;
    const auto call = [&] { return self.history.restore(number, reading.targets, options); };
    try {
      waiting(*self.state, signals, call, [&](const Result<void>* result) {
        if (!begun(result)) return;
        tell_allocators(reading.bundle, reach);
        const bool raises = result == nullptr || !*result || signals.raised();
        if (raises && options.stream && lends(reading.bundle)) get_past(*self.state, *options.stream);
      });
    } catch (...) {
      if (signals.raised() || is_still(self, number, info)) throw;
      continue;
    }
    if (!is_still(self, number, info)) continue;
    fill(reading.bundle, reach);
    if (by_way && !keep) consume(self, number, reading.targets, options, signals);
    if (!converts(reading.bundle)) return reading.arrays;
    if (reach.stream && lends(reading.bundle))
      check(finish(*self.state, reach.gpu, *reach.stream));  // JAX has no streams
    return converted(reading.bundle, reach);
  }
}

// What `_write` wrote, into other memory; it is kept. False: that is not on the store's device, and nothing was read.
bool read(HistoryObject& self, Version version, const std::vector<std::pair<std::uintptr_t, std::size_t>>& regions,
          int gpu, std::optional<StreamHandle> stream) {
  self.state->admit();
  if (gpu != self.state->gpu()) return false;
  Signals signals;
  auto options = restore_options(true, {}, signals);
  options.stream = stream;
  std::vector<Target> targets;
  targets.reserve(regions.size());
  for (const auto& [data, bytes] : regions) {
    targets.push_back({static_cast<std::uint32_t>(targets.size()), reinterpret_cast<void*>(data), bytes});
  }
  waiting(*self.state, signals, [&] { return self.history.restore(version, targets, options); });
  return true;
}

nb::object restore_async(HistoryObject& self, nb::handle version, nb::handle out, bool keep) {
  self.state->admit();
  const Version number = to_version(version);
  Signals signals;
  RestoreOptions options;
  options.keep = keep;
  const Reach reach = reach_of(*self.state, nb::none());
  for (;;) {
    const CheckpointInfo info = info_of(self, number, signals);
    Reading reading = prepare(info, number, out, reach);
    static_cast<void>(stream_for(*self.state, reading.bundle, reach, false));  // waits for what still computes there
    if (is_packed(reading.bundle)) static_cast<void>(self.state->endings());   // whose thread fills `out`
    auto held = std::make_shared<Held>(Held{std::move(reading.bundle), reading.arrays});
    const auto call = [&] { return self.history.restore_async(number, reading.targets, options); };
    std::optional<Future> future;
    try {
      future = waiting(*self.state, signals, call, [&](const Result<Future>* result) {
        if (result != nullptr && *result) self.state->keep(**result, held);
      });
    } catch (...) {
      if (signals.raised() || is_still(self, number, info)) throw;
      continue;
    }
    if (is_still(self, number, info)) return new_future(self.state, std::move(*future), std::move(held));
    waiting(*self.state, signals, [&] {  // it may be writing into the caller's arrays
      static_cast<void>(static_cast<bool>(future->wait()));
      return Result<void>();
    });
  }
}

}  // namespace

void bind_reading(nb::class_<HistoryObject>& history) {
  history.def("_read", &read, nb::arg("version"), nb::arg("regions"), nb::arg("gpu"), nb::arg("stream").none())
      .def("restore", &restore, nb::arg("version").none(), nb::arg("out") = nb::none(), nb::arg("keep") = false,
           nb::arg("timeout") = nb::none(), nb::arg("stream") = nb::none(), nb::arg("have") = nb::none(),
           nb::arg("adopt") = false,
           nb::sig("def restore(self, version: int, out: ebbtide.types.Tree | None = None, keep: bool = False, "
                   "timeout: float | None = None, stream: ebbtide.types.Stream | None = None, "
                   "have: int | None = None, adopt: bool = False) -> typing.Any"),
           R"(Read ``version`` and return when the bytes are usable.

out: arrays to fill, in the structure, shapes and element types that were written (a list may stand for a tuple);
returned. Of a tree, the values that ``out`` has count for nothing: a new tree with the values that were written and the
arrays of ``out`` is returned. Each must show that it is writable: by the buffer protocol, by DLPack since version 1 (older exports do not
say), or by its ``__array_interface__`` or ``__cuda_array_interface__``. Arrays of PyTorch and CuPy count as writable;
those of JAX never are. They may be in any order, with gaps too; where that is not the order that was written, the bytes are
copied once more. No two may share memory, nor may one overlap itself.
Without it, new arrays of the library and on the GPU that they came from (of PyTorch and JAX if that can be imported, else of
NumPy; in host memory if that GPU does not exist here), with the strides that they had, or would have without gaps.
keep: True leaves the checkpoint restorable; otherwise it is consumed, unless another hint names it.
timeout: seconds; None for as long as it takes.
stream: as in :meth:`checkpoint`: the arrays are overwritten only after what is on the stream already, and later work on
it finds the bytes in them. The host waits only until every copy is enqueued; arrays that are neither PyTorch's nor
CuPy's must live until the stream gets there.
have: ``out`` has the bytes of this version: of a snapshot, only the zones in which both differ are read and written. If
either is no snapshot, or their memory differs in size, all is restored.
adopt: the arrays returned are the cache's own memory, or that of the array that it adopted, as those of :meth:`borrow`:
nothing is copied, they must not be written to, and the memory is given back with the last of them. If the device cache
has no room for it, they are new arrays. In host memory they are NumPy's.

Removes the version's first hint. Raises :class:`ebbtide.UnknownVersion`, :class:`ebbtide.Consumed`,
:class:`ebbtide.SizeMismatch` (naming both layouts), :class:`ebbtide.InvalidArgument` (``out``
is read-only, or its memory is, a copy, shared, or overlaps itself), RuntimeError (``out`` changed while its arrays were read),
:class:`ebbtide.TimedOut`, :class:`ebbtide.Lost`, :class:`ebbtide.Damaged` (bytes from a file do not match their
checksum: ``out`` then holds nothing of use), :class:`ebbtide.IOFailed`, :class:`ebbtide.Closed`; on any of them nothing
is consumed.

>>> fields = store.restore(7)
>>> store.restore(6, out={"p": pressure, "v": velocity}))")
      .def("restore_async", &restore_async, nb::arg("version").none(), nb::arg("out") = nb::none(),
           nb::arg("keep") = false,
           nb::sig("def restore_async(self, version: int, out: ebbtide.types.Tree | None = None, keep: bool = False) "
                   "-> ebbtide._futures.Future"),
           R"(Like :meth:`restore`, in the background: ``result()`` of the future returns the arrays.

``out`` must not be touched before the future is done; it is kept alive until then, and filled even if the future is dropped.)")
      .def("borrow", &borrow, nb::arg("version").none(), nb::arg("keep") = false, nb::arg("timeout") = nb::none(),
           nb::arg("stream") = nb::none(),
           nb::sig("def borrow(self, version: int, keep: bool = False, timeout: float | None = None, "
                   "stream: ebbtide.types.Stream | None = None) -> Loan"),
           R"(The device cache's own copy of ``version``, read-only, fetched first if necessary.

stream: the stream that will use it, for the release. The bytes are complete, for any stream, when the call returns.

Raises as :meth:`restore` does.

>>> with store.borrow(8) as a:
...     total += a.sum())");
}

}  // namespace ebb::python
