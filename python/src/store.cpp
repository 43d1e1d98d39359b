// An open store: its histories, counters and close.
#include <nanobind/stl/string.h>

#include "arguments.hpp"
#include "errors.hpp"
#include "objects.hpp"

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
``piece`` (the most that one registration takes); ``pieces``: registrations so far; ``huge_pages`` and ``sequential``
(always false: touching does not pause during copies): bools; ``trouble``: what went wrong, else ``""``.
``blocked_s``: seconds that calls were blocked, by cause. ``found_on``: at each restore, the index of the fastest tier
with a complete replica, or -1; ``prefetch_distance``: at each restore, how many hinted successors were complete on the
fastest tier. Both cover the newest restores, at least 16384.
``node``, of a store in a node's pool: bytes and checkpoints ``handed_over`` and ``written``, ``agents`` so far,
``bytes_borrowed`` (now, of what other processes of the pool do not use), and of the checkpoints since all was durable before, from the first call to the return of the last (``last_blocked_s``), to all of
them durable (``last_durable_s``), and between the two (``last_drain_s``).
``snapshots``, of protected arrays: ``zones`` that are protected now and how many of them are known to be ``dirty``,
``snapshots`` taken, ``failures`` after the cut, ``faults`` (first writes seen), ``duplicates`` (zones copied because a write
came first), ``blocked_s`` (seconds that writers waited) and ``bytes_gathered`` (copied from protected arrays).
``settings``: the sizes and engines chosen at open.)")
      .def(
          "close", [](StoreObject& self) { self.state->close(); },
          R"(End every transfer and free the caches. Waiting calls end with :class:`ebbtide.Closed`. Calling it twice is fine.

A persistent store first waits, up to its ``close_timeout``, until its checkpoints are durable. Meanwhile writes by other
threads raise :class:`ebbtide.Closed`.
Raises :class:`ebbtide.TimedOut`, or the error of what failed (:class:`ebbtide.NoSpace`, :class:`ebbtide.IOFailed`),
naming a checkpoint that is not durable. The store is closed all the same.
A signal handler's exception (Ctrl-C: KeyboardInterrupt) interrupts the wait and leaves the store open: nothing is lost,
and it must be closed again, though other threads may have received ``Closed`` meanwhile.)")
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
