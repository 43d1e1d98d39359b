#include "storage/scan/store_directory.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <sys/random.h>
#include <unistd.h>
#include <vector>

#include "os/process_id.hpp"
#include "storage/file_io.hpp"
#include "storage/scan/change_mark.hpp"
#include "storage/scan/pairing.hpp"
#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

using os::File;
using os::FileLock;
using os::Files;
using os::FileStatus;
using os::kBlock;
using os::Open;
using os::SysResult;
using Path = std::filesystem::path;

namespace {

// "/a/link/" and "/a/link/." would name the target of the link.
Path plain(const Path& directory) {
  std::error_code ignored;
  Path path = std::filesystem::absolute(directory, ignored);
  if (ignored) path = directory;
  while ((path.filename().empty() || path.filename() == ".") && path.has_relative_path()) path = path.parent_path();
  return path;
}

bool is_ours(const std::string& name) {
  return name == kStoreFile || name == kNewStoreFile || name == kLockFile || name == kIndexFile ||
         name == kNewIndexFile || name == kOldIndexFile || segment_number(name);
}

std::string text_of(Durability level) { return level == Durability::process ? "process" : "storage"; }

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// Where the number of a process means this process's: "HOST", "HOST in PID namespace 4026532345".
std::string this_place() {
  const auto space = os::pid_namespace();
  return host_name() + (space == 0 ? "" : " in PID namespace " + std::to_string(space));
}

// The command line of a process: "python train.py". Empty: there is no such process here.
std::optional<std::string> command_of(Files& files, const std::string& process) {
  constexpr std::size_t kMost = 100;
  const Path path = "/proc/" + process + "/cmdline";
  const auto opened = files.open_read(path);
  if (!opened) return {};
  const File file(files, static_cast<int>(opened.value), path.string(), false);
  std::string text(kMost, '\0');
  const auto got = read_whole(files, file.fd(), std::as_writable_bytes(std::span(text)), 0);
  text.resize(got ? static_cast<std::size_t>(got.value) : 0);
  while (text.ends_with('\0')) text.pop_back();
  for (char& c : text) c = c == '\0' ? ' ' : c > ' ' && c <= '~' ? c : '?';
  return text + (got && static_cast<std::size_t>(got.value) == kMost ? "..." : "");
}

// The holder of the lock, from its text.
std::string holder_of(Files& files, const Path& lock) {
  const std::string unknown = "another process";
  const auto opened = files.open(lock, Open::read, false);
  if (!opened) return unknown;
  const File file(files, static_cast<int>(opened.value), lock.string(), false);
  std::string text(512, '\0');
  const auto got = read_whole(files, file.fd(), std::as_writable_bytes(std::span(text)), 0);
  text.resize(got ? static_cast<std::size_t>(got.value) : 0);
  const std::string_view before = "process ", between = " on ";
  if (const auto end = text.find('\n'); end != std::string::npos)
    text.resize(end);
  else
    return unknown;
  if (!text.starts_with(before)) return unknown;
  if (!std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; })) return unknown;
  const auto end = text.find_first_not_of("0123456789", before.size());
  if (end == std::string::npos || text.substr(end) != std::string(between) + this_place()) return text;
  const std::string process = text.substr(before.size(), end - before.size());
  if (process == std::to_string(::getpid())) return text + " (this process)";
  const auto command = command_of(files, process);
  if (command && !command->empty()) return text + " (" + *command + ")";
  FileStatus status;
  if (command || !files.status("/proc/self", status)) return text;
  return text + ", which is not there any more, or a process forked from it";
}

}  // namespace

std::uint32_t StoreDirectoryOptions::own_user() noexcept { return ::geteuid(); }

// The steps of open_store_directory, in this order: the directory, its contents, the lock, then (no other process can
// create it now) the file `store`.
class StoreOpening {
 public:
  StoreOpening(Files& files, const Path& directory, const StoreDirectoryOptions& options)
      : files_(files), directory_(plain(directory)), options_(options) {}

