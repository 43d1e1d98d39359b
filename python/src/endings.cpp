#include "endings.hpp"

namespace ebb::python {

std::shared_ptr<const void> Endings::watch(nb::handle future) {
  const std::lock_guard lock(mutex_);
  if (closed_) return nullptr;
  watched_.insert(future.inc_ref().ptr());
  return {future.ptr(), [of = shared_from_this(), future = future.ptr()](const void*) { of->end(future); }};
}

void Endings::end(PyObject* future) {
  const std::lock_guard lock(mutex_);
  if (watched_.erase(future) == 0) return;  // close() has given it
  ended_.push_back(future);
  changed_.notify_one();
}

nb::object Endings::next() {
  PyObject* future = nullptr;
  {
    nb::gil_scoped_release unlocked;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !ended_.empty(); });
    if (!ended_.empty()) {
      future = ended_.front();
      ended_.pop_front();
    }
  }
  return nb::steal(future);
}

bool Endings::give(nb::handle take) {
  const nb::object future = next();
  if (!future.is_valid()) return false;
  try {
    take(future);
  } catch (nb::python_error& raised) {
    raised.discard_as_unraisable("the end of a future");
  }
  return true;
}

void Endings::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  ended_.insert(ended_.end(), watched_.begin(), watched_.end());
  watched_.clear();
  changed_.notify_all();
}

}  // namespace ebb::python
