#pragma once
// The futures whose end somebody wants to be told of.
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <nanobind/nanobind.h>
#include <unordered_set>

namespace ebb::python {

namespace nb = nanobind;

/// Of one store. ebbtide/_futures.py has the thread that takes them.
///
/// Thread safety: every method may be called from any thread, with the GIL; what `watch` returns may be destroyed on
/// any thread, with it or without. The mutex is held for no call of Python's, and by none that waits for the GIL.
class Endings : public std::enable_shared_from_this<Endings> {
 public:
  /// Destroying what this returns says that the future has ended. Null: the store is closed, and so all of them have.
  std::shared_ptr<const void> watch(nb::handle future);
  /// Waits without the GIL for the next future that has ended, and calls `take` with it. What that raises is reported
  /// as unraisable, SystemExit too. False: closed, and all were given.
  bool give(nb::handle take);
  /// All that are watched count as ended.
  void close();

 private:
  void end(PyObject* future);
  nb::object next();  // null: closed, and all were given

  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_set<PyObject*> watched_;  // both own a reference to each
  std::deque<PyObject*> ended_;
  bool closed_ = false;
};

}  // namespace ebb::python
