#pragma once
// Files without us: bare O_DIRECT reads and writes of a preallocated, unlinked file, by io_uring and by threads.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <vector>

namespace bench {

struct Aligned {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<std::byte[], Aligned>;
/// 4096-aligned, touched, on huge pages where the system gives them.
Buffer make_buffer(std::size_t bytes);

/// How a file is read or written: `depth` requests of `request` bytes under way at once. Each of them goes through its
/// part of `memory` bytes in turn, or has its own place only where that is not more. A few MiB that are used again and
/// again stay in the processor's caches, and a disk that is another program's (a virtual one) copies faster to there
/// than to memory in which checkpoints lie.
struct Way {
  bool uring = false;
  unsigned depth = 1;
  std::size_t request = 1 << 20;
  std::size_t memory = 0;

  std::size_t part() const { return std::max<std::size_t>(memory / depth / request, 1) * request; }
};

/// Throws std::system_error for every failure: a benchmark that cannot measure says so.
class RawFile {
 public:
  explicit RawFile(const std::filesystem::path& directory);
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  ~RawFile();
  /// `span` bytes of space taken from the disk and never written.
  void fresh(std::uint64_t span);
  /// Bytes per second of writing or reading the first `span` bytes.
  double rate(bool write, std::uint64_t span, const Way& way);
  /// What was written is on stable storage.
  void sync();

 private:
  int fd_ = -1;
};

/// Every way worth trying here.
std::vector<Way> ways();

struct Best {
  Way way;
  double bytes_per_s = 0;
};
struct BestRates {
  Best write, read;
};
/// The fastest way in each direction, through its own few MiB and, where that is more, through `memory` bytes: each
/// once over `span` bytes, then the fastest of them again, several times by turns, for one try of so many is good by
/// chance.
BestRates find_best(RawFile& file, std::uint64_t span, std::size_t memory = 0);

}  // namespace bench
