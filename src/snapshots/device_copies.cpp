#include "snapshots/device_copies.hpp"

#include <algorithm>
#include <cstring>

#include "base/start_thread.hpp"
#include "snapshots/archive.hpp"
#include "storage/format/snapshot_names.hpp"

namespace ebb::snapshots {

using device::StreamId;

namespace {

Error store_gone() { return {Errc::closed, "the store is closed, and its snapshots have ended"}; }

}  // namespace

// --- the pieces of one cut -------------------------------------------------------------------------------------------

DeviceCopies::DeviceCopies(std::weak_ptr<DeviceCopier> copier, std::vector<DevicePiece> pieces,
                           std::vector<Reservation> ahead)
    : copier_(std::move(copier)), pieces_(pieces.size()) {
  for (std::size_t i = 0; i < pieces.size(); ++i) pieces_[i].what = std::move(pieces[i]);
  for (std::size_t i = 0; i < ahead.size(); ++i) pieces_[i].memory.emplace(std::move(ahead[i]));
}

bool DeviceCopies::GatheredPiece::has(std::uint32_t region) const {
  return std::ranges::any_of(what.runs, [&](const DeviceRun& run) { return run.region == region; });
}

Result<void> DeviceCopies::collect(std::span<StoredPiece> pieces) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return committed_ || error_; });
  if (error_) return *error_;
  for (std::size_t i = 0; i < pieces_.size(); ++i) pieces[i].sums = std::move(pieces_[i].sums);
  return {};
}

void DeviceCopies::fail(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (!committed_ && !error_) error_ = why;
  changed_.notify_all();
}

void DeviceCopies::abandon(Cut& cut, const Error& why) {
  if (!cut.device) return;
  cut.device->fail(why);
  std::unique_lock lock(cut.board->mutex);
  cut.board->changed.wait(lock, [&] { return !cut.on_device; });
}

Result<void> DeviceCopies::before_write(Cut& cut, std::uint32_t region, std::optional<StreamHandle> stream,
                                        const Interrupt& interrupted) {
  const auto copier = cut.device ? cut.device->copier_.lock() : nullptr;
  if (!copier) return {};
  const auto on = copier->resolve(stream);
  if (!on) return on.error();
  const auto gathered = copier->gather(cut, region, {}, interrupted);
  // If the snapshot has failed, that is told by its wait(), and the program goes on.
  if (!gathered && gathered.error().code == Errc::timed_out) return gathered;
  return copier->fence(*on);
}

// --- the copier ------------------------------------------------------------------------------------------------------

DeviceCopier::DeviceCopier(std::weak_ptr<store::Engine> engine, std::shared_ptr<device::Device> device,
                           DeviceArrays& arrays, std::uint32_t zone_bytes, std::uint32_t piece_zones)
    : engine_(std::move(engine)),
      device_(std::move(device)),
      arrays_(arrays),
      zone_bytes_(zone_bytes),
      piece_zones_(piece_zones) {}

Result<std::shared_ptr<DeviceCopier>> DeviceCopier::make(const std::shared_ptr<store::Engine>& engine,
                                                         std::shared_ptr<device::Device> device, DeviceArrays& arrays,
                                                         std::uint32_t zone_bytes, std::uint32_t piece_zones) {
  using Where = device::DeviceBuffer::Where;
  std::shared_ptr<DeviceCopier> made(new DeviceCopier(engine, device, arrays, zone_bytes, piece_zones));
  const auto take = [](auto result, auto& to) {
    if (!result) return std::optional(result.error());
    to = std::move(*result);
    return std::optional<Error>();
  };
  const std::size_t sums = piece_zones * sizeof(device::Digest);
  auto failed = take(device::DeviceBuffer::make(device, Where::device, sums), made->sums_);
  if (!failed) failed = take(device::DeviceBuffer::make(device, Where::host, sums), made->host_sums_);
  if (!failed) failed = take(device::DeviceBuffer::make(device, Where::host, zone_bytes), made->host_zone_);
  if (!failed) failed = take(device->create_stream(), made->stream_);
  if (!failed) failed = take(device->create_event(), made->gathers_);
  if (!failed) failed = take(device->create_event(), made->summed_);
  if (failed) return *failed;
  auto thread = base::start_thread([copier = made.get()] { copier->run(); });
  if (!thread) return thread.error();
  made->thread_ = std::move(*thread);
  return made;
}

