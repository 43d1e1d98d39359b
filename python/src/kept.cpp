// What earlier processes left: the versions, and the newest that is intact.
#include <algorithm>

#include "arguments.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "text.hpp"
#include "warnings.hpp"

namespace ebb::python {
namespace {

nb::list versions_of(StoreState& state, ebb::History history) {
  const auto found = check([&] {
    Unlocked unlocked(state.inside());
    return history.versions();
  }());
  nb::list result;
  for (const auto version : found) result.append(version);
  return result;
}

nb::object latest_of(StoreState& state, ebb::History history, nb::handle at_most) {
  std::optional<Version> limit;
  if (!at_most.is_none()) limit = to_version(at_most);
  Warnings warnings;
  Signals signals;
  auto found = [&] {
    Unlocked unlocked(state.inside());
    return history.latest(limit, signals.interrupt());
  }();
  signals.rethrow();
  const auto newest = check(std::move(found));
  warnings.raise();
  return newest ? nb::cast(*newest) : nb::none();
}

bool contains(HistoryObject& self, nb::handle version) {
  self.state->check();
  if (!PyIndex_Check(version.ptr())) return false;
  std::int64_t number = 0;
  const nb::object as_int = nb::steal(PyNumber_Index(version.ptr()));
  if (!as_int.is_valid()) throw nb::python_error();
  if (!nb::try_cast(as_int, number)) return false;  // longer than a version may be
  const auto found = check([&] {
    Unlocked unlocked(self.state->inside());
    return self.history.versions();
  }());
  return std::ranges::binary_search(found, number);
}

// Of a closed store too: whoever prints it is looking for what is wrong.
std::string shown(HistoryObject& self, const std::string& what) {
  if (self.state->foreign()) return "<" + what + ", of another process>";
  Unlocked unlocked(self.state->inside());
  const auto found = self.history.versions();
  if (!found) return "<" + what + ", " + std::string(name_of(found.error().code)) + ">";
  return "<" + what + ", " + std::to_string(found->size()) + (found->size() == 1 ? " version>" : " versions>");
}

ebb::History named(StoreObject& self, std::string name) {
  return name.empty() ? self.history : self.state->store().history(to_name("name", std::move(name)));
}

}  // namespace

void bind_kept(nb::class_<HistoryObject>& history, nb::class_<StoreObject, HistoryObject>& store) {
  history
      .def(
          "info",
          [](HistoryObject& self, nb::handle version) {
            self.state->admit();
            Signals signals;
            const CheckpointInfo info = info_of(self, to_version(version), signals);
            nb::dict result;
            nb::list leans_on;
            for (const Version needed : info.leans_on) leans_on.append(needed);
            result["bytes"] = info.bytes;
            result["leans_on"] = leans_on;
            return result;
          },
          nb::arg("version").none(), nb::sig("def info(self, version: int) -> dict[str, typing.Any]"),
          R"(What is stored of ``version``: its payload is not read.

``bytes``: in the store, of a snapshot without what it shares with others; ``leans_on``: the versions whose bytes it needs
beside its own, ascending (``[]`` of a checkpoint, and of a snapshot that stored everything). They may be dropped: what is
needed stays.
Raises :class:`ebbtide.UnknownVersion`, :class:`ebbtide.Consumed`, :class:`ebbtide.Damaged`, :class:`ebbtide.Closed`.)")
      .def(
          "versions",
          [](HistoryObject& self) {
            self.state->check();
            return versions_of(*self.state, self.history);
          },
          nb::sig("def versions(self) -> list[int]"),
          R"(The versions that can be restored, ascending; in a persistent store also those of earlier processes.

Those of earlier processes are not read for this: a damaged one is listed, and :meth:`restore` of it raises
:class:`ebbtide.Damaged`. A store opened with ``readonly=True`` also lists what another process is adding.
Raises :class:`ebbtide.Closed`.)")
      .def(
          "latest",
          [](HistoryObject& self, nb::handle at_most) {
            self.state->admit();
            return latest_of(*self.state, self.history, at_most);
          },
          nb::kw_only(), nb::arg("at_most") = nb::none(),
          nb::sig("def latest(self, *, at_most: int | None = None) -> int | None"),
          R"(The newest version that is complete and intact; None if there is none.

Versions of earlier processes are read and checked. A damaged one is skipped, with a :class:`ebbtide.DamagedWarning`
and a line in the log that name file, offset and what is wrong. The version may be one that this store wrote and that
is not durable yet; :meth:`wait` waits for that.

at_most: the newest version not above this one, for example to go back before a state that turned out to be wrong.
Raises :class:`ebbtide.Unsupported` (an ephemeral store has no earlier process), :class:`ebbtide.IOFailed`,
:class:`ebbtide.Closed`.

>>> step = history.latest()
>>> state = initial() if step is None else history.restore(step))")
      .def("__contains__", &contains, nb::arg("version").none(),
           nb::sig("def __contains__(self, version: object) -> bool"))
      .def("__len__",
           [](HistoryObject& self) {
             self.state->check();
             return nb::len(versions_of(*self.state, self.history));
           })
      .def("__bool__", [](HistoryObject&) { return true; })  // also without versions
      .def(
          "__repr__",
          [](HistoryObject& self) { return to_text(shown(self, "ebbtide.History \"" + self.history.name() + "\"")); },
          nb::sig("def __repr__(self) -> str"));
  store
      .def(
          "__repr__",
          [](StoreObject& self) {
            std::string what = "ebbtide.Store";
            if (!self.state->foreign()) what += " (" + self.state->store().stats().settings + ")";
            return to_text(shown(self, what));
          },
          nb::sig("def __repr__(self) -> str"))
      .def(
          "histories",
          [](StoreObject& self) {
            self.state->check();
            const auto found = check([&] {
              Unlocked unlocked(self.state->inside());
              return self.state->store().histories();
            }());
            nb::list result;
            for (const auto& name : found) result.append(to_text(name));
            return result;
          },
          nb::sig("def histories(self) -> list[str]"),
          R"(The names of the histories that have versions, ascending; the store's own is ``""``.

In a persistent store also those of earlier processes. Raises :class:`ebbtide.Closed`.)")
      .def(
          "versions",
          [](StoreObject& self, std::string name) {
            self.state->check();
            return versions_of(*self.state, named(self, std::move(name)));
          },
          nb::arg("name") = "", nb::sig("def versions(self, name: str = '') -> list[int]"),
          "The versions of the history called ``name``; see :meth:`History.versions`.")
      .def(
          "latest",
          [](StoreObject& self, std::string name, nb::handle at_most) {
            self.state->admit();
            return latest_of(*self.state, named(self, std::move(name)), at_most);
          },
          nb::arg("name") = "", nb::arg("at_most") = nb::none(),
          nb::sig("def latest(self, name: str = '', at_most: int | None = None) -> int | None"),
          R"(The newest version of the history called ``name`` that is complete and intact; see :meth:`History.latest`.

>>> with ebbtide.open("run-7", durability="storage", keep_last=3) as store:
...     newest = store.latest()
...     first, state = (0, initial()) if newest is None else (newest + 1, store.restore(newest))
...     for step in range(first, 1000):
...         state = advance(state)
...         store.checkpoint(step, state))");
}

}  // namespace ebb::python
