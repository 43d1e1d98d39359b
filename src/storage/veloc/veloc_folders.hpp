#pragma once
// The two directories of a rank: VELOC's, and the rank's own in it.
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/files.hpp"
#include "storage/scan/store_directory.hpp"
#include "storage/storage.hpp"
#include "storage/veloc/veloc_file.hpp"
#include "storage/veloc/veloc_mark.hpp"
#include "storage/veloc/veloc_of.hpp"

namespace ebb::storage {

/// In such a folder: it is no store of segment files.
inline constexpr const char* kVelocFile = "veloc";
/// Endings of files in a rank's own folder: a checkpoint that is not whole yet, or is being removed; one that waits for
/// the name that an older edition has; and the mark of one that is being named.
inline constexpr std::string_view kVelocUnfinished = ".new", kVelocWaiting = ".next", kVelocPending = ".mark";
/// The folder of a rank's own files in a directory of VELOC's: VELOC would take a file beside its own for a checkpoint.
std::filesystem::path veloc_own_directory(const std::filesystem::path& directory, int rank);

VelocFileState state_of(const os::FileStatus& status);
std::string veloc_mark_name(std::string_view name, Version version);
/// At most so many bytes from the front of a file, or from `from`. Error by errno.
os::SysResult read_front(os::Files& files, const std::filesystem::path& path, std::size_t at_most,
                         std::vector<std::byte>& out, std::uint64_t from = 0);

/// Thread safety: constant after make(); every method but make() and unmake() from any thread.
class VelocFolders {
 public:
  using Path = std::filesystem::path;

  /// `prefix`: of a history's name, where other storages have the same checkpoints.
  VelocFolders(os::Files& files, const Path& directory, const VelocOf& of, bool readonly, std::string prefix = {});
  /// Makes what is missing and takes the lock of the own folder; nothing if read only.
  Result<void> make();
  /// Takes away what make() has made, if nothing else is in it.
  void unmake();
  /// Whether the own folder is still the one that make() found.
  Result<void> in_place() const { return store_ ? store_->in_place() : Result<void>(); }

  os::Files& files() const { return files_; }
  int rank() const { return rank_; }
  bool readonly() const { return readonly_; }
  const std::string& prefix() const { return prefix_; }
  const Path& directory() const { return directory_; }
  const Path& own() const { return own_; }
  const Path& meta() const { return meta_; }
  Path path_of(const VelocName& name) const { return directory_ / file_name(name); }
  Path mark_of(const VelocName& name) const { return own_ / veloc_mark_name(name.name, name.version); }
  Path waiting_of(const VelocName& name) const { return mark_of(name).string() + std::string(kVelocWaiting); }
  Path unfinished_of(const VelocName& name, ObjectId object) const;
  Path pending_of(const VelocName& name, ObjectId object) const;

  /// Where a file under VELOC's name is: there or, if VELOC has left a link to a program's file, where that leads. The
  /// status is that of the file; of a link to nothing, the link's. Errors by errno.
  struct FileAt {
    Path path;
    bool linked = false;
  };
  os::SysResult find(const VelocName& name, FileAt& place, os::FileStatus& status) const;
  /// A rename whose reply was lost has happened.
  Result<void> rename(const Path& from, const Path& to) const;
  Result<void> sync(const Path& directory) const;
  Result<VelocMarkBegin> read_mark_begin(const Path& path) const;
  /// When the directories changed last; zeros: they may change again without this changing.
  struct Times {
    std::int64_t directory = 0, own = 0;
    bool operator==(const Times&) const = default;
  };
  Times times() const;

 private:
  os::Files& files_;
  const int rank_;
  const bool readonly_;
  const std::string prefix_;
  const Path directory_, own_, meta_;
  std::optional<StoreDirectory> store_;  // of own_; none: read only
  std::vector<Path> made_;               // directories that this opening has made
};

}  // namespace ebb::storage
