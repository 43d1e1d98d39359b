#pragma once
// Calls that may wait, and what must happen however they end.
#include <exception>
#include <optional>
#include <utility>

#include "ebbtide/machine.hpp"
#include "errors.hpp"
#include "objects.hpp"

namespace ebb::python {

/// Runs `call` without the GIL; a signal handler's exception takes precedence over the call's own result. Before either
/// is raised, `after` gets the result (null: the call threw), because copies may be on a stream by then.
template <class Call, class After>
auto waiting(StoreState& state, Signals& signals, Call call, After after) {
  std::optional<decltype(call())> result;
  std::exception_ptr thrown;
  {
    Unlocked unlocked(state.inside());
    try {
      result.emplace(call());
    } catch (...) {
      thrown = std::current_exception();
    }
  }
  after(result ? &*result : nullptr);
  // A signal at the end of a successful call undoes nothing, but its exception is raised all the same.
  signals.rethrow();
  if (thrown) std::rethrow_exception(thrown);
  return check(std::move(*result));
}

template <class Call>
auto waiting(StoreState& state, Signals& signals, Call call) {
  return waiting(state, signals, std::move(call), [](auto*) {});
}

/// Whether copies may be on the stream: not when the stream itself was refused.
template <class T>
bool begun(const Result<T>* result) {
  if (result == nullptr || *result) return true;
  return result->error().code != Errc::unsupported && result->error().code != Errc::invalid_argument;
}

/// machine::finish(), without the GIL.
inline Result<void> finish(StoreState& state, int gpu, StreamHandle stream) {
  Unlocked unlocked(state.inside());
  return machine::finish(gpu, stream);
}

}  // namespace ebb::python
