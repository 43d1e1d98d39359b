#pragma once
// Every C call runs inside `guarded`: failures become codes and a message, and no exception escapes.
#include <exception>
#include <new>
#include <stdexcept>

#include "ebbtide/ebbtide.h"
#include "ebbtide/error.hpp"

namespace ebb::capi {

/// Stores the message for ebb_last_error() (its first 1,023 bytes: there may be no memory for more) and returns
/// `status`.
ebb_status fail(ebb_status status, const char* message) noexcept;
ebb_status fail(const Error& error) noexcept;
inline ebb_status refuse(const char* message) noexcept { return fail(EBB_INVALID_ARGUMENT, message); }

template <class T>
ebb_status status_of(const Result<T>& result) noexcept {
  return result ? EBB_OK : fail(result.error());
}

template <class Body>
ebb_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const BadResult& bad) {
    return fail(bad.error());
  } catch (const std::bad_alloc&) {
    return fail(EBB_OUT_OF_MEMORY, "no memory left for the call itself");
  } catch (const std::invalid_argument& wrong) {
    return fail(EBB_INVALID_ARGUMENT, wrong.what());
  } catch (const std::exception& bug) {
    return fail(EBB_INTERNAL, bug.what());
  } catch (...) {
    return fail(EBB_INTERNAL, "something that is no std::exception was thrown");
  }
}

}  // namespace ebb::capi
