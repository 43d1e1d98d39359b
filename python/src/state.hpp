#pragma once
// What Store, History, Future, Reservation and Loan of one open store share in Python.
#include <atomic>
#include <memory>
#include <nanobind/nanobind.h>
#include <string_view>
#include <vector>

#include "blocking.hpp"
#include "ebbtide/store.hpp"
#include "endings.hpp"
#include "layout.hpp"

namespace ebb::python {

/// The arrays that a background transfer reads or writes, kept until it ends. Destroyed with the GIL only.
struct Held {
  Bundle bundle;
  nb::object arrays;  ///< what `result()` gives
};

/// Keeps `held` alive until the last copy of what this returns is gone. That may end on any thread, with the GIL or
/// without; `held` is destroyed with it, in the main thread or in the next call of a store.
std::shared_ptr<const void> lend(std::shared_ptr<Held> held);
/// Destroys what was lent and has ended. Needs the GIL.
void sweep_lent();

/// Thread safety: every member is used under the GIL, except `inside`, an atomic.
/// 1. A forked child touches nothing: `check` refuses, destructors leak.
/// 2. `pending` holds each background restore that may still write into arrays, and each checkpoint that may still read
///    memory that its producer lent until the copy, so that the arrays outlive their Future.
class StoreState {
 public:
  /// `durability`: its name, or "readonly".
  StoreState(ebb::Store store, std::string_view durability);
  ~StoreState();
  StoreState(const StoreState&) = delete;

  ebb::Store& store() { return *store_; }
  std::atomic<int>& inside() { return inside_; }
  /// Refuses a forked child, by name.
  void check() const;
  /// The same, and a suspended store, for calls of the program that do more than look. While the store is being
  /// suspended this waits, and runs signal handlers.
  void admit();
  /// `signal` suspends the store from now on.
  void suspend_on(int signal, const SuspendOptions& options);
  bool foreign() const;             ///< in a forked child
  int gpu() const { return gpu_; }  ///< -1: the store's device is host memory
  std::string_view durability() const { return durability_; }
  bool kept() const { return durability_ != "ephemeral"; }  ///< the store is persistent
  Kinds& kinds() { return kinds_; }                         ///< of the objects that this store was given
  nb::handle future_type() const { return future_type_; }
  /// Those of this store's futures; the first call starts the thread that takes them.
  Endings& endings();
  /// Keeps the arrays of a background restore until it ends, or (`level`) of a checkpoint until that tier has it.
  void keep(ebb::Future future, std::shared_ptr<Held> held, std::optional<const char*> level = {});
  void sweep();  ///< releases what has ended
  /// The arrays that snapshots are of, kept until they are replaced, or the store is closed. Null: none.
  const Bundle* protected_arrays() const { return protected_.get(); }
  void protect(std::unique_ptr<Bundle> arrays);
  /// The last protected array that begins at this address or before it. None: each begins behind it.
  std::optional<std::uint32_t> protected_before(std::uintptr_t address) const;
  /// Ends every transfer; waiting calls end with `closed`. Calling it twice is fine. A signal handler's exception
  /// interrupts it: the store stays open and nothing is lost.
  void close();

 private:
  struct Pending {
    ebb::Future future;
    std::shared_ptr<Held> held;
    std::optional<const char*> level;
    bool ended() const;
  };
  void end_futures();  // of the closed store
  std::unique_ptr<ebb::Store> store_;
  nb::object future_type_;
  std::shared_ptr<Endings> endings_;
  nb::object watcher_;  // their thread
  std::vector<Pending> pending_;
  std::unique_ptr<Bundle> protected_;
  std::vector<std::uint32_t> by_address_;  ///< of the protected arrays, those that have bytes
  Kinds kinds_;
  std::atomic<int> inside_{0};
  bool suspends_ = false;  ///< suspend_on was called
  long pid_;
  int gpu_ = -1;
  std::string_view durability_;
};

/// In a forked child, `thing` is never destroyed: its destructor would wait for threads that do not exist there.
template <class T>
void leak_if_foreign(const StoreState& state, T& thing) {
  if (state.foreign()) new T(std::move(thing));
}

}  // namespace ebb::python
