// veloc::cached_file_t over WriteBehind.
#include <charconv>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <limits>
#include <utility>

#include "veloc/cache.hpp"
#include "veloc/config.hpp"
#include "veloc/say.hpp"
#include "veloc/write_behind.hpp"

namespace veloc {

namespace {

using ebb::Errc;
using ebb::Error;
using ebb::Result;
using ebb::veloc::CachedFile;
using ebb::veloc::SharedCachedFile;
using ebb::veloc::WriteBehind;

constexpr const char* kCall = "cached_file_t";
constexpr std::size_t kMostWrites = 1 << 16;

std::size_t most_writes() {
  const char* const text = std::getenv("VELOC_POSIX_CACHE_SIZE");
  if (!text) return kMostWrites;
  const std::string_view given = text;
  std::size_t number = 0;
  const auto [at, failed] = std::from_chars(given.data(), given.data() + given.size(), number);
  if (failed == std::errc() && at == given.data() + given.size() && number > 0) return number;
  ebb::veloc::say(kCall, "VELOC_POSIX_CACHE_SIZE = " + std::string(given) +
                             " is not valid: give a number of writes from 1 on; 65536 is taken");
  return kMostWrites;
}

/// One for the process, because flush() and shutdown() are for all files. The last that uses it may be a file that
/// ends after main().
const std::shared_ptr<WriteBehind>& writer() {
  struct Held {
    std::shared_ptr<WriteBehind> writer = std::make_shared<WriteBehind>(most_writes());
    ~Held() { writer->stop(); }
  };
  static const Held held;
  return held.writer;
}

Result<std::filesystem::path> scratch_of(const std::string& given) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(given, failed)) return std::filesystem::path(given);
  auto config = ebb::veloc::read_config(given);
  if (!config) return config.error();
  return config->scratch;
}

Result<void> check(off_t offset, const void* buffer, size_t count) {
  if (count > 0 && !buffer) return Error{Errc::invalid_argument, "a null pointer was given: give the data"};
  if (offset < 0 || count > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max() - offset)) {
    return Error{Errc::invalid_argument,
                 "offset " + std::to_string(offset) + " is not valid: give one from 0 on, of a file that can be"};
  }
  return {};
}

Error none_open() { return {Errc::invalid_argument, "no file is open: call open() first"}; }

}  // namespace

struct cached_file_t::state {
  std::string scratch;
  std::shared_ptr<WriteBehind> writer;
  SharedCachedFile file;
};

cached_file_t::cached_file_t(const std::string& scratch) : state_(new state{scratch, {}, {}}) {
  ebb::veloc::guarded(kCall, [&]() -> Result<void> {
    state_->writer = writer();
    return {};
  });
}
cached_file_t::~cached_file_t() { close(); }

bool cached_file_t::open(const std::string& name, int flags, mode_t mode) {
  return ebb::veloc::guarded(kCall, [&]() -> Result<void> {
    if (state_->file) {
      return Error{Errc::invalid_argument, name + " cannot be opened: another file is open here: call close() first"};
    }
    if (!state_->writer) return Error{Errc::out_of_memory, name + " cannot be opened: there is no thread to write it"};
    if (flags & (O_APPEND | O_DIRECT)) {
      return Error{Errc::invalid_argument, name + " cannot be opened with O_APPEND or O_DIRECT: leave them out"};
    }
    const auto scratch = scratch_of(state_->scratch);
    if (!scratch) return scratch.error();
    auto opened = CachedFile::open(*scratch, name, flags, mode);
    if (!opened) return opened.error();
    state_->file = std::move(*opened);
    return {};
  });
}

bool cached_file_t::pread(void* buffer, size_t count, off_t offset) {
  return ebb::veloc::guarded(kCall, [&]() -> Result<void> {
    if (!state_->file) return none_open();
    if (auto right = check(offset, buffer, count); !right) return right;
    state_->writer->wait(*state_->file);
    return state_->file->read(static_cast<std::byte*>(buffer), count, static_cast<std::uint64_t>(offset));
  });
}

bool cached_file_t::pwrite(const void* buffer, size_t count, off_t offset) {
  return ebb::veloc::guarded(kCall, [&]() -> Result<void> {
    if (!state_->file) return none_open();
    if (auto right = check(offset, buffer, count); !right) return right;
    const auto at = static_cast<std::uint64_t>(offset);
    if (auto put = state_->file->write_copy(static_cast<const std::byte*>(buffer), count, at); !put) return put;
    if (state_->writer->add(state_->file, at, count)) return {};
    return Error{Errc::closed, "nothing can be written after shutdown()"};
  });
}

void cached_file_t::close() {
  ebb::veloc::guarded(kCall, [&]() -> Result<void> {
    if (state_->file) state_->writer->close(std::exchange(state_->file, {}));
    return {};
  });
}

bool cached_file_t::flush() {
  bool whole = false;
  const bool done = ebb::veloc::guarded(kCall, [&]() -> Result<void> {
    whole = writer()->flush();
    return {};
  });
  return done && whole;
}

void cached_file_t::shutdown() {
  ebb::veloc::guarded(kCall, [&]() -> Result<void> {
    writer()->stop();
    return {};
  });
}

}  // namespace veloc
