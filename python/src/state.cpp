#include "state.hpp"

#include <algorithm>
#include <functional>
#include <mutex>
#include <nanobind/stl/shared_ptr.h>
#include <unistd.h>

#include "errors.hpp"

namespace ebb::python {

namespace {

// Leases that have ended. Never destroyed: stores may end after it.
struct Ended {
  std::mutex mutex;
  std::vector<std::shared_ptr<Held>> held;
  bool asked = false;  // the main thread will sweep
};
Ended& ended_lent() {
  static Ended* const ended = new Ended;
  return *ended;
}

}  // namespace

std::shared_ptr<const void> lend(std::shared_ptr<Held> held) {
  const void* const memory = held.get();
  return {memory, [held = std::move(held)](const void*) mutable {
            Ended& ended = ended_lent();
            bool ask = false;
            {
              std::lock_guard lock(ended.mutex);
              ended.held.push_back(std::move(held));
              ask = !std::exchange(ended.asked, true);
            }
            const auto sweep = [](void*) {
              sweep_lent();
              return 0;
            };
            if (ask && Py_AddPendingCall(sweep, nullptr) != 0) {
              std::lock_guard lock(ended.mutex);
              ended.asked = false;
            }
          }};
}

void sweep_lent() {
  Ended& ended = ended_lent();
  std::vector<std::shared_ptr<Held>> gone;  // destroyed without the mutex: that may run any Python code
  {
    std::lock_guard lock(ended.mutex);
    ended.asked = false;
    gone.swap(ended.held);
  }
}

StoreState::StoreState(ebb::Store store, std::string_view durability)
    : store_(std::make_unique<ebb::Store>(std::move(store))),
      pid_(getpid()),
      gpu_(store_->gpu().value_or(-1)),
      durability_(durability) {
  future_type_ = nb::module_::import_("ebbtide._futures").attr("Future");
}

StoreState::~StoreState() {
  if (foreign()) {
    (void)store_.release();
    (void)protected_.release();
    for (auto& pending : pending_) new Pending(std::move(pending));
    (void)watcher_.release();
    new std::shared_ptr<Endings>(std::move(endings_));  // its thread, which does not exist here, waits in it
    return;
  }
  {
    nb::gil_scoped_release unlocked;  // closing waits for transfers in flight
    store_.reset();
  }
  try {
    end_futures();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("the end of a store");
  }
  pending_.clear();
  sweep_lent();
}

bool StoreState::foreign() const { return getpid() != pid_; }

void StoreState::check() const {
  if (!foreign()) return;
  raise(Errc::unsupported,
        "this store was opened by process " + std::to_string(pid_) + " and process " + std::to_string(getpid()) +
            " was forked from it: a fork shares neither its threads nor its files; open a store of its own");
}

void StoreState::admit() {
  check();
  if (!suspends_) return;
  Signals signals;
  const auto admitted = [&] {
    Unlocked unlocked(inside_);
    return store_->check_suspended(signals.interrupt());
  }();
  signals.rethrow();
  ebb::python::check(admitted);
}

void StoreState::suspend_on(int signal, const SuspendOptions& options) {
  check();
  ebb::python::check(store_->suspend_on(signal, options));
  suspends_ = true;
}

bool StoreState::Pending::ended() const {
  try {
    return future.done(level);
  } catch (const BadResult&) {
    return true;  // dropped or lost: it never happens
  }
}

void StoreState::keep(ebb::Future future, std::shared_ptr<Held> held, std::optional<const char*> level) {
  sweep();
  pending_.push_back({std::move(future), std::move(held), level});
}

void StoreState::sweep() {
  sweep_lent();
  if (pending_.empty()) return;
  // Releasing arrays may run any Python code, which may come back here: complete the list first.
  std::vector<Pending> ended;
  std::erase_if(pending_, [&](Pending& pending) {
    const bool done = pending.ended();
    if (done) ended.push_back(std::move(pending));
    return done;
  });
}

void StoreState::protect(std::unique_ptr<Bundle> arrays) {
  protected_ = std::move(arrays);
  by_address_.clear();
  if (!protected_) return;
  const std::vector<Leaf>& leaves = protected_->leaves;
  for (std::uint32_t i = 0; i < leaves.size(); ++i)
    if (leaves[i].bytes > 0) by_address_.push_back(i);
  std::ranges::sort(by_address_, std::ranges::less(), [&](std::uint32_t i) { return leaves[i].data; });
}

std::optional<std::uint32_t> StoreState::protected_before(std::uintptr_t address) const {
  const auto address_of = [&](std::uint32_t i) { return reinterpret_cast<std::uintptr_t>(protected_->leaves[i].data); };
  const auto after = std::ranges::upper_bound(by_address_, address, {}, address_of);
  if (after == by_address_.begin()) return {};
  return *(after - 1);
}

Endings& StoreState::endings() {
  if (!endings_) {
    auto endings = std::make_shared<Endings>();
    nb::object watcher = nb::module_::import_("ebbtide._futures").attr("Watcher")(endings);
    if (endings_) return *endings_;  // made in between: by another thread, or by a signal handler
    endings_ = std::move(endings);
    watcher_ = std::move(watcher);
    try {
      nb::object(watcher_).attr("start")();
    } catch (const nb::python_error&) {  // there are too many threads
      endings_.reset();
      watcher_.reset();
      throw;
    }
  }
  return *endings_;
}

void StoreState::end_futures() {
  if (endings_) watcher_.attr("finish")();
}

void StoreState::close() {
  if (foreign()) return;
  Signals signals;
  const auto closed = [&] {
    Unlocked unlocked(inside_);
    return store_->close(signals.interrupt());
  }();
  sweep();
  if (!signals.raised()) {  // interrupted, the store is open
    protect(nullptr);
    end_futures();
  }
  signals.rethrow();
  ebb::python::check(closed);
}

}  // namespace ebb::python
