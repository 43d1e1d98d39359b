// Reservation and Loan: arrays over the device cache's own memory.

#include <stdexcept>

#include "device_array.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "streams.hpp"

namespace ebb::python {
namespace {

Lent& lent_of(PyObject* self) {
  if (nb::isinstance<ReservationObject>(nb::handle(self))) return *nb::inst_ptr<ReservationObject>(nb::handle(self));
  return *nb::inst_ptr<LoanObject>(nb::handle(self));
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Lent& lent = lent_of(self);
  view->obj = nullptr;
  if (lent.ended() || !lent.in_host_memory()) {
    PyErr_SetString(PyExc_BufferError, lent.ended() ? "the memory was given back to the store"
                                                    : "the memory is on a GPU: use the arrays handed out");
    return -1;
  }
  const int result =
      PyBuffer_FillInfo(view, self, lent.data(), static_cast<Py_ssize_t>(lent.bytes()), lent.writable() ? 0 : 1, flags);
  if (result == 0) ++lent.exports;
  return result;
}

void release_buffer(PyObject* self, Py_buffer*) {
  Lent& lent = lent_of(self);
  if (--lent.exports == 0) lent.last_view_gone();
}

PyType_Slot buffer_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                              {0, nullptr}};

// Whether the call changed nothing, so that the handle has not ended. Errors of an ended handle have other codes.
bool refused(const Result<void>& done) {
  if (done) return false;
  const Errc code = done.error().code;
  return code == Errc::unsupported || code == Errc::invalid_argument || code == Errc::closed;
}

}  // namespace

void Lent::require_open(const char* what) const {
  state_->check();
  if (ended_)
    raise(Errc::closed, std::string(what) + " of version " + std::to_string(version_) +
                            " has ended: its memory was given back to the store");
}

HandBack Lent::hand_back(const std::shared_ptr<Grip>& grip, nb::handle stream) const {
  HandBack how;
  how.stream = to_stream(stream);
  if (!how.stream) how.stream = stream_;
  if (!on_gpu()) return how;
  if (!how.stream) how.stream = grip->stream();
  // Only this object, under the GIL, can hand out the grip to more owners.
  how.hold = grip.use_count() > 2;  // this object's and the caller's
  return how;
}

// --- Reservation

ReservationObject::ReservationObject(std::shared_ptr<StoreState> state, Version version, LeafType type,
                                     std::optional<StreamHandle> stream, nb::object like, ebb::Reservation reservation)
    : Lent(state, version, stream), type_(std::move(type)), like_(std::move(like)) {
  auto mapping = reservation.mapping();
  grip_ =
      std::make_shared<GripOf<ebb::Reservation>>(std::move(state), version, std::move(reservation), std::move(mapping));
  lend_pages();
}

void ReservationObject::lend_pages() {
  if (on_gpu() || bytes() == 0) return;
  auto lent = LentPages::lend(grip_->handle.data(), bytes());
  if (!lent) raise(lent.error().code, lent.error().message);
  pages_ = std::move(*lent);
}

nb::object ReservationObject::array(nb::handle self) {
  require_open("the reservation");
  if (on_gpu()) {
    DeviceMemory memory{data(), type_.dtype, type_.shape, bytes(), true, {}};
    return as_like(nb::cast(new DeviceArray(nb::borrow(self), grip_, std::move(memory)), nb::rv_policy::take_ownership),
                   like_);
  }
  nb::object array = array_over(self, type_.dtype, type_.shape);
  views_.push_back(nb::steal(PyWeakref_NewRef(array.ptr(), nullptr)));
  return as_like(std::move(array), like_);
}

// Arrays may outlive the reservation. Writing to those handed out raises, which reveals the mistake; other views of the
// memory cannot be stopped from writing to it (LentPages).
void ReservationObject::set_ended(bool ended) {
  ended_ = grip_->ended = ended;
  for (const auto& view : views_) {
    nb::object array = view();
    if (!array.is_none()) array.attr("flags").attr("writeable") = !ended;
  }
}

void ReservationObject::commit(nb::handle stream, bool check) {
  require_open("the reservation");
  const auto grip = grip_;
  HandBack how = hand_back(grip, stream);
  how.check = check;
  if (!on_gpu() && how.stream) return ebb::python::check(grip->handle.commit(how));  // refused by name
  set_ended(true);  // before other threads run: none may find it open, or make a view of it
  const bool viewed = exports > 0;
  const auto done = [&] {
    Unlocked unlocked(state_->inside());
    pages_.give_back(viewed);
    return grip->handle.commit(how);
  }();
  if (refused(done)) {
    if (!pages_.data()) lend_pages();
    set_ended(false);
  } else if (on_gpu()) {
    grip_.reset();  // objects that took the memory keep it alive
  }
  ebb::python::check(done);
}

