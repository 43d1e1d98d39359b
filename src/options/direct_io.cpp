#include "options/direct_io.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "storage/scan/segment_scan.hpp"

namespace ebb::options {
namespace {

using os::kBlock;

bool is_refusal(const os::SysResult& call) { return call.error == EINVAL || call.error == EOPNOTSUPP; }

// Not the first block: it may be aligned to more than 4096 in the file and in memory.
bool refuses_transfers(os::Files& files, int fd, bool write) {
  const std::unique_ptr<std::byte, decltype(&std::free)> blocks(
      static_cast<std::byte*>(std::aligned_alloc(kBlock, 2 * kBlock)), std::free);
  if (!blocks) return false;
  std::byte* const block = blocks.get() + kBlock;
  std::fill_n(block, kBlock, std::byte{0});
  return (write && is_refusal(files.write(fd, block, kBlock, kBlock))) ||
         is_refusal(files.read(fd, block, kBlock, kBlock));
}

}  // namespace

bool refuses_direct_io(os::Files& files, const std::filesystem::path& directory) {
  std::filesystem::path there = directory;
  auto opened = files.open_unlinked(there, true);
  if (opened.error == ENOENT) {
    there = std::filesystem::absolute(directory).lexically_normal().parent_path();
    opened = files.open_unlinked(there, true);
  }
  const bool made = static_cast<bool>(opened);
  std::vector<std::string> names;
  if (!made && !is_refusal(opened) && files.list(there, names)) {
    const auto segment =
        std::ranges::find_if(names, [](const auto& name) { return storage::segment_number(name).has_value(); });
    if (segment != names.end()) opened = files.open(there / *segment, os::Open::read, true);
  }
  if (!opened) return is_refusal(opened);
  const os::File file(files, static_cast<int>(opened.value), there.string(), true);
  return refuses_transfers(files, file.fd(), made);
}

}  // namespace ebb::options
