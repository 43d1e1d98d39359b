#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>

#include "os/files.hpp"
#include "storage/storage.hpp"
#include "transfer/file_engine.hpp"

namespace ebb::storage {

struct ScratchOptions {
  std::filesystem::path directory;
  std::uint64_t capacity = 0;  // bytes, rounded down to 4096
  bool direct = true;          // O_DIRECT; false: through the page cache
  transfer::FileEngineOptions engine;
};

/// Storage in one unlinked file, which disappears with the process. Errors: unsupported (the directory is on a tmpfs;
/// O_DIRECT or io_uring was asked for and is missing), no_space, io_error; each names the directory. `files` must
/// outlive it.
Result<std::unique_ptr<Storage>> open_scratch_file(os::Files& files, const ScratchOptions& options, Done done);

}  // namespace ebb::storage
