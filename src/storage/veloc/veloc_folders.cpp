#include "storage/veloc/veloc_folders.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ranges>
#include <utility>

#include "storage/file_io.hpp"

namespace ebb::storage {
namespace {

using Path = std::filesystem::path;

constexpr std::int64_t kTick = 1'000'000'000;  // ns: two changes of a directory may have one time

// Whatever the working directory is later.
Path absolute_path_of(const Path& given) {
  std::error_code failed;
  const auto path = std::filesystem::absolute(given, failed).lexically_normal();
  if (failed) return given;
  return path.has_filename() ? path : path.parent_path();
}

}  // namespace

Path veloc_own_directory(const Path& directory, int rank) {
  return directory / ".ebbtide" / ("rank-" + std::to_string(rank));
}

VelocFileState state_of(const os::FileStatus& status) { return {status.bytes, status.changed_ns}; }

std::string veloc_mark_name(std::string_view name, Version version) {
  return std::string(name) + "-" + std::to_string(version);
}

os::SysResult read_front(os::Files& files, const Path& path, std::size_t at_most, std::vector<std::byte>& out,
                         std::uint64_t from) {
  const os::SysResult opened = files.open(path, os::Open::read, false);
  if (!opened) return opened;
  const os::File file(files, static_cast<int>(opened.value), path.string(), false);
  os::FileStatus status;
  if (const auto asked = files.status(file.fd(), status); !asked) return asked;
  out.resize(std::min<std::uint64_t>(status.bytes - std::min(from, status.bytes), at_most));
  const auto got = read_whole(files, file.fd(), out, from);
  if (got) out.resize(static_cast<std::size_t>(got.value));
  return got;
}

VelocFolders::VelocFolders(os::Files& files, const Path& directory, const VelocOf& of, bool readonly,
                           std::string prefix)
    : files_(files),
      rank_(of.rank),
      readonly_(readonly),
      prefix_(std::move(prefix)),
      directory_(absolute_path_of(directory)),
      own_(veloc_own_directory(directory_, of.rank)),
      meta_(of.meta.empty() ? of.meta : absolute_path_of(of.meta)) {}

Result<void> VelocFolders::make() {
  if (readonly_) return {};
  for (const Path& path : {directory_, own_.parent_path()}) {
    const auto made = files_.make_directory(path);
    if (!made && made.error != EEXIST) return file_error(path, "making it", made.error);
    if (made) made_.push_back(path);
    if (auto synced = sync(path.parent_path()); !synced) return synced;
  }
  auto store = open_store_directory(files_, own_, {});
  if (!store) return store.error();
  store_ = std::move(*store);
  const Path kind = own_ / kVelocFile;
  const auto opened = files_.open_write(kind);
  if (!opened) return file_error(kind, "making it", opened.error);
  static_cast<void>(files_.close(static_cast<int>(opened.value)));
  return {};
}

void VelocFolders::unmake() {
  if (!store_) return;
  static_cast<void>(files_.remove(own_ / kVelocFile));
  store_->unmake();
  for (const Path& path : std::views::reverse(made_)) static_cast<void>(files_.remove(path));
}

Path VelocFolders::unfinished_of(const VelocName& name, ObjectId object) const {
  return mark_of(name).string() + "." + std::to_string(object) + std::string(kVelocUnfinished);
}

Path VelocFolders::pending_of(const VelocName& name, ObjectId object) const {
  return mark_of(name).string() + "." + std::to_string(object) + std::string(kVelocPending);
}

os::SysResult VelocFolders::find(const VelocName& name, FileAt& place, os::FileStatus& status) const {
  place = {path_of(name), false};
  auto asked = files_.status(place.path, status);
  if (!asked || status.kind != os::FileStatus::Kind::link) return asked;
  Path target;
  if (asked = files_.read_link(place.path, target); !asked) return asked;
  place = {target.is_absolute() ? target : directory_ / target, true};
  os::FileStatus there;
  asked = files_.status(place.path, there);
  if (asked) status = there;
  return asked.error == ENOENT ? os::SysResult::of(0) : asked;
}

Result<void> VelocFolders::rename(const Path& from, const Path& to) const {
  os::FileStatus before, there;
  const auto known = files_.status(from, before);
  const auto renamed = files_.rename(from, to);
  if (renamed || (renamed.error == ENOENT && known && files_.status(to, there) && there.is(before))) return {};
  return file_error(to, "renaming it", renamed.error);
}

Result<void> VelocFolders::sync(const Path& directory) const {
  if (const auto synced = files_.sync_directory(directory); !synced)
    return file_error(directory, "syncing the directory", synced.error);
  return {};
}

Result<VelocMarkBegin> VelocFolders::read_mark_begin(const Path& path) const {
  std::vector<std::byte> bytes;
  if (const auto got = read_front(files_, path, kVelocMarkBegin, bytes); !got)
    return file_error(path, "reading it", got.error);
  auto begin = parse_veloc_mark_begin(bytes);
  if (!begin) return Error{begin.error().code, path.string() + ": " + begin.error().message};
  return begin;
}

VelocFolders::Times VelocFolders::times() const {
  os::FileStatus directory, own;
  if (!files_.status(directory_, directory)) return {};
  static_cast<void>(files_.status(own_, own));
  const std::int64_t now = std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  const Times times{directory.changed_ns, own.changed_ns};
  return std::max(times.directory, times.own) + kTick < now ? times : Times{};
}

}  // namespace ebb::storage
