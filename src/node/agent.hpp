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

#include "node/messages.hpp"
#include "node/node_storage.hpp"
#include "node/object_writer.hpp"
#include "node/pool_file.hpp"
#include "os/local_socket.hpp"
#include "os/pin_queue.hpp"

namespace ebb::node {

/// The options that a pool's header holds, as the agent opens the store with.
storage::PersistentOptions store_options(const PoolStore& store);
PoolStore pool_store(const storage::PersistentOptions& options);

/// One loop, run by a program (ebbtide-agent) or by a thread of one of the processes.
///
/// Thread safety: run() on one thread; stop() from any.
/// 1. A slab changes its owner only when its process has left, or its pidfd says that it is gone, and all that it has
///    handed over is in the store.
/// 2. A process is admitted when all that dead processes of the job left is in the store.
/// 3. The pool's file is removed, and the listener closed, while the agent holds the queue of the node's processes, and
///    no process is in the pool, or on its way there.
class Agent {
 public:
  /// `listener`: null to finish what dead processes left, and no more.
  Agent(const NodeSeams& seams, platform::Files& files, platform::Clock& clock, PoolFile pool,
        std::unique_ptr<platform::LocalListener> listener, bool program);
  ~Agent();
  Agent(const Agent&) = delete;

  /// Until all have left and all is written, or stop(). The error is why the store could not be opened: all who came
  /// were told.
  Result<void> run();
  /// Leaves its work to the next agent. Returns at once.
  void stop();

 private:
  struct Peer {
    std::unique_ptr<platform::LocalConnection> connection;  // null: it is gone, or its connection is
    platform::OwnDescriptor pidfd;                          // none: of a process that an earlier agent admitted
    std::optional<message::Hello> hello;                    // to be answered
    std::optional<PoolProcess> process;                     // a member
    std::uint64_t rank = 0;
    std::uint32_t first = 0, count = 0, claimed = 0;  // slabs of its run
    std::optional<MappedList> list;
    std::set<std::uint64_t> taken;  // entries that are being written
    platform::SharedMapping stage;
    std::deque<std::vector<std::byte>> outgoing;
    bool look = false;   // its list may have new entries
    bool ended = false;  // the process is gone, or has left
  };

  Result<void> open();
  void adopt_members();
  bool wait(std::chrono::milliseconds limit);
  void accept();
  bool receive(Peer& peer);
  void on(Peer& peer, const message::Any& message, platform::OwnDescriptor descriptor);
  void answer(Peer& peer);
  Result<message::Welcome> admit(Peer& peer, const message::Hello& hello);
  Peer* member_of(const message::Hello& hello);
  std::optional<std::uint32_t> free_run(std::uint32_t slabs) const;
  Result<void> lend(Peer& peer, std::uint32_t slabs);
  void send(Peer& peer, const message::Any& message);
  void flush(Peer& peer);
  void look_for_the_dead(bool all);
  void take_entries(Peer& peer);
  void finish_ended();
  bool dead_have_left_something() const;
  bool may_end();
  void remove_pool();

  const NodeSeams seams_;
  platform::Files& files_;
  platform::Clock& clock_;
  PoolFile pool_;
  std::unique_ptr<platform::LocalListener> listener_;
  const bool program_;
  platform::SharedMapping slabs_;
  std::optional<ObjectWriter> writer_;
  std::optional<Error> refused_;  // why the store could not be opened
  platform::NodePinQueue queue_;
  platform::OwnDescriptor bell_;  // an eventfd
  std::deque<Peer> peers_;
  std::uint64_t number_ = 0;
  std::atomic<bool> stop_{false};
  std::int64_t idle_since_ = 0;
  std::int64_t looked_at_ = INT64_MIN / 2;
  bool served_ = false;  // some process was admitted
};

}  // namespace ebb::node
