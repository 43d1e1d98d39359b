#pragma once
// A store image as files of an in-memory file system, which records every change.
#include <filesystem>
#include <gtest/gtest.h>
#include <set>
#include <string>

#include "storage/file_io.hpp"
#include "tests/doubles/memory_files.hpp"
#include "tests/storage/store_image.hpp"

namespace ebb::test {

inline constexpr const char* kStore = "/store";

/// All of it on stable storage, but for the bytes of `unsynced`.
inline void put_image(doubles::MemoryFiles& files, const StoreImage& image,
                      const std::set<std::string>& unsynced = {}) {
  ASSERT_TRUE(files.make_directory(kStore));
  for (const auto& [name, bytes] : image.files) {
    const auto path = std::filesystem::path(kStore) / name;
    const auto opened = files.open(path, os::Open::create, false);
    ASSERT_TRUE(opened) << path;
    const os::File file(files, static_cast<int>(opened.value), path.string(), false);
    ASSERT_TRUE(storage::write_whole(files, file.fd(), bytes, 0));
    ASSERT_TRUE(unsynced.contains(name) || files.sync(file.fd()));
  }
  ASSERT_TRUE(files.sync_directory(kStore));
  ASSERT_TRUE(files.sync_directory("/"));
}

}  // namespace ebb::test
