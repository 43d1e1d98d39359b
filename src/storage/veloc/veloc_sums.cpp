#include "storage/veloc/veloc_sums.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "storage/file_io.hpp"

namespace ebb::storage {
namespace {

constexpr std::size_t kAtOnce = std::size_t{1} << 20;  // bytes

}  // namespace

Result<void> VelocSums::make(bool readonly) const {
  if (!wanted()) return {};
  if (const auto begun = Sha256::begin(); !begun) return begun.error();
  if (readonly) return {};
  const auto made = files_.make_directory(directory_);
  if (!made && made.error != EEXIST) return file_error(directory_, "making it", made.error);
  return sync(directory_.parent_path());
}

// Of an aggregated file each rank has its own.
std::filesystem::path VelocSums::path_of(const VelocName& name) const {
  return directory_ / (file_name({name.name, rank_, name.version}) + ".chksum");
}

Result<Sha256Sum> VelocSums::sum_of(const os::File& file, const VelocPart& part) const {
  auto sum = Sha256::begin();
  if (!sum) return sum.error();
  std::vector<std::byte> memory(std::min<std::uint64_t>(kAtOnce, part.bytes));
  for (std::uint64_t at = 0; at < part.bytes; at += memory.size()) {
    memory.resize(std::min<std::uint64_t>(memory.size(), part.bytes - at));
    const auto got = read_whole(files_, file.fd(), memory, part.begin + at);
    if (!got) return file_error(file.name(), "reading it", got.error);
    if (static_cast<std::uint64_t>(got.value) < memory.size())
      return Error{Errc::damaged, file.name() + ": it is shorter than it was"};
    sum->add(memory);
  }
  return sum->sum();
}

Result<void> VelocSums::write(const VelocName& name, const Sha256Sum& sum) const {
  const auto path = path_of(name);
  const auto opened = files_.open_write(part_);
  if (!opened) return file_error(part_, "making it", opened.error);
  {
    const os::File file(files_, static_cast<int>(opened.value), part_.string(), false);
    if (const auto put = write_whole(files_, file.fd(), sum, 0); !put)
      return file_error(part_, "writing it", put.error);
    if (const auto synced = files_.sync(file.fd()); !synced) return file_error(part_, "syncing it", synced.error);
  }
  if (const auto renamed = files_.rename(part_, path); !renamed) return file_error(path, "renaming it", renamed.error);
  return sync(directory_);
}

Result<void> VelocSums::check(const VelocName& name, const os::File& file, const VelocPart& part, bool needed) const {
  const auto path = path_of(name);
  const auto opened = files_.open(path, os::Open::read, false);
  if (!opened && opened.error != ENOENT) return file_error(path, "opening it", opened.error);
  if (!opened && !needed) return {};
  if (!opened) return Error{Errc::damaged, file.name() + ": its checksum file " + path.string() + " is not there"};
  const os::File sums(files_, static_cast<int>(opened.value), path.string(), false);
  Sha256Sum expected;
  const auto got = read_whole(files_, sums.fd(), expected, 0);
  if (!got) return file_error(path, "reading it", got.error);
  const auto sum = sum_of(file, part);
  if (!sum) return sum.error();
  if (static_cast<std::size_t>(got.value) == expected.size() && *sum == expected) return {};
  return Error{Errc::damaged, file.name() + ": it does not match its checksum file " + path.string()};
}

Result<void> VelocSums::remove(const VelocName& name) const {
  if (directory_.empty()) return {};
  const auto path = path_of(name);
  os::FileStatus status;
  const auto there = files_.status(path, status);
  if (there.error == ENOENT) return {};
  if (!there) return file_error(path, "asking for its status", there.error);
  if (const auto removed = files_.remove(path); !removed && removed.error != ENOENT)
    return file_error(path, "removing it", removed.error);
  return sync(directory_);
}

Result<void> VelocSums::sync(const std::filesystem::path& directory) const {
  if (const auto synced = files_.sync_directory(directory); !synced)
    return file_error(directory, "syncing the directory", synced.error);
  return {};
}

}  // namespace ebb::storage
