// slow_disk BACKING BYTES_PER_SECOND FUSE_ARGUMENT...: a file system with one file, "disk", whose bytes are BACKING's
// and whose writes take the time that a disk of this speed would take. benches/defer_fsync.py compiles and runs it.
#define FUSE_USE_VERSION 31
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fuse.h>
#include <mutex>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
int backing = -1;
double rate = 0;
std::mutex one_at_a_time;
Clock::time_point busy_until;

int answer(ssize_t result) { return result < 0 ? -errno : static_cast<int>(result); }

int get_attributes(const char* path, struct stat* found, fuse_file_info*) {
  if (std::strcmp(path, "/disk") == 0) return answer(::fstat(backing, found));
  *found = {};
  found->st_mode = S_IFDIR | 0755;
  found->st_nlink = 2;
  return std::strcmp(path, "/") == 0 ? 0 : -ENOENT;
}

int list(const char*, void* names, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
  fill(names, "disk", nullptr, 0, {});
  return 0;
}

int open_file(const char*, fuse_file_info*) { return 0; }

int read_file(const char*, char* to, std::size_t bytes, off_t at, fuse_file_info*) {
  return answer(::pread(backing, to, bytes, at));
}

int write_file(const char*, const char* from, std::size_t bytes, off_t at, fuse_file_info*) {
  {
    const std::lock_guard lock(one_at_a_time);
    const std::chrono::duration<double> takes(static_cast<double>(bytes) / rate);
    const auto least = Clock::now() - std::chrono::milliseconds(50);  // what the way here took is no break of the disk
    busy_until = std::max(busy_until, least) + std::chrono::duration_cast<Clock::duration>(takes);
    std::this_thread::sleep_until(busy_until);
  }
  return answer(::pwrite(backing, from, bytes, at));
}

int sync_file(const char*, int, fuse_file_info*) { return 0; }  // what is written is written

}  // namespace

int main(int count, char** words) {
  if (count < 4) return 2;
  backing = ::open(words[1], O_RDWR | O_CLOEXEC);
  rate = std::atof(words[2]);
  std::vector<char*> rest{words[0]};
  rest.insert(rest.end(), words + 3, words + count);
  fuse_operations calls{};
  calls.getattr = get_attributes;
  calls.readdir = list;
  calls.open = open_file;
  calls.read = read_file;
  calls.write = write_file;
  calls.fsync = sync_file;
  return backing < 0 ? 2 : ::fuse_main(static_cast<int>(rest.size()), rest.data(), &calls, nullptr);
}