DeviceCopier::~DeviceCopier() {
  stop(store_gone());
  if (stream_ != 0) device_->destroy_stream(stream_);
  for (const device::EventId event : {gathers_, summed_}) {
    if (event == 0) continue;
    static_cast<void>(static_cast<bool>(device_->wait(event)));
    device_->destroy_event(event);
  }
}

void DeviceCopier::stop(const Error& why) {
  stopping_ = true;
  fail_under_way(why);
  if (thread_.joinable()) thread_.join();
}

void DeviceCopier::fail_under_way(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (now_) now_->fail(why);
  for (const Job& job : jobs_) job.cut->device->fail(why);
  wake_.notify_all();
}

Result<StreamId> DeviceCopier::resolve(std::optional<StreamHandle> given) const {
  const auto engine = engine_.lock();
  if (!engine) return store_gone();
  const auto stream = engine->streams().resolve(given);
  if (!stream) return stream.error();
  return stream->value_or(device::kLegacyStream);
}

Result<void> DeviceCopier::add(const std::shared_ptr<Cut>& cut, StreamId stream, bool fenced) {
  if (fenced) {
    const std::lock_guard lock(enqueue_);
    if (auto recorded = device_->record(gathers_, stream); !recorded) return recorded;
    if (auto ordered = device_->stream_wait(stream_, gathers_); !ordered) return ordered;
  }
  const std::lock_guard lock(mutex_);
  jobs_.push_back({cut, fenced});
  wake_.notify_all();
  return {};
}

void DeviceCopier::settle() {
  const std::lock_guard lock(enqueue_);
  // Whose gather it was the event does not say, and the thread may have yet to look.
  if (const auto gathered = device_->wait(gathers_); !gathered) fail_under_way(gathered.error());
  static_cast<void>(static_cast<bool>(device_->record(gathers_, stream_)));
}

Result<void> DeviceCopier::fence(StreamId stream) {
  const std::lock_guard lock(enqueue_);
  return device_->stream_wait(stream, gathers_);
}

Result<void> DeviceCopier::gather(const Cut& cut, std::optional<std::uint32_t> region, std::optional<StreamId> stream,
                                  const Interrupt& interrupted) {
  using PieceState = DeviceCopies::PieceState;
  DeviceCopies& copies = *cut.device;
  for (std::uint32_t number = 0; number < copies.pieces_.size(); ++number) {
    DeviceCopies::GatheredPiece& piece = copies.pieces_[number];
    if (region && !piece.has(*region)) continue;
    for (;;) {
      {
        std::unique_lock lock(copies.mutex_);
        const auto free = [&] { return copies.error_ || piece.state != PieceState::claimed; };
        while (!copies.changed_.wait_for(lock, store::kInterruptEvery, free)) {
          lock.unlock();
          if (interrupted && interrupted())
            return Error{Errc::timed_out, "the call was interrupted before all that a snapshot is owed was copied"};
          lock.lock();
        }
        if (copies.error_) return *copies.error_;
        if (piece.state == PieceState::gathered) break;
        piece.state = PieceState::claimed;
      }
      if (auto done = gather_claimed(cut, number, stream.value_or(stream_), interrupted); !done) return done;
    }
  }
  return {};
}

