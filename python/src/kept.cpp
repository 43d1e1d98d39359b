// What earlier processes left: the versions, and the newest that is intact.
#include <nanobind/stl/string.h>

#include "arguments.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "warnings.hpp"

namespace ebb::python {
namespace {

nb::list versions_of(State& state, ebb::History history) {
  const auto found = check([&] {
    Unlocked unlocked(state.inside());
    return history.versions();
  }());
  nb::list result;
  for (const auto version : found) result.append(version);
  return result;
}

nb::object latest_of(State& state, ebb::History history, nb::handle at_most) {
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

ebb::History named(StoreObject& self, std::string name) {
  return name.empty() ? self.history : self.state->store().history(std::move(name));
}

}  // namespace

void bind_kept(nb::class_<HistoryObject>& history, nb::class_<StoreObject, HistoryObject>& store) {
  history
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
            self.state->check();
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
>>> state = initial() if step is None else history.restore(step))");
  store
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
            self.state->check();
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
