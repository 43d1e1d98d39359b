#pragma once
// Properties of this machine: GPUs and their measured rates, memory, file systems, and the sizes that a store would
// choose. Nothing here opens a store.
//
//   for (const auto& gpu : ebb::machine::gpus()) std::cout << gpu.name << ", " << gpu.pci << "\n";
//   auto rates = ebb::machine::link_rates("cuda:0").value();
//   auto plan = ebb::machine::plan({.directory = "/scratch"}).value();   // plan.device, plan.host, plan.disk: bytes
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ebbtide/checkpoint.hpp"
#include "ebbtide/error.hpp"
#include "ebbtide/options.hpp"
#include "ebbtide/snapshot.hpp"

namespace ebb::machine {

struct Gpu {
  int ordinal = 0;   ///< N of "cuda:N"
  std::string name;  ///< "NVIDIA H200"
  std::uint64_t total_bytes = 0;
  std::optional<std::uint64_t> free_bytes;  ///< none: the process does not use this GPU yet (see `gpus`)
  std::string pci;                          ///< "0000:1b:00.0"
};

/// The GPUs that this process may use, ascending by ordinal; none without a driver. With `open`, a context is opened on
/// each to get its free bytes (some tenths of a second and some hundred megabytes per GPU), and closed again.
std::vector<Gpu> gpus(bool open = false);
/// Why there is no GPU; empty when there is one.
std::string gpu_absent_reason();
/// The ordinal of the GPU whose memory (managed memory too) `pointer` is in; none for host memory, pinned or not.
std::optional<int> gpu_of(const void* pointer);
/// Waits until stream `stream` of GPU `gpu` has done its present work; if the stream cannot be waited for, until the
/// whole GPU has. Errors: unsupported (no such GPU; the stream is being captured into a graph), invalid_argument (a
/// stream of another GPU), io_error (the work failed).
Result<void> finish(int gpu, StreamHandle stream);

/// Rates of bare copies, in bytes per second.
struct LinkRates {
  double device_copy = 0;     ///< within the device
  double device_to_host = 0;  ///< to pinned host memory
  double host_to_device = 0;
  double both = 0;  ///< the sum of both directions at once
};

/// Copies between host memory as a store without a GPU does: large copies bypass the processor's caches. It is what a
/// call's bare copy is there.
void copy(void* to, const void* from, std::size_t bytes) noexcept;

/// Medians of a few copies of `span` bytes on `device` ("cpu", "cuda", "cuda:N", "auto"), with no other transfers of
/// this process in flight. Temporarily allocates 2 x `span` of device memory and of pinned host memory. Errors:
/// invalid_argument, unsupported (no such GPU), out_of_memory, io_error.
Result<LinkRates> link_rates(const std::string& device, std::size_t span = std::size_t{256} << 20);

/// How one GPU uses the memory of another one: rates of bare copies, in bytes per second.
struct PeerLink {
  int from = 0, to = 0;  ///< `from` copies to and from memory of `to`
  bool usable = false;
  std::string reason;          ///< why it is not usable: no NVLink, MIG, bytes that did not arrive, ...
  bool damaged = false;        ///< copies are said to work, and bytes did not arrive
  double store = 0, load = 0;  ///< to the peer and from it; 0 if not usable
};

/// Every ordered pair of the GPUs that this process may use; none with fewer than two. Each pair is probed with bytes
/// that are written and read back, then measured with copies of `span` bytes, a multiple of 2 MiB. Opens a context on
/// each GPU. Temporarily allocates 2 x `span` of device memory and 16 MiB of pinned host memory.
std::vector<PeerLink> peer_links(std::size_t span = std::size_t{128} << 20);

/// Why io_uring cannot be used, according to an attempt; empty when it can.
std::string io_uring_absent_reason();

/// A way to notice writes to protected memory, and what came of an attempt.
struct WriteWatch {
  std::string name;  ///< "userfaultfd asynchronous" (with PAGEMAP_SCAN), "userfaultfd synchronous", "mprotect"
  bool usable = false;
  bool user_faults_only = false;  ///< a system call that writes to protected memory, such as read(), fails
  std::string note;               ///< why it is not usable, or limited
};

struct WriteTracking {
  std::vector<WriteWatch> watches;
  Track automatic = Track::digest;  ///< what Track::automatic uses here: faults, scan or digest
};

/// How snapshots find writes on this machine.
WriteTracking write_tracking();

struct FileSystem {
  std::string kind;        ///< "ext4", "tmpfs", ...
  bool in_memory = false;  ///< its files take memory, not a disk
  std::uint64_t free_bytes = 0, total_bytes = 0;
};

/// The file system that `directory` is on. Error invalid_argument: the directory cannot be used.
Result<FileSystem> file_system(const std::filesystem::path& directory);

/// Bytes of host memory.
struct MemoryLimits {
  std::uint64_t available = 0;               ///< obtainable without swapping
  std::optional<std::uint64_t> cgroup;       ///< the least limit of this process's control groups; none: no limit
  std::optional<std::uint64_t> cgroup_left;  ///< what is left of it
  std::uint64_t local_ranks = 1;             ///< processes of this job that the launcher started on this node
};

/// Error io_error: the system does not report them.
Result<MemoryLimits> memory_limits();

/// The sizes that a store would choose.
struct Plan {
  std::uint64_t device = 0, host = 0, disk = 0;  ///< bytes of each tier; 0: no such tier
  std::filesystem::path directory;               ///< of the disk tier
  std::string settings;                          ///< as in Stats::settings
};

/// What a store opened with `options` would choose. Nothing is opened or allocated. Errors: those of Store::open that
/// do not need the store.
Result<Plan> plan(const Options& options = {});

}  // namespace ebb::machine
