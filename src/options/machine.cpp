// ebbtide/machine.hpp over this machine.
#include "ebbtide/machine.hpp"

#include "device/copy_bytes.hpp"
#include "device/cuda.hpp"
#include "device/link_rates.hpp"
#include "device/peer_pairs.hpp"
#include "options/defaults.hpp"
#include "options/device_choice.hpp"
#include "os/automatic_track.hpp"
#include "os/memory_limits.hpp"

namespace ebb::machine {

std::vector<Gpu> gpus(bool open) {
  std::vector<Gpu> all;
  for (device::CudaFound& found : device::find_cuda_devices(open)) {
    const auto free_bytes = found.free_bytes > 0 ? std::optional(found.free_bytes) : std::nullopt;
    all.push_back({found.ordinal, std::move(found.name), found.total_bytes, free_bytes, std::move(found.pci)});
  }
  return all;
}

void copy(void* to, const void* from, std::size_t bytes) noexcept { device::copy_bytes(to, from, bytes); }

std::string gpu_absent_reason() { return device::cuda_absent_reason(); }

std::optional<int> gpu_of(const void* pointer) { return device::device_of_pointer(pointer); }

Result<void> finish(int gpu, StreamHandle stream) {
  if (stream == 0) stream = device::kLegacyStream;
  const auto device = device::make_cuda_device(gpu);
  if (!device) return device.error();
  const std::string name = "cuda:" + std::to_string(gpu);
  if ((*device)->capturing(stream)) {
    return Error{Errc::unsupported,
                 "a stream of " + name +
                     " is being captured into a graph, and this call would wait for it: call outside the capture"};
  }
  if ((*device)->foreign(stream)) {
    return Error{Errc::invalid_argument, "an array on " + name + " names a stream of another GPU"};
  }
  const auto event = (*device)->create_event();
  Result<void> done = event ? (*device)->record(*event, stream) : Result<void>(event.error());
  if (done) done = (*device)->wait(*event);
  if (event) (*device)->destroy_event(*event);
  if (!done) static_cast<void>(static_cast<bool>((*device)->synchronize()));
  return done;
}

Result<LinkRates> link_rates(const std::string& device, std::size_t span) {
  auto opened = options::open_device(device);
  if (!opened) return opened.error();
  return device::measure_links(**opened, span);
}

std::vector<PeerLink> peer_links(std::size_t span) {
  std::vector<PeerLink> all;
  for (const device::PeerPair& pair : device::cuda_peer_pairs(span)) {
    PeerLink link{.from = pair.from, .to = pair.to, .usable = static_cast<bool>(pair.rates), .reason = {}};
    if (link.usable) {
      link.store = pair.rates->store;
      link.load = pair.rates->load;
    } else {
      link.reason = pair.rates.error().message;
      link.damaged = pair.rates.error().code == Errc::damaged;
    }
    all.push_back(std::move(link));
  }
  return all;
}

std::string io_uring_absent_reason() {
  const auto ring = os::PosixFiles().open_ring(8);
  return ring ? std::string() : ring.error().message;
}

WriteTracking write_tracking() {
  const auto abilities = os::SystemWriteWatches().abilities();
  WriteTracking found{.watches = {}, .automatic = os::automatic_track(abilities)};
  for (const os::WatchAbility& one : abilities)
    found.watches.push_back({std::string(name_of(one.form)), one.usable, one.user_faults_only, one.note});
  return found;
}

Result<FileSystem> file_system(const std::filesystem::path& directory) {
  os::FileSystem found;
  if (const auto done = os::PosixFiles().describe(directory, found); !done) {
    return Error{Errc::invalid_argument,
                 "\"" + directory.string() + "\" cannot be used: " + os::describe_errno(done.error)};
  }
  return FileSystem{std::move(found.kind), found.in_memory, found.free_bytes, found.total_bytes};
}

Result<MemoryLimits> memory_limits() {
  os::PosixFiles files;
  const auto available = os::available_memory(files);
  if (!available) return available.error();
  const auto ranks = options::local_ranks(options::process_environment());
  if (!ranks) return ranks.error();
  MemoryLimits limits{.available = *available, .cgroup = {}, .cgroup_left = {}, .local_ranks = *ranks};
  if (const auto group = os::cgroup_memory(files)) {
    limits.cgroup = group->limit;
    limits.cgroup_left = group->left;
  }
  return limits;
}

// The same steps as Store::open, up to the point where memory would be allocated.
Result<Plan> plan(const Options& options) {
  const auto environment = options::process_environment();
  auto filled = options::with_environment(options, environment);
  if (!filled) return filled.error();
  auto device = options::open_device(filled->device);
  if (!device) return device.error();
  os::PosixFiles files;
  auto setup = options::choose_setup(*filled, files, **device, environment);
  if (!setup) return setup.error();
  Plan plan{.directory = std::move(setup->directory), .settings = std::move(setup->settings)};
  for (const planner::TierSpec& tier : setup->machine.tiers) {
    switch (tier.medium) {
      case planner::Medium::device: plan.device += tier.capacity; break;  // what peers lend is not counted
      case planner::Medium::host: plan.host = tier.capacity; break;
      case planner::Medium::file: plan.disk = tier.capacity; break;
    }
  }
  return plan;
}

}  // namespace ebb::machine