Result<Reservation> DeviceCopier::reserve(const storage::SnapshotId& id, std::uint32_t number, std::size_t zones,
                                          const CheckpointOptions& options) {
  const auto engine = engine_.lock();
  if (!engine) return store_gone();
  const Source region{0, nullptr, zones * zone_bytes_};
  return engine->view(storage::PieceName{"", id, number}.text()).reserve(storage::kPieceVersion, {&region, 1}, options);
}

std::vector<Reservation> DeviceCopier::reserve_ahead(const storage::SnapshotId& id, std::uint32_t pieces) {
  std::vector<Reservation> ahead;
  while (ahead.size() < pieces) {
    auto memory =
        reserve(id, static_cast<std::uint32_t>(ahead.size()), piece_zones_, {.interrupted = [] { return true; }});
    if (!memory) break;
    ahead.push_back(std::move(*memory));
  }
  return ahead;
}

void DeviceCopier::give_back(const storage::SnapshotId& id, std::uint32_t first, std::vector<Reservation> ahead) {
  const auto engine = engine_.lock();
  for (Reservation& memory : ahead) {
    if (engine)
      static_cast<void>(
          static_cast<bool>(engine->view(storage::PieceName{"", id, first}.text()).drop(storage::kPieceVersion)));
    const std::lock_guard lock(enqueue_);
    static_cast<void>(static_cast<bool>(memory.commit({.stream = stream_})));  // dropped: it is abandoned in order
    ++first;
  }
}

Result<void> DeviceCopier::gather_claimed(const Cut& cut, std::uint32_t number, StreamId stream,
                                          const Interrupt& interrupted) {
  using PieceState = DeviceCopies::PieceState;
  DeviceCopies& copies = *cut.device;
  DeviceCopies::GatheredPiece& piece = copies.pieces_[number];
  const auto end = [&](PieceState state, const Result<void>& result) {
    const std::lock_guard lock(copies.mutex_);
    piece.state = state;
    if (!result && result.error().code != Errc::timed_out && !copies.error_) copies.error_ = result.error();
    copies.changed_.notify_all();
    return result;
  };
  try {
    if (!piece.memory) {
      auto memory = reserve(
          cut.id, number, piece.what.zones.size(),
          {.timeout = kRoomTimeout, .interrupted = [&] { return stopping_ || (interrupted && interrupted()); }});
      if (!memory) return end(PieceState::owed, memory.error());
      piece.memory.emplace(std::move(*memory));
    }
    Result<void> done;
    {
      const std::lock_guard lock(enqueue_);
      for (const DeviceRun& run : piece.what.runs) {
        if (done) done = arrays_.gather(stream, run, piece.memory->data());
        gathered_ += run.bytes;
      }
      if (const auto recorded = device_->record(gathers_, stream); done) done = recorded;
    }
    return end(PieceState::gathered, done);
  } catch (...) {
    static_cast<void>(static_cast<bool>(end(PieceState::owed, Error{Errc::lost, "a snapshot could not be copied"})));
    throw;
  }
}

// --- the thread ------------------------------------------------------------------------------------------------------

Result<storage::Checksum> DeviceCopier::sum_short(const std::byte* zone, std::size_t bytes) {
  Result<void> done;
  {
    const std::lock_guard lock(enqueue_);
    done = device_->copy(stream_, host_zone_.data(), zone, bytes);
    if (const auto recorded = device_->record(summed_, stream_); done) done = recorded;
  }
  if (const auto waited = device_->wait(summed_); done) done = waited;
  if (!done) return done.error();
  return storage::checksum_of({host_zone_.data(), bytes});
}

