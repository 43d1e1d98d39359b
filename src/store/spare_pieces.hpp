#pragma once
// The part of this process's device cache that others may have while it is not used.
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "cache/leased_memory.hpp"
#include "device/peer_memory.hpp"
#include "share/leases/lender.hpp"
#include "store/cache_memory.hpp"
#include "store/leases.hpp"

namespace ebb::store {

/// Each piece is a segment of the device cache, whose memory can be handed over. The planner says when it is empty and
/// how many pieces others may have, the lender to whom it goes, and a thread takes back what is left.
///
/// Thread safety: create(), start() and stop() are called by one thread; everything else by any. mutex_ guards what is
/// not constant; nothing that waits is called with it held.
/// 1. A piece is a part of the cache, or free, or lent, or without memory. The planner places nothing in one that is
/// not a part.
/// 2. Memory that its borrower has not returned itself is not used again, since copies may still arrive there: the
/// thread gives the piece other memory. It alone touches a piece without memory.
class SparePieces final : public share::LentPieces, public SpareListener {
 public:
  /// `count` pieces of `bytes`, as new segments of the device tier. Errors: out_of_memory, unsupported.
  static Result<std::shared_ptr<SparePieces>> create(Leases& leases, device::Device& device,
                                                     std::shared_ptr<device::PeerFabric> fabric, std::uint32_t count,
                                                     std::uint64_t bytes, base::Log log);
  ~SparePieces() override { stop(); }
  /// What is lent goes by `lender`, which holds this object.
  void start(const std::shared_ptr<share::Lender>& lender);
  /// Nothing more is lent, and no piece comes back any more.
  void stop();
  planner::SegmentId first() const { return pieces_.front().segment; }

  void emptied(planner::SegmentId segment) override;
  void allow(std::uint32_t pieces) override;

  std::uint64_t piece_bytes() const override { return bytes_; }
  Result<std::shared_ptr<device::LentMemory>> give() override;
  void take(const device::LentMemory& memory, bool intact) override;
  void wanted(bool wanted) override;

 private:
  enum class State : std::uint8_t { cached, free, lent, bare };
  struct SparePiece {
    planner::SegmentId segment = 0;
    cache::LeasedMemory* mapped = nullptr;            // the tier's
    std::shared_ptr<device::LentMemory> memory = {};  // null: there is none, or not yet
    State state = State::cached;
    bool failed = false;  // there was no other memory
  };

  SparePieces(Leases& leases, std::shared_ptr<device::PeerFabric> fabric, std::uint64_t bytes, base::Log log)
      : leases_(leases), fabric_(std::move(fabric)), bytes_(bytes), log_(std::move(log)) {}
  void tell();
  void run();
  std::uint32_t away() const;
  void take_back(std::uint32_t offered);
  void renew();
  Result<std::shared_ptr<device::LentMemory>> make_memory(cache::LeasedMemory& mapped);

  Leases& leases_;
  const std::shared_ptr<device::PeerFabric> fabric_;
  const std::uint64_t bytes_;
  const base::Log log_;
  std::weak_ptr<share::Lender> lender_;  // constant after start()

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<SparePiece> pieces_;  // their number is constant after create()
  std::uint32_t allowed_ = 0;       // that others may have
  bool wanted_ = false, told_wanted_ = false;
  bool news_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace ebb::store
