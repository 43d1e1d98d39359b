// Each system call of a store's threads refused by a filter, at each moment: the program gets errors, and never ends.
#include "tests/os/refused_calls.hpp"

#include <barrier>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "kept_rig.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

struct Call {
  const char* name;
  long number;
};
constexpr Call kCalls[] = {
    {"io_uring_enter", SYS_io_uring_enter},
    {"io_uring_setup", SYS_io_uring_setup},
    {"pread64", SYS_pread64},
    {"pwrite64", SYS_pwrite64},
    {"fdatasync", SYS_fdatasync},
    {"fsync", SYS_fsync},
    {"fallocate", SYS_fallocate},
    {"ftruncate", SYS_ftruncate},
    {"madvise", SYS_madvise},
    {"mprotect", SYS_mprotect},
    {"openat", SYS_openat},
    {"newfstatat", SYS_newfstatat},
    {"poll", SYS_poll},
    {"eventfd2", SYS_eventfd2},
    {"rename", SYS_rename},
    {"getdents64", SYS_getdents64},
    {"sched_setaffinity", SYS_sched_setaffinity},
};
enum class Moment { before_open, after_open, while_writing, before_close };

// Whatever each call answers, bytes that a restore hands out are right. The exit status says what was not.
int use(Backend backend, const std::filesystem::path& directory, const Call& call, int error, Moment moment) {
  constexpr int kNoFilter = 77;
  Rig rig(backend);
  rig.setup().directory = directory;
  rig.setup().durability = Durability::storage;
  rig.setup().machine.ephemeral = false;
  Lines lines;
  rig.setup().log = lines.sink();
  rig.setup().close_timeout = Seconds(0.5);
  bool filtered = false;
  const auto refuse_at = [&](Moment now) {
    if (now == moment) filtered = os::testing::refuse_call(call.number, error);
    return now != moment || filtered;
  };
  if (!refuse_at(Moment::before_open)) return kNoFilter;
  auto engine = Engine::open(rig.seams(), rig.setup());
  if (!engine) return engine.error().message.empty() ? 1 : 0;
  {
    auto store = Engine::store_over(*engine);
    if (!refuse_at(Moment::after_open)) return kNoFilter;
    for (Version version = 0; version < 6; ++version) {
      if (version == 3 && !refuse_at(Moment::while_writing)) return kNoFilter;
      const auto written = write(store, version, kSize, {.timeout = Seconds(0.1)});
      if (!written && written.error().message.empty()) return 2;
    }
    for (Version version = 0; version < 6; ++version) {
      static_cast<void>(static_cast<bool>(store.wait(version, "storage", Seconds(0.1))));
      std::vector<std::byte> bytes(kSize);
      const auto got = store.restore(version, {{0, bytes.data(), kSize}}, {.timeout = Seconds(0.1)});
      if (got && bytes != bytes_of(version, kSize)) return 3;
      if (!got && got.error().message.empty()) return 4;
    }
    if (!refuse_at(Moment::before_close)) return kNoFilter;
    static_cast<void>(static_cast<bool>(store.close()));
  }
  return 0;
}

// No exception leaves it for GoogleTest, which would go on with the tests that follow.
[[noreturn]] void use_and_end(Backend backend, const std::filesystem::path& directory, const Call& call, int error,
                              Moment moment) {
  try {
    std::_Exit(use(backend, directory, call, error, moment));
  } catch (const std::exception& thrown) {
    std::fprintf(stderr, "%s\n", thrown.what());
    std::_Exit(5);
  }
}

class RefusedCalls : public ::testing::TestWithParam<Call> {};

TEST_P(RefusedCalls, AreErrorsAndEndNoProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer makes system calls of its own";
#endif
  for (const Backend backend : {Backend::threads, Backend::uring}) {
    for (const Moment moment : {Moment::before_open, Moment::after_open, Moment::while_writing, Moment::before_close}) {
      for (const int error : {EPERM, ENOSYS, EIO}) {
        const OwnDirectory directory;
        const pid_t child = ::fork();
        if (child == 0) use_and_end(backend, directory.path(), GetParam(), error, moment);
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filters of system calls here";
        EXPECT_EQ(status, 0) << "backend " << static_cast<int>(backend) << ", moment " << static_cast<int>(moment)
                             << ", errno " << error;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, RefusedCalls, ::testing::ValuesIn(kCalls),
                         [](const auto& info) { return std::string(info.param.name); });

// A thread gets the stack of one that has ended. Without such a stack, it needs the call that is refused.
void leave_stacks(std::size_t many) {
  pthread_attr_t attributes;
  pthread_getattr_default_np(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{256} << 10);
  pthread_setattr_default_np(&attributes);
  std::barrier together(static_cast<std::ptrdiff_t>(many) + 1);
  std::vector<std::jthread> threads;
  for (std::size_t n = 0; n < many; ++n) threads.emplace_back([&] { together.arrive_and_wait(); });
  together.arrive_and_wait();
}

TEST(NoThreads, WhicheverOfAStoresThreadsIsRefusedNoExceptionLeavesIt) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer makes system calls of its own";
#endif
  for (const Backend backend : {Backend::threads, Backend::uring}) {
    for (std::size_t stacks = 0; stacks < 24; ++stacks) {
      const OwnDirectory directory;
      const pid_t child = ::fork();
      if (child == 0) {
        leave_stacks(stacks);
        use_and_end(backend, directory.path(), {"mprotect", SYS_mprotect}, EPERM, Moment::before_open);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filters of system calls here";
      EXPECT_EQ(status, 0) << "backend " << static_cast<int>(backend) << ", " << stacks << " threads";
    }
  }
}

}  // namespace
}  // namespace ebb::store
