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

#include "tests/doubles/forward_files.hpp"

namespace ebb::doubles {

/// Files that record every call and fail, shorten or hold selected calls; all others go to the inner files. Faults
/// apply to a ring's transfers as to plain reads and writes. A shortened transfer moves no more bytes than it reports
/// (on direct files, which move whole blocks, the rest of the last block is poison), so that a transfer that is
/// continued from a wrong place is detected.
///
/// Thread safety: every method may be called from any thread.
class FaultyFiles final : public ForwardFiles<FaultyFiles> {
 public:
  static constexpr std::uint64_t kEver = std::numeric_limits<std::uint64_t>::max();

  FaultyFiles(os::Files& inner, std::uint64_t seed) : ForwardFiles(inner), random_(seed) {}

  /// The n-th call of this kind from now on (1 is the next), and the `times - 1` after it, fail with `error`.
  void fail_nth(FileCall call, std::uint64_t n, int error, std::uint64_t times = 1);
  /// The same, but the transfer is cut to `bytes` (or to a random part of it).
  void shorten_nth(FileCall call, std::uint64_t n, std::uint64_t times = 1, std::optional<std::uint64_t> bytes = {});
  /// Each call of this kind fails, or is cut, with this probability.
  void fail_at_rate(FileCall call, double rate, int error);
  void shorten_at_rate(FileCall call, double rate);
  /// Reads that touch this byte of that file fail with EIO.
  void make_unreadable(const std::filesystem::path& path, std::uint64_t offset);
  /// The result of describe() from now on.
  void pretend(const os::FileSystem& file_system);
  /// No faults from now on; held transfers stay held.
  void clear_faults();

  /// Reads or writes do not complete until they are released.
  void hold(FileCall call);
  void release(FileCall call);
  /// Waits until `n` transfers of this kind are held.
  void await_held(FileCall call, std::size_t n);

  std::vector<FileRecord> records() const;
  std::uint64_t count(FileCall call) const;
  /// Descriptors opened and not closed.
  std::size_t open_files() const;

  os::SysResult open_unlinked(const Path& directory, bool direct) noexcept override;
  os::SysResult open(const Path& path, os::Open how, bool direct) noexcept override;
  os::SysResult close(int fd) noexcept override;
  os::SysResult read(int fd, void* memory, std::size_t bytes, std::uint64_t offset) noexcept override;
  os::SysResult write(int fd, const void* memory, std::size_t bytes, std::uint64_t offset) noexcept override;
  os::SysResult lock(const Path& path, os::Open how) noexcept override;
  os::SysResult unlock(int fd) noexcept override;
  os::SysResult describe(const Path& directory, os::FileSystem& out) noexcept override;
  Result<std::unique_ptr<os::Ring>> open_ring(unsigned entries) override;

 private:
  friend class FaultyRing;
  friend ForwardFiles;
  struct Fault {
    std::uint64_t first = 0, last = 0;  // numbers of calls of its kind; 0: by rate
    double rate = 0;
    int error = 0;  // 0: shorten
    std::optional<std::uint64_t> bytes;
  };
  // The result of a call: an errno, or `reported` bytes, of which `moved` are moved.
  struct Fate {
    int error = 0;
    std::uint64_t moved = 0, reported = 0;
  };
  static std::size_t index(FileCall call) { return static_cast<std::size_t>(call); }
  void add(FileCall call, Fault fault, std::uint64_t n, std::uint64_t times);
  Fate decide_locked(FileRecord call);
  int refused(const FileRecord& call) noexcept;
  template <class Whole>
  os::SysResult around(const FileRecord& call, Whole&& whole) noexcept {
    const int error = refused(call);
    return error ? os::SysResult::failed(error) : whole();
  }
  int forget(int fd) noexcept;  // the error it is to end with; 0: none
  os::SysResult opened(os::SysResult result, const std::filesystem::path& path, bool direct) noexcept;
  Fate transfer(FileCall call, int fd, std::uint64_t offset, std::uint64_t bytes, bool may_hold) noexcept;
  bool holds(FileCall call, bool more);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::array<std::vector<Fault>, kFileCalls> faults_;
  std::array<std::uint64_t, kFileCalls> counts_{};
  std::array<bool, kFileCalls> held_{};
  std::array<std::size_t, kFileCalls> waiting_{};
  std::vector<FileRecord> records_;
  std::map<int, std::filesystem::path> open_;
  std::set<int> direct_;
  std::vector<class FaultyRing*> rings_;
  std::optional<os::FileSystem> pretended_;
  std::set<std::pair<std::filesystem::path, std::uint64_t>> unreadable_;
};

}  // namespace ebb::doubles
