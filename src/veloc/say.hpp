#pragma once
// What a program is told: a line on stderr for each failure, and whether the call succeeded.
#include <exception>
#include <string>

#include "ebbtide/error.hpp"

namespace ebb::veloc {

/// "VELOC: Checkpoint_end: ...", in one line.
void say(const char* call, const std::string& message) noexcept;

/// Runs a call's body. What it answers or throws as a failure is told; no exception escapes.
template <class Body>
bool guarded(const char* call, Body&& body) noexcept {
  try {
    const Result<void> done = body();
    if (!done) say(call, done.error().message);
    return static_cast<bool>(done);
  } catch (const std::exception& failure) {
    say(call, failure.what());
  } catch (...) {
    say(call, "something that is no std::exception was thrown");
  }
  return false;
}

}  // namespace ebb::veloc
