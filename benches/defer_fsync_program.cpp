// defer_fsync_program MIX PROCESSES MODE DIRECTORY: an unmodified program that writes one checkpoint as BLCR does in
// figure 2 of the paper: processes write a file each, all at once. MODE is buffered, fsync, or bare: the same bytes in
// writes of 4 MiB, and fsync. Prints t1, when the first process begins, and t2, when the last has closed its file, in
// milliseconds of CLOCK_MONOTONIC. benches/defer_fsync.py compiles and runs it.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <new>
#include <numeric>
#include <string>
#include <sys/mman.h>
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
  std::atomic<int> ready, go;
  std::array<double, 64> begin, end;
};

bool work(Shared& shared, std::size_t me, const std::string& mix, const std::string& mode, const std::string& path) {
  std::vector<std::size_t> sizes = bench::write_sizes(mix, static_cast<unsigned>(me));
  if (mode == "bare") {
    constexpr std::size_t piece = 4 << 20;
    const std::size_t bytes = std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
    sizes.assign(bytes / piece, piece);
    if (bytes % piece) sizes.push_back(bytes % piece);
  }
  std::vector<char> image(std::size_t{9} << 20, static_cast<char>(me + 1));
  shared.ready.fetch_add(1);
  while (shared.go.load() == 0) ::usleep(200);
  shared.begin[me] = now();
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
  for (const std::size_t size : sizes) {
    if (::write(fd, image.data(), size) != static_cast<ssize_t>(size)) return false;
  }
  if (mode != "buffered" && ::fsync(fd) != 0) return false;
  if (::close(fd) != 0) return false;
  shared.end[me] = now();
  return true;
}

}  // namespace

int main(int count, char** words) {
  if (count != 5) return 2;
  const int processes = std::atoi(words[2]);
  void* const memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared& shared = *new (memory) Shared();
  for (int me = 0; me < processes; ++me) {
    const std::string path = std::string(words[4]) + "/" + std::to_string(me);
    if (::fork() == 0) ::_exit(!work(shared, static_cast<std::size_t>(me), words[1], words[3], path));
  }
  while (shared.ready.load() != processes) ::usleep(1000);
  shared.go = 1;
  int bad = 0, status = 0;
  while (::wait(&status) > 0) bad |= status;
  std::printf("%.3f %.3f\n", *std::min_element(shared.begin.begin(), shared.begin.begin() + processes),
              *std::max_element(shared.end.begin(), shared.end.begin() + processes));
  return bad != 0;
}
