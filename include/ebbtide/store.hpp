#pragma once
// The public C++ interface: a store of histories of checkpoints.
//
//   auto store = ebb::Store::open({.directory = "/scratch", .device_cache = 4ull << 30}).value();
//   for (int step = 0; step < n; ++step) {
//     compute(field);
//     store.checkpoint(step, {{0, field.data(), field.size_bytes()}}).value();
//     store.hint_front(step);                       // it will be needed before the earlier ones
//   }
//   for (int step = n; step-- > 0;) store.restore(step, {{0, field.data(), field.size_bytes()}}).value();
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebbtide/checkpoint.hpp"
#include "ebbtide/error.hpp"
#include "ebbtide/file.hpp"
#include "ebbtide/options.hpp"
#include "ebbtide/snapshot.hpp"
#include "ebbtide/stats.hpp"

namespace ebb {

namespace store {
class Engine;
class Reads;
class Writes;
struct InHand;
struct Waitable;
}  // namespace store

/// An operation in progress. Copyable; copies refer to the same operation.
/// Thread safety: every method may be called from any thread.
class Future {
 public:
  Future();
  /// True once it has ended, successfully or not (no `level`: the call itself; a tier's name: complete there or below).
  /// For "process", "node", "storage" and "shared": once it is as durable as the store promises, and never before; a
  /// failure is not "done" there. Throws BadResult, with the error that `wait` would give, for what failed (it may
  /// still be retried) and for what can never happen: a level that this store does not have or that does not exist, a
  /// checkpoint that was dropped, or that was not durable yet when the store closed. So a loop that polls until it is
  /// true always ends.
  bool done(std::optional<std::string_view> level = {}) const;
  /// Waits for it to end. `timed_out` when `timeout` passes first: the operation continues. An unknown level (also "")
  /// is invalid_argument; the message names the valid ones.
  Result<void> wait(std::optional<std::string_view> level = {}, std::optional<Seconds> timeout = {}) const;
  /// How it failed, if it did.
  std::optional<Error> error() const;
  /// Keeps `what` until the operation has ended, successfully or not, in place of what was kept before. The destructor
  /// of `what` can tell of the end: it runs on any thread, without the store's mutex. If the operation has ended
  /// already, it runs on this thread before the call returns.
  void keep_until_ended(std::shared_ptr<const void> what) const;

 private:
  friend class store::Engine;
  friend class store::Reads;
  friend class store::Writes;
  friend class History;
  explicit Future(std::shared_ptr<store::Waitable> state);
  std::shared_ptr<store::Waitable> state_;
};

/// Memory inside the device cache to compute into; `commit` makes it the checkpoint. Move-only; moved-from is empty.
/// Destroying it uncommitted abandons the version as if it had never been written (on a GPU after waiting for all of
/// its work, any of which may write there).
class Reservation {
 public:
  Reservation(Reservation&&) noexcept;
  Reservation& operator=(Reservation&&) noexcept;
  ~Reservation();
  std::byte* data() const;
  std::size_t bytes() const;
  /// Region `id`'s place inside `data()`. Throws std::invalid_argument when there is no such region.
  std::span<std::byte> region(std::uint32_t id) const;
  /// Keeps `data()` mapped (but not the checkpoint in it) for as long as it is held, even after `commit` and `close`.
  std::shared_ptr<const void> mapping() const;
  /// Of the checkpoint that it becomes; of use once it is committed. One that was ended has none.
  Future future() const;
  /// Makes it a checkpoint. With `how.stream`, its bytes are complete when that stream has done its present work.
  Result<void> commit(const HandBack& how = {});
  void abandon();

 private:
  friend class store::Engine;
  friend class store::Writes;
  friend class History;
  struct Impl;
  explicit Reservation(std::unique_ptr<Impl> state);
  std::unique_ptr<Impl> state_;
};

/// The cached replica itself, read-only. Move-only; moved-from is empty. Destroying it is a `release()`, on a GPU after
/// waiting for all of its work, any of which may read there; `release` can name the stream to wait for.
class Loan {
 public:
  Loan(Loan&&) noexcept;
  Loan& operator=(Loan&&) noexcept;
  ~Loan();
  const std::byte* data() const;
  std::size_t bytes() const;
  /// As in Reservation.
  std::span<const std::byte> region(std::uint32_t id) const;
  /// Returns it to the cache; the version is consumed unless `keep` (here or when borrowed) or hinted again.
  Result<void> release(bool keep = false, const HandBack& how = {});

