#include "store/spare_pieces.hpp"

#include <algorithm>

namespace ebb::store {

namespace {

constexpr planner::TierIndex kDevice = 0;

}  // namespace

Result<std::shared_ptr<SparePieces>> SparePieces::create(Leases& leases, device::Device& device,
                                                         std::shared_ptr<device::PeerFabric> fabric,
                                                         std::uint32_t count, std::uint64_t bytes, base::Log log) {
  std::shared_ptr<SparePieces> spare(new SparePieces(leases, std::move(fabric), bytes, std::move(log)));
  for (std::uint32_t n = 0; n < count; ++n) {
    auto mapped = std::make_unique<cache::LeasedMemory>(device, bytes, /*pinned=*/false);
    SparePiece piece{.mapped = mapped.get()};
    auto made = spare->make_memory(*mapped);
    if (!made) return made.error();
    piece.memory = std::move(*made);
    const auto segment = leases.lend(kDevice, std::move(mapped));
    if (!segment) return segment.error();
    piece.segment = *segment;
    spare->pieces_.push_back(std::move(piece));
  }
  return spare;
}

void SparePieces::start(const std::shared_ptr<share::Lender>& lender) {
  lender_ = lender;
  thread_ = std::thread([this] { run(); });
}

void SparePieces::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  if (const auto lender = lender_.lock()) lender->set_offer(0, std::chrono::nanoseconds(planner::kRecallWithin));
}

// --- what the planner says ------------------------------------------------------------------------------------------

void SparePieces::emptied(planner::SegmentId segment) {
  const std::lock_guard lock(mutex_);
  const auto piece = std::ranges::find(pieces_, segment, &SparePiece::segment);
  if (piece == pieces_.end() || piece->state != State::cached) return;
  piece->state = State::free;
  tell();
}

void SparePieces::allow(std::uint32_t pieces) {
  const std::lock_guard lock(mutex_);
  allowed_ = pieces;
  tell();
}

// --- what the lender says -------------------------------------------------------------------------------------------

Result<std::shared_ptr<device::LentMemory>> SparePieces::give() {
  const std::lock_guard lock(mutex_);
  const auto piece = std::ranges::find(pieces_, State::free, &SparePiece::state);
  if (piece == pieces_.end()) return Error{Errc::out_of_memory, "the device cache uses the rest itself"};
  piece->state = State::lent;
  return piece->memory;
}

void SparePieces::take(const device::LentMemory& memory, bool intact) {
  const std::lock_guard lock(mutex_);
  for (SparePiece& piece : pieces_) {
    if (piece.memory.get() != &memory) continue;
    piece.state = intact ? State::free : State::bare;
    if (!intact) piece.memory.reset();
  }
  tell();
}

void SparePieces::wanted(bool wanted) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(wanted_, wanted) != wanted) tell();
}

void SparePieces::tell() {
  news_ = true;
  changed_.notify_one();
}

// --- its thread -----------------------------------------------------------------------------------------------------

void SparePieces::run() {
  for (;;) {
    std::optional<bool> wanted;
    std::uint32_t allowed = 0;
    std::uint64_t offer = 0;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return news_ || stopping_; });
      if (stopping_) return;
      news_ = false;
      if (told_wanted_ != wanted_) wanted = told_wanted_ = wanted_;
      allowed = allowed_;
      offer = std::min(allowed, away()) * bytes_;
    }
    if (wanted) leases_.tell_spare(kDevice, first(), static_cast<std::uint32_t>(pieces_.size()), *wanted);
    const auto lender = lender_.lock();
    if (!lender) return;
    lender->set_offer(offer, std::chrono::nanoseconds(planner::kRecallWithin));
    take_back(allowed);
    renew();
  }
}

std::uint32_t SparePieces::away() const {
  return static_cast<std::uint32_t>(std::ranges::count_if(
      pieces_, [](const SparePiece& piece) { return piece.state == State::free || piece.state == State::lent; }));
}

// Of what nobody has, all that is not offered and that others may not have by now.
void SparePieces::take_back(std::uint32_t offered) {
  for (;;) {
    planner::SegmentId segment = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto piece = std::ranges::find(pieces_, State::free, &SparePiece::state);
      if (stopping_ || piece == pieces_.end() || away() <= std::max(offered, allowed_)) return;
      piece->state = State::cached;  // the planner may empty it at once
      segment = piece->segment;
    }
    leases_.extend(kDevice, segment, bytes_);
  }
}

// Gives one piece that has none other memory.
void SparePieces::renew() {
  SparePiece* bare = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (SparePiece& piece : pieces_)
      if (piece.state == State::bare && !piece.failed) bare = &piece;
  }
  if (bare == nullptr) return;
  auto made = make_memory(*bare->mapped);
  if (!made) {
    log_.warning("the device cache has " + std::to_string(bytes_) +
                 " bytes less, since a borrower of them died: " + made.error().message);
  }
  const std::lock_guard lock(mutex_);
  bare->failed = !made;
  if (made) {
    bare->memory = std::move(*made);
    bare->state = State::free;
  }
  tell();
}

Result<std::shared_ptr<device::LentMemory>> SparePieces::make_memory(cache::LeasedMemory& mapped) {
  mapped.end();  // and what it had is freed first
  auto made = fabric_->lend(bytes_);
  if (!made) return made.error();
  auto mapping = fabric_->map(**made);
  if (!mapping) return mapping.error();
  if (auto begun = mapped.begin(std::move(*mapping), bytes_); !begun) return begun.error();
  return std::shared_ptr<device::LentMemory>(std::move(*made));
}

}  // namespace ebb::store