void ReservationObject::abandon() {
  state_->check();
  if (ended_) return;
  set_ended(true);
  if (!on_gpu()) {
    pages_.forget(exports > 0);
    return grip_->handle.abandon();
  }
  const auto grip = std::move(grip_);
  Unlocked unlocked(state_->inside());  // it waits for the GPU
  grip->handle.abandon();
}

// --- Loan

LoanObject::LoanObject(std::shared_ptr<StoreState> state, Version version, const Layout& layout,
                       std::vector<RegionInfo> regions, std::optional<StreamHandle> stream, ebb::Loan loan, bool keep)
    : Lent(state, version, stream),
      layout_(layout),
      regions_(std::move(regions)),
      keep_(keep),
      grip_(std::make_shared<GripOf<ebb::Loan>>(std::move(state), version, std::move(loan), nullptr)) {}

void LoanObject::release(bool keep, nb::handle stream) {
  state_->check();
  if (ended_) return;
  const auto grip = grip_;
  const HandBack how = hand_back(grip, stream);
  if (!on_gpu() && how.stream) return ebb::python::check(grip->handle.release(keep, how));  // refused by name
  const bool kept_before = keep_;
  keep_ |= keep;
  ended_ = grip->ended = true;           // before other threads run: none may find it open
  if (!on_gpu() && exports > 0) return;  // given back with the last view
  given_back_ = true;
  const auto done = [&] {
    Unlocked unlocked(state_->inside());
    return grip->handle.release(keep_, how);
  }();
  if (refused(done)) {
    ended_ = grip->ended = given_back_ = false;
    keep_ = kept_before;
  } else if (on_gpu()) {
    grip_.reset();
  }
  ebb::python::check(done);
}

void LoanObject::last_view_gone() {
  if (!ended_ || given_back_ || state_->foreign()) return;
  given_back_ = true;
  // No caller is left to report a failure to (at worst the store is closed): the memory is given back in any case, and
  // the store's next call throws if a contract is broken here.
  try {
    static_cast<void>(static_cast<bool>(grip_->handle.release(keep_)));
  } catch (const std::logic_error&) {
  }
}

nb::object LoanObject::arrays(nb::handle self, bool like_written) {
  require_open("the loan");
  nb::object whole;
  if (!on_gpu()) whole = array_over(self, "|u1", {static_cast<std::int64_t>(bytes())});
  Bundle bundle;
  bundle.structure = layout_.structure;
  bundle.keys = layout_.keys;
  bundle.tree = layout_.tree;
  nb::object part = nb::module_::import_("ebbtide._arrays").attr("part_of");
  for (std::size_t i = 0; i < layout_.leaves.size(); ++i) {
    const auto& type = layout_.leaves[i];
    if (on_gpu()) {
      DeviceMemory memory{static_cast<std::byte*>(data()) + regions_[i].offset,
                          type.dtype,
                          type.shape,
                          regions_[i].bytes,
                          false,
                          type.order};
      Leaf leaf;
      leaf.array = nb::cast(new DeviceArray(nb::borrow(self), grip_, std::move(memory)), nb::rv_policy::take_ownership);
      if (like_written && has_streams(type.library))
        leaf.array = as_like(std::move(leaf.array), nb::str(type.library == Library::torch ? "torch" : "cupy"));
      bundle.leaves.push_back(std::move(leaf));
      continue;
    }
    Leaf leaf;
    leaf.array = part(whole, regions_[i].offset, regions_[i].bytes, type.dtype, to_tuple(type.shape),
                      to_tuple(type.order.strides), type.order.first);
    bundle.leaves.push_back(std::move(leaf));
  }
  return assemble(bundle);
}

