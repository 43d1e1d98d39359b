#pragma once
// Threads that the system may refuse.
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "ebbtide/error.hpp"

namespace ebb::base {

/// What a caller is told when std::thread throws.
inline Error no_thread(const std::system_error& error) {
  return {Errc::out_of_memory, std::string("a thread cannot be started: ") + error.what()};
}

/// A thread that does `work`. Error out_of_memory: the system gives no more.
template <class Work>
Result<std::thread> start_thread(Work&& work) {
  try {
    return std::thread(std::forward<Work>(work));
  } catch (const std::system_error& error) {
    return no_thread(error);
  }
}

}  // namespace ebb::base
