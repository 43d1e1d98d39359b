#include <algorithm>
#include <cstring>

#include "capi/guard.hpp"

namespace ebb::capi {
namespace {

// Per thread; an array, because running out of memory must be reported too.
thread_local char last_message[1024] = "";

constexpr int number(Errc code) { return static_cast<int>(code); }
static_assert(number(Errc::ok) == EBB_OK);
static_assert(number(Errc::invalid_argument) == EBB_INVALID_ARGUMENT);
static_assert(number(Errc::version_exists) == EBB_VERSION_EXISTS);
static_assert(number(Errc::unknown_version) == EBB_UNKNOWN_VERSION);
static_assert(number(Errc::consumed) == EBB_CONSUMED);
static_assert(number(Errc::too_large) == EBB_TOO_LARGE);
static_assert(number(Errc::no_space) == EBB_NO_SPACE);
static_assert(number(Errc::size_mismatch) == EBB_SIZE_MISMATCH);
static_assert(number(Errc::timed_out) == EBB_TIMED_OUT);
static_assert(number(Errc::io_error) == EBB_IO_ERROR);
static_assert(number(Errc::lost) == EBB_LOST);
static_assert(number(Errc::dropped) == EBB_DROPPED);
static_assert(number(Errc::closed) == EBB_CLOSED);
static_assert(number(Errc::unsupported) == EBB_UNSUPPORTED);
static_assert(number(Errc::out_of_memory) == EBB_OUT_OF_MEMORY);
static_assert(number(Errc::damaged) == EBB_DAMAGED);
static_assert(number(Errc::in_use) == EBB_IN_USE);
static_assert(number(Errc::not_a_store) == EBB_NOT_A_STORE);
static_assert(number(Errc::not_permitted) == EBB_NOT_PERMITTED);
static_assert(number(Errc::suspended) == EBB_SUSPENDED);

}  // namespace

ebb_status fail(ebb_status status, const char* message) noexcept {
  const std::size_t length = std::min(std::strlen(message), sizeof last_message - 1);
  std::memmove(last_message, message, length);
  last_message[length] = '\0';
  return status;
}

ebb_status fail(const Error& error) noexcept {
  return fail(static_cast<ebb_status>(error.code), error.message.c_str());
}

}  // namespace ebb::capi

extern "C" {

const char* ebb_last_error(void) { return ebb::capi::last_message; }

const char* ebb_version(void) { return EBB_VERSION_TEXT; }

const char* ebb_status_name(ebb_status status) {
  if (status == EBB_INTERNAL) return "internal";
  if (status < EBB_OK || status > EBB_INTERNAL) return "unknown";
  return ebb::name_of(static_cast<ebb::Errc>(status)).data();  // literals: they end with a NUL
}
}
