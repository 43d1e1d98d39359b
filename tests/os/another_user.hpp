#pragma once
// A child that is another user, or in a container that refuses userfaultfd.
#include <cerrno>
#include <cstddef>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/os/watched_memory.hpp"

namespace ebb::os::testing {

inline bool become_nobody() {
  constexpr unsigned kNobody = 65534;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
         ::setresuid(kNobody, kNobody, kNobody) == 0 &&
         ::prctl(PR_SET_DUMPABLE, 1) == 0;  // or its /proc is closed to it
}

// in_child(), as the user "nobody".
inline int as_nobody(const std::function<int()>& steps) {
  return in_child([&] { return become_nobody() ? steps() : 101; });
}

// From now on userfaultfd fails with `error`, as in a container whose filter of system calls refuses it.
inline bool refuse_userfaultfd(int error) {
  sock_filter steps[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{4, steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// read() of one byte to `at`: 0, or its errno.
inline int read_into(std::byte* at) {
  int ends[2];
  if (::pipe(ends) != 0 || ::write(ends[1], "x", 1) != 1) return -1;
  const int error = ::read(ends[0], at, 1) == 1 ? 0 : errno;
  ::close(ends[0]);
  ::close(ends[1]);
  return error;
}

}  // namespace ebb::os::testing
