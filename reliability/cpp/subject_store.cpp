#include <numeric>

#include "device/device.hpp"
#include "os/clock.hpp"
#include "planner/topology.hpp"
#include "reliability/cpp/subject_snapshots.hpp"

namespace ebb::trials {
namespace {

constexpr std::uint64_t kCache = 1 << 20, kChunk = 64 << 10, kShared = 32 << 20;

}  // namespace

Result<void> StoreSubject::write(const Made& made, const Bytes& contents) {
  Bytes copy = contents;
  std::vector<Source> sources;
  std::size_t from = 0;
  std::uint32_t id = 0;
  for (const std::size_t bytes : regions_of(copy.size())) {
    sources.push_back({id++, copy.data() + from, bytes});
    from += bytes;
  }
  CheckpointOptions options;
  options.metadata = "take " + std::to_string(made.take);
  options.timeout = Seconds(5);
  auto written = store_.history(made.history).checkpoint(made.version, sources, options);
  std::fill(copy.begin(), copy.end(), std::byte{0xAA});  // they are the program's again
  if (!written) return written.error();
  return {};
}

Result<Bytes> StoreSubject::read(const std::string& history, Version version) {
  History of = store_.history(history);
  auto info = of.info(version);
  if (!info) return info.error();
  const std::size_t total = std::accumulate(info->regions.begin(), info->regions.end(), std::size_t{0},
                                            [](std::size_t sum, const RegionInfo& one) { return sum + one.bytes; });
  Bytes out(total, std::byte{0x55});
  std::vector<Target> targets;
  std::size_t at = 0;
  for (const RegionInfo& region : info->regions) {
    targets.push_back({region.id, out.data() + at, region.bytes});
    at += region.bytes;
  }
  RestoreOptions options;
  options.keep = true;
  if (auto restored = of.restore(version, targets, options); !restored) return restored.error();
  return out;
}

Result<std::unique_ptr<Subject>> open_store_subject(std::shared_ptr<os::Files> files, const SubjectOptions& options) {
  options::EngineSetup setup;
  setup.directory = options.directory;
  setup.durability = options.synced ? Durability::storage : Durability::process;
  setup.readonly = options.readonly;
  setup.direct_io = options.direct;
  setup.io = options.ring ? Io::automatic : Io::threads;
  setup.machine.retention.keep_last = options.keep_last;
  setup.machine.retention.keep_every = options.keep_every;
  auto& tiers = setup.machine.tiers;
  tiers.push_back({"device", planner::Medium::device, kCache, 4096});
  tiers.push_back({"host", planner::Medium::host, kCache, 4096});
  for (auto& tier : tiers) tier.grain = planner::kGrain;
  tiers.push_back({"local", planner::Medium::file, options.capacity, 4096});
  if (!options.shared.empty()) {
    tiers.push_back({"shared", planner::Medium::file, kShared, 4096});
    if (options.readonly) tiers.back().every = planner::kNothingComes;
    setup.shared = {options.shared, options.direct};
    if (options.waits_below) setup.durability = Durability::shared;
  }
  planner::connect(setup.machine, 4);
  for (auto& link : setup.machine.links) link.chunk = kChunk;
  setup.machine.ring_slot = kChunk;
  setup.machine.ephemeral = false;
  const auto said = std::make_shared<Said>();
  setup.log = [said](std::string_view line) {
    if (!line.starts_with("warning")) return;
    std::lock_guard lock(said->mutex);
    said->text.append(" | ").append(line);
  };
  options::Seams seams;
  seams.files = std::move(files);
  seams.clock = std::make_shared<os::SteadyClock>();
  seams.device = device::make_host_device();
  auto engine = store::Engine::open(std::move(seams), std::move(setup));
  if (!engine) return engine.error();
  if (options.layer == Layer::snapshots)
    return std::unique_ptr<Subject>(std::make_unique<SnapshotSubject>(std::move(*engine), options.synced, said));
  return std::unique_ptr<Subject>(std::make_unique<StoreSubject>(std::move(*engine), options.synced, said));
}

}  // namespace ebb::trials