 private:
  friend class store::Engine;
  friend class store::Reads;
  friend class History;
  struct Impl;
  explicit Loan(std::unique_ptr<Impl> state);
  void leave();
  std::unique_ptr<Impl> state_;
};

/// A light view of one history's versions over the store's caches. Copyable; after the store is gone, every call is
/// `closed`. Thread safety: every method may be called from any thread.
class History {
 public:
  const std::string& name() const;

  /// Writes version `version`. Returns once the sources may be overwritten. Errors: version_exists, too_large,
  /// no_space, invalid_argument (two regions with one id, a history whose name is too long or reserved: see
  /// Store::history; memory that cannot be read, by its region), io_error, closed.
  Result<Future> checkpoint(Version version, std::span<const Source> sources, const CheckpointOptions& options = {});
  Result<Future> checkpoint(Version version, std::initializer_list<Source> sources,
                            const CheckpointOptions& options = {});

  /// Reads `version` into `targets` (every region, in any order) and returns when the bytes are usable. It removes the
  /// version's first hint, and consumes the checkpoint unless another hint names it or `keep`. Errors: unknown_version,
  /// consumed, size_mismatch, timed_out, lost, damaged, io_error, invalid_argument (memory that cannot be written to,
  /// by its region), closed. On any error nothing is consumed, and each byte of the targets is unchanged or correct:
  /// bytes from a file are checked before they are copied there. (Not with `Verify::all`, which checks the targets
  /// last: on an error they have the cache's wrong bytes, and an ephemeral store has consumed the version.) In a
  /// persistent store consuming frees the caches' memory and leaves the file's copy, which can be restored again, also
  /// by later processes.
  Result<void> restore(Version version, std::span<const Target> targets, const RestoreOptions& options = {});
  Result<void> restore(Version version, std::initializer_list<Target> targets, const RestoreOptions& options = {});
  /// The same in the background: `targets` must stay valid until the future is done.
  Result<Future> restore_async(Version version, std::span<const Target> targets, const RestoreOptions& options = {});

  /// The regions and metadata of a version that can be restored, or that another thread is writing. A snapshot in
  /// flight is awaited first. Errors: as restore().
  Result<CheckpointInfo> info(Version version, std::optional<Seconds> timeout = {},
                              const Interrupt& interrupted = {}) const;
  /// The versions that can be restored, ascending; in a persistent store also those of earlier processes. Error closed.
  Result<std::vector<Version>> versions() const;
  /// The fastest tier that has all of `version` now ("device", "host", "local", "shared"); none: nothing. Error closed.
  Result<std::optional<std::string>> tier_of(Version version) const;
  /// The newest version, not above `at_most`, that is complete and intact; none: nothing. Versions that another process
  /// left are read and checked. Damaged ones are skipped, with a warning in the log that names file, offset and what is
  /// wrong; such a version may be written again. Unreadable ones are skipped too, unless nothing else is left:
  /// io_error. Other errors: unsupported (an ephemeral store), closed, timed_out (interrupted).
  Result<std::optional<Version>> latest(std::optional<Version> at_most = {}, const Interrupt& interrupted = {});

  /// Announces that `order` will be restored, in this order, after what was hinted before. May name versions that are
  /// not written yet.
  Result<void> hint(std::span<const Version> order, bool replace = false);
  Result<void> hint(std::initializer_list<Version> order, bool replace = false);
  /// Announces that `version` will be restored before everything hinted so far.
  Result<void> hint_front(Version version);
  /// Withdraws the first hint of each of `versions`, or every hint.
  Result<void> unhint(std::span<const Version> versions);
  Result<void> unhint();
  /// Starts prefetching in a store opened with `Prefetch::manual`.
  Result<void> start_prefetch();

