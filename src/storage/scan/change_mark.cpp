#include "storage/scan/change_mark.hpp"

#include <cstdio>

#include "storage/file_io.hpp"
#include "storage/scan/segment_scan.hpp"

namespace ebb::storage {

using os::File;
using os::FileStatus;

namespace {

constexpr const char* kNumber = "\nchanged ";
constexpr std::size_t kMostText = 512;

}  // namespace

std::string lock_text(const std::string& holder, std::uint64_t number) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return holder + kNumber + digits + "\n";
}

ChangeMark::ChangeMark(os::Files& files, const std::filesystem::path& directory)
    : files_(files), index_(directory / kIndexFile), lock_path_(directory / kLockFile) {}

bool ChangeMark::changed() {
  std::optional<std::string> now = read();
  const bool same = now && now == last_;
  last_ = std::move(now);
  return !same;
}

std::optional<std::string> ChangeMark::read() {
  FileStatus index, lock;
  const bool closed = static_cast<bool>(files_.status(index_, index));
  std::string text;
  if (files_.status(lock_path_, lock)) {
    if (lock_.fd() < 0 || !lock.is(opened_)) {
      lock_ = File();
      const auto opened = files_.open(lock_path_, os::Open::read, false);
      if (!opened) return {};
      lock_ = File(files_, static_cast<int>(opened.value), lock_path_.string(), false);
      if (!files_.status(lock_.fd(), opened_)) opened_ = {};
    }
    text.resize(kMostText);
    const auto got = files_.read(lock_.fd(), text.data(), text.size(), 0);
    if (!got) return {};
    text.resize(static_cast<std::size_t>(got.value));
  }
  if (!closed && text.find(kNumber) == std::string::npos) return {};
  if (closed) {
    text += "index " + std::to_string(index.device) + " " + std::to_string(index.inode) + " " +
            std::to_string(index.bytes) + " " + std::to_string(index.changed_ns);
  }
  return text;
}

}  // namespace ebb::storage
