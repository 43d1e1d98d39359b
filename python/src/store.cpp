// An open store: its histories, counters and close.
#include <nanobind/stl/optional.h>

#include "arguments.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "text.hpp"
#include "waiting.hpp"

namespace ebb::python {
namespace {

// Adds an error to the exception in progress: as a note, or (before Python 3.11) between it and its context.
void tell_beside(nb::handle raised, nb::python_error& error) {
  if (nb::hasattr(raised, "add_note")) {
    raised.attr("add_note")(nb::str(error.what()));
    return;
  }
  error.value().attr("__context__") = raised.attr("__context__");
  raised.attr("__context__") = error.value();
}

int to_signal(nb::handle signal) {
  int number = 0;
  const nb::object as_int = PyIndex_Check(signal.ptr()) ? nb::steal(PyNumber_Index(signal.ptr())) : nb::object();
  if (as_int.is_valid() && nb::try_cast(as_int, number)) return number;
  PyErr_Clear();
  raise(Errc::invalid_argument, "signal=" + repr_text(signal) + " is not valid: expected one such as signal.SIGTERM");
}

std::optional<Seconds> to_within(std::optional<double> within) {
  if (!within) return std::nullopt;
  return Seconds(*within);
}

}  // namespace

nb::class_<StoreObject, HistoryObject> bind_store(nb::module_& module) {
  nb::class_<StoreObject, HistoryObject> store(
      module, "Store", nb::is_weak_referenceable(),
      R"(An open store; it is itself the history named ``""``. Made by :func:`ebbtide.open`.

As a context manager, leaving closes it, by an exception too. In an ephemeral store nothing outlives the process, and
closing drops pending flushes. Closing a persistent store first waits until its checkpoints are as durable as it was
opened for, or :meth:`close` says which are not.

A process forked from the one that opened it is refused by name. At interpreter exit an open store is closed.)");
  store
      .def(
          "history",
          [](StoreObject& self, std::string name, nb::handle order) {
            self.state->check();
            name = to_name("name", std::move(name));
            const std::string word = order.is_none() ? "" : str_text(order);
            const bool reverse = word == "reverse" || word == "lifo";
            if (!order.is_none() && !reverse) {
              raise(Errc::invalid_argument,
                    "order=" + repr_text(order) + " is not valid: expected None, \"reverse\" or \"lifo\" (the same)");
            }
            auto history = self.state->store().history(std::move(name), reverse ? Order::reverse : Order::none);
            return new HistoryObject{self.state, std::move(history)};
          },
          nb::arg("name"), nb::arg("order") = nb::none(), nb::rv_policy::take_ownership,
          nb::sig("def history(self, name: str, order: str | None = None) -> History"),
          R"(The history called ``name``: the same calls over the same caches, with versions and hints of its own.

name: at most 65,536 bytes in UTF-8; a longer one is refused by its first checkpoint.
order: ``"reverse"`` hints each checkpoint, when it is written, ahead of the earlier ones; ``"lifo"`` is the same.)")
      .def(
          "stats",
          [](StoreObject& self) {
            self.state->check();
            const auto [stats, snapshots] = [&] {  // which wait for calls that look for Python's signals
              Unlocked unlocked(self.state->inside());
              return std::pair(self.state->store().stats(), self.state->store().snapshot_stats());
            }();
            return to_dict(stats, snapshots);
          },
          nb::sig("def stats(self) -> dict[str, typing.Any]"), R"(Every counter needed to explain a run.

``tiers`` (fastest first) and ``links``: lists of dicts of counters (bytes, seconds), each with its ``name``
(``"device"``; ``"device>host"``).
``arena`` of a tier: how its memory is allocated. ``strategy`` (``"direct"``, ``"mapped"``, ``"incremental"``; ``""`` for
files); in bytes ``ready`` (usable now), ``limit`` (that will ever be usable), ``touched``, ``pinned``, ``mapped`` and
``piece`` (the most that one registration takes); ``pieces``: registrations so far; ``huge_pages``: a bool;
``trouble``: what went wrong, else ``""``.
``blocked_s``: seconds that calls were blocked, by cause. ``found_on``: at each restore, the index of the fastest tier
with a complete replica, or -1; ``prefetch_distance``: at each restore, how many hinted successors were complete on the
fastest tier. Both cover the newest restores, at least 16384.
``node``, of a store in a node's pool: bytes and checkpoints ``handed_over`` and ``written``, ``agents`` so far,
``bytes_borrowed`` (now, of what other processes of the pool do not use), ``bytes_beside`` (now, of the whole pool: in the page
cache, and not on stable storage yet), and of the checkpoints since all was durable before, from the first call to the return of the last (``last_blocked_s``), to all of
them durable (``last_durable_s``), and between the two (``last_drain_s``).
``leases``, of a store that lends memory or borrows it: bytes ``offered`` to others, the ``share`` of the link's rate at which
they may copy, bytes ``lent`` (until they can be allocated here again), of these ``overdue``, and ``borrowed``; and ``leases``, each with ``lender`` and ``borrower`` (processes; 0: it
has ended), ``bytes`` and ``state`` (``"lent"``, ``"recalled"``, ``"overdue"``, ``"orphaned"``).
``snapshots``, of protected arrays: ``zones`` that are protected now and how many of them are known to be ``dirty``,
``snapshots`` taken, ``failures`` after the cut, ``faults`` (first writes seen), ``duplicates`` (zones copied because a write
came first), ``blocked_s`` (seconds that writers waited) and ``bytes_gathered`` (copied from protected arrays).
``settings``: the sizes and engines chosen at open.)")
      .def(
          "lend",
          [](StoreObject& self, nb::handle bytes, std::optional<double> timeout) {
            self.state->check();
            std::uint64_t size = 0;
            if (nb::isinstance<nb::str>(bytes)) {
              size = check(parse_bytes("bytes", nb::cast<std::string>(bytes)));
            } else if (!nb::try_cast(bytes, size)) {
              raise(Errc::invalid_argument,
                    "bytes=" + repr_text(bytes) +
                        " is not valid: expected bytes as an int, from 0 to below 8 EiB, or text such as \"8GiB\"");
            }
            const Seconds within = to_timeout(timeout).value_or(Seconds(1e9));
            Signals signals;
            waiting(*self.state, signals, [&] { return self.state->store().lend(size, within, signals.interrupt()); });
          },
          nb::arg("bytes"), nb::arg("timeout").none() = 10.0,
          nb::sig("def lend(self, bytes: int | str, timeout: float | None = 10.0) -> None"),
          R"(Lend so much of this device's memory to other processes from now on, in place of ``lend`` of ``open``.

bytes: an int, or text such as ``"8GiB"``; 0, or at least 64 MiB. Less than before: the call returns once the rest can be
allocated here again. What others do not use is not allocated.
timeout: seconds to wait for that; None: as long as it takes. A signal handler's exception ends the wait, and what others
are to return comes back all the same.

Raises :class:`ebbtide.TimedOut`, with the processes that have not returned it and how much: it is not free until they have.

>>> store = ebbtide.open(device_cache="4GiB", lend="32GiB")
>>> store.lend("8GiB")      # 24 GiB can be allocated now)")
      .def(
          "close", [](StoreObject& self) { self.state->close(); },
          R"(End every transfer and free the caches. Waiting calls end with :class:`ebbtide.Closed`. Calling it twice is fine.

A persistent store first waits, up to its ``close_timeout``, until its checkpoints are durable. Meanwhile writes by other
threads raise :class:`ebbtide.Closed`.
Raises :class:`ebbtide.TimedOut`, or the error of what failed (:class:`ebbtide.NoSpace`, :class:`ebbtide.IOFailed`),
naming a checkpoint that is not durable. The store is closed all the same.
A signal handler's exception (Ctrl-C: KeyboardInterrupt) interrupts the wait and leaves the store open: nothing is lost,
and it must be closed again, though other threads may have received ``Closed`` meanwhile. One that only waits for memory
that it lent is closed then.)")
      .def(
          "suspend_on",
          [](StoreObject& self, nb::handle signal, std::optional<std::string> level, std::optional<double> within) {
            self.state->suspend_on(to_signal(signal), {std::move(level), to_within(within)});
          },
          nb::arg("signal"), nb::kw_only(), nb::arg("level") = nb::none(), nb::arg("within") = nb::none(),
          nb::sig(
              "def suspend_on(self, signal: int, *, level: str | None = None, within: float | None = None) -> None"),
          R"(From now on ``signal`` suspends the store, so that a job that must go can end and be started again (sc22, slide 53).

In the background, and whatever the program does meanwhile, everything written so far becomes as durable as ``level``, and
then a mark is written. The program's next call waits for that and raises :class:`ebbtide.Suspended`, as every later one
does, except those that only look (:meth:`versions`, :meth:`histories`, :meth:`stats`, :attr:`suspended`), what is in hand
(``commit`` of a reservation, ``close`` of a file, futures) and :meth:`close`. The program ends itself; the library never
does. If the store cannot be suspended, or not in time, there is no mark and older versions are as they were; the next call
raises the error, and the ones after it go on.

signal: such as ``signal.SIGTERM``. The handler that is there is called too, also one of :func:`signal.signal`; one that
is set later takes the place of this one. May be called for several signals.
level: ``"process"``, ``"node"``, ``"storage"`` or ``"shared"``; default: the store's durability.
within: seconds from the signal to the mark, such as a scheduler's grace period less some; default: as long as it takes.

Raises :class:`ebbtide.InvalidArgument` (a signal that cannot be caught or means a bug, a level),
:class:`ebbtide.Unsupported` (an ephemeral store, a read-only one, a level that it does not have),
:class:`ebbtide.InUse` (16 stores of this process do this already), :class:`ebbtide.Closed`.

>>> store.suspend_on(signal.SIGTERM, within=20)
>>> try:
...     for step in range(first, 1000):
...         state = advance(state)
...         store.checkpoint(step, state)
... except ebbtide.Suspended:
...     sys.exit(0)              # started again, store.suspended is not None)")
      .def(
          "check_suspended", [](StoreObject& self) { self.state->admit(); },
          R"(Do nothing but raise what every other call would, for a program that makes few of them.

Waits while the store is being suspended. Raises :class:`ebbtide.Suspended`, or the error of an attempt that failed.)")
      .def_prop_ro(
          "suspended",
          [](StoreObject& self) -> std::optional<double> {
            self.state->check();
            const auto since = check([&] {
              Unlocked unlocked(self.state->inside());
              return self.state->store().suspended();
            }());
            if (!since) return std::nullopt;
            return static_cast<double>(*since) * 1e-9;
          },
          nb::sig("def suspended(self) -> float | None"),
          R"(When the store was suspended, in seconds since 1970, also by an earlier process; None: it was not.

Stays until :meth:`clear_suspended`. Raises :class:`ebbtide.Closed`.)")
      .def(
          "clear_suspended",
          [](StoreObject& self) {
            self.state->check();
            check([&] {
              Unlocked unlocked(self.state->inside());
              return self.state->store().clear_suspended();
            }());
          },
          R"(Remove the mark, durably, and let calls begin again: the program has taken up its work.

Raises :class:`ebbtide.Unsupported` (a read-only store), :class:`ebbtide.TimedOut` (the disk does not answer),
:class:`ebbtide.Closed`.)")
      .def_prop_ro(
          "durability", [](StoreObject& self) { return to_text(self.state->durability()); },
          nb::sig("def durability(self) -> str"),
          "``\"ephemeral\"``, ``\"process\"``, ``\"node\"`` or ``\"storage\"``; ``\"readonly\"`` if it is not for "
          "writing.")
      .def_prop_ro(
          "calls_inside", [](StoreObject& self) { return self.state->inside().load(); },
          "Calls that are waiting without the GIL now.")
      .def(
          "__exit__",
          [](StoreObject& self, nb::handle type, nb::handle value, nb::handle) {
            try {
              self.state->close();
            } catch (nb::python_error& error) {
              // The caller must see the exception that ends the block; this error is added to it.
              if (type.is_none()) throw;
              tell_beside(value, error);
            }
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none(),
          nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"));
  return store;
}

}  // namespace ebb::python