  Result<StoreDirectory> run() {
    StoreDirectory out;
    out.files_ = &files_;
    out.path_ = directory_;
    if (auto done = find_directory(out.found_); !done) return done.error();
    if (auto done = look(); !done) return done.error();
    if (!options_.readonly) {
      if (auto done = take_lock(out); !done) return done.error();
      if (auto done = look(); !done)
        return done.error();  // another process may have created it before this one had the lock
    }
    if (is_store_) {
      // A killed process may have renamed it, or set its index aside, without syncing that.
      const SysResult synced = options_.readonly ? SysResult::of(0) : sync_names();
      if (!synced) return failed(directory_, "syncing the directory", synced);
    } else {
      if (options_.readonly) return refuse(Errc::not_a_store, "there is no store in it");
      if (auto done = make(); !done) return done.error();
      out.created_ = true;
    }
    auto head = read();
    if (!head) return head.error();
    if (!options_.readonly && head->level != options_.level) {
      return refuse(Errc::invalid_argument, "it is a store of durability \"" + text_of(head->level) + "\", not \"" +
                                                text_of(options_.level) +
                                                "\": open it as what it is, or name another directory");
    }
    out.head_ = *head;
    out.made_directory_ = made_directory_;
    return out;
  }

  Result<std::optional<StoreHead>> find() {
    FileStatus status;
    if (!files_.status(directory_ / kStoreFile, status)) return std::optional<StoreHead>{};
    if (status.kind != FileStatus::Kind::file) return std::optional<StoreHead>{};
    auto head = read();
    if (!head) return head.error();
    return std::optional<StoreHead>(*head);
  }

 private:
  Error refuse(Errc code, const std::string& what) const { return {code, directory_.string() + ": " + what}; }
  Error failed(const Path& path, const std::string& what, SysResult result) const {
    return file_error(path, what, result.error);
  }

  Result<void> find_directory(FileStatus& status) {
    auto found = files_.status(directory_, status);
    if (!found && found.error == ENOENT) {
      if (options_.readonly) return refuse(Errc::not_a_store, "there is no such directory");
      const auto made = files_.make_directory(directory_);
      if (!made && made.error == ENOENT) {
        return refuse(Errc::io_error, "its parent directory does not exist; make that one first");
      }
      if (!made && made.error != EEXIST) return failed(directory_, "making the directory", made);
      made_directory_ = static_cast<bool>(made);
      found = files_.status(directory_, status);
    }
    if (!found) return failed(directory_, "looking at it", found);
    if (status.kind == FileStatus::Kind::file || status.kind == FileStatus::Kind::other) {
      return refuse(Errc::not_a_store, "it is not a directory");
    }
    return trusted(directory_, status, FileStatus::Kind::directory);
  }

  // No other user may have written to it.
  Result<void> trusted(const Path& path, const FileStatus& status, FileStatus::Kind kind) const {
    const std::string name = path.string();
    if (status.kind == FileStatus::Kind::link) return file_error(path, "", ELOOP);
    if (status.kind != kind) return Error{Errc::not_permitted, name + ": it is not a regular file"};
    if (status.owner != options_.user) {
      return Error{Errc::not_permitted, name + ": it belongs to user " + std::to_string(status.owner) +
                                            ", and this process belongs to user " + std::to_string(options_.user)};
    }
    if (status.mode & 022) {
      return Error{Errc::not_permitted, name + ": other users may write to it; chmod go-w prevents that"};
    }
    return {};
  }

