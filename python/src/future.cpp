
#include <new>

#include "calls.hpp"
#include "errors.hpp"
#include "objects.hpp"

namespace ebb::python {

namespace {

// After a `timed_out`: was it the operation's own result? The next wait reports a failure that came in between.
bool has_ended(const FutureObject::Pending& pending, const std::optional<std::string>& level) {
  try {
    return std::visit([&](const auto& of) { return of.done(level); }, pending);
  } catch (const BadResult&) {
    return false;
  }
}

}  // namespace

FutureObject::FutureObject(std::shared_ptr<StoreState> state, Pending pending, std::shared_ptr<Held> held)
    : state_(std::move(state)),
      pending_(std::move(pending)),
      held_(std::move(held)),
      fills_(held_ && is_packed(held_->bundle)) {}

FutureObject::~FutureObject() { leak_if_foreign(*state_, pending_); }

bool FutureObject::done(std::optional<std::string> level) {
  state_->check();
  const bool done = [&] {
    try {
      return std::visit([&](const auto& of) { return of.done(level); }, pending_);
    } catch (const BadResult& refused) {
      raise(refused.error());
    }
  }();
  return done && (level || !fills_ || unfilled_ || failed());
}

std::optional<Error> FutureObject::failed() const {
  return std::visit([](const auto& of) { return of.error(); }, pending_);
}

void FutureObject::finish() {
  if (!held_ || held_->bundle.leaves.empty()) return;
  if (finisher_ == std::this_thread::get_id())
    raise(Errc::unsupported, "this thread is copying what was read to `out`, and was interrupted: ask done() instead");
  std::unique_lock lock(finishing_, std::try_to_lock);
  if (!lock) {  // another thread is at it, in Python
    nb::gil_scoped_release unlocked;
    lock.lock();
  }
  if (held_->bundle.leaves.empty() || failed()) return;
  finisher_ = std::this_thread::get_id();
  const struct Finishes {
    std::atomic<std::thread::id>& thread;
    ~Finishes() { thread = std::thread::id(); }
  } finishes{finisher_};
  try {
    fill(held_->bundle, reach_of(*state_, nb::none()), /*load=*/false, /*wait=*/true);
    if (converts(held_->bundle)) held_->arrays = converted(held_->bundle);
  } catch (nb::python_error& raised) {
    unfilled_ = raised.matches(PyExc_Exception);
    throw;
  }
  fills_ = unfilled_ = false;
  held_->bundle = {};  // the transfer is over: only the arrays themselves are needed
}

nb::object FutureObject::settle() {
  try {
    finish();
  } catch (nb::python_error& raised) {
    unfilled_ = true;
    return nb::borrow(raised.value());
  }
  return error();
}

Result<void> FutureObject::wait_for(const std::optional<std::string>& level, std::optional<double> timeout) {
  state_->check();
  const auto wait = [&](Seconds slice) {
    return std::visit([&](const auto& of) { return of.wait(level, slice); }, pending_);
  };
  const auto limit = to_timeout(timeout);
  if (!level && has_ended(pending_, {})) return wait(Seconds(0));
  return wait_in_slices(state_->inside(), limit, wait, [&] { return has_ended(pending_, level); });
}

void FutureObject::wait(std::optional<std::string> level, std::optional<double> timeout) {
  ebb::python::check(wait_for(level, timeout));
  if (!level) finish();
}

nb::object FutureObject::error() {
  state_->check();
  const auto error = failed();
  if (!error) return unfilled_ ? settle() : nb::none();
  try {
    raise(*error);
  } catch (nb::python_error& raised) {
    return nb::borrow(raised.value());
  }
}

nb::object FutureObject::result(std::optional<double> timeout) {
  ebb::python::check(wait_for({}, timeout));
  state_->sweep();
  finish();
  return held_ ? held_->arrays : nb::object(nb::none());
}

bool FutureObject::tell_of_end(nb::handle self) {
  state_->check();
  const auto* const background = std::get_if<ebb::Future>(&pending_);
  if (background == nullptr) return false;  // a snapshot has ended when its cut is taken
  Endings& endings = state_->endings();
  if (std::exchange(told_, true)) return true;
  auto end = endings.watch(self);
  if (!end) return told_ = false;
  background->keep_until_ended(std::move(end));
  return true;
}

nb::object new_future(const std::shared_ptr<StoreState>& state, FutureObject::Pending pending,
                      std::shared_ptr<Held> held) {
  nb::object made = nb::inst_alloc(state->future_type());
  new (nb::inst_ptr<FutureObject>(made)) FutureObject(state, std::move(pending), std::move(held));
  nb::inst_mark_ready(made);
  auto& future = nb::cast<FutureObject&>(made);
  if (future.fills() && !future.tell_of_end(made)) future.settle();
  return made;
}

void bind_future(nb::module_& module) {
  nb::class_<Endings>(module, "Endings", "The futures of a store that are watched, as they end.")
      .def("give", &Endings::give, nb::arg("take"),
           nb::sig("def give(self, take: collections.abc.Callable[[ebbtide._futures.Future], object]) -> bool"),
           "Waits for the next one that has ended, and calls `take` with it. False: the store is closed, and all were "
           "given.")
      .def("close", &Endings::close, "All that are watched count as ended.");
  nb::class_<FutureObject>(module, "Operation", "What the store knows of a Future. Use :class:`ebbtide.Future`.")
      .def("done", &FutureObject::done, nb::arg("level") = nb::none(),
           nb::sig("def done(self, level: str | None = None) -> bool"),
           R"(True once it has ended, successfully or not, and the arrays of a restore are filled; never waits.

level: a tier's name (``"device"``, ``"host"``, ``"local"``), complete there or below, or a durability
(``"ephemeral"``, ``"process"``, ``"node"``, ``"storage"``, ``"shared"``): True once it is that durable, and never before; of a snapshot
also ``"copied"``: True once it no longer depends on the protected arrays.
Raises as :meth:`wait` does for a durability that it failed to reach (it may still be retried), and for what can never
happen; so a loop that polls until it is True always ends.)")
      .def("wait", &FutureObject::wait, nb::arg("level") = nb::none(), nb::arg("timeout") = nb::none(),
           nb::sig("def wait(self, level: str | None = None, timeout: float | None = None) -> None"),
           R"(Wait for it to end, or to reach ``level``, at most ``timeout`` seconds (None: as long as it takes).

level: as in :meth:`done`.
Raises :class:`ebbtide.TimedOut` when the time passes first (the operation continues), :class:`ebbtide.Unsupported` for a
tier or a durability that the store does not have, :class:`ebbtide.InvalidArgument` for any other word, or the
operation's own error: :class:`ebbtide.NoSpace` and :class:`ebbtide.IOFailed` when it could not be stored.
``KeyboardInterrupt`` ends the wait, not the operation.)")
      .def(
          "_tell_of_end", [](nb::handle self) { return nb::cast<FutureObject&>(self).tell_of_end(self); },
          nb::sig("def _tell_of_end(self) -> bool"))
      .def("_settle", &FutureObject::settle, nb::sig("def _settle(self) -> BaseException | None"))
      .def_prop_ro("error", &FutureObject::error, nb::sig("def error(self) -> BaseException | None"),
                   "Its failure as an exception, which is not raised; None if it has not failed.")
      .def("result", &FutureObject::result, nb::arg("timeout") = nb::none(),
           nb::sig("def result(self, timeout: float | None = None) -> typing.Any"),
           R"(Wait, then return the arrays of a ``restore_async`` (None for a checkpoint).

Raises as :meth:`wait` does.)")
      .def(
          "before_write", &FutureObject::before_write, nb::arg("array").none(), nb::kw_only(),
          nb::arg("stream") = nb::none(),
          nb::sig("def before_write(self, array: ebbtide.types.Array, *, stream: ebbtide.types.Stream | None = None) "
                  "-> None"),
          R"(Call this before work on ``stream`` writes to a protected array on the GPU: copies the zones not copied yet, and orders it.

Needed before the first write after ``snapshot(fenced=True)``, and on any other stream than the snapshot's own. It waits for
room in the device cache, and for nothing else. For arrays in host memory, and once the snapshot has failed, it does nothing.

stream: None: the current stream of the array's library, as for ``checkpoint``.

Raises :class:`ebbtide.InvalidArgument` (this is no snapshot's, no part of a protected array, a stream of another GPU),
:class:`ebbtide.Unsupported` (a store without a GPU, a stream that is being captured).

>>> cut = store.snapshot(7, fenced=True)
>>> norm = field.norm()                # reads go on at once
>>> cut.before_write(field)
>>> field += update)");
}

}  // namespace ebb::python
