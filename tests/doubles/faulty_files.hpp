#pragma once
#include <array>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "os/files.hpp"

namespace ebb::platform::testing {

enum class FileCall : std::uint8_t {
  open,   // open_unlinked and open; open_read and open_write pass unseen
  close,  // unlock too, which closes
  read,
  write,
  truncate,
  preallocate,
  punch,
  describe,
  open_ring,
  sync,
  sync_directory,
  make_directory,
  rename,
  remove,
  list,
  status,
  lock,
  drop_cached,
  next_data,
};
inline constexpr std::size_t kFileCalls = 19;

/// One call as it was answered. Transfers through a ring are recorded as reads and writes, when they are prepared
/// (`result` is then what the fault made of it: the whole length, the shortened one or an errno).
struct FileRecord {
  FileCall call = FileCall::open;
  int fd = -1;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  SysResult result;
  std::filesystem::path path{};  // as given, or as the descriptor was opened; of an unlinked file, its directory
  std::filesystem::path to{};    // of a rename
};

/// Files that record every call and fail, shorten or hold those they are told to; all else goes to the files given.
/// Faults apply to a ring's transfers as to plain reads and writes. A shortened transfer really moves no more than it
/// says (on direct files, where only whole blocks can be moved, the rest of the last block is moved as poison), so that
/// one continued from a wrong place shows.
///
/// Thread safety: every method may be called from any thread.
class FaultyFiles final : public Files {
 public:
  static constexpr std::uint64_t kEver = std::numeric_limits<std::uint64_t>::max();

  FaultyFiles(Files& inner, std::uint64_t seed) : inner_(inner), random_(seed) {}

  /// The n-th call of this kind from now on (1 is the next), and the `times - 1` after it, fail with `error`.
  void fail_nth(FileCall call, std::uint64_t n, int error, std::uint64_t times = 1);
  /// The same, but the transfer is cut to `bytes` (or to a random part of it).
  void shorten_nth(FileCall call, std::uint64_t n, std::uint64_t times = 1, std::optional<std::uint64_t> bytes = {});
  /// Each call of this kind fails, or is cut, with this probability.
  void fail_at_rate(FileCall call, double rate, int error);
  void shorten_at_rate(FileCall call, double rate);
  /// Reads that touch this byte of that file fail with EIO.
  void make_unreadable(const std::filesystem::path& path, std::uint64_t offset);
  /// What describe() answers from now on.
  void pretend(const FileSystem& file_system);
  /// No faults from now on; what is held stays held.
  void clear_faults();

  /// Reads or writes stand (uncompleted) until they are released.
  void hold(FileCall call);
  void release(FileCall call);
  /// Waits until `n` transfers of this kind stand.
  void await_held(FileCall call, std::size_t n);

  std::vector<FileRecord> records() const;
  std::uint64_t count(FileCall call) const;
  /// Descriptors opened and not closed.
  std::size_t open_files() const;

  SysResult open_unlinked(const std::filesystem::path& directory, bool direct) noexcept override;
  SysResult open_read(const std::filesystem::path& path) noexcept override { return inner_.open_read(path); }
  SysResult open_write(const std::filesystem::path& path) noexcept override { return inner_.open_write(path); }
  SysResult open(const std::filesystem::path& path, Open how, bool direct) noexcept override;
  SysResult close(int fd) noexcept override;
  SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override;
  SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept override;
  SysResult truncate(int fd, std::uint64_t bytes) noexcept override;
  SysResult preallocate(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override;
  SysResult punch(int fd, std::uint64_t offset, std::uint64_t bytes) noexcept override;
  SysResult sync(int fd) noexcept override;
  SysResult drop_cached(int fd) noexcept override;
  SysResult next_data(int fd, std::uint64_t from) noexcept override;
  SysResult sync_directory(const std::filesystem::path& directory) noexcept override;
  SysResult make_directory(const std::filesystem::path& path) noexcept override;
  SysResult rename(const std::filesystem::path& from, const std::filesystem::path& to) noexcept override;
  SysResult remove(const std::filesystem::path& path) noexcept override;
  SysResult list(const std::filesystem::path& directory, std::vector<std::string>& out) noexcept override;
  SysResult status(const std::filesystem::path& path, FileStatus& out) noexcept override;
  SysResult status(int fd, FileStatus& out) noexcept override;
  SysResult lock(const std::filesystem::path& path, Open how) noexcept override;
  SysResult unlock(int fd) noexcept override;
  SysResult describe(const std::filesystem::path& directory, FileSystem& out) noexcept override;
  Result<std::unique_ptr<Ring>> open_ring(unsigned entries) override;

 private:
  friend class FaultyRing;
  struct Fault {
    std::uint64_t first = 0, last = 0;  // numbers of calls of its kind; 0: by rate
    double rate = 0;
    int error = 0;  // 0: shorten
    std::optional<std::uint64_t> bytes;
  };
  // What happens to a call: an errno, or `reported` bytes, of which `moved` really are.
  struct Fate {
    int error = 0;
    std::uint64_t moved = 0, reported = 0;
  };
  static std::size_t index(FileCall call) { return static_cast<std::size_t>(call); }
  void add(FileCall call, Fault fault, std::uint64_t n, std::uint64_t times);
  Fate decide_locked(FileRecord call);
  int refused(FileCall call, int fd, std::uint64_t offset, std::uint64_t bytes) noexcept;
  int refused(FileCall call, const std::filesystem::path& path, const std::filesystem::path& to = {}) noexcept;
  SysResult opened(SysResult result, const std::filesystem::path& path, bool direct) noexcept;
  Fate transfer(FileCall call, int fd, std::uint64_t offset, std::uint64_t bytes, bool may_stand) noexcept;
  bool stands(FileCall call, bool more);

  Files& inner_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::array<std::vector<Fault>, kFileCalls> faults_;
  std::array<std::uint64_t, kFileCalls> counts_{};
  std::array<bool, kFileCalls> held_{};
  std::array<std::size_t, kFileCalls> standing_{};
  std::vector<FileRecord> records_;
  std::map<int, std::filesystem::path> open_;
  std::set<int> direct_;
  std::vector<class FaultyRing*> rings_;
  std::optional<FileSystem> pretended_;
  std::set<std::pair<std::filesystem::path, std::uint64_t>> unreadable_;
};

}  // namespace ebb::platform::testing
