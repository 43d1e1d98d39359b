#pragma once
// Calls that may wait, and what is to be seen to however they end.
#include <exception>
#include <optional>
#include <utility>

#include "device/cuda.hpp"
#include "errors.hpp"
#include "objects.hpp"

namespace ebb::python {

/// Runs `call` without the GIL; a signal handler's exception goes before the call's own end. Before either is raised,
/// `after` sees the result (null: it threw): copies may be on a stream by then.
template <class Call, class After>
auto waiting(State& state, Signals& signals, Call call, After after) {
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
  // A call that ended well is not undone by a signal that came at its end: its exception is raised all the same.
  signals.rethrow();
  if (thrown) std::rethrow_exception(thrown);
  return check(std::move(*result));
}

template <class Call>
auto waiting(State& state, Signals& signals, Call call) {
  return waiting(state, signals, std::move(call), [](auto*) {});
}

/// Whether copies may be on the stream: not when it was refused itself.
template <class T>
bool begun(const Result<T>* result) {
  if (result == nullptr || *result) return true;
  return result->error().code != Errc::unsupported && result->error().code != Errc::invalid_argument;
}

/// Returns when the stream of that GPU has done what is on it, or when the whole GPU has, where the stream cannot be
/// waited for. Error unsupported, at once, when it is being captured; invalid_argument when it is another GPU's.
inline Result<void> finish(State& state, int gpu, StreamHandle stream) {
  Unlocked unlocked(state.inside());
  if (stream == 0) stream = platform::kLegacyStream;
  const auto device = platform::make_cuda_device(gpu);
  if (!device) return device.error();
  const std::string name = "cuda:" + std::to_string(gpu);
  if ((*device)->capturing(stream)) {
    return Error{Errc::unsupported,
                 "a stream of " + name +
                     " is being captured into a graph, and this call would wait for it: call outside the capture"};
  }
  if ((*device)->foreign(stream)) {
    return Error{Errc::invalid_argument, "an array on " + name + " names a stream of another GPU"};
  }
  const auto event = (*device)->create_event();
  Result<void> done = event ? (*device)->record(*event, stream) : Result<void>(event.error());
  if (done) done = (*device)->wait(*event);
  if (event) (*device)->destroy_event(*event);
  if (!done) static_cast<void>(static_cast<bool>((*device)->synchronize()));
  return done;
}

}  // namespace ebb::python
