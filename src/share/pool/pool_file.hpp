#pragma once
// The file of shared memory that the processes of one user, job and node use as a pool.
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "ebbtide/error.hpp"
#include "os/shared_memory.hpp"
#include "share/pool/handover_list.hpp"
#include "share/pool/pool_header.hpp"
#include "share/pool/pool_tables.hpp"

namespace ebb::share {

/// The name of a job's pool among the files of shared memory.
std::string pool_name(const std::string& job);
/// The name of the socket where a job's agent listens.
std::string socket_name(const std::string& job);
/// The refusal of a process and an agent that cannot see each other.
Error of_another_namespace();
/// Whether a name is a pool's.
bool is_pool_name(std::string_view name);
/// The job of a pool's name.
std::string job_of_pool(std::string_view name);

/// Whether a process may use a file of shared memory: it holds it, or this PID namespace has it and it runs. True also
/// if that cannot be found out.
bool may_use(const os::ProcessId& process, const os::SharedFile& file, os::Files& files);

/// What an agent holds a pool's file as, beside its process.
inline constexpr os::ProcessId kAgentProcess{};

/// A mapped list, and the view of it. Move-only; the pool's file must outlive it.
struct MappedList {
  os::SharedMapping memory;
  HandoverList list;
};

/// A pool's file, open in one process. Move-only; moved-from may only be destroyed.
///
/// Thread and process safety: the tables' and the lists' are in pool_tables.hpp and handover_list.hpp; admit() and
/// dismiss() are the agent's. The others may be called from any thread.
/// 1. No page is touched that was not allocated: the tables by create(), a list by admit(), a slab by allocate().
/// 2. The header is written last, once, by a creator that no other process meets: whoever opens or creates a pool holds
///    the queue of the node's processes.
class PoolFile {
 public:
  /// Makes a pool of a file that is empty, or that a creator left when it was killed. Error no_space, and those of
  /// SharedFile.
  static Result<PoolFile> create(std::unique_ptr<os::SharedFile> file, const PoolHeader& header);
  /// Errors: lost (its creator was killed before any process joined), damaged, unsupported (another version), and
  /// those of SharedFile.
  static Result<PoolFile> open(std::unique_ptr<os::SharedFile> file);

  const PoolHeader& header() const noexcept { return header_; }
  /// Whether its name still leads to it: false once the pool was removed.
  bool named() const { return file_->named(); }
  /// As SharedFile::hold().
  Result<void> hold(const os::ProcessId& user) { return file_->hold(user); }
  bool may_use(const os::ProcessId& process, os::Files& files) const { return share::may_use(process, *file_, files); }
  const PoolShape& shape() const noexcept { return header_.shape; }
  PoolTables& tables() noexcept { return tables_; }
  const PoolTables& tables() const noexcept { return tables_; }

  /// Makes a process a member, with an empty list. Errors: no_space (of the table, or of memory for the list).
  Result<Member> admit(const os::ProcessId& process, std::uint64_t share, std::uint64_t rank = 0);
  /// Ends a membership whose slabs are free and whose list no process maps, and returns the list's memory. Error
  /// invalid_argument: there is no such member.
  Result<void> dismiss(Member member);
  /// The list of a member. Error invalid_argument: it is none.
  Result<MappedList> list(Member member) const;

  /// Gives a slab memory, before it is lent. Error no_space: shared memory is too small for it.
  Result<void> allocate(std::uint32_t slab);
  /// Returns a slab's memory to the system. No process has it mapped.
  Result<void> punch(std::uint32_t slab);
  /// Maps slabs next to each other, in this order.
  Result<os::SharedMapping> map(std::span<const std::uint32_t> slabs) const;

 private:
  PoolFile(std::unique_ptr<os::SharedFile> file, PoolHeader header, os::SharedMapping tables);
  std::unique_ptr<os::SharedFile> file_;
  PoolHeader header_;
  os::SharedMapping mapped_;
  PoolTables tables_;
};

}  // namespace ebb::share
