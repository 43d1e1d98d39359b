#pragma once
// The result of a system call: a count or descriptor, or an errno. Not an ebb::Error yet: only the caller knows whether
// EINTR, a short count or ENOSPC is one.
#include <cstdint>
#include <string>

#include "ebbtide/error.hpp"

namespace ebb::os {

struct [[nodiscard]] SysResult {
  std::int64_t value = 0;
  int error = 0;  // 0: none

  static SysResult of(std::int64_t value) noexcept { return {value, 0}; }
  static SysResult failed(int error) noexcept { return {-1, error}; }
  explicit operator bool() const noexcept { return error == 0; }
};

/// "ENOSPC (No space left on device)".
std::string describe_errno(int error);
/// no_space, out_of_memory, not_permitted, unsupported or else io_error.
Errc reason_of(int error) noexcept;
/// `what`, then the errno in words; its reason is that of the errno.
Error system_error(const std::string& what, int error);

}  // namespace ebb::os
