#pragma once
// The memory that other processes lend to this one.
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "device/peer_memory.hpp"
#include "os/local_socket.hpp"
#include "share/lease_source.hpp"
#include "share/leases/lender_file.hpp"
#include "share/leases/lifeline.hpp"
#include "share/messages.hpp"

namespace ebb::share {

struct BorrowOptions {
  std::string group;                         // lending_group()
  std::uint64_t bytes = UINT64_MAX;          // in all, at most; UINT64_MAX: as much as others lend
  std::optional<std::uint32_t> number = {};  // of the store in its process: it borrows nothing of itself
  std::chrono::nanoseconds return_within = std::chrono::seconds(1);  // what a dead lender lent
};

/// Finds the lenders of its group, asks each for memory, and takes what they grant. Nothing waits for a lender that
/// never answers. Memory of one is used once bytes that were written there have been read back.
///
/// Thread safety: as LeaseSource; describe() and leases() from any thread. mutex_ guards everything but the descriptors
/// that its own thread waits for; that thread alone ends connections. `news` is not called with it held.
/// 1. A lease is returned when its memory is not mapped any more. A lender that is gone hears of nothing, and what it
///    lent stays readable until then.
/// 2. The pipe to a lender is open as long as this object, which stays as long as anything is mapped: when it goes, the
///    lender knows that nothing of its is in use, whatever of their messages was not received.
class Lenders final : public LeaseSource, public std::enable_shared_from_this<Lenders> {
 public:
  static Result<std::shared_ptr<Lenders>> open(const NodeSeams& seams, std::shared_ptr<os::Files> files,
                                               std::shared_ptr<os::Clock> clock, std::shared_ptr<device::Device> device,
                                               std::shared_ptr<device::PeerFabric> fabric, BorrowOptions options);
  ~Lenders() override;
  Lenders(const Lenders&) = delete;

  void borrow(LeaseNews news) override;
  std::uint64_t lease_bytes(std::uint32_t lease) const override;
  Terms terms(std::uint32_t lease) const override;
  Result<std::shared_ptr<std::byte>> use_lease(std::uint32_t lease) override;
  void return_lease(std::uint32_t lease) override { end_lease(lease, /*usable=*/true); }
  void refuse_lease(std::uint32_t lease) override { end_lease(lease, /*usable=*/false); }
  /// Ends the thread; what is mapped stays so, and is returned when it is not.
  void stop();

  struct Lease {
    pid_t lender = 0;
    std::uint64_t bytes = 0;
    planner::LeaseState state = planner::LeaseState::lent;
  };
  std::vector<Lease> leases() const;

 private:
  struct LenderPeer {
    planner::PartyId party = 0;
    LenderName name;
    std::unique_ptr<os::LocalConnection> connection;  // null: it is gone
    Lifeline lifeline;
    std::uint64_t asked = 0;
    bool probed = false;                       // what is copied there arrives
    std::uint32_t link = planner::kWholeLink;  // what this process may use of its bandwidth
    std::deque<std::vector<std::byte>> outgoing;
  };
  struct Taken {
    planner::PartyId lender = 0;
    planner::LeaseId lease = 0;  // the lender's number
    os::OwnDescriptor descriptor;
    Result<std::shared_ptr<device::Device>> owner = std::shared_ptr<device::Device>();  // of its Terms
    bool mapped = false;                                                                // or is being mapped
  };
  using News = std::vector<std::pair<std::uint32_t, bool>>;
  using Lock = std::unique_lock<std::mutex>;

  Lenders(const NodeSeams& seams, std::shared_ptr<os::Files> files, std::shared_ptr<os::Clock> clock,
          std::shared_ptr<device::Device> device, std::shared_ptr<device::PeerFabric> fabric, BorrowOptions options,
          const os::ProcessId& process);
  void run();
  void find();
  void meet(const LenderName& name);
  void hear(LenderPeer& peer);
  void on(LenderPeer& peer, const message::Any& message, os::OwnDescriptor descriptor);
  void granted(LenderPeer& peer, const message::Granted& granted, os::OwnDescriptor descriptor);
  void limited(LenderPeer& peer, std::uint32_t link);
  void lost(LenderPeer& peer);
  void ask(LenderPeer& peer);
  void end_lease(std::uint32_t lease, bool usable);
  void give_back(std::uint32_t lease, bool usable = true);
  void unmapped(std::uint32_t lease);
  std::vector<planner::LeaseCommand> submit(const planner::lease_event::Any& event);
  LenderPeer* peer_of(planner::PartyId party);
  void send(LenderPeer& peer, const message::Any& message);
  void flush(LenderPeer& peer);
  void forget_those_gone();
  void ring() const;

  static constexpr planner::PartyId kSelf = 1;
  const NodeSeams seams_;
  const std::shared_ptr<os::Files> files_;
  const std::shared_ptr<os::Clock> clock_;
  const std::shared_ptr<device::Device> device_;
  const std::shared_ptr<device::PeerFabric> fabric_;
  const BorrowOptions options_;
  const os::ProcessId process_;
  const os::OwnDescriptor bell_;  // an eventfd

  mutable std::mutex mutex_;
  LeaseNews news_;
  News to_tell_;
  planner::LeaseLedger ledger_;
  std::deque<LenderPeer> peers_;
  std::vector<LenderName> met_;
  std::map<std::uint32_t, Taken> taken_;  // by the number of the lease in ledger_
  planner::PartyId last_party_ = kSelf;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ebb::share
