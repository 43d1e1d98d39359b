#pragma once
// A process in a node's pool: its memory there, and its connection to the agent.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ebbtide/error.hpp"
#include "share/agent/agent.hpp"
#include "share/messages.hpp"
#include "share/node_storage.hpp"
#include "share/pool/pool_file.hpp"

namespace ebb::share {

/// Thread safety: join() and rejoin() from one thread at a time; send() from any; receive() and wait() from one, which
/// may be another. mutex_ guards the connection and what waits to be sent.
/// 1. The memory stays mapped until the destructor, which then tells the agent that this process has left.
/// 2. The agent, if it is a thread of this process, is stopped after that, and its store is closed before the
///    destructor ends.
/// 3. Nothing but the first message goes to an agent that has not admitted this process: it would be ignored.
class PoolMember {
 public:
  static Result<std::shared_ptr<PoolMember>> join(const NodeSeams& seams, os::Files& files, os::Clock& clock,
                                                  const NodeStorageOptions& options);
  ~PoolMember();
  PoolMember(const PoolMember&) = delete;

  /// Of all slabs of the run.
  std::byte* memory() const { return memory_.data(); }
  std::uint64_t slab_bytes() const { return pool_->shape().slab_bytes(); }
  std::uint32_t slabs() const { return welcome_.slabs; }
  std::uint32_t first_slab() const { return welcome_.first_slab; }
  /// The agents know it, and its list is its own.
  bool is_member() const { return is_member(welcome_.member); }
  HandoverList& list() { return list_->list; }
  /// Slabs of other runs that were lent to this process.
  Result<os::SharedMapping> map(std::uint32_t first, std::uint32_t slabs) const;
  std::uint32_t agents() const { return agents_; }
  std::uint64_t bytes_beside() const { return pool_->tables().progress().beside; }
  bool program() const { return program_; }
  std::string describe() const;

  /// With a copy of `descriptor`, unless it is -1: sent at once, or not at all. False: it was not, also because no
  /// agent has admitted this process yet.
  bool send(const message::Any& message, int descriptor = -1);
  /// Null: nothing yet. Error closed: the agent is gone.
  Result<std::optional<message::Any>> receive();
  /// Until a message may have come, `bell` rings, or the time is over.
  void wait(int bell, std::chrono::milliseconds limit);
  /// Finds or becomes the next agent. A member waits for one that is stopped. Errors: as open_node_storage(); lost:
  /// this process is a member no more.
  Result<void> rejoin();
  /// Says which agent does not answer since its process is stopped. Called from any thread.
  std::optional<std::string> stopped_agent();

 private:
  PoolMember(const NodeSeams& seams, os::Files& files, os::Clock& clock, const NodeStorageOptions& options)
      : seams_(seams), files_(files), clock_(clock), options_(options) {}
  Result<void> join_once();
  Result<void> connect();
  Result<message::Welcome> await_welcome();
  Error leave(Error why);
  void look_for_membership(const os::ProcessId& process);
  Result<void> finish_dead_jobs();
  Result<PoolFile> open_pool(const PoolHeader& header);
  Result<std::unique_ptr<os::LocalConnection>> start(const PoolHeader& header);
  bool used_elsewhere(const PoolFile& pool) const;
  void stop_own_agent();
  bool is_member(Member member) const;

  const NodeSeams seams_;
  os::Files& files_;
  os::Clock& clock_;
  const NodeStorageOptions options_;
  std::optional<PoolFile> pool_;
  message::Welcome welcome_{};
  std::optional<std::vector<Member>> known_;  // of this process and rank, before an agent was asked
  bool seems_elsewhere_ = false;              // some member, when the pool was last looked at
  std::atomic<std::uint32_t> agents_{0};
  std::atomic<bool> program_{false};  // the present agent
  os::SharedMapping memory_;
  std::optional<MappedList> list_;

  std::mutex mutex_;
  std::unique_ptr<os::LocalConnection> connection_;
  bool admitted_ = false;  // by the agent at its other end
  std::deque<std::vector<std::byte>> outgoing_;

  std::unique_ptr<Agent> agent_;  // of this process
  std::thread agent_thread_;
};

}  // namespace ebb::share
