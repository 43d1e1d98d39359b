#pragma once
// A kept store in a directory of its own that can be opened again and again, as other processes would.
#include <atomic>
#include <mutex>
#include <unistd.h>

#include "storage/scan/segment_scan.hpp"
#include "support.hpp"

namespace ebb::store::testing_support {

inline constexpr std::size_t kSize = 40 * kKiB;  // of a checkpoint: three chunks, the last one not whole

/// What a store says to its log. Thread safety: every method may be called from any thread.
class Lines {
 public:
  std::function<void(std::string_view)> sink() {
    return [this](std::string_view line) {
      const std::lock_guard lock(mutex_);
      lines_.emplace_back(line);
    };
  }
  /// Those that begin so.
  std::vector<std::string> starting(std::string_view with) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> found;
    for (const std::string& line : lines_) {
      if (line.starts_with(with)) found.push_back(line);
    }
    return found;
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// A new directory on a disk, removed at the end with all that is in it.
class OwnDirectory {
 public:
  explicit OwnDirectory(const std::filesystem::path& in = ::testing::TempDir()) {
    static std::atomic<int> count{0};
    path_ = in / ("ebbtide-kept-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::remove_all(path_);
  }
  OwnDirectory(const OwnDirectory&) = delete;
  ~OwnDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::vector<std::filesystem::path> segments() const {
    std::vector<std::filesystem::path> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      if (storage::segment_number(entry.path().filename())) out.push_back(entry.path());
    }
    std::sort(out.begin(), out.end());
    return out;
  }
  /// Where the payload of the newest live record of this name begins, and in which segment.
  std::pair<std::filesystem::path, std::uint64_t> payload_of(Version version, const std::string& history = "") const {
    os::PosixFiles files;
    const auto scanned = storage::scan_store(files, path_, false).value();
    std::pair<std::filesystem::path, std::uint64_t> found;
    std::uint64_t sequence = 0;
    for (const auto& segment : scanned.segments) {
      for (const auto& record : segment.records) {
        if (record.head.version != version || record.history != history || record.head.sequence < sequence) continue;
        sequence = record.head.sequence;
        found = {storage::segment_path(path_, segment.segment), record.head.place.offset + record.head.header_bytes};
      }
    }
    return found;
  }
  /// Turns a bit of one byte, under the eyes of whoever has it open.
  static void flip(const std::filesystem::path& path, std::uint64_t offset) {
    os::PosixFiles files;
    const os::File file(files, static_cast<int>(files.open(path, os::Open::write, false).value), path, false);
    std::byte one{};
    ASSERT_TRUE(files.read(file.fd(), &one, 1, offset));
    one ^= std::byte{0x10};
    ASSERT_TRUE(files.write(file.fd(), &one, 1, offset));
    ASSERT_TRUE(files.sync(file.fd()));  // O_DIRECT reads see it
  }

 private:
  std::filesystem::path path_;
};

/// Like Rig, for a store that is kept: `open()` closes what is open and opens it again.
class KeptRig : public OwnDirectory {
 public:
  explicit KeptRig(Backend backend = Backend::threads, Sizes sizes = {}) : rig_(backend, sizes) {
    setup().directory = path();
    setup().durability = Durability::storage;
    setup().machine.ephemeral = false;
    setup().log = lines_.sink();
  }

  options::EngineSetup& setup() { return rig_.setup(); }
  doubles::FaultyFiles& files() { return rig_.files(); }
  Rig& rig() { return rig_; }
  Lines& lines() { return lines_; }
  /// Other sizes of the tiers from the next opening on.
  void resize(const Sizes& sizes) {
    const Rig other(Backend::threads, sizes);
    const planner::Retention retention = setup().machine.retention;
    setup().machine = const_cast<Rig&>(other).setup().machine;
    setup().machine.ephemeral = false;
    setup().machine.retention = retention;
  }
  Store& open() {
    rig_.end();
    lines_.clear();
    return rig_.store();
  }
  void close() { rig_.end(); }

 private:
  Lines lines_;
  Rig rig_;
};

/// Writes it and waits until it is on stable storage.
inline void keep(History& history, Version version, std::size_t size = kSize) {
  const auto written = write(history, version, size, {.timeout = Seconds(60)});
  ASSERT_TRUE(written) << written.error().message;
  const auto kept = Result<Future>(written).value().wait("storage", Seconds(60));
  ASSERT_TRUE(kept) << kept.error().message;
}

}  // namespace ebb::store::testing_support
