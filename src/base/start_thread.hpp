#pragma once
// Threads that the system may refuse.
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "ebbtide/error.hpp"

namespace ebb::base {

/// The system gives no more threads.
struct ThreadRefused : std::system_error {
  using std::system_error::system_error;
};

/// The error that a caller gets for it.
inline Error no_thread(const ThreadRefused& refused) {
  return {Errc::out_of_memory, std::string("a thread cannot be started: ") + refused.what()};
}

/// A thread that does `work`, for constructors, and what else has no Result. Throws ThreadRefused: the system gives no
/// more. Whoever returns a Result to others catches that.
template <class Work>
std::thread thread(Work&& work) {
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    throw ThreadRefused(error.code());
  }
}

/// A thread that does `work`. Error out_of_memory: the system gives no more.
template <class Work>
Result<std::thread> start_thread(Work&& work) {
  try {
    return thread(std::forward<Work>(work));
  } catch (const ThreadRefused& refused) {
    return no_thread(refused);
  }
}

}  // namespace ebb::base
