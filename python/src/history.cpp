#include <algorithm>

#include "arguments.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "streams.hpp"
#include "waiting.hpp"

namespace ebb::python {

namespace {

CheckpointOptions checkpoint_options(std::string metadata, std::optional<double> timeout, Signals& signals) {
  CheckpointOptions options;
  options.metadata = std::move(metadata);
  options.timeout = to_timeout(timeout).value_or(Seconds(1e9));
  options.interrupted = signals.interrupt();
  return options;
}

RestoreOptions restore_options(bool keep, std::optional<double> timeout, Signals& signals) {
  RestoreOptions options;
  options.keep = keep;
  options.timeout = to_timeout(timeout);
  options.interrupted = signals.interrupt();
  return options;
}

// What arrays of a call may be, and what it said of its order.
Reach reach_of(State& state, nb::handle stream) { return {state.gpu(), to_stream(stream), &state.kinds()}; }

void refuse_stream(const Reach& reach) {
  if (reach.gpu >= 0 || !reach.stream) return;
  raise(Errc::unsupported, "stream= needs a store on a GPU: this one's device is host memory");
}

// Arrays that go when nobody names them, whatever a stream still does with them; PyTorch, CuPy and the store use their
// memory again in stream order.
bool lends(const Leaf& leaf) { return leaf.gpu >= 0 && !has_streams(leaf.library) && !leaf.grip.lock(); }

bool lends(const Bundle& bundle) {
  return std::any_of(bundle.leaves.begin(), bundle.leaves.end(), [](const Leaf& leaf) { return lends(leaf); });
}

// PyTorch and CuPy use an array's memory again in the order of the stream on which they allocated it, and the store
// what it lent in that of those which took it: a stream that was given to us may be another, and they are told that it
// still works there.
void tell_allocators(const Bundle& bundle, const Reach& reach) {
  if (!reach.stream) return;
  for (const Leaf& leaf : bundle.leaves) {
    if (const auto grip = leaf.grip.lock()) grip->taken_on(*reach.stream);
    if (leaf.gpu < 0 || !has_streams(leaf.library)) continue;
    nb::module_::import_("ebbtide._arrays").attr("in_use_on")(leaf.array, *reach.stream, reach.gpu);
  }
}

// Nobody says when a stream is past the copies of a call that failed.
void get_past(State& state, StreamHandle stream) {
  static_cast<void>(static_cast<bool>(finish(state, state.gpu(), stream)));
}

nb::object checkpoint(HistoryObject& self, nb::handle version, nb::handle arrays, std::optional<double> timeout,
                      nb::handle stream) {
  self.state->check();
  self.state->sweep();
  const Version number = to_version(version);
  const Reach reach = reach_of(*self.state, stream);
  Bundle bundle = gather(arrays, "arrays", Use::source, reach);
  const auto sources = sources_of(bundle);
  Signals signals;
  auto options = checkpoint_options(encode(bundle), timeout, signals);
  options.stream = stream_for(*self.state, bundle, reach);
  const auto call = [&] { return self.history.checkpoint(number, sources, options); };
  auto future = waiting(*self.state, signals, call, [&](const Result<Future>* result) {
    if (!begun(result)) return;
    tell_allocators(bundle, reach);
    if (!options.stream || !lends(bundle)) return;
    if (result == nullptr || !*result) return get_past(*self.state, *options.stream);
    std::erase_if(bundle.leaves, [](const Leaf& leaf) { return !lends(leaf); });
    self.state->keep(**result, std::make_shared<Held>(Held{std::move(bundle), {}}), "device");
  });
  return nb::cast(new FutureObject(self.state, std::move(future), nullptr), nb::rv_policy::take_ownership);
}

// Of what an earlier process wrote, this reads the disk.
CheckpointInfo info_of(const HistoryObject& self, Version version) {
  return check([&] {
    Unlocked unlocked(self.state->inside());
    return self.history.info(version);
  }());
}

// Whether a version is still what `info` says. Another process may write it anew between two calls; then arrays that
// were made by `info` are not right for what was read.
bool is_still(const HistoryObject& self, Version version, const CheckpointInfo& info) {
  if (!self.state->kept()) return true;
  auto now = [&] {
    Unlocked unlocked(self.state->inside());
    return self.history.info(version);
  }();
  const auto same = [](const RegionInfo& a, const RegionInfo& b) {
    return a.id == b.id && a.bytes == b.bytes && a.offset == b.offset;
  };
  return !now || (now->metadata == info.metadata && std::ranges::equal(now->regions, info.regions, same));
}

// The arrays to read into (given, or new) and where each region goes.
struct Reading {
  Bundle bundle;
  nb::object arrays;
  std::vector<Target> targets;
};

Reading prepare(const CheckpointInfo& info, Version version, nb::handle out, const Reach& reach) {
  Reading reading;
  if (out.is_none()) {
    reading.bundle = allocate(layout_of(info), reach);
    reading.arrays = assemble(reading.bundle);
  } else {
    reading.bundle = gather(out, "out", Use::target, reach);
    reading.arrays = nb::borrow(out);
  }
  reading.targets = targets_of(reading.bundle, info, version);
  return reading;
}

nb::object restore(HistoryObject& self, nb::handle version, nb::handle out, bool keep, std::optional<double> timeout,
                   nb::handle stream) {
  self.state->check();
  self.state->sweep();
  const Version number = to_version(version);
  Signals signals;
  auto options = restore_options(keep, timeout, signals);
  const Reach reach = reach_of(*self.state, stream);
  for (;;) {
    const CheckpointInfo info = info_of(self, number);
    Reading reading = prepare(info, number, out, reach);
    options.stream = stream_for(*self.state, reading.bundle, reach);
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
    return converts(reading.bundle) ? converted(reading.bundle, reach) : reading.arrays;
  }
}

nb::object restore_async(HistoryObject& self, nb::handle version, nb::handle out, bool keep) {
  self.state->check();
  const Version number = to_version(version);
  Signals signals;
  RestoreOptions options;
  options.keep = keep;
  const Reach reach = reach_of(*self.state, nb::none());
  for (;;) {
    const CheckpointInfo info = info_of(self, number);
    Reading reading = prepare(info, number, out, reach);
    static_cast<void>(
        stream_for(*self.state, reading.bundle, reach, false));  // what still computes there is waited for
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
    if (is_still(self, number, info)) {
      return nb::cast(new FutureObject(self.state, std::move(*future), std::move(held)), nb::rv_policy::take_ownership);
    }
    waiting(*self.state, signals, [&] {  // it writes into the caller's arrays, perhaps
      static_cast<void>(static_cast<bool>(future->wait()));
      return Result<void>();
    });
  }
}

Library library_named(nb::handle like) {
  if (like.is_none()) return Library::numpy;
  std::string name;
  if (nb::try_cast(like, name)) {
    if (name == "torch") return Library::torch;
    if (name == "cupy") return Library::cupy;
  }
  raise(Errc::invalid_argument, "like=" + repr_text(like) + " is wrong: None, \"torch\" or \"cupy\" would be right");
}

nb::object reserve(HistoryObject& self, nb::handle version, nb::handle shape, nb::handle dtype,
                   std::optional<double> timeout, nb::handle stream, nb::handle like) {
  self.state->check();
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

nb::object borrow(HistoryObject& self, nb::handle version, bool keep, std::optional<double> timeout,
                  nb::handle stream) {
  self.state->check();
  const Version number = to_version(version);
  const Reach reach = reach_of(*self.state, stream);
  refuse_stream(reach);
  Signals signals;
  auto options = restore_options(keep, timeout, signals);
  options.stream = reach.stream;
  for (;;) {
    CheckpointInfo info = info_of(self, number);
    auto loan = waiting(*self.state, signals, [&] {
      auto borrowed = self.history.borrow(number, options);
      // A loan that a signal's exception takes from the caller must not be consumed unseen; if the store is closed
      // there is nothing left to keep.
      if (borrowed && signals.raised()) static_cast<void>(borrowed->release(true));
      return borrowed;
    });
    if (!is_still(self, number, info)) continue;  // the loan goes back
    const Layout layout = layout_of(info);
    return nb::cast(
        new LoanObject(self.state, number, layout, std::move(info.regions), reach.stream, std::move(loan), keep),
        nb::rv_policy::take_ownership);
  }
}

void wait(HistoryObject& self, const std::string& level, nb::handle version, std::optional<double> timeout) {
  self.state->check();
  std::optional<Version> number;
  if (!version.is_none()) number = to_version(version);
  const auto limit = to_timeout(timeout);
  Signals signals;
  // One call: it waits for what was written before it, however much is written meanwhile.
  waiting(*self.state, signals, [&] {
    return number ? self.history.wait(*number, level, limit, signals.interrupt())
                  : self.history.wait(level, limit, signals.interrupt());
  });
}

void hint(HistoryObject& self, nb::handle order, bool replace) {
  self.state->check();
  check(self.history.hint(std::span<const Version>(to_versions(order, "order")), replace));
}

void unhint(HistoryObject& self, nb::handle which) {
  self.state->check();
  if (which.is_none()) return check(self.history.unhint());
  const auto list = to_versions(which, "versions");
  if (!list.empty()) check(self.history.unhint(std::span<const Version>(list)));
}

void drop(HistoryObject& self, nb::handle version) {
  self.state->check();
  std::optional<Version> number;
  if (!version.is_none()) number = to_version(version);
  check([&] {
    Unlocked unlocked(self.state->inside());
    return number ? self.history.drop(*number) : self.history.drop();
  }());
}

// Adds an error to the exception that is on its way: as a note, or (before Python 3.11) between it and its context.
void tell_beside(nb::handle raised, nb::python_error& error) {
  if (nb::hasattr(raised, "add_note")) {
    raised.attr("add_note")(nb::str(error.what()));
    return;
  }
  error.value().attr("__context__") = raised.attr("__context__");
  raised.attr("__context__") = error.value();
}

}  // namespace

void bind_history(nb::module_& module) {
  nb::class_<HistoryObject> history(module, "History", nb::is_weak_referenceable(),
                                    R"(The versions of one name over a store's caches.

A checkpoint is written whole under an int version and read whole. Its arrays may be anything with ``__dlpack__`` or
the buffer protocol, alone or in one list, tuple or dict (keys ``str`` or ``int``); shape and element type are kept. An
array that is more than that (masked, quantised, of a subclass) is refused by name.
Several threads may use one history. A call that waits lets other Python threads run and ends by ``KeyboardInterrupt``
within about 50 ms, as if its timeout had passed: nothing stored is lost and nothing is consumed.
Neither ends the wait of a call without ``stream`` for what a stream of a GPU holds.
A signal that comes just as a call ends well undoes nothing, though the exception is raised all the same: a checkpoint
is then written, a restore has filled ``out`` and consumed its version, a reservation is abandoned, and a loan is given
back with its version kept. :meth:`versions` tells which it was.

As a context manager, leaving drops every version of it; in a store that is kept (``durability="process"`` or
``"storage"``) nothing: what outlives the process outlives a block.)");
  history
      .def_prop_ro(
          "name", [](HistoryObject& self) { return self.history.name(); }, "Its name; the store itself is ``\"\"``.")
      .def("checkpoint", &checkpoint, nb::arg("version").none(), nb::arg("arrays").none(), nb::arg("timeout") = 0.0,
           nb::arg("stream") = nb::none(),
           nb::sig("def checkpoint(self, version: int, arrays: ebbtide.types.Arrays, timeout: float | None = 0.0, "
                   "stream: ebbtide.types.Stream | None = None) -> Future"),
           R"(Write ``arrays`` as ``version`` and return once they may be overwritten.

Costs a copy into the device cache; the rest happens behind the program's back (hpdc23 sec. 4.1). Arrays with gaps
between their elements are packed into a copy first.

timeout: seconds to wait for another thread to make room once no transfer under way can.
stream: a CUDA stream of the store's GPU (an int handle, one of PyTorch's or CuPy's, or anything with
``__cuda_stream__``). The copy happens behind what is on it and holds up what comes there later; the host does not wait
when the device cache has room, and the arrays may be overwritten on that stream at once. Without it, arrays of PyTorch
and CuPy are ordered on their library's current stream, and one that names a stream (``"stream"`` of its
``__cuda_array_interface__``) on that; for any other, and when some array is in host memory or on another GPU, the call
blocks until copied.

Raises :class:`ebbtide.VersionExists`, :class:`ebbtide.TooLarge`, :class:`ebbtide.NoSpace`,
:class:`ebbtide.InvalidArgument` (objects that are no arrays, Python objects inside, GPU arrays with gaps or on
different streams), :class:`ebbtide.Unsupported` (arrays that are more than their bytes, GPU arrays in a store without a
GPU, a stream that is being captured into a graph), RuntimeError (the list or dict was changed while its arrays were
taken: nothing is written), :class:`ebbtide.IOFailed`, :class:`ebbtide.Closed`, and whatever the arrays' own methods
raise.

>>> f = store.checkpoint(7, {"p": pressure, "v": velocity})
>>> f.wait("local")          # until it lies in a file)")
      .def("restore", &restore, nb::arg("version").none(), nb::arg("out") = nb::none(), nb::arg("keep") = false,
           nb::arg("timeout") = nb::none(), nb::arg("stream") = nb::none(),
           nb::sig("def restore(self, version: int, out: ebbtide.types.Arrays | None = None, keep: bool = False, "
                   "timeout: float | None = None, stream: ebbtide.types.Stream | None = None) -> typing.Any"),
           R"(Read ``version`` and return when the bytes are usable.

out: arrays to fill, in the structure, shapes and element types that were written (a list may stand for a tuple);
returned. Each must say that it may be written to: by the buffer protocol, by DLPack since version 1 (older exports say
nothing), or by its ``__array_interface__`` or ``__cuda_array_interface__``. Arrays of PyTorch and CuPy are taken to be
writable; those of JAX never are. No two may share memory.
Without it, new arrays of the library and the GPU that they came from (torch tensors if torch can be imported, else
NumPy; of a GPU, those of PyTorch, CuPy and JAX; where that GPU is not there, PyTorch's on the CPU and NumPy's).
keep: True leaves the checkpoint restorable; otherwise it is consumed, unless another hint names it.
timeout: seconds; None for as long as it takes.
stream: as of :meth:`checkpoint`: the arrays are overwritten behind what is on it, and hold the bytes for what comes
there later. The host waits only until every copy is enqueued; arrays that are neither PyTorch's nor CuPy's must live
until the stream has got there.

Takes the version's first hint away. Raises :class:`ebbtide.UnknownVersion`, :class:`ebbtide.Consumed`,
:class:`ebbtide.SizeMismatch` (naming what was given and what would be right), :class:`ebbtide.InvalidArgument` (``out``
is read-only, a copy, shared, or has gaps), RuntimeError (``out`` was changed while its arrays were taken),
:class:`ebbtide.TimedOut`, :class:`ebbtide.Lost`, :class:`ebbtide.Damaged` (what a file gave does not match its
checksum: ``out`` then holds nothing of use), :class:`ebbtide.IOFailed`, :class:`ebbtide.Closed`; on any of them nothing
is consumed.

>>> fields = store.restore(7)
>>> store.restore(6, out={"p": pressure, "v": velocity}))")
      .def("restore_async", &restore_async, nb::arg("version").none(), nb::arg("out") = nb::none(),
           nb::arg("keep") = false,
           nb::sig("def restore_async(self, version: int, out: ebbtide.types.Arrays | None = None, keep: bool = False) "
                   "-> Future"),
           R"(Like :meth:`restore`, in the background: ``result()`` of the future gives the arrays.

``out`` must not be touched before the future is done; it is kept alive until then.)")
      .def("reserve", &reserve, nb::arg("version").none(), nb::arg("shape").none(), nb::arg("dtype") = "float64",
           nb::arg("timeout") = 0.0, nb::arg("stream") = nb::none(), nb::arg("like") = nb::none(),
           nb::sig("def reserve(self, version: int, shape: int | collections.abc.Iterable[int], dtype: typing.Any = "
                   "'float64', timeout: float | None = 0.0, stream: ebbtide.types.Stream | None = None, "
                   "like: typing.Literal['torch', 'cupy'] | None = None) -> Reservation"),
           R"(Room for one array inside the device cache, to compute into without any copy.

stream: that on which it will be computed, for the commit (see :meth:`checkpoint`).
like: the library whose array is wanted; without it, NumPy's, or on a GPU a :class:`ebbtide.DeviceArray`.

Raises as :meth:`checkpoint` does.

>>> with store.reserve(8, (512, 512), "float32") as a:
...     a[...] = 0.25 * previous    # committed when the block ends, abandoned when it ends by an exception)")
      .def("borrow", &borrow, nb::arg("version").none(), nb::arg("keep") = false, nb::arg("timeout") = nb::none(),
           nb::arg("stream") = nb::none(),
           nb::sig("def borrow(self, version: int, keep: bool = False, timeout: float | None = None, "
                   "stream: ebbtide.types.Stream | None = None) -> Loan"),
           R"(The device cache's own copy of ``version``, read-only, brought there first if need be.

stream: that on which it will be used, for the release. The bytes are there when the call returns, on any stream.

Raises as :meth:`restore` does.

>>> with store.borrow(8) as a:
...     total += a.sum())")
      .def("hint", &hint, nb::arg("order").none(), nb::arg("replace") = false,
           nb::sig("def hint(self, order: collections.abc.Iterable[int], replace: bool = False) -> None"),
           R"(Say that the versions of ``order`` will be restored, in this order, after what was hinted before.

May name versions that are not written yet, and may repeat one. A wrong hint costs time, never correctness.
replace: forget earlier hints.)")
      .def(
          "hint_front",
          [](HistoryObject& self, nb::handle version) {
            self.state->check();
            check(self.history.hint_front(to_version(version)));
          },
          nb::arg("version").none(), nb::sig("def hint_front(self, version: int) -> None"),
          "Say that ``version`` will be restored before everything hinted so far.")
      .def("unhint", &unhint, nb::arg("versions") = nb::none(),
           nb::sig("def unhint(self, versions: collections.abc.Iterable[int] | None = None) -> None"),
           "Withdraw the first hint of each of ``versions``, or every hint.")
      .def(
          "start_prefetch",
          [](HistoryObject& self) {
            self.state->check();
            check(self.history.start_prefetch());
          },
          "Begin to prefetch, in a store opened with ``prefetch=\"manual\"``.")
      .def(
          "wait", &wait, nb::arg("level"), nb::arg("version") = nb::none(), nb::arg("timeout") = nb::none(),
          nb::sig("def wait(self, level: str, version: int | None = None, timeout: float | None = None) -> None"),
          R"(Wait until ``version`` (None: each one written so far) is complete on tier ``level`` or below, or as durable.

What is written after the call began is not waited for, nor what is in other histories.

level: ``"device"``, ``"host"`` or ``"local"``; or how durable it is to be: ``"ephemeral"``, which it is once written;
``"process"``: whatever ends the process; ``"storage"``: a loss of power too.
timeout: seconds; None for as long as it takes. ``KeyboardInterrupt`` ends the wait, and nothing else.
Raises :class:`ebbtide.TimedOut`, :class:`ebbtide.Unsupported` for a tier or a durability that this store does not have,
:class:`ebbtide.InvalidArgument` for any other word, :class:`ebbtide.NoSpace` and :class:`ebbtide.IOFailed` naming what
could not be kept, :class:`ebbtide.Closed`.

>>> for step in range(100):
...     store.checkpoint(step, state)
>>> store.wait("storage")     # one sync serves all that wait)")
      .def(
          "drop", &drop, nb::arg("version") = nb::none(), nb::sig("def drop(self, version: int | None = None) -> None"),
          R"(Forget ``version`` (None: every version of this history), its bytes and its hints. It may be written again.

A history that was dropped whole takes no memory once nothing refers to it any more; then it is as if it had never been.)")
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> typing.Self"))
      .def(
          "__exit__",
          [](HistoryObject& self, nb::handle, nb::handle, nb::handle) {
            self.state->check();
            if (self.state->kept()) return;
            const auto dropped = self.history.drop();
            if (!dropped && dropped.error().code != Errc::closed) raise(dropped.error());
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none(),
          nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"));

  nb::class_<StoreObject, HistoryObject> store(
      module, "Store", nb::is_weak_referenceable(),
      R"(An open store; it is itself the history named ``""``. Made by :func:`ebbtide.open`.

As a context manager, leaving closes it, by an exception too. In an ephemeral store nothing outlives the process, and
closing drops what is still on its way down. One that is kept is drained first: what was written is then as durable as
the store was opened for, or :meth:`close` says what is not.

A process forked from the one that opened it is refused by name. At interpreter exit an open store is closed.)");
  store
      .def(
          "history",
          [](StoreObject& self, std::string name, nb::handle order) {
            self.state->check();
            const bool reverse = !order.is_none() && str_text(order) == "reverse";
            if (!order.is_none() && !reverse) {
              raise(Errc::invalid_argument,
                    "order=" + repr_text(order) + " is wrong: None or \"reverse\" would be right");
            }
            auto history = self.state->store().history(std::move(name), reverse ? Order::reverse : Order::none);
            return new HistoryObject{self.state, std::move(history)};
          },
          nb::arg("name"), nb::arg("order") = nb::none(), nb::rv_policy::take_ownership,
          nb::sig("def history(self, name: str, order: str | None = None) -> History"),
          R"(The history called ``name``: the same calls over the same caches, with versions and hints of its own.

name: at most 65,536 bytes in UTF-8; a longer one is refused by its first checkpoint.
order: ``"reverse"`` hints each checkpoint, as it is written, ahead of the earlier ones.)")
      .def(
          "stats",
          [](StoreObject& self) {
            self.state->check();
            return to_dict(self.state->store().stats());
          },
          nb::sig("def stats(self) -> dict[str, typing.Any]"), R"(Every counter that one needs to explain a run.

``tiers`` (fastest first) and ``links``: lists of dicts of counters (bytes, seconds), each with its ``name``
(``"device"``; ``"device>host"``).
``arena`` of a tier: how its memory came to be. ``strategy`` (``"direct"``, ``"mapped"``, ``"incremental"``; ``""`` for
files); in bytes ``ready`` (usable now), ``limit`` (that ever will be), ``touched``, ``pinned``, ``mapped`` and ``piece``
(of one registration, at most); ``pieces``: registrations so far; ``huge_pages`` and ``sequential`` (touching pauses beside
copies, hipc22 sec. IV-B): bools; ``trouble``: what went wrong, else ``""``.
``blocked_s``: seconds that calls stood, by cause. ``found_on``: at each restore, the index of the fastest tier
with a complete replica, or -1; ``prefetch_distance``: at each restore, how many hinted successors were complete on the
fastest tier. Both are of the newest restores, of 16384 at least.
``settings``: the sizes and engines chosen at open.)")
      .def(
          "close", [](StoreObject& self) { self.state->close(); },
          R"(End every transfer and free the caches. Calls that wait end with :class:`ebbtide.Closed`. Twice is fine.

A store that is kept is drained first, within the ``close_timeout`` that it was opened with. Meanwhile what other
threads would write raises :class:`ebbtide.Closed`.
Raises :class:`ebbtide.TimedOut`, or what failed (:class:`ebbtide.NoSpace`, :class:`ebbtide.IOFailed`), naming a
checkpoint that is not durable. The store is closed all the same.
What a signal's handler raises (Ctrl-C: KeyboardInterrupt) ends the draining and leaves the store open: nothing is lost,
and it is to be closed again, though other threads may have had ``Closed`` from it.)")
      .def_prop_ro(
          "calls_inside", [](StoreObject& self) { return self.state->inside().load(); },
          "Calls that wait without the GIL now.")
      .def(
          "__exit__",
          [](StoreObject& self, nb::handle type, nb::handle value, nb::handle) {
            try {
              self.state->close();
            } catch (nb::python_error& error) {
              // The exception that ends the block is what the caller must see; this one is told beside it.
              if (type.is_none()) throw;
              tell_beside(value, error);
            }
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none(),
          nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"));
  bind_kept(history, store);
  bind_open(store);
}

}  // namespace ebb::python
