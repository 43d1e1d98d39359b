#include "os/pages.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <initializer_list>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <memory>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

#include "os/memory_left.hpp"
#include "os/processors.hpp"
#include "tests/os/few_threads.hpp"

namespace ebb::os {
namespace {

TEST(Pages, are_aligned_zeroed_and_usable_to_the_last_byte) {
  for (const std::size_t bytes : std::initializer_list<std::size_t>{1, 4096, 5 << 20, (2 << 20) + 1}) {
    Result<std::byte*> mapped = map_pages(bytes);
    ASSERT_TRUE(mapped);
    std::byte* memory = *mapped;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % (bytes >= (2 << 20) ? 2 << 20 : 4096), 0u);
    EXPECT_EQ(memory[0], std::byte{0});
    EXPECT_EQ(memory[bytes - 1], std::byte{0});
    memory[0] = memory[bytes - 1] = std::byte{1};
    unmap_pages(memory, bytes);
  }
}

TEST(Pages, too_many_are_refused_by_name) {
  for (const std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX, std::size_t{0}}) {
    Result<std::byte*> mapped = map_pages(bytes);
    ASSERT_FALSE(mapped);
    EXPECT_EQ(mapped.error().code, Errc::out_of_memory);
    EXPECT_NE(mapped.error().message.find(std::to_string(bytes)), std::string::npos) << mapped.error().message;
  }
}

// How many pages of a range are present.
std::size_t present(std::byte* memory, std::size_t pages) {
  std::vector<unsigned char> states(pages);
  EXPECT_EQ(::mincore(memory, pages * 4096, states.data()), 0);
  return static_cast<std::size_t>(std::ranges::count_if(states, [](unsigned char state) { return state & 1; }));
}

// From now on the calling thread's madvise(MADV_POPULATE_WRITE) fails permanently with `error`. For children only.
void refuse_populate(int error) {
  std::array filter{
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_madvise, 0, 3),
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_POPULATE_WRITE, 0, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{filter.size(), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::_Exit(99);  // no filters here
  }
}

// Runs `test` in a child whose kernel refuses to populate. Returns its answer, or nothing without such filters.
std::optional<int> in_a_child(int error, const std::function<int()>& test) {
  const pid_t child = ::fork();
  if (child == 0) {
    refuse_populate(error);
    std::_Exit(test());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == 99) return {};
  return WEXITSTATUS(status);
}

TEST(Pages, are_touched_by_the_calling_thread_where_no_other_can_be_started) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs address space of its own for each thread";
#endif
  if (usable_processors() == 1) GTEST_SKIP() << "no other thread is wanted on one processor";
  constexpr std::size_t kBytes = std::size_t{128} << 20;
  std::byte* memory = map_pages(kBytes).value();
  {
    const FewThreads none(0);
    EXPECT_THROW(std::thread([] {}), std::system_error);
    EXPECT_NO_THROW(touch_pages(memory, kBytes));
  }
  EXPECT_EQ(present(memory, kBytes / 4096), kBytes / 4096);
  unmap_pages(memory, kBytes);
}

TEST(Populate, makes_pages_present_and_changes_nothing) {
  constexpr std::size_t kPages = 64;  // of 4096: fewer than a huge page, so that they can be distinguished
  std::byte* memory = map_pages(kPages * 4096).value();
  EXPECT_EQ(present(memory, kPages), 0u);
  memory[9 * 4096] = std::byte{5};
  populate(memory + 8 * 4096, 4 * 4096).value();
  EXPECT_EQ(present(memory, kPages), 4u);
  EXPECT_EQ(memory[9 * 4096], std::byte{5});
  populate(memory + 20 * 4096, 4097).value();
  EXPECT_EQ(present(memory, kPages), 6u) << "whole pages";
  EXPECT_TRUE(populate(memory, 0));
  populate(memory, kPages * 4096).value();
  EXPECT_EQ(present(memory, kPages), kPages);
  unmap_pages(memory, kPages * 4096);
}

TEST(Populate, memory_that_cannot_be_had_is_an_error_by_name) {
  std::byte* memory = map_pages(8 * 4096).value();
  unmap_pages(memory + 4 * 4096, 4 * 4096);
  const Result<void> gone = populate(memory, 8 * 4096);
  ASSERT_FALSE(gone);
  EXPECT_EQ(gone.error().code, Errc::out_of_memory);
  EXPECT_NE(gone.error().message.find("32768 bytes: ENOMEM"), std::string::npos) << gone.error().message;
  unmap_pages(memory, 4 * 4096);

  // What a write there would end the process for.
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> empty(std::tmpfile(), &std::fclose);
  void* beyond = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ::fileno(empty.get()), 0);
  ASSERT_NE(beyond, MAP_FAILED);
  const Result<void> fault = populate(static_cast<std::byte*>(beyond), 4096);
  ASSERT_FALSE(fault);
  EXPECT_EQ(fault.error().code, Errc::out_of_memory);
  EXPECT_NE(fault.error().message.find("EFAULT"), std::string::npos) << fault.error().message;
  ::munmap(beyond, 4096);
}