  /// Waits until every checkpoint written so far is complete on tier `level` ("device", "host", "local") or below, or
  /// is as durable as `level`: "ephemeral" once written, "process", "storage", in a
  /// node's pool "node", or in a shared directory "shared" (see Durability; more than the store was opened for is
  /// `unsupported`). Does not wait for later
  /// checkpoints.
  Result<void> wait(std::string_view level, std::optional<Seconds> timeout = {}, const Interrupt& interrupted = {});
  Result<void> wait(Version version, std::string_view level, std::optional<Seconds> timeout = {},
                    const Interrupt& interrupted = {});
  /// Every process that checkpoints along with this one has `version` and what is older, durable; -1: they have none in
  /// common. In a store with Options::agreed, `keep_last` counts up to there. Group does this for its members.
  Result<void> agree(Version version);
  /// Waits until nothing brings back what was dropped so far: no kill, and no loss of power where the store promises to
  /// survive one. Of a store that is not persistent: not at all. Errors: timed_out, closed.
  Result<void> wait_for_drops(std::optional<Seconds> timeout = {}, const Interrupt& interrupted = {});
  /// Forgets a version: its bytes and its hints. It may be written again.
  Result<void> drop(Version version);
  /// Forgets every version of this history. Once its last handle (this, a Future, a Reservation, a Loan) is gone too,
  /// it uses no memory, as if it had never existed.
  Result<void> drop();

  /// Allocates regions of `bytes` each (`Source::data` is ignored) inside the device cache.
  Result<Reservation> reserve(Version version, std::span<const Source> regions, const CheckpointOptions& options = {});
  /// The device cache's own replica of `version`, fetched first if necessary.
  Result<Loan> borrow(Version version, const RestoreOptions& options = {});

 protected:
  friend class Store;
  friend class store::Engine;
  History(std::shared_ptr<store::Engine> engine, std::uint32_t id, std::string name,
          std::shared_ptr<const store::InHand> in_hand = {});
  std::shared_ptr<store::Engine> engine_;
  std::uint32_t id_ = 0;
  std::string name_;
  std::shared_ptr<const store::InHand> in_hand_;  // while it is held, the id belongs to this name
  bool read_only_ = false;                        // the name is reserved, and a program gave it
  /// Why a call may not begin, if so: this was moved from, or the store is suspended.
  std::optional<Error> refusal(const Interrupt& interrupted = {}) const;
  bool of_program_ = false;  // its calls are the program's, and end when the store is suspended
};

struct SuspendOptions {
  std::optional<std::string> level = {};  ///< "process", "node", "storage" or "shared"; default: the store's durability
  std::optional<Seconds> within = {};     ///< from the signal to the mark; default: as long as it takes
};

/// An open store; it is itself the history named "". Move-only; closing waits for transfers in flight.
class Store : public History {
 public:
  static Result<Store> open(const Options& options = {});
  Store(Store&&) noexcept = default;
  Store& operator=(Store&&) noexcept;
  Store(const Store&) = delete;
  ~Store();

  /// The history called `name`: any bytes, at most 65,536, without kReservedInNames, kReservedForSnapshots and
  /// kReservedForSuspension; another name is refused by its first checkpoint.
  History history(std::string name, Order order = Order::none);

  /// The names of the histories that have versions, as versions() has them, ascending; the store's own is "". Error
  /// closed.
  Result<std::vector<std::string>> histories() const;

  /// A new file, to be written (see File). Errors: version_exists (it is there, or being written), invalid_argument (no
  /// name, or one of more than 65,000 bytes), unsupported (read-only), closed. `keep_last` and `keep_every` count
  /// whole files of one name: when one is durable, older ones that enough durable ones make up for are dropped.
  /// `timeout`: how long a write waits for memory of the cache that no transfer can free.
  Result<File> create_file(std::string name, Version version, Seconds timeout = Seconds{10});
  /// A file to be read: `version`, or the newest. Errors: unknown_version (it is not there, or not whole), damaged,
  /// lost, io_error, closed.
  Result<File> open_file(std::string name, std::optional<Version> version = {});
  /// The files that are there, whole, by name and version; only those called `name`, if given. Their bytes are read and
  /// checked when they are opened. Errors: as open_file.
  Result<std::vector<FileInfo>> files(std::optional<std::string> name = {});
  /// Forgets a file and its bytes; it may be written again. Errors: unknown_version, unsupported (read-only), closed.
  Result<void> drop_file(std::string name, Version version);

