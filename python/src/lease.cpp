// Reservation and Loan: NumPy arrays over the device cache's own memory.

#include <stdexcept>

#include "errors.hpp"
#include "objects.hpp"

namespace ebb::python {
namespace {

Lent& lent_of(PyObject* self) {
  if (nb::isinstance<ReservationObject>(nb::handle(self))) return *nb::inst_ptr<ReservationObject>(nb::handle(self));
  return *nb::inst_ptr<LoanObject>(nb::handle(self));
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Lent& lent = lent_of(self);
  if (lent.ended()) {
    PyErr_SetString(PyExc_BufferError, "the memory was given back to the store");
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

}  // namespace

void Lent::require_open(const char* what) const {
  state_->check();
  if (ended_)
    raise(Errc::closed, std::string(what) + " of version " + std::to_string(version_) +
                            " has ended: its memory is the store's again");
}

nb::object Lent::array(nb::handle self) {
  require_open(writable() ? "the reservation" : "the loan");
  nb::object array = array_over(self, dtype_, shape_);
  views_.push_back(nb::steal(PyWeakref_NewRef(array.ptr(), nullptr)));
  return array;
}

// --- Reservation

ReservationObject::ReservationObject(std::shared_ptr<State> state, Version version, std::string dtype,
                                     std::vector<std::int64_t> shape, ebb::Reservation reservation)
    : Lent(std::move(state), version, std::move(dtype), std::move(shape)),
      mapping_(reservation.mapping()),
      reservation_(std::move(reservation)) {}

ReservationObject::~ReservationObject() { leak_if_foreign(*state_, reservation_); }

// Arrays may outlive the reservation. They keep the memory mapped, and writing through those handed out raises.
void ReservationObject::end() {
  ended_ = true;
  for (const auto& view : views_) {
    nb::object array = view();
    if (!array.is_none()) array.attr("flags").attr("writeable") = false;
  }
  views_.clear();
}

void ReservationObject::commit() {
  require_open("the reservation");
  end();
  ebb::python::check(reservation_.commit());
}

void ReservationObject::abandon() {
  state_->check();
  if (ended_) return;
  end();
  reservation_.abandon();
}

// --- Loan

LoanObject::LoanObject(std::shared_ptr<State> state, Version version, const Layout& layout,
                       std::vector<RegionInfo> regions, ebb::Loan loan, bool keep)
    : Lent(std::move(state), version, {}, {}),
      layout_(layout),
      regions_(std::move(regions)),
      keep_(keep),
      loan_(std::move(loan)) {}

LoanObject::~LoanObject() { leak_if_foreign(*state_, loan_); }

void LoanObject::release(bool keep) {
  state_->check();
  if (ended_) return;
  ended_ = true;
  keep_ |= keep;
  if (exports == 0) {
    given_back_ = true;
    ebb::python::check(loan_.release(keep_));
  }
}

void LoanObject::last_view_gone() {
  if (!ended_ || given_back_ || state_->foreign()) return;
  given_back_ = true;
  // Nobody is left to be told of a failure (the store is closed, at worst): the memory is given back in any case, and a
  // contract that breaks here is thrown by the next call on the store.
  try {
    static_cast<void>(static_cast<bool>(loan_.release(keep_)));
  } catch (const std::logic_error&) {
  }
}

nb::object LoanObject::arrays(nb::handle self) {
  require_open("the loan");
  nb::object whole = array_over(self, "|u1", {static_cast<std::int64_t>(bytes())});
  Bundle bundle;
  bundle.structure = layout_.structure;
  bundle.keys = layout_.keys;
  nb::object part = nb::module_::import_("ebbtide._arrays").attr("part_of");
  for (std::size_t i = 0; i < layout_.leaves.size(); ++i) {
    const auto& type = layout_.leaves[i];
    nb::list dims;
    for (const auto dim : type.shape) dims.append(dim);
    Leaf leaf;
    leaf.array = part(whole, regions_[i].offset, regions_[i].bytes, type.dtype, nb::tuple(dims));
    bundle.leaves.push_back(std::move(leaf));
  }
  return assemble(bundle);
}

void bind_lease(nb::module_& module) {
  nb::class_<ReservationObject>(
      module, "Reservation", nb::type_slots(buffer_slots), nb::is_weak_referenceable(),
      R"(Memory inside the device cache to compute into; :meth:`commit` makes it the checkpoint.

As a context manager it gives the array, commits when the block ends and abandons when it ends by an exception. From
then on the memory is the store's: it stays mapped while an array of it lives, the arrays handed out become read-only,
and what they show means nothing.)")
      .def_prop_ro(
          "array", [](nb::handle self) { return nb::cast<ReservationObject&>(self).array(self); },
          nb::sig("def array(self) -> ebbtide.types.NumPyArray"),
          "A writable array over the memory. Raises :class:`ebbtide.Closed` once committed or abandoned.")
      .def("commit", &ReservationObject::commit,
           R"(What lies in the memory is the checkpoint from now on.

Raises :class:`ebbtide.Closed` when committed or abandoned already.)")
      .def("abandon", &ReservationObject::abandon,
           "Forget the version as if it had never been reserved. Twice is fine.")
      .def(
          "__enter__", [](nb::handle self) { return nb::cast<ReservationObject&>(self).array(self); },
          nb::sig("def __enter__(self) -> ebbtide.types.NumPyArray"))
      .def(
          "__exit__",
          [](ReservationObject& self, nb::handle type, nb::handle, nb::handle) {
            if (!type.is_none()) return self.abandon();
            if (!self.ended()) self.commit();
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none(),
          nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"));

  nb::class_<LoanObject>(module, "Loan", nb::type_slots(buffer_slots), nb::is_weak_referenceable(),
                         R"(The cached checkpoint itself, read-only.

As a context manager it gives the arrays in the structure in which they were written. When the block has ended *and*
no array over the memory is left, it is given back and the checkpoint is consumed (kept, when the block ended by an
exception): until then the memory stays as it is, so that no view of it ever shows another checkpoint. ``del`` the last
array to give it back at once.)")
      .def_prop_ro(
          "arrays", [](nb::handle self) { return nb::cast<LoanObject&>(self).arrays(self); },
          nb::sig("def arrays(self) -> typing.Any"),
          "Read-only arrays over the memory. Raises :class:`ebbtide.Closed` once released.")
      .def("release", &LoanObject::release, nb::arg("keep") = false,
           R"(Give it back, as soon as the last array over it is gone. Twice is fine.

Consumed, unless ``keep`` (here or when it was borrowed) or hinted again.)")
      .def(
          "__enter__", [](nb::handle self) { return nb::cast<LoanObject&>(self).arrays(self); },
          nb::sig("def __enter__(self) -> typing.Any"))
      .def(
          "__exit__",
          [](LoanObject& self, nb::handle type, nb::handle, nb::handle) { self.end_block(!type.is_none()); },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none(),
          nb::sig("def __exit__(self, type: object, value: object, traceback: object) -> None"));
}

}  // namespace ebb::python