Result<void> DeviceCopier::commit(DeviceCopies::GatheredPiece& piece) {
  std::byte* const packed = piece.memory->data();
  const auto place_of = [&](std::uint32_t place) { return packed + std::size_t{place} * zone_bytes_; };
  Result<void> done;
  {
    const std::lock_guard lock(enqueue_);
    done = device_->stream_wait(stream_, gathers_);
    for (const DeviceRun& run : piece.what.runs) {
      const device::Zones zones{place_of(run.place), run.bytes / zone_bytes_ * zone_bytes_, zone_bytes_};
      if (done && zones.bytes > 0)
        done = device_->zones(stream_, device::ChecksumZones{zones, sums_.as<device::Digest>() + run.place});
    }
    const std::size_t bytes = piece.what.zones.size() * sizeof(device::Digest);
    if (done) done = device_->copy(stream_, host_sums_.data(), sums_.data(), bytes);
    if (const auto recorded = device_->record(summed_, stream_); done) done = recorded;
  }
  if (const auto waited = device_->wait(summed_); done) done = waited;
  if (!done) return done;
  for (std::size_t i = 0; i < piece.what.zones.size(); ++i) {
    const device::Digest sum = host_sums_.as<device::Digest>()[i];
    piece.sums.push_back(storage::checksum_from(sum.low, sum.high));
  }
  for (const DeviceRun& run : piece.what.runs) {
    const std::size_t rest = run.bytes % zone_bytes_;
    if (rest == 0) continue;
    std::byte* const last = place_of(run.place + run.count - 1);
    auto sum = sum_short(last, rest);
    if (!sum) return sum.error();
    piece.sums[run.place + run.count - 1] = *sum;
    // Nothing that the cache held before is stored.
    std::memset(host_zone_.data(), 0, zone_bytes_);
    const std::lock_guard lock(enqueue_);
    if (auto cleared = device_->copy(stream_, last + rest, host_zone_.data(), zone_bytes_ - rest); !cleared)
      return cleared;
  }
  const std::lock_guard lock(enqueue_);
  return piece.memory->commit({.stream = stream_});
}

Result<void> DeviceCopier::commit_all(const Job& job) {
  using PieceState = DeviceCopies::PieceState;
  DeviceCopies& copies = *job.cut->device;
  for (std::uint32_t number = 0; number < copies.pieces_.size(); ++number) {
    DeviceCopies::GatheredPiece& piece = copies.pieces_[number];
    bool mine = false;
    {
      std::unique_lock lock(copies.mutex_);
      copies.changed_.wait(lock, [&] {
        return copies.error_ || piece.state == PieceState::gathered || (job.fenced && piece.state == PieceState::owed);
      });
      if (copies.error_) return *copies.error_;
      mine = piece.state == PieceState::owed;
      if (mine) piece.state = PieceState::claimed;
    }
    if (mine)
      if (auto gathered = gather_claimed(*job.cut, number, stream_, {}); !gathered) return gathered;
    if (auto committed = commit(piece); !committed) return committed;
    piece.memory.reset();
  }
  return {};
}

void DeviceCopier::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    DeviceCopies& copies = *job.cut->device;
    now_ = job.cut->device;
    lock.unlock();
    Result<void> done;
    try {
      done = commit_all(job);
    } catch (const std::bad_alloc&) {
      done = Error{Errc::out_of_memory, "there was no memory to store a snapshot"};
    } catch (const std::exception& error) {  // of a store that has failed as a whole
      done = Error{Errc::lost, std::string("a snapshot could not be stored: ") + error.what()};
    }
    {
      std::unique_lock mine(copies.mutex_);
      if (!done && !copies.error_) copies.error_ = done.error();
      copies.committed_ = static_cast<bool>(done);
      copies.changed_.notify_all();
      // A piece is in use until the thread that gathers it is done.
      copies.changed_.wait(mine, [&] {
        return std::ranges::none_of(copies.pieces_,
                                    [](const auto& one) { return one.state == DeviceCopies::PieceState::claimed; });
      });
    }
    for (DeviceCopies::GatheredPiece& piece : copies.pieces_) piece.memory.reset();
    {
      const std::lock_guard board(job.cut->board->mutex);
      job.cut->on_device = false;
      job.cut->board->changed.notify_all();
    }
    lock.lock();
    now_.reset();
  }
}

}  // namespace ebb::snapshots
