// A history: hints, waits, drops. writing.cpp and reading.cpp bind what writes and reads it.
#include "arguments.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "waiting.hpp"

namespace ebb::python {
namespace {

void wait(HistoryObject& self, const std::string& level, nb::handle version, std::optional<double> timeout) {
  self.state->admit();
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

void wait_for_drops(HistoryObject& self, std::optional<double> timeout) {
  self.state->admit();
  const auto limit = to_timeout(timeout);
  Signals signals;
  waiting(*self.state, signals, [&] { return self.history.wait_for_drops(limit, signals.interrupt()); });
}

void hint(HistoryObject& self, nb::handle order, bool replace) {
  self.state->admit();
  check(self.history.hint(std::span<const Version>(to_versions(order, "order")), replace));
}

void unhint(HistoryObject& self, nb::handle which) {
  self.state->admit();
  if (which.is_none()) return check(self.history.unhint());
  const auto list = to_versions(which, "versions");
  if (!list.empty()) check(self.history.unhint(std::span<const Version>(list)));
}

void drop(HistoryObject& self, nb::handle version) {
  self.state->admit();
  std::optional<Version> number;
  if (!version.is_none()) number = to_version(version);
  check([&] {
    Unlocked unlocked(self.state->inside());
    return number ? self.history.drop(*number) : self.history.drop();
  }());
}

}  // namespace

void bind_history(nb::module_& module) {
  nb::class_<HistoryObject> history(module, "History", nb::is_weak_referenceable(),
                                    R"(The versions of one name over a store's caches.

A checkpoint is written whole under an int version and read whole. Its arrays may be anything with ``__dlpack__`` or
the buffer protocol, alone or in lists, tuples and dicts, with numbers, text and ``None`` beside them; shape and element
type are kept. An array that is more than that (masked, quantised, of a subclass) is refused by name.
``version in history`` and ``len(history)`` are about :meth:`versions`.
Several threads may use one history. A waiting call lets other Python threads run. ``KeyboardInterrupt`` ends it within
about 50 ms, as if its timeout had passed: nothing stored is lost and nothing is consumed. Neither a timeout nor a signal
ends a call without ``stream`` while it waits for work on a GPU's stream.
A signal at the very end of a successful call raises its exception but undoes nothing: a checkpoint is written, a restore
has filled ``out`` and consumed its version, a reservation is abandoned, and a loan is given back with its version kept.
:meth:`versions` shows which it was.

As a context manager, leaving drops every version of it, but not in a persistent store (``durability="process"`` or
``"storage"``).)");
  history.def_prop_ro(
      "name", [](HistoryObject& self) { return self.history.name(); }, "Its name; the store itself is ``\"\"``.");
  bind_writing(history);
  bind_reading(history);
  history
      .def("hint", &hint, nb::arg("order").none(), nb::arg("replace") = false,
           nb::sig("def hint(self, order: collections.abc.Iterable[int], replace: bool = False) -> None"),
           R"(Announce that the versions of ``order`` will be restored, in this order, after what was hinted before.

May name versions that are not written yet, and may repeat one. A wrong hint costs time, never correctness.
replace: forget earlier hints.)")
      .def(
          "hint_front",
          [](HistoryObject& self, nb::handle version) {
            self.state->admit();
            check(self.history.hint_front(to_version(version)));
          },
          nb::arg("version").none(), nb::sig("def hint_front(self, version: int) -> None"),
          "Announce that ``version`` will be restored before everything hinted so far.")
      .def("unhint", &unhint, nb::arg("versions") = nb::none(),
           nb::sig("def unhint(self, versions: collections.abc.Iterable[int] | None = None) -> None"),
           "Withdraw the first hint of each of ``versions``, or every hint.")
      .def(
          "start_prefetch",
          [](HistoryObject& self) {
            self.state->admit();
            check(self.history.start_prefetch());
          },
          "Start prefetching, in a store opened with ``prefetch=\"manual\"``.")
      .def(
          "wait", &wait, nb::arg("level"), nb::arg("version") = nb::none(), nb::arg("timeout") = nb::none(),
          nb::sig("def wait(self, level: str, version: int | None = None, timeout: float | None = None) -> None"),
          R"(Wait until ``version`` (None: each one written so far) is complete on tier ``level`` or below, or that durable.

Does not wait for later checkpoints, nor for other histories.

level: a tier, ``"device"``, ``"host"`` or ``"local"``; or a durability: ``"ephemeral"`` (once written), ``"process"``
(outlives the process, however it ends), ``"node"`` (in the pool of its node), ``"storage"`` (outlives a power loss too) or ``"shared"`` (outlives the node).
timeout: seconds; None for as long as it takes. ``KeyboardInterrupt`` ends the wait, and nothing else.
Raises :class:`ebbtide.TimedOut`, :class:`ebbtide.Unsupported` for a tier or a durability that this store does not have,
:class:`ebbtide.InvalidArgument` for any other word, :class:`ebbtide.NoSpace` and :class:`ebbtide.IOFailed` naming what
could not be stored, :class:`ebbtide.Closed`.

>>> for step in range(100):
...     store.checkpoint(step, state)
>>> store.wait("storage")     # one sync serves all waiting calls)")
      .def(
          "agree",
          [](HistoryObject& self, nb::handle version) {
            self.state->admit();
            check(self.history.agree(to_version(version)));
          },
          nb::arg("version").none(), nb::sig("def agree(self, version: int) -> None"),
          R"(Every process that checkpoints along with this one has ``version`` and what is older, durable; -1: none in common.

In a store opened with ``agreed=True``, ``keep_last`` counts up to there. :func:`ebbtide.mpi.open` does it for its ranks.
Raises :class:`ebbtide.Unsupported` (the store was opened without), :class:`ebbtide.Closed`.)")
      .def(
          "wait_for_drops", &wait_for_drops, nb::arg("timeout") = nb::none(),
          nb::sig("def wait_for_drops(self, timeout: float | None = None) -> None"),
          R"(Wait until nothing brings back what was dropped so far: no kill, and no loss of power where the store promises it.

Raises :class:`ebbtide.TimedOut`, :class:`ebbtide.Closed`.)")
      .def(
          "drop", &drop, nb::arg("version") = nb::none(), nb::sig("def drop(self, version: int | None = None) -> None"),
          R"(Forget ``version`` (None: every version of this history), its bytes and its hints. It may be written again.

A history that was dropped whole uses no memory once nothing refers to it, as if it had never existed.)")
      .def(
          "__enter__", [](nb::object self) { return self; }, nb::sig("def __enter__(self) -> typing.Self"))
      .def(
          "__reduce__",
          [](nb::handle self) -> nb::object {
            const std::string name = nb::cast<std::string>(self.type().attr("__name__"));
            throw nb::type_error(("a " + name +
                                  " cannot be pickled or copied: it belongs to this process. Open the store in the "
                                  "other process, read-only if this one has it open")
                                     .c_str());
          },
          nb::sig("def __reduce__(self) -> typing.Any"))
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

  auto store = bind_store(module);
  bind_kept(history, store);
  bind_snapshot(store);
  bind_files(module, store);
  bind_open(module, store);
}

}  // namespace ebb::python
