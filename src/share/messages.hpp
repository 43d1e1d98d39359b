#pragma once
// What a process and the agent of its pool say to each other over a local socket. Values and bytes only: no I/O here.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "ebbtide/error.hpp"
#include "os/process_id.hpp"
#include "share/pool/pool_header.hpp"
#include "share/pool/pool_tables.hpp"

namespace ebb::share::message {

// --- from a process --------------------------------------------------------------------------------------------------

inline constexpr std::size_t kMostInARow = 64;  // that are heard of one process before the next has its turn

/// The first message; a pidfd of the process comes with it.
struct Hello {
  std::uint32_t version = kPoolVersion;
  PoolHeader wanted;
  os::ProcessId process;
  std::uint64_t rank = 0;
  std::uint64_t ranks = 1;
  Member member{};  // that it is already, of an agent before; generation 0: none
};
/// The process will use the first `slabs` of its run.
struct Claim {
  std::uint32_t slabs = 0;
};
/// The process's list has new entries.
struct Look {};
/// An object is not needed any more. An agent that does not know `object` knows it by its record.
struct Drop {
  std::uint64_t number = 0;    // of this message, for its answer
  std::uint64_t object = 0;    // the process's number; 0: of a process before it
  std::uint64_t sequence = 0;  // of its record; 0: none is known
  bool abandon = false;        // its record stays on the disk as it is
  std::string history;         // as in the store
  std::int64_t version = 0;
};
/// The memory that Pieces are in, a sealed file that comes with the message: `bytes` of it.
struct Stage {
  std::uint64_t bytes = 0;
};
/// A part of an object that is not in the pool, and is larger than what is: its bytes are in the stage until Moved.
struct Staged {
  std::uint64_t object = 0;
  std::uint64_t offset = 0;  // in the object
  std::uint64_t at = 0;      // in the stage
  std::uint64_t bytes = 0;
  std::string description;  // as in the pool; with the object's first piece alone
};
/// Commit what is complete, and write what this process has handed over before that of others.
struct Commit {};
/// The process has unmapped its memory, and uses the pool no more.
struct Leave {};

// --- from the agent --------------------------------------------------------------------------------------------------

struct Welcome {
  Member member;
  std::uint32_t first_slab = 0, slabs = 0;  // of its run
  std::uint64_t agent = 0;                  // which one
  bool program = false;
};
struct Refused {
  Error error;
};
/// The first `slabs` of the run have memory and are lent; fewer than asked for: `error`.
struct Claimed {
  std::uint32_t slabs = 0;
  Error error;
};
/// An object is complete and durable in the store, as the record with this sequence, or never will be.
struct Finished {
  std::uint64_t object = 0, sequence = 0;
  Error error;
};
/// All of an object is in the store's files, as the record with this sequence, and will be durable. A kill of any
/// process loses nothing of it, so its memory in the pool can be used again.
struct Written {
  std::uint64_t object = 0, sequence = 0;
};
struct Dropped {
  std::uint64_t number = 0;
};
/// An object of its list cannot be written now. It stays in the list, and is tried again.
struct Delayed {
  std::uint64_t object = 0;
  Error error;
};
/// A piece was written, or could not be.
struct Moved {
  std::uint64_t object = 0;
  std::uint64_t offset = 0;
  Error error;
};

// --- of leases: between a borrower and a lender of its own memory, over a socket of the lender's, or the agent of a
// pool,
// --- which lends what processes do not use of their shares

/// The borrower's first message to a lender. The end of a pipe comes with it: the borrower, and every forked child of
/// it, have the other end as long as they may use what they borrow.
struct Lifeline {
  std::uint32_t version = kPoolVersion;
  os::ProcessId process;
};
/// What the borrower takes in all, at most, in leases of at most `piece` bytes. An agent lends what others do not use
/// of their shares, whatever is asked for.
struct Borrow {
  std::uint64_t bytes = 0, piece = 0;
};
/// A lease. A lender sends its memory's descriptor with the message; an agent's leases bear the number of their first
/// slab, and are said again by the next agent.
struct Granted {
  std::uint32_t lease = 0;
  std::uint64_t bytes = 0;
  std::uint64_t number = 0;  // of this message, which no other of the pool has; 0: of a lender
};
/// What the borrower may use of the lender's bandwidth from now on, in millionths; before the first: all of it. It
/// comes ahead of the lease that it is changed by.
struct Share {
  std::uint32_t link = 0;
};
/// The borrower is to return a lease.
struct Recall {
  std::uint32_t lease = 0;
};
/// The borrower has: no copy of its own is under way there, and the memory is not mapped. `unusable`: it never was.
/// `granted`: the number of the last Granted of the lease that it had heard. If another is on its way, the borrower has
/// not returned that one, and will use it.
struct Return {
  std::uint32_t lease = 0;
  bool unusable = false;
  std::uint64_t granted = 0;
};

using Any = std::variant<Hello, Claim, Look, Drop, Commit, Leave, Welcome, Refused, Claimed, Finished, Dropped, Stage,
                         Staged, Moved, Delayed, Lifeline, Borrow, Granted, Share, Recall, Return, Written>;

std::vector<std::byte> encode(const Any& message);
/// Error damaged: it is none that encode() makes. Unsupported: a Hello of another version, with both versions.
Result<Any> parse(std::span<const std::byte> bytes);

}  // namespace ebb::share::message
