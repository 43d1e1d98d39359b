#pragma once
// The files below a directory that a run changes: what of them is dirty, writing it out early, and syncing them.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <fts.h>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "defer/run_memory.hpp"

namespace ebb::defer {

struct Synced {
  std::uint64_t calls = 0, files = 0, bytes = 0;
  std::map<std::string, int> failures;  // path, errno
};

/// Thread safety: one thread makes it and calls finish(), once. Until that has joined `thread_`, all but `ending_` and
/// `memory_` is used by `thread_` alone.
class Writer {
 public:
  /// `directory` is open since before the program started, so that its file system reports every later error.
  Writer(RunMemory& memory, int directory, std::uint64_t limit)
      : memory_(memory), directory_(directory), limit_(limit), begun_(::time(nullptr) - 1) {
    thread_ = std::thread([this] { look_around(); });
  }

  /// Ends the run, so that no later call is deferred, and syncs: every file that changed in the run, the directories of
  /// those, and, meanwhile, the file system, which commits most of many small files at once.
  Synced finish() {
    memory_.owner = 0;
    ending_ = true;
    synced_.calls = memory_.calls.fetch_add(1);
    wake_all(memory_.calls);
    thread_.join();
    memory_.full = 0;
    wake_all(memory_.full);
    walk();
    std::vector<std::string> paths;
    std::set<std::string> directories{memory_.directory};
    for (const auto& [inode, file] : files_) {
      paths.push_back(file.path);
      directories.insert(file.path.substr(0, file.path.rfind('/')));
      synced_.bytes += static_cast<std::uint64_t>(file.stamp[0]);
    }
    synced_.files = paths.size();
    paths.insert(paths.end(), directories.begin(), directories.end());
    std::atomic<std::size_t> next = 0;
    const auto sync_each = [&] {
      for (std::size_t at; (at = next.fetch_add(1)) < paths.size();) {
        const int fd = open_file(paths[at]);
        if (fd >= 0 && ::fsync(fd) != 0) failed(paths[at], errno);
        if (fd >= 0) ::close(fd);
      }
    };
    std::vector<std::thread> threads;
    while (threads.size() < kAtATime) {
      try {
        threads.emplace_back(sync_each);
      } catch (const std::system_error&) {  // the system has none left: this one does it all
        break;
      }
    }
    if (threads.empty()) sync_each();
    const int whole = ::syncfs(directory_) == 0 ? 0 : errno;
    if (memory_.everything) ::sync();
    for (std::thread& one : threads) one.join();
    if (whole && synced_.failures.empty()) failed(memory_.directory, whole);
    return std::move(synced_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kBetweenRounds = std::chrono::seconds(1);
  static constexpr long kRest = 20, kIdle = 250;         // milliseconds
  static constexpr int kWalkShare = 20;                  // a walk takes at most 1/20 of the time
  static constexpr std::size_t kAtATime = 4;             // files
  static constexpr std::uint64_t kWorthwhile = 8 << 20;  // bytes that are not waited with
  static constexpr off64_t kPiece = 64 << 20;            // bytes of a file that are written at a time

  struct File {
    std::string path;
    std::array<std::int64_t, 3> stamp{};  // size; time of change, in s and ns
    std::uint64_t dirty = 0;              // bytes
    bool fresh = false, seen = false;     // changed since the walk before; in this walk
  };

  /// Nothing else notices it: no time, terminal or pipe.
  static int open_file(const std::string& path) {
    return ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  }

  /// Files that a process has a lease on. Opening one would break it, so they are left to the file system's sync.
  static std::set<std::uint64_t> leased() {
    std::set<std::uint64_t> found;
    std::ifstream locks("/proc/locks");
    std::uint64_t inode = 0;
    for (std::string line; std::getline(locks, line);) {
      if (std::sscanf(line.c_str(), "%*d: LEASE %*s %*s %*d %*x:%*x:%lu", &inode) == 1) found.insert(inode);
    }
    return found;
  }

  void failed(const std::string& path, int error) {
    const std::lock_guard lock(failing_);
    if (error != EINVAL) synced_.failures.emplace(path, error);  // EINVAL: this kind of file is never synced
  }

  /// `grown`: what more is dirty, if the kernel does not tell (before Linux 6.5).
  void look(File& file, std::int64_t grown) {
    const std::array<std::uint64_t, 2> all{0, 0};
    std::array<std::uint64_t, 5> pages{};  // cached, dirty, being written, evicted, evicted lately
    const int fd = open_file(file.path);
    const bool told = fd < 0 || ::syscall(451 /* cachestat */, fd, all.data(), pages.data(), 0) == 0;
    if (fd >= 0) ::close(fd);
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    set_dirty(file, told ? (pages[1] + pages[2]) * page : file.dirty + static_cast<std::uint64_t>(grown));
  }

  void set_dirty(File& file, std::uint64_t dirty) {
    dirty_ += dirty - std::exchange(file.dirty, dirty);
    const bool full = dirty_ > limit_;
    if (memory_.full.exchange(full) && !full) wake_all(memory_.full);
  }

  /// Looks at the files that changed since the run began and since the last walk, and forgets those that are gone.
  void walk() {
    const std::set<std::uint64_t> spared = leased();
    char* roots[] = {memory_.directory, nullptr};
    FTS* const tree = ::fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, nullptr);
    for (FTSENT* at; tree && (at = ::fts_read(tree));) {
      const struct stat& now = *at->fts_statp;
      if (at->fts_info != FTS_F || now.st_ctim.tv_sec < begun_ || spared.contains(now.st_ino)) continue;
      File& file = files_[now.st_ino];
      file.path = at->fts_path;
      file.seen = true;
      const auto before = std::exchange(file.stamp, {now.st_size, now.st_ctim.tv_sec, now.st_ctim.tv_nsec});
      file.fresh = before != file.stamp;
      const std::int64_t grown = now.st_size - (now.st_size > before[0] ? before[0] : 0);
      if (file.fresh || file.dirty) look(file, file.fresh ? grown : 0);
      memory_.beat.fetch_add(1);
    }
    if (tree) ::fts_close(tree);
    for (auto at = files_.begin(); at != files_.end();) {
      const bool keep = std::exchange(at->second.seen, false);
      if (!keep) set_dirty(at->second, 0);
      at = keep ? std::next(at) : files_.erase(at);
    }
  }

  void look_around() {
    ::setpriority(PRIO_PROCESS, 0, 10);
    Clock::time_point round{}, walked{};
    for (Clock::duration took{};;) {
      const std::uint32_t calls = memory_.calls;
      if (ending_) return;
      std::set<std::uint64_t> told;
      for (auto& one : memory_.told) told.insert(one.exchange(0));
      told.erase(0);
      const bool unknown = std::any_of(told.begin(), told.end(), [&](auto one) { return !files_.contains(one); });
      const auto now = Clock::now();
      const bool due = now - round > kBetweenRounds;
      if ((due || unknown) && now - walked > took * kWalkShare) {
        walked = now;
        walk();
        took = Clock::now() - now;
      }
      for (const std::uint64_t inode : leased()) {
        if (const auto found = files_.find(inode); found != files_.end())
          set_dirty(found->second, 0), files_.erase(found);
      }
      for (const std::uint64_t inode : told) {
        if (const auto found = files_.find(inode); found != files_.end()) look(found->second, 0);
      }
      if (due || dirty_ > limit_ / 2) write_out();
      if (due) round = now;
      memory_.beat.fetch_add(1);
      for (long rested = 0; rested < kRest && !ending_; rested += 2) ::usleep(2000);
      memory_.asleep = 1;
      if (memory_.calls == calls) wait_on(memory_.calls, calls, memory_.full ? kRest : kIdle);
      memory_.asleep = 0;
    }
  }

  /// The dirtiest files, for one round's time. A burst is over before it is disturbed, unless much is dirty; a small
  /// file waits until it no longer changes.
  void write_out() {
    std::vector<File*> wanted;
    for (auto& [inode, file] : files_) {
      if (file.dirty >= kWorthwhile || (file.dirty && (!file.fresh || memory_.full))) wanted.push_back(&file);
    }
    std::sort(wanted.begin(), wanted.end(), [](const File* a, const File* b) { return a->dirty < b->dirty; });
    const auto end = Clock::now() + kBetweenRounds;
    while (!wanted.empty() && !ending_ && Clock::now() < end) {
      std::vector<std::pair<int, File*>> some;
      for (; some.size() < kAtATime && !wanted.empty(); wanted.pop_back()) {
        some.emplace_back(open_file(wanted.back()->path), wanted.back());
      }
      for (off64_t at = 0; at < some[0].second->stamp[0] && !ending_ && Clock::now() < end; at += kPiece) {
        for (const unsigned int step : {SYNC_FILE_RANGE_WRITE, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER}) {
          for (const auto& [fd, file] : some) {
            if (fd >= 0 && ::sync_file_range(fd, at, kPiece, step) != 0) failed(file->path, errno);
            memory_.beat.fetch_add(1);
          }
        }
      }
      for (const auto& [fd, file] : some) {
        if (fd >= 0) ::close(fd);
        look(*file, -static_cast<std::int64_t>(file->dirty));
      }
    }
  }

  RunMemory& memory_;
  const int directory_;
  const std::uint64_t limit_;
  const time_t begun_;
  std::atomic<bool> ending_ = false;
  std::unordered_map<std::uint64_t, File> files_;  // by inode
  std::uint64_t dirty_ = 0;                        // the sum over all files
  std::mutex failing_;                             // of the failures alone
  Synced synced_;
  std::thread thread_;
};

}  // namespace ebb::defer
