#pragma once
// The agent of a pool: admits processes, lends them memory, and writes what they hand over to the job's store.
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "os/local_socket.hpp"
#include "os/pin_queue.hpp"
#include "planner/pool_shares.hpp"
#include "share/agent/object_writer.hpp"
#include "share/messages.hpp"
#include "share/node_storage.hpp"
#include "share/pool/pool_file.hpp"

namespace ebb::share {

/// The options that a pool's header holds, as the agent opens the store with.
storage::PersistentOptions store_options(const PoolStore& store);
PoolStore pool_store(const storage::PersistentOptions& options);

/// One loop, run by a program (ebbtide-agent) or by a thread of one of the processes.
///
/// Thread safety: run() on one thread; stop() from any.
/// 1. A slab changes its owner only when its process has left, or its pidfd says that it is gone, and all that it has
///    handed over is in the store.
/// 2. A process is admitted when all that dead processes of the job left is in the store, and what they had dropped is
///    gone, but for what the disk did not let go: that is tried again.
/// 3. The run of the process in place n of the table is the nth share, whoever has it: what of it belongs to another
///    process is lent to that one. The words of the slabs say where each lease begins.
/// 4. The pool's file is removed, and the listener closed, while the agent holds the queue of the node's processes, and
///    no process is in the pool, or on its way there.
/// 5. An agent whose pool was removed by others makes way for the next: it admits no process, does not listen, and ends
///    once those that it has admitted have left.
class Agent {
 public:
  /// `listener`: null to finish what dead processes left, and no more.
  Agent(const NodeSeams& seams, os::Files& files, os::Clock& clock, PoolFile pool,
        std::unique_ptr<os::LocalListener> listener, bool program);
  ~Agent();
  Agent(const Agent&) = delete;

  /// Until all have left and all is written, or stop(). The error is why the store could not be opened: all who came
  /// were told.
  Result<void> run();
  /// Leaves its work to the next agent. Returns at once.
  void stop();

 private:
  /// The process hears of it when a kill of this agent cannot undo it.
  struct UnansweredDrop {
    std::uint64_t number = 0;                 // of the message
    storage::ObjectId object = 0;             // it may be under way still
    std::optional<std::uint64_t> drops = {};  // of the storage, with this one
  };
  struct Peer {
    std::unique_ptr<os::LocalConnection> connection;  // null: it is gone, or its connection is
    os::OwnDescriptor pidfd;                          // none: of a process that an earlier agent admitted
    std::optional<message::Hello> hello;              // to be answered
    std::optional<PoolProcess> process;               // a member
    std::uint64_t rank = 0;
    std::uint32_t first = 0, count = 0, claimed = 0, wanted = 0;  // slabs of its run
    std::int64_t grew_at = 0;                                     // when it came, or last wanted more
    std::int64_t produced_at = 0;                                 // when it last had something to be written
    std::uint64_t largest = 0;                                    // bytes, of its objects; 0: none yet
    std::uint32_t kept_free = 0;                                  // slabs that are not lent, before there is one
    bool borrows = false;                                         // it could use more than that
    std::optional<MappedList> list;
    std::set<std::uint64_t> taken;  // entries that are being written
    os::SharedMapping stage;
    std::deque<std::vector<std::byte>> outgoing;
    std::vector<UnansweredDrop> drops;
    bool look = false;   // its list may have new entries
    bool ended = false;  // the process is gone, or has left
  };

  Result<void> open();
  void adopt_members();
  bool wait(std::chrono::milliseconds limit);
  void accept();
  bool receive(Peer& peer);
  void answer_drops(Peer& peer);
  void on(Peer& peer, const message::Any& message, os::OwnDescriptor descriptor);
  void answer(Peer& peer);
  Result<message::Welcome> admit(Peer& peer, const message::Hello& hello);
  Peer* member_of(const message::Hello& hello);
  Result<void> lend(Peer& peer);
  void answer_claim(Peer& peer);
  void answer_waiting_claims();
  // Leases (agent_leases.cpp): what processes do not use of their shares.
  struct Lease {
    std::uint32_t first = 0, slabs = 0;
    Member borrower;
    bool recalled = false;
    std::uint64_t granted = 0;  // the number of the last message that said so; 0: none of this agent's did
  };
  void adopt_leases();
  void share_out();
  std::vector<planner::PoolShare> shares() const;
  void tell_leases(Peer& peer);
  void tell(Peer& peer, Lease& lease);
  void take_back_lease(Peer& peer, const message::Return& returned);
  void recall_lease(std::uint32_t first);
  bool grant_lease(std::uint32_t first, std::uint32_t slabs, planner::PartyId borrower);
  const Lease* lease_at(std::uint32_t slab) const;
  void note_room(const Peer& peer);
  std::uint32_t slabs_of(std::uint64_t bytes) const;
  void send(Peer& peer, const message::Any& message);
  void flush(Peer& peer);
  void look_for_the_dead(bool all);
  bool is_gone(const Peer& peer);
  void take_entries(Peer& peer);
  void finish_ended();
  const Error* stuck(const Peer& peer) const;
  bool dead_have_left_something() const;
  bool pieces_are_coming() const;
  void look_for_the_pool();
  void look_at_memory();
  bool may_end();
  void remove_pool();

  const NodeSeams seams_;
  os::Files& files_;
  os::Clock& clock_;
  PoolFile pool_;
  std::unique_ptr<os::LocalListener> listener_;
  const bool serves_;
  const bool program_;
  os::SharedMapping slabs_;
  std::optional<ObjectWriter> writer_;
  std::optional<Error> refused_;  // why the store could not be opened
  os::NodePinQueue queue_;
  os::OwnDescriptor bell_;  // an eventfd
  std::deque<Peer> peers_;
  std::uint32_t share_ = 0;    // slabs of each process; 0: none was admitted yet
  std::vector<Lease> leases_;  // as in the words of their slabs
  std::uint64_t number_ = 0;
  std::uint64_t granted_ = 0;  // the number of the last message that grants something
  std::atomic<bool> stop_{false};
  std::int64_t stopped_at_ = 0;
  std::int64_t idle_since_ = 0;
  std::int64_t looked_at_ = INT64_MIN / 2;
  std::int64_t measured_at_ = INT64_MIN / 2;  // what memory is left
  std::int64_t admitted_at_ = 0;              // who came last
  bool served_ = false;                       // some process was admitted
  bool orphaned_ = false;                     // the pool was removed by others
};

}  // namespace ebb::share
