// random_program SEED OPERATIONS DIRECTORY: random calls on files there. Every result is written to stdout, so two runs
// can be compared: what a call returns, errno, and a sum of the bytes read. Threads have files of their own; children
// work while their parent waits; all append to one file, whose records are sorted in the end.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr int kThreads = 3, kNames = 6, kDescriptors = 5;
constexpr std::size_t kRecord = 24;

class Actor {
 public:
  Actor(std::uint64_t seed, std::string directory, std::string shared)
      : random_(seed), seed_(seed), directory_(std::move(directory)), shared_(std::move(shared)), buffer_(3 << 20) {
    fds_.fill(-1);
  }

  void act(int operations) {
    for (int i = 0; i < operations; ++i) one();
    for (int& fd : fds_) {
      if (fd >= 0) note("close", ::close(fd));
      fd = -1;
    }
  }
  std::string log;

 private:
  std::uint64_t upto(std::uint64_t bound) { return random_() % bound; }
  std::string name() { return directory_ + "/" + static_cast<char>('a' + upto(kNames)); }
  int& fd() { return fds_[upto(kDescriptors)]; }
  void note(const char* what, long result) {
    log += std::string(what) + " " + std::to_string(result) + (result < 0 ? " " + std::to_string(errno) : "") + "\n";
  }
  std::size_t size() {
    switch (upto(8)) {
      case 0: return upto(1 << 20) + (1 << 20);
      case 1: return upto(100000);
      case 2: return upto(20000);
      default: return upto(600);
    }
  }
  off_t place() { return static_cast<off_t>(upto(4) == 0 ? upto(6 << 20) : upto(30000)); }
  void fill(std::size_t bytes) {
    const auto value = random_();
    for (std::size_t i = 0; i < bytes; ++i)
      buffer_[i] = static_cast<char>(value >> (i % 8 * 8)) ^ static_cast<char>(i / 8);
  }
  void sum(const char* what, long got) {
    std::uint64_t total = 1469598103934665603;
    for (long i = 0; i < got; ++i)
      total = (total ^ static_cast<unsigned char>(buffer_[static_cast<std::size_t>(i)])) * 1099511628211;
    note(what, got);
    log += std::to_string(total) + "\n";
  }

