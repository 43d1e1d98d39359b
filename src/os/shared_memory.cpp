#include "os/shared_memory.hpp"

#include <cerrno>
#include <fcntl.h>
#include <limits>
#include <optional>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/files.hpp"
#include "os/pages.hpp"
#include "os/sys_result.hpp"
#include "os/user_directory.hpp"

namespace ebb::os {
namespace {

constexpr std::uint32_t kTmpfs = 0x01021994;
constexpr std::uint64_t kLastOffset = std::numeric_limits<off_t>::max();

bool is_range(FileRange range) {
  return range.bytes != 0 && range.offset % kBlock == 0 && range.bytes % kBlock == 0 && range.offset <= kLastOffset &&
         range.bytes <= kLastOffset - range.offset;
}

Error no_range(const std::string& name, FileRange range, const std::string& expected) {
  return {Errc::invalid_argument, "\"" + name + "\": " + std::to_string(range.bytes) + " bytes at " +
                                      std::to_string(range.offset) + " are no range: expected " + expected};
}

// A byte of its own for each process, in any order of their numbers.
struct flock lock_of(const ProcessId& user, short kind) {
  constexpr int kPidBits = 22;  // PID_MAX_LIMIT of Linux
  constexpr std::uint64_t kPids = (1 << kPidBits) - 1, kStarts = (std::uint64_t{1} << 40) - 1;
  struct flock lock{};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start =
      static_cast<off_t>((user.start & kStarts) << kPidBits | (static_cast<std::uint64_t>(user.pid) & kPids));
  lock.l_len = 1;
  return lock;
}

// What forbids the use of an open file; nothing: it may be used.
std::optional<std::string> why_unusable(const struct stat& found) {
  if (!S_ISREG(found.st_mode)) return "it is no regular file";
  if (found.st_uid != ::geteuid()) return "it belongs to user " + std::to_string(found.st_uid);
  if (found.st_mode & kOthersAccess) return "others have access to it";
  return {};
}

}  // namespace

SharedMapping::SharedMapping(std::byte* data, std::size_t size) : data_(data), size_(size), process_(::getpid()) {}

SharedMapping::~SharedMapping() {
  if (data_ && process_ == ::getpid()) ::munmap(data_, size_);
}

void SharedMapping::swap(SharedMapping& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(process_, other.process_);
}

Error DescriptorSharedFile::failed(const char* what, int error) const {
  return system_error(std::string(what) + " of shared memory \"" + name_ + "\" failed", error);
}

Result<std::uint64_t> DescriptorSharedFile::size() const {
  struct stat found{};
  if (::fstat(descriptor_.fd(), &found) != 0) return failed("reading the size", errno);
  return static_cast<std::uint64_t>(found.st_size);
}

bool DescriptorSharedFile::named() const {
  struct stat found{};
  return ::fstat(descriptor_.fd(), &found) == 0 && found.st_nlink > 0;
}

Result<void> DescriptorSharedFile::read(std::uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t got = ::pread(descriptor_.fd(), into.data(), into.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("reading", errno);
    if (got == 0) return Error{Errc::damaged, "shared memory \"" + name_ + "\" is shorter than what it describes"};
    offset += static_cast<std::uint64_t>(got);
    into = into.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Result<void> DescriptorSharedFile::allocate(FileRange range) {
  if (!is_range(range)) return no_range(name_, range, "multiples of 4096");
  // A signal interrupts an allocation, and the kernel takes back what it had done.
  while (::fallocate(descriptor_.fd(), 0, static_cast<off_t>(range.offset), static_cast<off_t>(range.bytes)) != 0) {
    if (errno != EINTR) return failed(("allocating " + std::to_string(range.bytes) + " bytes").c_str(), errno);
  }
  return {};
}

Result<SharedMapping> DescriptorSharedFile::map(std::span<const FileRange> ranges) {
  const Result<std::uint64_t> end = size();
  if (!end) return end.error();
  std::uint64_t total = 0;
  for (const FileRange& range : ranges) {
    if (!is_range(range) || range.offset + range.bytes > *end || range.bytes > kLastOffset - total) {
      return no_range(name_, range, "multiples of 4096 within its " + std::to_string(*end) + " bytes");
    }
    total += range.bytes;
  }
  if (total == 0) return SharedMapping();
  void* const reserved = ::mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return failed("reserving addresses", errno);
  SharedMapping whole(static_cast<std::byte*>(reserved), total);
  std::byte* at = whole.data();
  for (const FileRange& range : ranges) {
    if (::mmap(at, range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor_.fd(),
               static_cast<off_t>(range.offset)) == MAP_FAILED) {
      return failed("mapping", errno);
    }
    at += range.bytes;
  }
  keep_from_children(whole.data(), whole.size());
  return whole;
}

Result<void> DescriptorSharedFile::punch(FileRange range) {
  if (!is_range(range)) return no_range(name_, range, "multiples of 4096");
  while (::fallocate(descriptor_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(range.offset),
                     static_cast<off_t>(range.bytes)) != 0) {
    if (errno != EINTR) return failed("punching", errno);
  }
  return {};
}

Result<void> DescriptorSharedFile::hold(const ProcessId& user) {
  struct flock lock = lock_of(user, F_RDLCK);
  if (::fcntl(descriptor_.fd(), F_OFD_SETLK, &lock) != 0) return failed("locking", errno);
  return {};
}

Result<bool> DescriptorSharedFile::held(const ProcessId& user) const {
  struct flock lock = lock_of(user, F_WRLCK);
  if (::fcntl(descriptor_.fd(), F_OFD_GETLK, &lock) != 0) return failed("asking for locks", errno);
  return lock.l_type != F_UNLCK;
}

std::filesystem::path TmpfsSharedMemory::usual_directory() { return "/dev/shm/ebbtide-" + std::to_string(::geteuid()); }

Result<OwnDescriptor> TmpfsSharedMemory::open_directory() const {
  auto opened = open_user_directory(directory_, kOthersAccess);
  if (!opened) return Error{opened.error().code, "\"" + directory_.string() + "\": " + opened.error().message};
  struct statfs found{};
  if (::fstatfs(opened->fd(), &found) != 0) return system_error("describing \"" + directory_.string() + "\"", errno);
  if (static_cast<std::uint32_t>(found.f_type) != kTmpfs) {
    return Error{Errc::unsupported, "\"" + directory_.string() + "\" is not on a tmpfs"};
  }
  return opened;
}

// The errno `none` stands for a null file.
Result<std::unique_ptr<SharedFile>> TmpfsSharedMemory::open_with(const std::string& name, int flags, int none) {
  if (auto named = check_shared_name(name); !named) return named.error();
  auto directory = open_directory();
  if (!directory) return directory.error();
  OwnDescriptor opened([&] {
    return ::openat(directory->fd(), name.c_str(), flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
  });
  if (!opened && errno == none) return std::unique_ptr<SharedFile>();
  if (!opened) return system_error("opening \"" + path_of(name) + "\" failed", errno);
  struct stat found{};
  if (::fstat(opened.fd(), &found) != 0) return system_error("describing \"" + path_of(name) + "\" failed", errno);
  if (const auto why = why_unusable(found)) {
    return Error{Errc::not_permitted, "\"" + path_of(name) + "\" is not used: " + *why};
  }
  return std::unique_ptr<SharedFile>(std::make_unique<DescriptorSharedFile>(std::move(opened), path_of(name)));
}

Result<std::unique_ptr<SharedFile>> TmpfsSharedMemory::open(const std::string& name) {
  return open_with(name, 0, ENOENT);
}

Result<std::unique_ptr<SharedFile>> TmpfsSharedMemory::create(const std::string& name) {
  return open_with(name, O_CREAT | O_EXCL, EEXIST);
}

Result<void> TmpfsSharedMemory::remove(const std::string& name) {
  if (auto named = check_shared_name(name); !named) return named.error();
  auto directory = open_directory();
  if (!directory) return directory.error();
  if (::unlinkat(directory->fd(), name.c_str(), 0) == 0 || errno == ENOENT) return {};
  return system_error("removing \"" + path_of(name) + "\" failed", errno);
}

Result<std::vector<std::string>> TmpfsSharedMemory::list() {
  auto directory = open_directory();
  if (!directory) return directory.error();
  std::vector<std::string> names;
  PosixFiles files;
  if (const SysResult listed = files.list(directory_, names); !listed) {
    return system_error("listing \"" + directory_.string() + "\" failed", listed.error);
  }
  return names;
}

Result<void> check_shared_name(const std::string& name) {
  constexpr std::size_t kLongest = 255;
  if (!name.empty() && name != "." && name != ".." && name.size() <= kLongest &&
      name.find_first_of(std::string("/\0", 2)) == name.npos) {
    return {};
  }
  return Error{Errc::invalid_argument, "\"" + name.substr(0, name.find('\0')) +
                                           "\" is no name of a file: expected 1 to 255 bytes, no '/' and no NUL"};
}

}  // namespace ebb::os