  // The contents of the directory. A file that disappears meanwhile does not count.
  Result<void> look() {
    std::vector<std::string> names;
    if (const auto listed = files_.list(directory_, names); !listed) return failed(directory_, "listing it", listed);
    std::sort(names.begin(), names.end());
    is_store_ = std::binary_search(names.begin(), names.end(), kStoreFile);
    for (const std::string& name : names) {
      const bool left_over = name == kNewStoreFile || name == kLockFile;
      if (!is_store_ && !left_over) {
        return refuse(Errc::not_a_store, is_ours(name) ? "it has '" + name + "' of a store, but no file 'store'"
                                                       : "there are other files in it ('" + name +
                                                             "'), and no store; name an empty directory, "
                                                             "or one that is not there yet");
      }
      if (!is_ours(name)) continue;
      FileStatus status;
      const auto found = files_.status(directory_ / name, status);
      if (!found && found.error == ENOENT) continue;
      if (!found) return failed(directory_ / name, "looking at it", found);
      if (auto good = trusted(directory_ / name, status, FileStatus::Kind::file); !good) return good;
    }
    return {};
  }

  Result<void> take_lock(StoreDirectory& out) {
    const Path path = directory_ / kLockFile;
    const auto locked = files_.lock(path, Open::create);
    if (!locked && locked.error == EWOULDBLOCK) {
      return in_use(files_, directory_, "open it read only, or wait for that to end");
    }
    if (locked.error == ENOLCK || locked.error == ENOSYS || locked.error == EOPNOTSUPP)
      return refuse(Errc::unsupported,
                    "its file system has no locks (flock: " + os::describe_errno(locked.error) +
                        "), so nothing would keep two processes from writing one store: name a "
                        "directory on a local disk, or have it mounted with locks (Lustre: -o flock, "
                        "NFS: lockd)");
    if (!locked) return failed(path, "locking it", locked);
    out.lock_ = FileLock(files_, static_cast<int>(locked.value));
    if (const auto known = files_.status(out.lock_.fd(), out.locked_); !known)
      return failed(path, "looking at it", known);
    if (const auto cut = files_.truncate(out.lock_.fd(), 0); !cut) return failed(path, "emptying it", cut);
    out.holder_ = "process " + std::to_string(::getpid()) + " on " + this_place();
    out.announce_change();
    return {};
  }

  // Written under another name, synced, then renamed, so that the file `store` is always whole.
  Result<void> make() {
    const Path beside = directory_ / kNewStoreFile;
    SysResult opened = files_.open(beside, Open::create, false);
    if (!opened && opened.error == EEXIST) {
      if (const auto gone = files_.remove(beside); !gone) return failed(beside, "removing it", gone);
      opened = files_.open(beside, Open::create, false);
    }
    if (!opened) return failed(beside, "making it", opened);
    StoreHead head;
    head.owner = options_.user;
    head.level = options_.level;
    head.created_ns = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
    if (::getrandom(head.store.data(), head.store.size(), 0) != static_cast<ssize_t>(head.store.size())) {
      return failed(directory_, "asking for random bytes", SysResult::failed(errno));
    }
    {
      const File file(files_, static_cast<int>(opened.value), beside.string(), false);
      if (const auto put = write_whole(files_, file.fd(), encode(head), 0); !put)
        return failed(beside, "writing it", put);
      if (const auto synced = files_.sync(file.fd()); !synced) return failed(beside, "syncing it", synced);
    }
    const Path store = directory_ / kStoreFile;
    const auto named = files_.rename(beside, store);
    FileStatus there;  // over a network the reply may be lost, and the rename tried again after it has happened
    const bool happened = named || (named.error == ENOENT && files_.status(store, there));
    if (!happened) return failed(store, "renaming it", named);
    const SysResult synced = sync_names();
    if (synced) return {};
    // A failed sync is not retried: the next opening renames it again.
    static_cast<void>(files_.remove(store));
    return failed(directory_, "syncing the directory", synced);
  }

  // The names in it, and its own.
  SysResult sync_names() {
    SysResult synced = files_.sync_directory(directory_);
    if (!synced) return synced;
    synced = files_.sync_directory(directory_.parent_path().empty() ? Path(".") : directory_.parent_path());
    // A parent that this user may not read need not be synced if the directory existed before.
    if (!synced && synced.error == EACCES && !made_directory_) synced = SysResult::of(0);
    return synced;
  }

