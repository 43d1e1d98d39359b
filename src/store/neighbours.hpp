#pragma once
// The memory that an open store lends to other processes, and what it borrows of them.
#include <memory>
#include <mutex>
#include <optional>

#include "device/peer_memory.hpp"
#include "ebbtide/stats.hpp"
#include "options/defaults.hpp"
#include "share/leases/lender.hpp"
#include "share/leases/lenders.hpp"
#include "store/borrower.hpp"

namespace ebb::store {

/// Thread safety: lend() and stats() may be called from any thread; start() and the rest by the one that opens or
/// closes the store. mutex_ guards what is not constant, and is not held while memory is waited for.
class Neighbours {
 public:
  Neighbours(Lending& lending, const options::Seams& seams, const options::EngineSetup& setup);
  /// Called once the store is open. Errors of lending: unsupported (this device's memory cannot be lent), those of
  /// share::Lender. A store that cannot borrow here goes on without, and says so.
  Result<void> start();
  /// Lends so much from now on: see share::Lender::offer().
  Result<void> lend(std::uint64_t bytes, std::chrono::nanoseconds within, const Interrupt& interrupted);
  std::optional<LeaseStats> stats() const;
  /// Borrows nothing more. Called when nothing moves. Memory that is mapped is returned when it is freed.
  void stop_borrowing();
  /// The borrowed memory was freed, except for what the application holds.
  void forget_lenders();
  /// Lends nothing more, and takes back all that was lent. The error says who has not returned what.
  Result<void> stop_lending(std::chrono::nanoseconds within, const Interrupt& interrupted);

 private:
  Result<std::shared_ptr<device::PeerFabric>> fabric();
  Result<void> start_lending(std::uint64_t bytes);
  Result<void> start_borrowing();

  Lending& lending_;
  const options::Seams& seams_;
  const options::EngineSetup& setup_;
  const std::uint32_t number_;  // of the store in its process
  std::shared_ptr<device::PeerFabric> fabric_;
  mutable std::mutex mutex_;
  bool closed_ = false;
  std::shared_ptr<share::Lender> lender_;
  std::shared_ptr<share::Lenders> lenders_;
  std::unique_ptr<Borrower> borrower_;
};

}  // namespace ebb::store