void bind_lease(nb::module_& module) {
  nb::class_<ReservationObject>(
      module, "Reservation", nb::type_slots(buffer_slots), nb::is_weak_referenceable(),
      R"(Memory inside the device cache to compute into; :meth:`commit` makes it the checkpoint.

As a context manager it returns the array, commits when the block ends and abandons when it ends by an exception.

In host memory, any view of the array that is left when it is committed (the array itself, a slice, a memoryview, a
tensor) keeps a private copy of the bytes: writing to it changes no checkpoint. The arrays handed out become read-only,
to reveal the mistake. That costs a copy of the bytes to new memory, and as much memory until the last view is gone.
With no view left the pages are moved instead, which takes some 10 microseconds for a few MiB: so ``del`` the array as
the last line of the block::

    with history.reserve(step, shape, dtype) as a:
        compute(out=a)
        del a                                            # nothing is copied

On a GPU the array is a :class:`ebbtide.DeviceArray`, or one of the library named by ``like``. A tensor made of it
that outlives the commit still shows the checkpoint and keeps the memory from being reused. It must not be written to,
and nothing can prevent that: ``commit(check=True)`` detects it.)")
      .def_prop_ro(
          "array", [](nb::handle self) { return nb::cast<ReservationObject&>(self).array(self); },
          nb::sig("def array(self) -> typing.Any"),
          "A writable array over the memory. Raises :class:`ebbtide.Closed` once committed or abandoned.")
      .def("commit", &ReservationObject::commit, nb::arg("stream") = nb::none(), nb::arg("check") = false,
           nb::sig("def commit(self, stream: ebbtide.types.Stream | None = None, check: bool = False) -> None"),
           R"(Make the contents of the memory the checkpoint.

stream: on a GPU, the stream whose present work computes it; the host does not wait. Without it, that of
``reserve``, else the one on which a library, or a call of the store's with ``stream``, took the memory.

check: compute a digest of the memory, in stream order, and compare it at each flush, restore and borrow from it. If the
memory was written to after the commit, for example through a tensor that outlived it, ``restore``, ``borrow`` and
``wait`` raise :class:`ebbtide.Damaged` with the version's name, and it is never reported durable. Each comparison reads
the memory once more (a flush twice), on a GPU at memory bandwidth, with ``restore`` and ``borrow`` waiting for their
stream. It is for finding mistakes on a GPU: in host memory no view can write to a checkpoint.

Raises :class:`ebbtide.Closed` when committed or abandoned already.)")
      .def("abandon", &ReservationObject::abandon,
           "Forget the version as if it had never been reserved. Calling it twice is fine.")
      .def(
          "__enter__", [](nb::handle self) { return nb::cast<ReservationObject&>(self).array(self); },
          nb::sig("def __enter__(self) -> typing.Any"))
      .def(
          "__exit__",
          [](ReservationObject& self, nb::handle type, nb::handle, nb::handle) {
            if (!type.is_none()) return self.abandon();
            if (!self.ended()) self.commit(nb::none(), false);
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none(),
          nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"));

  nb::class_<LoanObject>(module, "Loan", nb::type_slots(buffer_slots), nb::is_weak_referenceable(),
                         R"(The cached checkpoint itself, read-only.

As a context manager it returns the arrays in the structure in which they were written. When the block has ended *and*
no array over the memory is left, it is given back and the checkpoint is consumed (kept, when the block ended by an
exception): until then the memory stays as it is, so that no view of it ever shows another checkpoint. ``del`` the last
array to give it back at once.

On a GPU the arrays are :class:`ebbtide.DeviceArray`, and arrays that other libraries made of them count too. Work on
the memory must be on the stream that it is released with, or done before the last of them is gone.)")
      .def_prop_ro(
          "arrays", [](nb::handle self) { return nb::cast<LoanObject&>(self).arrays(self); },
          nb::sig("def arrays(self) -> typing.Any"),
          "Read-only arrays over the memory. Raises :class:`ebbtide.Closed` once released.")
      .def("release", &LoanObject::release, nb::arg("keep") = false, nb::arg("stream") = nb::none(),
           nb::sig("def release(self, keep: bool = False, stream: ebbtide.types.Stream | None = None) -> None"),
           R"(Give it back, as soon as the last array over it is gone. Calling it twice is fine.

stream: on a GPU, the memory is reused only after this stream's present work; the host does not wait. Without it, that
of ``borrow``, else the one on which a library, or a call of the store's with ``stream``, took the memory.

Consumed, unless ``keep`` (here or when it was borrowed) or hinted again.)")
      .def(
          "__enter__", [](nb::handle self) { return nb::cast<LoanObject&>(self).arrays(self); },
          nb::sig("def __enter__(self) -> typing.Any"))
      .def(
          "__exit__",
          [](LoanObject& self, nb::handle type, nb::handle, nb::handle) { self.release(!type.is_none(), nb::none()); },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none(),
          nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"));
}

}  // namespace ebb::python
