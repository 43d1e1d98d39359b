// capture_program MIX PROCESSES ROUNDS SYNC DIRECTORY: an unmodified program that writes checkpoints as BLCR does in
// figure 2 of the paper: processes write a file each, all at once. Prints t2 - t1 of each round, in milliseconds: t1,
// the first process begins; t2, the last has closed its file. Each round writes
// new files, as a checkpoint does; between rounds they are removed, and all is written and synced.
// benches/capture.py compiles and runs it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "checkpoint_mix.hpp"

namespace {

double now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

struct Shared {
  std::atomic<int> ready, done;
  std::atomic<int> round;
  std::array<double, 64> begin, end;
};

int work(Shared& shared, int me, int rounds, bool sync, const std::vector<std::size_t>& sizes,
         const std::string& path) {
  std::vector<char> image(std::size_t{9} << 20, static_cast<char>(me + 1));
  for (int round = 1; round <= rounds; ++round) {
    shared.ready.fetch_add(1);
    while (shared.round.load() != round) ::usleep(200);
    shared.begin[static_cast<std::size_t>(me)] = now();
    const int fd = ::open((path + "." + std::to_string(round)).c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
    for (const std::size_t size : sizes) {
      if (::write(fd, image.data(), size) != static_cast<ssize_t>(size)) return 1;
    }
    if (sync && ::fsync(fd) != 0) return 1;
    if (::close(fd) != 0) return 1;
    shared.end[static_cast<std::size_t>(me)] = now();
    shared.done.fetch_add(1);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 6) return 2;
  const int processes = std::atoi(words[2]), rounds = std::atoi(words[3]);
  const bool sync = words[4] == std::string("fsync");
  const std::string directory = words[5];
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared& shared = *new (memory) Shared();
  for (int me = 0; me < processes; ++me) {
    if (::fork() == 0) {
      const auto sizes = bench::write_sizes(words[1], static_cast<unsigned>(me));
      ::_exit(work(shared, me, rounds, sync, sizes, directory + "/" + std::to_string(me)));
    }
  }
  for (int round = 1; round <= rounds; ++round) {
    while (shared.ready.load() != processes * round) ::usleep(1000);
    shared.round = round;
    while (shared.done.load() != processes * round) {
      if (::waitpid(-1, nullptr, WNOHANG) > 0 && round < rounds) return 1;
      ::usleep(1000);
    }
    const auto last = static_cast<std::ptrdiff_t>(processes);
    std::printf("%.3f\n", *std::max_element(shared.end.begin(), shared.end.begin() + last) -
                              *std::min_element(shared.begin.begin(), shared.begin.begin() + last));
    for (int me = 0; me < processes; ++me) {
      ::unlink(
          (directory + "/" + std::to_string(me) + "." + std::to_string(round)).c_str());  // written out, if captured
    }
    ::syscall(SYS_sync);  // really, though it may be deferred
  }
  int bad = 0, status = 0;
  while (::wait(&status) > 0) bad |= status;
  return bad != 0;
}
