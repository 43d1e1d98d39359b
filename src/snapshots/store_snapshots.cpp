// The store's calls for snapshots.
#include "snapshots/snapshotter.hpp"

namespace ebb {

using snapshots::Snapshotter;

Result<void> Store::protect(std::uint32_t region, void* memory, std::size_t bytes, const ProtectOptions& options) {
  const Target one{region, memory, bytes};
  return protect({&one, 1}, options);
}

Result<void> Store::protect(std::span<const Target> memory, const ProtectOptions& options) {
  if (auto refused = refusal()) return *refused;
  auto snapshotter =
      Snapshotter::make_for(engine_, options.zone, {.hints = options.hints, .duplicate = options.duplicate});
  if (!snapshotter) return snapshotter.error();
  return (*snapshotter)->protect(memory, options);
}

Result<void> Store::unprotect(std::uint32_t region, const Interrupt& interrupted) {
  if (auto refused = refusal(interrupted)) return *refused;
  auto snapshotter = Snapshotter::of(engine_);
  if (!snapshotter) return snapshotter.error();
  return (*snapshotter)->unprotect(region, interrupted);
}

Result<void> Store::unprotect_all(const Interrupt& interrupted) {
  if (auto refused = refusal(interrupted)) return *refused;
  auto snapshotter = Snapshotter::of(engine_);
  if (!snapshotter) return snapshotter.error();
  return (*snapshotter)->unprotect({}, interrupted);
}

Result<void> Store::touch(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes) {
  if (auto refused = refusal()) return *refused;
  auto snapshotter = Snapshotter::of(engine_);
  if (!snapshotter) return snapshotter.error();
  return (*snapshotter)->touch(region, offset, bytes);
}

Result<Snapshot> Store::snapshot(Version version, const SnapshotOptions& options) {
  if (auto refused = refusal(options.interrupted)) return *refused;
  auto snapshotter = Snapshotter::of(engine_);
  if (!snapshotter) return snapshotter.error();
  auto cut = (*snapshotter)->snapshot(version, options);
  if (!cut) return cut.error();
  return Snapshot(std::move(*cut));
}

SnapshotStats Store::snapshot_stats() const {
  if (!engine_) return {};
  const auto snapshotter = Snapshotter::of(engine_);
  return snapshotter ? (*snapshotter)->stats() : SnapshotStats{};
}

}  // namespace ebb