TEST(Populate, a_broken_page_is_an_error) {
  const std::optional<int> answer = in_a_child(EHWPOISON, [] {
    std::byte* memory = map_pages(4096).value();
    const Result<void> broken = populate(memory, 4096);
    return broken || broken.error().code != Errc::out_of_memory ? 1 : 0;
  });
  if (!answer) GTEST_SKIP() << "system calls cannot be filtered here";
  EXPECT_EQ(*answer, 0);
}

TEST(Populate, an_older_kernel_gets_a_write_to_each_page) {
  const std::optional<int> answer = in_a_child(EINVAL, [] {
    std::byte* memory = map_pages(16 * 4096).value();
    memory[3 * 4096] = std::byte{5};
    if (!populate(memory + 4096, 8 * 4096)) return 1;
    if (present(memory, 16) != 8) return 2;
    return memory[3 * 4096] == std::byte{5} && memory[4 * 4096] == std::byte{0} ? 0 : 3;
  });
  if (!answer) GTEST_SKIP() << "system calls cannot be filtered here";
  EXPECT_EQ(*answer, 0);
}

TEST(TouchIfLeft, makes_these_pages_present_and_keeps_what_they_hold) {
  std::byte* memory = map_pages(16 * 4096).value();
  memory[3 * 4096] = std::byte{5};
  touch_if_left(memory + 4096, 8 * 4096, 0).value();
  EXPECT_EQ(present(memory, 16), 8u);
  EXPECT_EQ(memory[3 * 4096], std::byte{5});
  EXPECT_EQ(memory[4 * 4096], std::byte{0});
  unmap_pages(memory, 16 * 4096);
}

TEST(TouchIfLeft, may_meet_a_writer_and_changes_nothing_of_what_it_writes) {
  constexpr std::size_t kPages = 4096;
  std::byte* memory = map_pages(kPages * 4096).value();
  std::jthread writer([&] { std::memset(memory, 7, kPages * 4096); });
  for (int round = 0; round < 20; ++round) touch_if_left(memory, kPages * 4096, 0).value();
  writer.join();
  EXPECT_TRUE(std::all_of(memory, memory + kPages * 4096, [](std::byte byte) { return byte == std::byte{7}; }));
  unmap_pages(memory, kPages * 4096);
}

TEST(TouchIfLeft, refuses_what_would_leave_the_system_without_memory) {
  std::byte* memory = map_pages(4096).value();
  const Result<void> refused = touch_if_left(memory, available_host_memory(), std::uint64_t{256} << 20);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_EQ(present(memory, 1), 0u);
  unmap_pages(memory, 4096);
}

TEST(TouchIfLeft, keeps_a_quarter_of_little_and_no_more_of_much) {
  EXPECT_EQ(memory_to_keep(0), 0u);
  EXPECT_EQ(memory_to_keep(200 << 20), 50u << 20);
  EXPECT_EQ(memory_to_keep(std::uint64_t{1} << 30), 256u << 20);
  EXPECT_EQ(memory_to_keep(std::uint64_t{1} << 40), 256u << 20);
}

TEST(TouchIfLeft, keeps_the_more_the_more_processes_there_are) {
  EXPECT_EQ(memory_to_keep(std::uint64_t{1} << 40, 4), 256u << 20);
  EXPECT_EQ(memory_to_keep(std::uint64_t{1} << 40, 64), std::uint64_t{4} << 30);
  EXPECT_EQ(memory_to_keep(std::uint64_t{8} << 30, 64), std::uint64_t{2} << 30);
  EXPECT_EQ(memory_to_keep(std::uint64_t{8} << 30, UINT64_MAX), std::uint64_t{2} << 30);
}

TEST(TouchIfLeft, refuses_what_would_leave_the_control_groups_without_memory) {
  std::byte* memory = map_pages(4096).value();
  const Result<void> refused = touch_if_left(memory, 4096, 1 << 20, 1 << 20);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_EQ(present(memory, 1), 0u);
  EXPECT_TRUE(touch_if_left(memory, 4096, 1 << 20, (1 << 20) + 4096));
  EXPECT_EQ(present(memory, 1), 1u);
  unmap_pages(memory, 4096);
}

TEST(HugePages, are_said_to_be_on_or_off_with_the_kernels_word) {
  const HugePages pages = huge_pages();
  EXPECT_THAT(pages.setting, ::testing::AnyOf("always", "madvise", "never", "unknown"));
  EXPECT_EQ(pages.on, pages.setting == "always" || pages.setting == "madvise");
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  if (!std::getline(file, line)) line = "[unknown]";
  EXPECT_NE(line.find("[" + pages.setting + "]"), std::string::npos) << line;
}

}  // namespace
}  // namespace ebb::os
