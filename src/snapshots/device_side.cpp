#include "snapshots/device_side.hpp"

#include <utility>

namespace ebb::snapshots {

DeviceSide::DeviceSide(const std::shared_ptr<store::Engine>& engine, std::uint32_t zone_bytes,
                       std::uint32_t piece_zones)
    : engine_(engine), zone_bytes_(zone_bytes), piece_zones_(piece_zones), arrays_(engine->device()) {}

Result<void> DeviceSide::add(const Protection& made) {
  const auto engine = engine_.lock();
  if (!engine) return Error{Errc::closed, "the store is closed, and its snapshots have ended"};
  if (!copier_) {
    auto copier = DeviceCopier::make(engine, engine->device(), arrays_, zone_bytes_, piece_zones_);
    if (!copier) return copier.error();
    copier_ = std::move(*copier);
    counted_ = copier_.get();
  }
  return arrays_.add(made, zone_bytes_);
}

void DeviceSide::stop(const Error& why) {
  if (copier_) give_back(0);
  if (copier_) copier_->stop(why);
  last_.reset();
  arrays_.clear();
}

// Gives back the memory of the pieces from this one on.
void DeviceSide::give_back(std::size_t from) {
  if (ahead_.size() <= from) return;
  std::vector<Reservation> surplus;
  while (ahead_.size() > from) {
    surplus.insert(surplus.begin(), std::move(ahead_.back()));
    ahead_.pop_back();
  }
  copier_->give_back(ahead_of_, static_cast<std::uint32_t>(from), std::move(surplus));
}

Result<void> DeviceSide::finish_last(const Interrupt& interrupted) {
  if (!last_) return {};
  const auto gathered = copier_->gather(*last_, {}, {}, interrupted);
  if (!gathered && gathered.error().code == Errc::timed_out) return gathered;
  if (!gathered) arrays_.forget();
  last_.reset();
  return {};
}

void DeviceSide::lose(const Error& why) {
  if (last_) abandon(std::shared_ptr<Cut>(last_), why);
  if (copier_) copier_->settle();
  arrays_.forget();
}

Result<void> DeviceSide::wait(const SnapshotOptions& options) {
  if (arrays_.empty()) return {};
  const auto stream = copier_->resolve(options.stream);
  if (!stream) return stream.error();
  return arrays_.wait(*stream);
}

Result<void> DeviceSide::find(const storage::SnapshotId& id, const SnapshotOptions& options,
                              std::span<std::uint8_t> dirty) {
  if (arrays_.empty()) return {};
  give_back(0);  // of a call that threw
  ahead_of_ = id;
  const auto stream = copier_->resolve(options.stream);
  if (!stream) return stream.error();
  stream_ = *stream;
  Result<void> found = copier_->fence(stream_);
  const auto meanwhile = [&] {
    if (!options.fenced && !arrays_.untracked()) ahead_ = copier_->reserve_ahead(id, whole_pieces_);
  };
  if (found) found = arrays_.find(stream_, dirty, meanwhile);
  if (found) return found;
  give_back(0);
  arrays_.forget();
  return found;
}

Result<void> DeviceSide::cut(const std::shared_ptr<Cut>& cut, bool full, std::span<const ProtectedMemory::Zones> also,
                             const SnapshotOptions& options) {
  if (arrays_.empty()) return {};
  auto listed = arrays_.list(stream_, full, also, piece_zones_);
  if (!listed) {
    give_back(0);
    arrays_.forget();
    return listed.error();
  }
  whole_pieces_ = 0;
  for (const DevicePiece& piece : *listed) whole_pieces_ += piece.zones.size() == piece_zones_;
  give_back(whole_pieces_);
  if (listed->empty()) return {};
  for (const DevicePiece& piece : *listed)
    cut->pieces.push_back({static_cast<std::uint32_t>(cut->pieces.size()),
                           piece.zones.size() * std::uint64_t{zone_bytes_},
                           piece.zones,
                           {}});
  cut->device = std::make_shared<DeviceCopies>(copier_, std::move(*listed), std::exchange(ahead_, {}));
  cut->on_device = true;
  Result<void> done = copier_->add(cut, stream_, options.fenced);
  if (!done) {
    arrays_.forget();
    return done;
  }
  last_ = cut;
  if (!options.fenced) done = copier_->gather(*cut, {}, stream_, options.interrupted);
  if (!done) abandon(cut, done.error());
  return done;
}

void DeviceSide::abandon(const std::shared_ptr<Cut>& cut, const Error& why) {
  if (!cut->device) return;
  last_.reset();
  DeviceCopies::abandon(*cut, why);
  arrays_.forget();
}

bool DeviceSide::adopt(const Body& body, std::span<const storage::ZoneRange> zones, const std::function<bool()>& lean) {
  std::vector<ProtectedMemory::Zones> clean;
  for (const storage::ZoneRange& range : zones) clean.push_back({body.first + range.first, range.count});
  if (!arrays_.tracks(body.region) || !arrays_.settle(copier_->stream(), body.region, clean)) return false;
  const bool leans = lean();
  if (!leans) arrays_.forget();
  return leans;
}

std::uint64_t DeviceSide::bytes_gathered() const {
  const DeviceCopier* const copier = counted_;
  return copier != nullptr ? copier->bytes_gathered() : 0;
}

}  // namespace ebb::snapshots
