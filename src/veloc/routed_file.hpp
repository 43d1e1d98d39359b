#pragma once
// A file that the program writes or reads itself, in place of memory that it protects.
#include <cstddef>
#include <filesystem>

#include "ebbtide/error.hpp"

namespace ebb::veloc {

/// Owns a file's name, and its bytes as memory. Move-only; the file is removed when this ends.
class RoutedFile {
 public:
  explicit RoutedFile(std::filesystem::path path) : path_(std::move(path)) {}
  RoutedFile(RoutedFile&& other) noexcept;
  RoutedFile& operator=(RoutedFile&&) = delete;
  ~RoutedFile();

  const std::filesystem::path& path() const { return path_; }
  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

  /// The program may write it: its folder is there, and it is not.
  Result<void> prepare();
  /// What the program wrote, as memory.
  Result<void> map();
  /// A new file of so many bytes, as memory that can be written.
  Result<void> create(std::size_t bytes);
  /// Writes what was mapped to `to`, whole and synced: under the name `part`, in the same folder, until it is.
  Result<void> write_to(const std::filesystem::path& to, const std::filesystem::path& part) const;

 private:
  Result<void> open(int flags, std::size_t bytes);
  void unmap() noexcept;

  std::filesystem::path path_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace ebb::veloc
