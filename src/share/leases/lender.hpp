#pragma once
// Lends memory of this process's device to other processes.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/peer_memory.hpp"
#include "ebbtide/checkpoint.hpp"
#include "os/local_socket.hpp"
#include "planner/lease_ledger.hpp"
#include "share/leases/lender_file.hpp"
#include "share/messages.hpp"
#include "share/node_storage.hpp"

namespace ebb::share {

/// The most bytes of a lease where so much is lent or borrowed: an eighth, in units of the smallest lease, so that
/// leases are few and hold large checkpoints.
std::uint64_t piece_of(std::uint64_t bytes);

/// Between two looks of a thread that cannot be told of messages, or not act on them: the system has no memory for that
/// now, or the process no descriptor.
inline constexpr std::chrono::milliseconds kPause{10};

struct LenderOptions {
  std::string group;         // lending_group()
  std::uint32_t number = 0;  // of the store in its process
  std::uint64_t bytes = 0;
  std::uint32_t link = planner::kWholeLink;                        // of its bandwidth, in millionths
  std::optional<int> gpu = {};                                     // whose memory it is; none: ordinary memory
  std::chrono::nanoseconds recall_within{planner::kRecallWithin};  // of what is recalled when it ends
  /// Told on a thread of the lender's: a borrower has not returned in time what was recalled, or there is less memory
  /// than was offered.
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};

/// Memory is allocated when it is granted, and freed when it has come back: what is not lent, the program can allocate.
/// What has not come back is never used again; it is freed once its borrower has unmapped it, or has ended.
///
/// Thread safety: every method may be called from any thread. mutex_ guards everything but the descriptors that the
/// lender's own thread waits for; that thread alone ends connections. A forked child does nothing.
/// 1. What ledger_ says is done before mutex_ is released: memory exists for the leases that are there, and for no
///    others.
/// 2. A borrower counts from its Lifeline on; what it has is its own until it returns it, or its pipe ends.
class Lender {
 public:
  /// Errors: those of the socket and of shared memory, io_error.
  static Result<std::unique_ptr<Lender>> open(const NodeSeams& seams, os::Files& files, os::Clock& clock,
                                              device::PeerFabric& fabric, LenderOptions options);
  /// As offer(0), but for the error; what has not come back then stays with its borrower.
  ~Lender();
  Lender(const Lender&) = delete;

  /// How much it lends from now on. Less than before: waits until the rest can be allocated here, but for what a later
  /// call lends again. Error timed_out, with the borrowers and what they still have: that is not free, and is never
  /// used for anything else. `interrupted`: see Interrupt; what was recalled comes back all the same.
  Result<void> offer(std::uint64_t bytes, std::chrono::nanoseconds within, const Interrupt& interrupted = {});
  LenderState state() const;

 private:
  struct Outgoing {
    std::vector<std::byte> message;
    std::optional<planner::LeaseId> lease = {};  // whose descriptor goes with it
  };
  struct BorrowerPeer {
    planner::PartyId party = 0;
    std::unique_ptr<os::LocalConnection> connection;  // null: it is closed
    os::ProcessId process;
    os::OwnDescriptor lifeline;                // none: it has not said who it is
    std::uint32_t link = planner::kWholeLink;  // what it was told that it may use
    std::deque<Outgoing> outgoing;
  };
  using Lock = std::lock_guard<std::mutex>;

  Lender(const NodeSeams& seams, os::Clock& clock, device::PeerFabric& fabric, LenderOptions options, LenderFile file,
         std::unique_ptr<os::LocalListener> listener);
  void run();
  std::vector<os::Waiting> awaited() const;
  std::chrono::milliseconds until_deadline() const;
  void look_around();
  void accept();
  void receive(BorrowerPeer& peer);
  void on(BorrowerPeer& peer, const message::Any& message, os::OwnDescriptor descriptor);
  void disconnect(BorrowerPeer& peer);
  void flush(BorrowerPeer& peer);
  void submit(const planner::lease_event::Any& event);
  void carry_out(const planner::LeaseCommand& command);
  void tell_shares();
  void grant(const planner::Lease& lease);
  planner::lease_event::Offer what_is_offered() const;
  void tell(planner::PartyId borrower, const message::Any& message, std::optional<planner::LeaseId> lease = {});
  pid_t pid_of(planner::PartyId borrower) const;
  std::string what_is_missing() const;
  LenderState state_now() const;
  void ring() const;

  static constexpr planner::PartyId kSelf = 1;
  const NodeSeams seams_;
  os::Clock& clock_;
  device::PeerFabric& fabric_;
  const LenderOptions options_;
  const os::OwnDescriptor bell_;  // an eventfd
  const std::unique_ptr<os::LocalListener> listener_;

  mutable std::mutex mutex_;
  std::condition_variable returned_;
  LenderFile file_;
  planner::LeaseLedger ledger_;
  std::uint64_t offered_ = 0;
  std::map<planner::LeaseId, std::unique_ptr<device::LentMemory>> lent_;
  std::deque<BorrowerPeer> peers_;
  planner::PartyId last_party_ = kSelf;
  bool no_descriptors_ = false;  // this process has too many open for what its thread was to do
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ebb::share
