#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "snapshots/cut.hpp"
#include "snapshots/device_arrays.hpp"
#include "store/engine.hpp"

namespace ebb::snapshots {

class DeviceCopier;

/// What one cut stores of arrays on the GPU, on its way from there into pieces in the device cache. Each piece is
/// reserved, gathered, summed and committed, and drains from then on as a checkpoint does.
///
/// Thread safety: every method may be called from any thread. The mutex is not held while anything waits for room.
/// 1. A piece is gathered once, by whoever claims it first: the call, a fence, or the thread of the copier.
/// 2. Once it has failed nothing more is gathered, and nothing waits for it.
class DeviceCopies {
 public:
  /// `ahead`: memory of the first pieces.
  DeviceCopies(std::weak_ptr<DeviceCopier> copier, std::vector<DevicePiece> pieces, std::vector<Reservation> ahead);

  /// Waits until all pieces are committed, and puts their checksums into the first of the cut's pieces, which they are.
  /// Error: how it failed.
  Result<void> collect(std::span<StoredPiece> pieces);
  void fail(const Error& why);
  /// Fails the cut's pieces, and returns when nothing of the cut reads arrays or writes pieces any more.
  static void abandon(Cut& cut, const Error& why);
  /// As Snapshot::before_write.
  static Result<void> before_write(Cut& cut, std::uint32_t region, std::optional<StreamHandle> stream,
                                   const Interrupt& interrupted);

 private:
  friend class DeviceCopier;
  enum class PieceState : std::uint8_t { owed, claimed, gathered };
  struct GatheredPiece {
    DevicePiece what;
    PieceState state = PieceState::owed;       // by the mutex
    std::optional<Reservation> memory = {};    // then of who gathers it, then of the copier's thread
    std::vector<storage::Checksum> sums = {};  // of that thread, then of who collects
    bool has(std::uint32_t region) const;
  };

  const std::weak_ptr<DeviceCopier> copier_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<GatheredPiece> pieces_;
  bool committed_ = false;      // by the mutex
  std::optional<Error> error_;  // by the mutex
};

/// Gathers, sums and commits the pieces of all cuts of a store.
///
/// Thread safety: gather() and fence() may be called from any thread, the others by the owner.
/// 1. `enqueue_` is held while work is enqueued on the own stream, and while the event of gathers is recorded.
class DeviceCopier {
 public:
  /// Errors: out_of_memory.
  static Result<std::shared_ptr<DeviceCopier>> make(const std::shared_ptr<store::Engine>& engine,
                                                    std::shared_ptr<device::Device> device, DeviceArrays& arrays,
                                                    std::uint32_t zone_bytes, std::uint32_t piece_zones);
  DeviceCopier(const DeviceCopier&) = delete;
  ~DeviceCopier();
  /// Fails what is under way with this error.
  void stop(const Error& why);
  device::StreamId stream() const { return stream_; }

  /// Memory for the first `pieces` pieces of a cut, or for as many as there is room for now.
  std::vector<Reservation> reserve_ahead(const storage::SnapshotId& id, std::uint32_t pieces);
  /// Memory of that cut, from this piece on, which it does not need. (Its destructor would wait for the whole GPU.)
  void give_back(const storage::SnapshotId& id, std::uint32_t first, std::vector<Reservation> ahead);
  /// From now on the thread sums and commits the pieces of this cut as they are gathered. `fenced`: it gathers those
  /// that are owed, after what `stream` holds now.
  Result<void> add(const std::shared_ptr<Cut>& cut, device::StreamId stream, bool fenced);
  /// Gathers what is owed of a region, or of everything; on the own stream if none is given. Returns when all of it is
  /// enqueued. Errors: those of History::reserve; timed_out: interrupted, and the rest is still owed.
  Result<void> gather(const Cut& cut, std::optional<std::uint32_t> region, std::optional<device::StreamId> stream,
                      const Interrupt& interrupted);
  /// Waits for all gathers so far. If one of them failed, the cuts whose pieces are not all committed fail with it, and
  /// later ones do not.
  void settle();
  /// Later work on `stream` comes after all gathers so far.
  Result<void> fence(device::StreamId stream);
  /// The stream that a call is ordered on; the legacy default stream where none is given.
  Result<device::StreamId> resolve(std::optional<StreamHandle> given) const;
  std::uint64_t bytes_gathered() const { return gathered_; }

 private:
  struct Job {
    std::shared_ptr<Cut> cut;
    bool fenced = false;
  };
  DeviceCopier(std::weak_ptr<store::Engine> engine, std::shared_ptr<device::Device> device, DeviceArrays& arrays,
               std::uint32_t zone_bytes, std::uint32_t piece_zones);
  Result<Reservation> reserve(const storage::SnapshotId& id, std::uint32_t number, std::size_t zones,
                              const CheckpointOptions& options);
  Result<void> gather_claimed(const Cut& cut, std::uint32_t number, device::StreamId stream,
                              const Interrupt& interrupted);
  Result<void> commit(DeviceCopies::GatheredPiece& piece);
  Result<storage::Checksum> sum_short(const std::byte* zone, std::size_t bytes);
  Result<void> commit_all(const Job& job);
  void fail_under_way(const Error& why);
  void run();

  const std::weak_ptr<store::Engine> engine_;
  const std::shared_ptr<device::Device> device_;
  DeviceArrays& arrays_;
  const std::uint32_t zone_bytes_, piece_zones_;
  device::DeviceBuffer sums_, host_sums_, host_zone_;  // the thread's
  device::StreamId stream_ = 0;
  device::EventId gathers_ = 0, summed_ = 0;  // by enqueue_; the thread's
  std::mutex enqueue_;
  std::atomic<std::uint64_t> gathered_{0};
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;               // by the mutex
  std::shared_ptr<DeviceCopies> now_;  // by the mutex
  std::thread thread_;
};

}  // namespace ebb::snapshots
