// calls_program DIR OUTSIDE: makes every call that is deferred, for files below DIR and for files outside, and prints
// for each how often the kernel got it. It counts them with a seccomp filter's traps: a call that reaches the kernel
// raises SIGSYS, whose handler counts it and says that it succeeded. Without OUTSIDE: one fsync for each line of stdin.
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

namespace {

volatile sig_atomic_t reached = 0;

void on_trap(int, siginfo_t*, void* context) {
  reached = reached + 1;
#if defined(__x86_64__)
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = 0;
#elif defined(__aarch64__)
  static_cast<ucontext_t*>(context)->uc_mcontext.regs[0] = 0;
#endif
}

void trap_syncs() {
  struct sigaction action{};
  action.sa_sigaction = on_trap;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSYS, &action, nullptr);
  std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long call : {SYS_fsync, SYS_fdatasync, SYS_sync, SYS_syncfs, SYS_sync_file_range}) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  }
  // msync(MS_SYNC) alone: its other forms do not wait.
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_msync, 0, 3));
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 16));
  filter.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MS_SYNC, 0, 1));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::exit(3);
  }
}

void report(const char* name, int result) {
  std::printf("%s %d%s\n", name, static_cast<int>(reached), result == 0 ? "" : " failed");
  reached = 0;
}

void syncing(const char* name, int fd) {
  std::printf("%s %s\n", name, fd >= 0 && (::fcntl(fd, F_GETFL) & O_DSYNC) ? "syncs" : fd >= 0 ? "does not" : "failed");
}

void each(const std::string& directory) {
  const std::string path = directory + "/file";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  const int folder = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY);
  if (::ftruncate(fd, 8192) != 0) std::exit(3);
  report("fsync", ::fsync(fd));
  report("fdatasync", ::fdatasync(fd));
  report("syncfs", ::syncfs(fd));
  report("sync_file_range", ::sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
  report("fsync of the directory", ::fsync(folder));
  const int copy = ::dup2(fd, 200);
  report("fsync of a copy", ::fsync(copy));
  void* const at = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  static_cast<volatile char*>(at)[0] = 1;
  report("msync", ::msync(at, 8192, MS_SYNC));
  report("msync of one page", ::msync(static_cast<char*>(at) + 4096, 4096, MS_SYNC | MS_INVALIDATE));
  syncing("open", ::open(path.c_str(), O_RDWR | O_SYNC));
  syncing("open64", ::open64(path.c_str(), O_RDWR | O_SYNC));
  syncing("openat", ::openat(folder, "new", O_WRONLY | O_CREAT | O_DSYNC, 0400));
  syncing("openat64", ::openat64(folder, "file", O_WRONLY | O_SYNC));
  ::unlink((directory + "/dangling").c_str());
  if (::symlink("/nowhere/at/all", (directory + "/dangling").c_str()) != 0) std::exit(3);
  syncing("a link to nowhere", ::open((directory + "/dangling").c_str(), O_WRONLY | O_CREAT | O_SYNC, 0600));
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return 2;
  trap_syncs();
  if (count == 2) {
    const int fd = ::open((words[1] + std::string("/file")).c_str(), O_RDWR | O_CREAT, 0600);
    for (int read = 0; (read = std::getchar()) != EOF; std::fflush(stdout)) report("fsync", ::fsync(fd));
    return 0;
  }
  each(words[1]);
  std::printf("--\n");
  each(words[2]);
  std::printf("--\n");
  ::sync();
  report("sync", 0);
  return 0;
}
