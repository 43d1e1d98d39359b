#pragma once
// Files of shared memory, for the processes of one user on a node. Real: TmpfsSharedMemory. Double:
// tests/doubles/fake_shared_memory.hpp.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "ebbtide/error.hpp"
#include "os/own_descriptors.hpp"
#include "os/process_id.hpp"

namespace ebb::os {

/// Bytes of a file. Both numbers are multiples of kBlock.
struct FileRange {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool operator==(const FileRange&) const = default;
};

/// Ranges of a file, mapped one after another at one address. Move-only; moved-from is empty. The destructor unmaps. A
/// forked child has no such pages: there the object is useless, and its destructor does nothing.
class SharedMapping {
 public:
  SharedMapping() = default;
  SharedMapping(std::byte* data, std::size_t size);
  SharedMapping(SharedMapping&& other) noexcept { swap(other); }
  SharedMapping& operator=(SharedMapping&& other) noexcept {
    SharedMapping taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~SharedMapping();
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  void swap(SharedMapping& other) noexcept;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  pid_t process_ = 0;  // which mapped it
};

/// An open file of shared memory. Mappings outlive it.
/// Thread safety: every method may be called from any thread.
class SharedFile {
 public:
  virtual ~SharedFile() = default;
  virtual Result<std::uint64_t> size() const = 0;
  /// Whether it has a name still: it was not removed, nor another file put in its place.
  virtual bool named() const = 0;
  /// Copies bytes out. What has no memory reads as zeros, and gets none. Errors: damaged (the file ends before them),
  /// io_error.
  virtual Result<void> read(std::uint64_t offset, std::span<std::byte> into) const = 0;
  /// Gives these bytes memory, and lengthens the file if it ends before them: from then on no access to them needs new
  /// memory, which the system might refuse with SIGBUS. New memory is zeroed, bytes that had memory keep their values.
  /// After an error nothing has changed. Errors: no_space, out_of_memory, io_error.
  virtual Result<void> allocate(FileRange range) = 0;
  /// Maps these ranges, which end within the file, at one new address, in the order given; a range may occur twice.
  /// Forked children do not inherit the mapping. Errors: invalid_argument, out_of_memory, io_error.
  virtual Result<SharedMapping> map(std::span<const FileRange> ranges) = 0;
  /// Returns the memory of these bytes to the system; they read as zeros. Mappings stay, and must not be touched until
  /// the bytes are allocated again.
  virtual Result<void> punch(FileRange range) = 0;
  /// Tells processes of every PID namespace that this one uses the file as `user`, until this object or the process
  /// ends: the kernel says so, which never takes a living process for a dead one. Error io_error.
  virtual Result<void> hold(const ProcessId& user) = 0;
  /// Whether another open file is held as `user`. Error io_error.
  virtual Result<bool> held(const ProcessId& user) const = 0;
};

/// The files by their names, in one directory.
/// Thread safety: every method may be called from any thread.
class SharedMemory {
 public:
  virtual ~SharedMemory() = default;
  /// Null: there is no such file. Errors: invalid_argument (a name with '/', ...); not_permitted (it belongs to another
  /// user, others have access, it is a link or no regular file; likewise the directory), unsupported (the directory is
  /// not in memory), io_error.
  virtual Result<std::unique_ptr<SharedFile>> open(const std::string& name) = 0;
  /// An empty file of mode 0600. Null: the name is taken.
  virtual Result<std::unique_ptr<SharedFile>> create(const std::string& name) = 0;
  /// The file's name is gone; its memory remains until it is neither open nor mapped anywhere. Also where there is no
  /// such file.
  virtual Result<void> remove(const std::string& name) = 0;
  /// The names in the directory, unordered: files of other kinds may be among them.
  virtual Result<std::vector<std::string>> list() = 0;
};

/// A file of shared memory behind a descriptor; `name` is for errors.
class DescriptorSharedFile final : public SharedFile {
 public:
  DescriptorSharedFile(OwnDescriptor descriptor, std::string name)
      : descriptor_(std::move(descriptor)), name_(std::move(name)) {}
  Result<std::uint64_t> size() const override;
  bool named() const override;
  Result<void> read(std::uint64_t offset, std::span<std::byte> into) const override;
  Result<void> allocate(FileRange range) override;
  Result<SharedMapping> map(std::span<const FileRange> ranges) override;
  Result<void> punch(FileRange range) override;
  Result<void> hold(const ProcessId& user) override;
  Result<bool> held(const ProcessId& user) const override;

 private:
  Error failed(const char* what, int error) const;
  OwnDescriptor descriptor_;
  const std::string name_;
};

/// Files in a directory on a tmpfs, which is created with mode 0700 if its parent exists.
class TmpfsSharedMemory final : public SharedMemory {
 public:
  explicit TmpfsSharedMemory(std::filesystem::path directory = usual_directory()) : directory_(std::move(directory)) {}
  /// /dev/shm/ebbtide-<uid>.
  static std::filesystem::path usual_directory();
  Result<std::unique_ptr<SharedFile>> open(const std::string& name) override;
  Result<std::unique_ptr<SharedFile>> create(const std::string& name) override;
  Result<void> remove(const std::string& name) override;
  Result<std::vector<std::string>> list() override;

 private:
  Result<OwnDescriptor> open_directory() const;
  Result<std::unique_ptr<SharedFile>> open_with(const std::string& name, int flags, int none);
  std::string path_of(const std::string& name) const { return (directory_ / name).string(); }
  const std::filesystem::path directory_;
};

/// Whether a file or socket may have this name: not empty, "." or "..", no '/' or NUL, at most 255 bytes.
Result<void> check_shared_name(const std::string& name);

}  // namespace ebb::os
