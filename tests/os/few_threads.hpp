#pragma once
#include <cstddef>
#include <fstream>
#include <pthread.h>
#include <sys/resource.h>

namespace ebb {

/// While it lives, only about this many threads can be started: no more stacks fit into the address space.
class FewThreads {
 public:
  explicit FewThreads(std::size_t threads) {
    constexpr std::size_t kStack = std::size_t{256} << 20;
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    ::getrlimit(RLIMIT_AS, &limit_);
    const rlimit few{pages * 4096 + threads * kStack + kStack / 2, limit_.rlim_max};
    ::setrlimit(RLIMIT_AS, &few);
    pthread_getattr_default_np(&stack_);
    pthread_attr_t large = stack_;
    pthread_attr_setstacksize(&large, kStack);
    pthread_setattr_default_np(&large);
  }
  FewThreads(const FewThreads&) = delete;
  ~FewThreads() {
    pthread_setattr_default_np(&stack_);
    ::setrlimit(RLIMIT_AS, &limit_);
  }

 private:
  pthread_attr_t stack_;
  rlimit limit_;
};

}  // namespace ebb