  /// From now on snapshots have this memory, of the host or of the store's GPU, as `region`; it stays the program's. It
  /// must stay mapped until `unprotect`, or until the store has closed. The next snapshot stores everything, as it does
  /// after `unprotect`; both wait until the snapshots in flight have ended. Errors: invalid_argument (a region that is
  /// protected, memory that overlaps another's, is not mapped or is another GPU's, a zone that is no power of two or
  /// another than before), unsupported (memory or a way of tracking that is not possible here, a read-only store),
  /// in_use (another userfaultfd has the memory), out_of_memory, closed.
  Result<void> protect(std::uint32_t region, void* memory, std::size_t bytes, const ProtectOptions& options = {});
  /// The same for many regions, which may be empty: all of them, or none. Each call takes time for all that is
  /// protected by then.
  Result<void> protect(std::span<const Target> memory, const ProtectOptions& options = {});
  /// Errors: invalid_argument (it is not protected), timed_out (it was interrupted, and is protected still), closed.
  Result<void> unprotect(std::uint32_t region, const Interrupt& interrupted = {});
  /// The same for everything that is protected.
  Result<void> unprotect_all(const Interrupt& interrupted = {});
  /// These bytes were written, or will be stored again by the next snapshot anyway (see Track::declared). Errors:
  /// invalid_argument, closed.
  Result<void> touch(std::uint32_t region, std::uint64_t offset, std::uint64_t bytes);
  /// Takes a cut of all protected memory, and returns; it is stored in the background, as `version` of this history.
  /// The program may write on. (With some ways of tracking it returns when everything is copied: see Track.) Errors:
  /// version_exists, invalid_argument (nothing is protected), lost (protected memory was unmapped, moved or discarded:
  /// unprotect it to go on), no_space (arrays on a GPU: the device cache has no room, and gets none), out_of_memory,
  /// unsupported (a stream without a GPU, or one that is being captured), closed.
  Result<Snapshot> snapshot(Version version, const SnapshotOptions& options = {});
  SnapshotStats snapshot_stats() const;

  /// From now on `signal` suspends the store: in the background, everything written so far becomes as durable as
  /// `options.level`, and then a mark is written. The program's next call waits for that and ends with `suspended`, as
  /// every later one does, but for those that only look (versions, histories, stats, suspended) and `close`: the
  /// program ends itself, the library never does. If it fails, or takes longer than `options.within`, there is no mark
  /// and older versions are as they were; the next call ends with the error, and the ones after it go on.
  ///
  /// The handler of the signal that is there is called too; one that the program installs later takes this one's place.
  /// May be called for several signals. Errors: invalid_argument (a signal that cannot be caught or means a bug, a
  /// level), unsupported (an ephemeral store, a read-only one, a level that it does not have), in_use (16 stores of the
  /// process do this), closed.
  ///
  ///   store.suspend_on(SIGTERM, {.within = ebb::Seconds(20)}).value();
  ///   if (auto written = store.checkpoint(step, sources); !written && written.error().code == ebb::Errc::suspended)
  ///     return 0;                                            // started again, `suspended()` has a value
  Result<void> suspend_on(int signal, const SuspendOptions& options = {});
  /// Does nothing but end as every other call would, for a program that makes few of them.
  Result<void> check_suspended(const Interrupt& interrupted = {});
  /// When the store was suspended, in ns since 1970; none: it was not, or the mark was cleared. Error closed.
  Result<std::optional<std::int64_t>> suspended() const;
  /// Removes the mark, durably, and lets the program's calls begin again. Errors: unsupported (read-only), timed_out
  /// (the disk does not answer), closed.
  Result<void> clear_suspended();

  /// Lends so many bytes of this device's memory to other processes from now on, in place of Options::lend. Less than
  /// before: waits, up to `within`, until the rest can be allocated here again. Errors: timed_out, with the processes
  /// that have not returned it and how much (it is not free until they have), invalid_argument (less than 64 MiB,
  /// or 8 EiB and more), unsupported (this memory cannot be lent), closed.
  Result<void> lend(std::uint64_t bytes, Seconds within = Seconds(10), const Interrupt& interrupted = {});
  Stats stats() const;
  /// The ordinal of the GPU that has the device cache; none: it is in ordinary memory.
  std::optional<int> gpu() const;
  /// Ends every transfer (an ephemeral store drops what is pending) and frees the caches. Waiting calls end with
  /// `closed`. A persistent store first waits until its checkpoints are durable; if that is interrupted, the error is
  /// timed_out, the store stays open with its transfers in progress, and must be closed again. Last it waits for what
  /// it lent; if that is interrupted, or takes too long, the error is timed_out, and the store is closed.
  /// `level`: waits for that one in place of the store's own durability; what is not durable by then goes on from
  /// there, by the agent of a node's pool or the next process that opens the store. Error as of wait().
  Result<void> close(const Interrupt& interrupted = {}, const std::optional<Durability>& level = {});

 private:
  friend class store::Engine;
  using History::History;
  void leave() noexcept;
};

}  // namespace ebb