  Result<StoreHead> read() const {
    const Path path = directory_ / kStoreFile;
    const auto opened = files_.open(path, Open::read, false);
    if (!opened) return failed(path, "opening it", opened);
    const File file(files_, static_cast<int>(opened.value), path.string(), false);
    std::vector<std::byte> bytes(kBlock + 1);
    const auto got = read_whole(files_, file.fd(), bytes, 0);
    if (!got) return failed(path, "reading it", got);
    bytes.resize(static_cast<std::size_t>(got.value));
    auto head = parse_store(bytes);
    if (!head) return Error{head.error().code, path.string() + ": " + head.error().message};
    if (bytes.size() != kBlock) return Error{Errc::damaged, path.string() + ": it is longer than 4096 bytes"};
    return head;
  }

  Files& files_;
  const Path directory_;
  const StoreDirectoryOptions& options_;
  bool made_directory_ = false, is_store_ = false;
};

// The file that makes it a store first, and the lock last: no other process takes half of it for its own.
void StoreDirectory::unmake() const noexcept try {
  if (!created_) return;
  std::vector<std::string> names;
  static_cast<void>(files_->remove(path_ / kStoreFile));
  static_cast<void>(files_->list(path_, names));
  for (const std::string& name : names)
    if (name != kLockFile && (is_ours(name) || is_pair_file(name))) static_cast<void>(files_->remove(path_ / name));
  static_cast<void>(files_->remove(path_ / kLockFile));
  if (made_directory_) static_cast<void>(files_->remove(path_));
} catch (const std::bad_alloc&) {  // it stays, and is empty
}

Result<void> StoreDirectory::in_place() const {
  const auto check = [&](const Path& path, const FileStatus& opened, const char* what) -> Result<void> {
    FileStatus now;
    const SysResult known = files_->status(path, now);
    if (!known && known.error != ENOENT && known.error != ENOTDIR)
      return file_error(path, "looking at it", known.error);
    if (known && now.is(opened)) return {};
    return Error{Errc::io_error, path.string() + ": " + what + " was " + (known ? "replaced" : "removed or renamed") +
                                     " while the store was open: what was not durable by then is not kept"};
  };
  if (auto same = check(path_, found_, "the store's directory"); !same) return same;
  FileStatus store;  // without this file the next opening finds no store
  if (const SysResult known = files_->status(path_ / kStoreFile, store); !known && known.error == ENOENT) {
    return Error{Errc::io_error, (path_ / kStoreFile).string() +
                                     ": the file that makes the directory a store was removed or renamed while the "
                                     "store was open: what was not durable by then is not kept"};
  }
  return check(path_ / kLockFile, locked_, "the file that keeps other writers out");
}

// The text in one write. If that fails there is none, and readers look each time.
void StoreDirectory::announce_change() const noexcept try {
  if (lock_.fd() < 0) return;
  std::uint64_t number = 0;
  const bool drawn = ::getrandom(&number, sizeof number, 0) == static_cast<ssize_t>(sizeof number);
  const std::string text = lock_text(holder_, number);
  if (drawn && write_whole(*files_, lock_.fd(), std::as_bytes(std::span(text)), 0)) return;
  static_cast<void>(files_->truncate(lock_.fd(), 0));
} catch (const std::bad_alloc&) {
  static_cast<void>(files_->truncate(lock_.fd(), 0));
}

Error in_use(Files& files, const Path& directory, const std::string& what_to_do) {
  return {Errc::in_use, directory.string() + ": " + holder_of(files, directory / kLockFile) +
                            " has it open for writing; " + what_to_do};
}

Result<StoreDirectory> open_store_directory(Files& files, const Path& directory, const StoreDirectoryOptions& options) {
  return StoreOpening(files, directory, options).run();
}

Result<std::optional<StoreHead>> find_store(Files& files, const Path& directory) {
  const StoreDirectoryOptions options;
  return StoreOpening(files, directory, options).find();
}

}  // namespace ebb::storage