  void one() {
    struct stat found{};
    switch (upto(33)) {
      case 0:
      case 1:
      case 2: {
        constexpr int kAccess[] = {O_RDWR, O_RDWR, O_WRONLY, O_RDONLY};
        constexpr int kMore[] = {0, O_TRUNC, O_APPEND, O_EXCL};
        int& slot = fd();
        if (slot >= 0) note("close", ::close(slot));
        slot = ::open(name().c_str(), kAccess[upto(4)] | O_CREAT | (upto(2) ? kMore[upto(4)] : 0), 0644);
        note("open", slot >= 0 ? 0 : -1);
        break;
      }
      case 3:
      case 4:
      case 5:
      case 6:
      case 7: {
        const std::size_t bytes = size();
        fill(bytes);
        note("write", ::write(fd(), buffer_.data(), bytes));
        break;
      }
      case 8:
      case 9:
      case 10: {
        const std::size_t bytes = size();
        fill(bytes);
        note("pwrite", ::pwrite(fd(), buffer_.data(), bytes, place()));
        break;
      }
      case 11: {
        const std::size_t first = upto(500), second = size();
        fill(first + second);
        const std::array<iovec, 2> pieces{{{buffer_.data(), first}, {buffer_.data() + first, second}}};
        note("writev", upto(2) ? ::writev(fd(), pieces.data(), 2) : ::pwritev(fd(), pieces.data(), 2, place()));
        break;
      }
      case 12:
      case 13: sum("read", ::read(fd(), buffer_.data(), size())); break;
      case 14:
      case 15: sum("pread", ::pread(fd(), buffer_.data(), size(), place())); break;
      case 16: {
        const std::size_t first = upto(500);
        const std::array<iovec, 2> pieces{{{buffer_.data(), first}, {buffer_.data() + first, size()}}};
        sum("readv", upto(2) ? ::readv(fd(), pieces.data(), 2) : ::preadv(fd(), pieces.data(), 2, place()));
        break;
      }
      case 17: note("seek", ::lseek(fd(), place(), SEEK_SET)); break;
      case 18: note("end", ::lseek(fd(), 0, upto(2) ? SEEK_END : SEEK_CUR)); break;
      case 19: {
        const int done = ::fstat(fd(), &found);
        note("fstat", done < 0 ? -1 : found.st_size);
        break;
      }
      case 20: {
        const int done = ::stat(name().c_str(), &found);
        note("stat", done < 0 ? -1 : found.st_size);
        break;
      }
      case 21: note("ftruncate", ::ftruncate(fd(), place())); break;
      case 22: note("truncate", ::truncate(name().c_str(), place())); break;
      case 23: note("rename", ::rename(name().c_str(), name().c_str())); break;
      case 24: note("unlink", ::unlink(name().c_str())); break;
      case 25: note("link", ::link(name().c_str(), name().c_str())); break;
      case 26: {
        int& slot = fd();
        if (slot >= 0) ::close(slot);
        slot = -1;  // its number may be another thread's by now
        slot = ::dup(fd());
        note("dup", slot >= 0 ? 0 : -1);
        break;
      }
      case 27: note("fsync", upto(2) ? ::fsync(fd()) : ::fdatasync(fd())); break;
      case 28: {
        std::array<char, kRecord> record{};
        std::snprintf(record.data(), record.size(), "%010llx %011d",
                      static_cast<unsigned long long>(seed_ & 0xFFFFFFFFFF), records_++);
        record.back() = '\n';
        const int out = ::open(shared_.c_str(), O_WRONLY | O_APPEND);
        note("append", ::write(out, record.data(), kRecord));
        ::close(out);
        break;
      }
      case 29: {
        off_t at = place();
        const int in = fd(), out = fd();
        if (upto(2)) {
          note("copy", ::copy_file_range(in, &at, out, nullptr, size(), 0));
        } else {
          note("send", ::sendfile(out, in, &at, size()));
        }
        break;
      }
      case 30: {
        if (upto(8) || depth_ > 1) break;
        ::fflush(nullptr);
        const pid_t child = ::fork();
        if (child == 0) {
          ++depth_;
          log.clear();
          const std::uint64_t mine = random_();
          random_.seed(mine);
          for (int i = 0; i < 20; ++i) one();
          const int out = ::open((shared_ + ".log").c_str(), O_WRONLY | O_APPEND | O_CREAT, 0644);
          if (::write(out, log.data(), log.size()) < 0) ::_exit(1);
          ::_exit(0);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        random_();
        note("child", status);
        break;
      }
      case 31: {
        const std::uint64_t chosen = upto(3);
        const off_t at = place();
        const auto bytes = static_cast<off_t>(size()) + 1;
        constexpr int kModes[] = {0, 1 /* KEEP_SIZE */, 3 /* and PUNCH_HOLE */};
        note("fallocate", ::fallocate(fd(), kModes[chosen], at, bytes));
        break;
      }
      case 32: {
        if (upto(6)) break;
        const int in = fd();
        const int done = ::fstat(in, &found);
        if (done < 0 || found.st_size == 0) break;
        void* const seen = ::mmap(nullptr, static_cast<std::size_t>(found.st_size), PROT_READ, MAP_SHARED, in, 0);
        note("mmap", seen == MAP_FAILED ? -1 : 0);
        if (seen == MAP_FAILED) break;
        const auto bytes = std::min<std::size_t>(static_cast<std::size_t>(found.st_size), buffer_.size());
        std::copy_n(static_cast<const char*>(seen), bytes, buffer_.data());
        sum("mapped", static_cast<long>(bytes));
        ::munmap(seen, static_cast<std::size_t>(found.st_size));
        break;
      }
    }
  }

  std::mt19937_64 random_;
  const std::uint64_t seed_;
  const std::string directory_, shared_;
  std::vector<char> buffer_;
  std::array<int, kDescriptors> fds_{};
  int records_ = 0, depth_ = 0;
};

}  // namespace

int main(int count, char** words) {
  if (count != 4) return 2;
  const std::uint64_t seed = std::strtoull(words[1], nullptr, 10);
  const int operations = std::atoi(words[2]);
  const std::string directory = words[3];
  std::vector<Actor> actors;
  for (int i = 0; i < kThreads; ++i) {
    const std::string own = directory + "/" + std::to_string(i);
    ::mkdir(own.c_str(), 0755);
    const std::string shared = directory + "/shared" + std::to_string(i);
    actors.emplace_back(seed * kThreads + static_cast<std::uint64_t>(i), own, directory + "/shared");
  }
  ::close(::open((directory + "/shared").c_str(), O_CREAT | O_WRONLY, 0644));
  // A child has the thread that forked alone: the first actor, which forks, works while no other does.
  std::vector<std::thread> threads;
  for (Actor& actor : actors) threads.emplace_back([&] { actor.act(operations / kThreads); });
  for (std::thread& thread : threads) thread.join();
  for (const Actor& actor : actors) std::fwrite(actor.log.data(), 1, actor.log.size(), stdout);
  return 0;
}
