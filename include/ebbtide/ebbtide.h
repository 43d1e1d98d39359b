#ifndef EBBTIDE_EBBTIDE_H
#define EBBTIDE_EBBTIDE_H
/* The C interface (C11): the calls of store.hpp with opaque handles and error codes. No exception ever escapes it.
 *
 *   ebb_store *store = NULL;
 *   const char *const options[] = {"directory", "/scratch", "device_cache", "4GiB", NULL};
 *   if (ebb_open_text(options, &store) != EBB_OK) { fputs(ebb_last_error(), stderr); return 1; }
 *   for (int step = 0; step < n; ++step) {
 *     compute(field);
 *     ebb_source source = {0, field, bytes};
 *     ebb_checkpoint(store, step, &source, 1, NULL, NULL);
 *     ebb_hint_front(store, step);                  // it will be needed before the earlier ones
 *   }
 *   ebb_target target = {0, field, bytes};
 *   for (int step = n; step-- > 0;) ebb_restore(store, step, &target, 1, NULL);
 *   ebb_close(store);
 *   ebb_store_free(&store);
 *
 * A program that continues where an earlier run of it ended, however it ended:
 *
 *   const char *const options[] = {"directory", "run-7", "durability", "storage", "keep_last", "3", NULL};
 *   if (ebb_open_text(options, &store) != EBB_OK) { fputs(ebb_last_error(), stderr); return 1; }
 *   int64_t newest = -1;
 *   ebb_latest(store, -1, &newest);                 // complete and intact; -1: there is none
 *   if (newest >= 0) ebb_restore(store, newest, &target, 1, NULL);
 *   for (int64_t step = newest + 1; step < n; ++step) {
 *     compute(field);
 *     ebb_checkpoint(store, step, &source, 1, NULL, NULL);
 *   }
 *   ebb_wait(store, "storage", EBB_FOREVER);        // now all of it survives a power loss
 *
 * Conventions
 * - Every call returns an ebb_status; its results come through its last pointers, which are set to NULL or 0 when it
 *   fails. ebb_last_error() then has a sentence for a person.
 * - A NULL where none is allowed, or a handle of another kind, gives EBB_INVALID_ARGUMENT. `..._free` takes the address
 *   of the handle and sets it to NULL, so that a freed handle cannot be used by accident; freeing NULL is fine.
 * - Sizes are bytes, times are seconds. A timeout below 0 (EBB_FOREVER) is as long as it takes.
 * - Thread safety: every call may be made from any thread, several at once on one handle; only `..._free` must be the
 *   last.
 * - Other handles may outlive the store's: their calls then return EBB_CLOSED.
 */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_VERSION_MAJOR 0
#define EBB_VERSION_MINOR 1
#define EBB_VERSION_PATCH 0

/* Why a call was refused or failed. */
typedef enum ebb_status {
  EBB_OK = 0,
  EBB_INVALID_ARGUMENT = 1, /* a wrong option, size or handle; the message names what is expected */
  EBB_VERSION_EXISTS = 2,   /* this version exists: neither dropped nor consumed */
  EBB_UNKNOWN_VERSION = 3,  /* never written, or dropped */
  EBB_CONSUMED = 4,         /* restored from an ephemeral store without a further hint: its bytes are gone */
  EBB_TOO_LARGE = 5,        /* larger than every tier */
  EBB_NO_SPACE = 6,         /* no transfer in flight can make room; the message names each tier's size and use */
  EBB_SIZE_MISMATCH = 7,  /* the targets of a restore do not match the checkpoint's regions, or a buffer is too small */
  EBB_TIMED_OUT = 8,      /* the call's time limit passed; the operation may still complete */
  EBB_IO_ERROR = 9,       /* the operating system failed a transfer permanently */
  EBB_LOST = 10,          /* the checkpoint's only copy could not be written or read back */
  EBB_DROPPED = 11,       /* dropped while the call waited for it */
  EBB_CLOSED = 12,        /* the store is closed */
  EBB_UNSUPPORTED = 13,   /* not possible here: a level, tier or file system that this store does not have */
  EBB_OUT_OF_MEMORY = 14, /* a cache, or the memory of the call itself, could not be allocated */
  EBB_DAMAGED = 15,       /* bytes on the disk do not match their checksum (the message names file and offset), or
                           * memory was written to after it was committed (ebb_hand_back_options.check) */
  EBB_IN_USE = 16,        /* another process has this store open for writing */
  EBB_NOT_A_STORE = 17,   /* a directory with other contents */
  EBB_NOT_PERMITTED = 18, /* another user's store, or one that others can write to */
  EBB_SUSPENDED = 19,     /* a signal asked for it (ebb_suspend_on): what was written is durable, the program may end */
  EBB_INTERNAL = 255      /* a bug in the library: please report it with the message */
} ebb_status;

/* "no_space"; "unknown" for any other number. Never NULL. */
const char* ebb_status_name(ebb_status status);
/* The message of this thread's last failed call; "" when there is none. Valid until this thread's next failure. */
const char* ebb_last_error(void);
/* "0.1.0", of the library that is linked. */
const char* ebb_version(void);

#define EBB_FOREVER (-1.0)
#define EBB_UNSET UINT64_MAX

typedef struct ebb_store ebb_store;             /* an open store, or a history of one: the same calls */
typedef struct ebb_future ebb_future;           /* an operation in progress */
typedef struct ebb_reservation ebb_reservation; /* memory inside the device cache to compute into */
typedef struct ebb_loan ebb_loan;               /* the cached replica itself, read-only */
typedef struct ebb_file ebb_file;               /* an open file of a store */

/* --- opening and closing --- */

/* Called with each line of the log, on any thread that calls the store. A line that begins with "warning: " names
 * damage on the disk: file, offset, and what is wrong. `line` is valid during the
 * call. */
typedef void (*ebb_log)(const char* line, void* context);

/* What a store is opened with. A field left as ebb_options_init() sets it comes from the environment
 * (EBBTIDE_<FIELD>, in capitals), else it has its default; ebbtide/options.hpp lists the defaults. */
typedef struct ebb_options {
  const char* device;     /* "auto": a GPU if there is one; "cpu": ordinary memory; "cuda": the current GPU; "cuda:1" */
  const char* directory;  /* of the local tier's file, a tmpfs is refused; with a durability, the store itself */
  uint64_t device_cache;  /* bytes */
  uint64_t host_cache;    /* bytes */
  uint64_t disk;          /* bytes; 0: no such tier */
  const char* prefetch;   /* "auto" or "manual": nothing is prefetched before ebb_start_prefetch() */
  const char* eviction;   /* "score", "score_paper", "lru", "fifo" */
  double close_timeout;   /* seconds; below 0: unset */
  const char* event_log;  /* a file to record the planner's events in, for replay */
  const char* durability; /* "ephemeral": nothing outlives the process; "process": survives the process;
                           * "storage": survives a power loss too; "node": in the node's pool, survives the
                           * process; "shared": in the shared directory, survives the node. Guarantees:
                           * docs/durability.md */
  int readonly;           /* 1: reads a persistent store, at its own durability, while another process may write it */
  uint64_t keep_last;  /* in each history: once a version is durable, all but this many newest are dropped; 0: none */
  uint64_t keep_every; /* except multiples of this; 0: no exception */
  const char* verify;  /* "files": bytes from files are checked; "all": bytes from memory too */
  ebb_log log;         /* may be NULL: then warnings go to stderr, unless EBBTIDE_LOG says "off" */
  void* log_context;   /* given to `log` */
  uint64_t node_pool;  /* bytes that this job's processes on this node share, in place of host_cache; 0: no pool */
  uint64_t memory;     /* bytes of host memory in all, for host_cache (without a GPU device_cache too); 0: unset */
  int warm;            /* 1: all cache memory is touched at open, not as it is used; 0: unset */
  uint64_t lend;       /* bytes of the device's memory that other processes may use (ebb_lend()); 0: unset */
  const char* borrow;  /* what this store may use of theirs: "auto": all that is lent; "8GiB"; "0": none; NULL: unset */
  double lend_share;   /* of the bandwidth to and from what is lent, above 0, at most 1: no limit; 0: unset */
  const char* tuning;  /* what few programs need, as "io=threads, direct_io=false": ebb::Tuning in options.hpp */
  int agreed;          /* 1: of the newest `keep_last`, only versions that ebb_agree() named, or older ones, count */
  const char* shared;  /* a directory on a parallel file system, to which each version goes on from the local disk;
                        * makes `durability` "shared" unless that is given; NULL: unset */
  uint64_t keep_last_shared; /* as keep_last, there */
  uint64_t shared_every;     /* only multiples of this go there; 0: all */
  const char* limit_shared;  /* "200MB/s": no more is written there; NULL: unset */
  uint64_t adopted;    /* bytes of the program's memory that may be replicas (ebb_checkpoint_options.released), beside
                        * device_cache; 0: unset */
  uint64_t veloc_rank; /* `shared` has VELOC's files, of this rank (docs/veloc.md); default: it has this library's */
  const char* node_overflow; /* with node_pool, for a process whose share is full: "page cache": the agent writes
                              * through it; "wait": at the disk's pace; NULL: unset */
  const char* veloc_meta; /* with veloc_rank: VELOC's directory of metadata; its aggregated files are read then; NULL:
                           * unset */
  int veloc_chksum;       /* 1: each data file has VELOC's checksum file there; 0: unset */
} ebb_options;

/* Marks every field as left out. */
ebb_status ebb_options_init(ebb_options* options);

/* Opens a store; `options` may be NULL. Errors: invalid_argument, unsupported (no such GPU, a tmpfs, no io_uring),
 * out_of_memory, io_error. For a persistent store also: in_use, not_a_store, not_permitted, damaged, no_space,
 * unsupported (of a newer format); opening one as ephemeral, or at another durability, is invalid_argument.
 *
 *   ebb_options options;
 *   ebb_options_init(&options);
 *   options.host_cache = 32ull << 30;
 *   ebb_open(&options, &store);
 */
ebb_status ebb_open(const ebb_options* options, ebb_store** store);
/* The same from text: key, value, key, value, ..., NULL. The keys are the fields of ebb_options (except `log`),
 * sizes are written "4GiB", and fields that are 1 or 0 "true" and "false". */
ebb_status ebb_open_text(const char* const* keys_and_values, ebb_store** store);

/* The view of the history called `name` over the store's caches; the first checkpoint refuses a name of more than
 * 65,536 bytes, or with "/.ebbtide-file/" in it, where files are kept (invalid_argument). With `reverse` not 0, each
 * checkpoint is hinted, when it is written, ahead of the earlier ones. Free the view with ebb_store_free(); its
 * checkpoints stay. */
ebb_status ebb_history(ebb_store* store, const char* name, int reverse, ebb_store** history);

/* Lends so many bytes of the device's memory to other processes from now on, in place of ebb_options.lend. Less than
 * before: waits up to `timeout` seconds until the rest can be allocated here again. Errors: timed_out, with the
 * processes that have not returned it and how much, invalid_argument (less than 64 MiB, 8 EiB and more, or a
 * history), unsupported (this memory cannot be lent). */
ebb_status ebb_lend(ebb_store* store, uint64_t bytes, double timeout);

/* Ends every transfer and frees the caches. An ephemeral store drops what is pending. A persistent store first
 * waits, up to `close_timeout`, until its checkpoints are durable; otherwise the call returns timed_out, or the
 * error of what failed, naming a checkpoint that is not durable, and the store is closed all the same. Waiting calls
 * end with EBB_CLOSED, and so does every later call. invalid_argument on a history. */
ebb_status ebb_close(ebb_store* store);
/* Frees the handle, closing the store first if it is open. Loans and reservations keep their memory until they
 * end. */
ebb_status ebb_store_free(ebb_store** store);

/* --- a job that must end --- */

/* From now on `signal` suspends the store: in the background, everything written so far becomes as durable as `level`
 * ("process", "node" or "storage"; NULL: the store's durability), and then a mark is written. The next call waits for
 * that and returns EBB_SUSPENDED, as every later one does, but for those that only look (ebb_versions, ebb_stat,
 * ebb_suspended), what is in hand (commits, futures, ebb_file_close) and ebb_close: the program ends itself, the
 * library never does. If it fails, or takes longer than `within` seconds (below 0: as long as it takes), there is no
 * mark and older versions are as they were; the next call returns the error, and the ones after it go on.
 *
 * The handler of the signal that is there is called too; one that the program installs later takes this one's place.
 * May be called for several signals. Errors: invalid_argument (a signal that cannot be caught or means a bug, a level),
 * unsupported (an ephemeral store, a read-only one, a level that it does not have), in_use (16 stores of this process
 * do this), closed.
 *
 *   ebb_suspend_on(store, SIGTERM, NULL, 20.0);
 *   if (ebb_checkpoint(store, step, &source, 1, NULL, NULL) == EBB_SUSPENDED) return 0;
 */
ebb_status ebb_suspend_on(ebb_store* store, int signal, const char* level, double within);
/* Does nothing but return what every other call would, for a program that makes few of them. */
ebb_status ebb_check_suspended(ebb_store* store);
/* When the store was suspended, in ns since 1970, also by an earlier process; -1: it was not. Error: closed. */
ebb_status ebb_suspended(const ebb_store* store, int64_t* since);
/* Removes the mark, durably, and lets calls begin again. Errors: unsupported (read-only), timed_out (the disk does not
 * answer), closed. All four: invalid_argument on a history. */
ebb_status ebb_clear_suspended(ebb_store* store);

/* --- writing and reading --- */

/* A region to write: `id` is the application's name for it. */
typedef struct ebb_source {
  uint32_t id;
  const void* data;
  size_t bytes;
} ebb_source;

/* Where a region is read to; `bytes` must equal what was written under `id`. Targets of one call do not overlap: which
   bytes are there afterwards is not defined. */
typedef struct ebb_target {
  uint32_t id;
  void* data;
  size_t bytes;
} ebb_target;

/* Called about every 50 ms by the calling thread while a call waits; not 0 ends the call like a timeout. */
typedef int (*ebb_interrupt)(void* context);

/* See ebb_checkpoint_options.released. */
typedef void (*ebb_release)(void* context);

/* A stream of the application on the store's GPU: `(ebb_stream)stream` of a cudaStream_t, 0 or 1 for the legacy
 * default stream, 2 for the calling thread's default stream. In options, EBB_NO_STREAM leaves `stream` out. A call
 * with a stream returns EBB_UNSUPPORTED, and changes nothing, when the store has no GPU or the stream is being
 * captured into a graph. */
typedef uintptr_t ebb_stream;
#define EBB_NO_STREAM UINTPTR_MAX

/* With a `stream`, the copy runs after what is on the stream already, and later work on it waits for the copy; the
 * host does not wait when the device cache has room. The sources must not change until the stream has passed the
 * copy. Without one, they must be complete by the call, or on the legacy default stream. */
typedef struct ebb_checkpoint_options {
  const void* metadata; /* stored with the regions, opaque; may be NULL */
  size_t metadata_bytes;
  double timeout;            /* how long to wait for another thread to make room when no transfer can, or for a stopped
                                agent of a node's pool */
  ebb_interrupt interrupted; /* may be NULL */
  void* context;             /* given to `interrupted` */
  ebb_stream stream;
  /* Not NULL: the program lends the memory of the one region, and does not write to it before this is called, in a
   * store with `adopted` bytes. The store need not copy it then: it is the replica in the device cache until that is
   * evicted, or the version is consumed or dropped. Called once, whatever the call returns, on any thread, when nothing
   * of the store's reads the memory any more: later work on `stream` may write to it. That is before the call returns
   * if the memory was copied after all: beyond `adopted`, or if it is not on the store's device. */
  ebb_release released;
  void* released_context; /* given to `released` */
  int check;              /* with `released`, not 0: as ebb_hand_back_options.check, for memory that is adopted */
} ebb_checkpoint_options;
#define EBB_CHECKPOINT_OPTIONS_INIT {NULL, 0, 0.0, NULL, NULL, EBB_NO_STREAM, NULL, NULL, 0}

/* With a `stream`, later work on it finds the bytes in the targets, and the targets are overwritten only after what
 * is on it already; the host waits only until every copy is enqueued. */
typedef struct ebb_restore_options {
  int keep; /* not 0: the checkpoint is not consumed */
  double timeout;
  ebb_interrupt interrupted; /* may be NULL; not used by ebb_restore_async */
  void* context;
  ebb_stream stream; /* refused by ebb_restore_async */
  /* May be NULL. The targets have the bytes of this version: of a snapshot, only the zones that differ are read and
   * written. If either version is no snapshot, or their memory differs in size, all is restored. */
  const int64_t* have;
} ebb_restore_options;
#define EBB_RESTORE_OPTIONS_INIT {0, EBB_FOREVER, NULL, NULL, EBB_NO_STREAM, NULL}

/* How memory of the device cache is returned. On a GPU it is reused only after the present work of `stream` (without
 * one: of the legacy default stream) is done. */
typedef struct ebb_hand_back_options {
  ebb_stream stream;
  int hold; /* not 0: it stays mapped, and is not reused, until the handle is freed: other objects may refer to it */
  /* Not 0, for a commit only: a digest of the memory is computed, in stream order, and compared at each flush,
   * restore and borrow from it. If the memory was written to after the commit they fail with EBB_DAMAGED, and the
   * checkpoint is never reported durable. Each comparison reads the memory once more, a flush twice; a restore or
   * borrow waits for its stream. EBB_UNSUPPORTED: a GPU, in a build without nvcc. */
  int check;
} ebb_hand_back_options;
#define EBB_HAND_BACK_OPTIONS_INIT {EBB_NO_STREAM, 0, 0}

/* Writes `version` and returns once the sources may be overwritten. `options` and `future` may be NULL. Errors:
 * version_exists, too_large, no_space, invalid_argument (two regions with one id), unsupported (see ebb_stream),
 * io_error, closed.
 *
 *   ebb_source sources[] = {{0, pressure, np}, {1, velocity, nv}};
 *   ebb_checkpoint(store, step, sources, 2, NULL, NULL);
 */
ebb_status ebb_checkpoint(ebb_store* store, int64_t version, const ebb_source* sources, size_t count,
                          const ebb_checkpoint_options* options, ebb_future** future);

/* Reads `version` into `targets` (every region, in any order) and returns when the bytes are usable. It removes the
 * version's first hint, and consumes the checkpoint unless another hint names it or `keep`. Errors: unknown_version,
 * consumed, size_mismatch, timed_out, lost, damaged (bytes from a file do not match their checksum: the targets are
 * then undefined), io_error, closed; on any of them nothing is consumed. */
ebb_status ebb_restore(ebb_store* store, int64_t version, const ebb_target* targets, size_t count,
                       const ebb_restore_options* options);
/* The same in the background: the memory of the targets must stay valid until the future is done.
 *
 *   ebb_future *future = NULL;
 *   ebb_restore_async(store, step, &target, 1, NULL, &future);
 *   compute_something_else();
 *   ebb_status status = ebb_future_wait(future, NULL, EBB_FOREVER);
 *   ebb_future_free(&future);
 */
ebb_status ebb_restore_async(ebb_store* store, int64_t version, const ebb_target* targets, size_t count,
                             const ebb_restore_options* options, ebb_future** future);

/* `*done` is 1 once it has ended, successfully or not; the call never waits. `level` NULL: the call itself; a tier's
 * name
 * ("device", "host", "local"): complete there or below; a durability ("process", "node", "storage", "shared"): once it
 * is that durable, and never before. What failed to become durable gives the error of ebb_future_wait, and so does what
 * can never happen, so a loop that polls until `*done` always ends. Any other word, also "", is EBB_INVALID_ARGUMENT.
 */
ebb_status ebb_future_done(const ebb_future* future, const char* level, int* done);
/* Waits for it to end and returns its result; timed_out when `timeout` passes first: the operation continues. */
ebb_status ebb_future_wait(const ebb_future* future, const char* level, double timeout);
/* Its error, EBB_OK if it did not fail (or not yet); the message is in ebb_last_error(). */
ebb_status ebb_future_error(const ebb_future* future);
/* Frees the handle; the operation continues. */
ebb_status ebb_future_free(ebb_future** future);

/* --- the order in which checkpoints will be read --- */

/* Announces that `versions` will be restored, in this order, after what was hinted before (instead of it, with
 * `replace` not 0). They need not be written yet. A wrong hint costs time, never correctness. */
ebb_status ebb_hint(ebb_store* store, const int64_t* versions, size_t count, int replace);
/* Announces that `version` will be restored before everything hinted so far. */
ebb_status ebb_hint_front(ebb_store* store, int64_t version);
/* Withdraws the first hint of each of `versions`; with `versions` NULL and `count` 0, every hint. */
ebb_status ebb_unhint(ebb_store* store, const int64_t* versions, size_t count);
/* Starts prefetching in a store opened with prefetch "manual". */
ebb_status ebb_start_prefetch(ebb_store* store);

/* --- versions --- */

/* Waits until every checkpoint written so far is complete on tier `level` or below, or is as durable as `level`
 * says: "ephemeral", "process" (outlives the process), "node", "storage" (a power loss too). Errors: timed_out,
 * invalid_argument (no such word), unsupported (a tier or a durability that this store does not have), io_error and
 * no_space (naming what could not be stored), closed. */
ebb_status ebb_wait(ebb_store* store, const char* level, double timeout);
/* The same for one version. */
ebb_status ebb_wait_version(ebb_store* store, int64_t version, const char* level, double timeout);

/* Every process that checkpoints along with this one has `version` and what is older, durable; -1: they have none in
 * common. In a store opened with `agreed`, `keep_last` counts up to there. A group does it for its members. Error:
 * unsupported (it was opened without). */
ebb_status ebb_agree(ebb_store* store, int64_t version);
/* Forgets a version: its bytes and its hints. It may be written again. */
ebb_status ebb_drop(ebb_store* store, int64_t version);
/* Forgets every version of this history. Once its last handle is freed too, it uses no memory. */
ebb_status ebb_drop_all(ebb_store* store);

/* The versions that can be restored, ascending. `*count` is how many there are; at most `capacity` of them are
 * written to `versions` (size_mismatch when there are more). NULL and 0 return the number only. Error: closed. */
ebb_status ebb_versions(const ebb_store* store, int64_t* versions, size_t capacity, size_t* count);

/* The newest version, not above `at_most` (below 0: any), that is complete and intact; `*version` is -1 when there
 * is none. Versions that another process left are read and checked; damaged ones are skipped, with a warning in the
 * log that names file, offset and what is wrong. Errors: unsupported (an ephemeral store), io_error, closed.
 *
 *   int64_t version = -1;
 *   if (ebb_latest(store, -1, &version) == EBB_OK && version >= 0) ebb_restore(store, version, &target, 1, NULL);
 *
 * Versions below 0 may be written and restored, but cannot be told from "none" here: count from 0. */
ebb_status ebb_latest(ebb_store* store, int64_t at_most, int64_t* version);

typedef struct ebb_region_info {
  uint32_t id;
  size_t bytes;
  size_t offset; /* from the checkpoint's first byte; also in memory of ebb_reserve() and ebb_borrow() */
} ebb_region_info;

/* The regions of a version that can be restored, in the order written; `capacity` as for ebb_versions(). */
ebb_status ebb_info(const ebb_store* store, int64_t version, ebb_region_info* regions, size_t capacity, size_t* count);
/* Its metadata, as given to ebb_checkpoint(); `capacity` as for ebb_versions(), in bytes. */
ebb_status ebb_metadata(const ebb_store* store, int64_t version, void* metadata, size_t capacity, size_t* bytes);

/* --- without a copy --- */

/* Allocates regions of `bytes` each (`data` is ignored) inside the device cache; errors as ebb_checkpoint().
 *
 *   ebb_source region = {0, NULL, bytes};
 *   ebb_reserve(store, step, &region, 1, NULL, &reservation);
 *   ebb_reservation_data(reservation, 0, &data, &bytes);
 *   compute_into(data);
 *   ebb_reservation_commit(reservation, NULL);        // it is the checkpoint now
 *   ebb_reservation_free(&reservation);
 */
ebb_status ebb_reserve(ebb_store* store, int64_t version, const ebb_source* regions, size_t count,
                       const ebb_checkpoint_options* options, ebb_reservation** reservation);
/* The place of region `id`. `bytes` may be NULL. Errors: invalid_argument (no such region, or committed or abandoned).
 */
ebb_status ebb_reservation_data(const ebb_reservation* reservation, uint32_t id, void** data, size_t* bytes);
/* Makes it the checkpoint; its bytes are complete when `how->stream` has done its present work. `how` may be NULL. */
ebb_status ebb_reservation_commit(ebb_reservation* reservation, const ebb_hand_back_options* how);
/* As if the version had never been written. */
ebb_status ebb_reservation_abandon(ebb_reservation* reservation);
/* Frees the handle; abandons the reservation if it is not committed. */
ebb_status ebb_reservation_free(ebb_reservation** reservation);

/* The device cache's own replica of `version`, fetched first if necessary; errors as ebb_restore(). */
ebb_status ebb_borrow(ebb_store* store, int64_t version, const ebb_restore_options* options, ebb_loan** loan);
/* The place of region `id`. `bytes` may be NULL. Errors: invalid_argument (no such region, or released). */
ebb_status ebb_loan_data(const ebb_loan* loan, uint32_t id, const void** data, size_t* bytes);
/* Returns it to the cache; consumed, unless `keep` is not 0, here or when borrowed, or it is hinted again. `how` may be
 * NULL. */
ebb_status ebb_loan_release(ebb_loan* loan, int keep, const ebb_hand_back_options* how);
/* Frees the handle; releases the loan (and consumes it, unless borrowed with `keep`) if it is not released. */
ebb_status ebb_loan_free(ebb_loan** loan);

/* --- snapshots --- */

/* How writes to protected memory are found, and in what steps (see Track in ebbtide/snapshot.hpp, docs/snapshots.md).
 */
typedef struct ebb_protect_options {
  uint64_t zone;     /* bytes: a power of two, 4 KiB to 16 MiB; the same for all memory of a store */
  const char* track; /* "auto", "faults", "scan", "digest", "declared" or "everything"; NULL: "auto" */
  int hints;         /* 0: the paper's modes without H, for comparison (see ProtectOptions) */
  int duplicate;     /* 0: without D */
} ebb_protect_options;
#define EBB_PROTECT_OPTIONS_INIT {65536, NULL, 1, 1}

typedef struct ebb_snapshot_options {
  const void* metadata; /* stored with the regions, opaque; may be NULL */
  size_t metadata_bytes;
  int full;  /* not 0: stores everything, whatever was written */
  int dedup; /* not 0: stores no zone that is stored already, by it or by what it leans on */
  /* Arrays on the GPU are cut at this point of the stream (without one: of the legacy default stream). */
  ebb_stream stream;
  int fenced; /* not 0: ebb_before_write() is called before arrays on the GPU are written to (see SnapshotOptions) */
} ebb_snapshot_options;
#define EBB_SNAPSHOT_OPTIONS_INIT {NULL, 0, 0, 0, EBB_NO_STREAM, 0}

/* From now on snapshots have this memory, as `region`; it stays the program's, and must stay mapped until
 * ebb_unprotect(), or until the store is closed. `options` may be NULL. It waits until the snapshots in flight have
 * ended, and the next snapshot stores everything. Errors: invalid_argument (a region that is protected already, memory
 * that overlaps another's or is not mapped, a zone that is no power of two or another than before), unsupported (memory
 * or a way of tracking that is not possible here, a read-only store, a history), in_use (another userfaultfd has the
 * memory), out_of_memory, closed.
 *
 *   ebb_protect(store, 0, field, bytes, NULL);
 *   for (int step = 0; step < n; ++step) {
 *     advance(field);
 *     if (step % 10 == 0) ebb_snapshot(store, step, NULL, NULL);   // the program goes on, and so does the copying
 *   }
 *   ebb_wait(store, "storage", EBB_FOREVER);
 *   ebb_restore(store, 40, &target, 1, NULL);
 */
ebb_status ebb_protect(ebb_store* store, uint32_t region, void* memory, size_t bytes,
                       const ebb_protect_options* options);
/* Errors: invalid_argument (it is not protected), closed. */
ebb_status ebb_unprotect(ebb_store* store, uint32_t region);
/* Says that these bytes were written (see "declared"); the next snapshot stores them. Errors: invalid_argument, closed.
 */
ebb_status ebb_touch(ebb_store* store, uint32_t region, uint64_t offset, uint64_t bytes);
/* Takes a cut of all protected memory and returns: `version` is the memory as it is now, whatever is written
 * afterwards. It is stored in the background. `options` and `future` may be NULL. The future's level "copied": it no
 * longer depends on the memory. Errors: version_exists, invalid_argument (nothing is protected), lost (protected memory
 * was unmapped, moved or discarded: unprotect it to go on), out_of_memory, closed. */
ebb_status ebb_snapshot(ebb_store* store, int64_t version, const ebb_snapshot_options* options, ebb_future** future);
/* To be called before work on `stream` (without one: the legacy default stream) writes to region `region` on the GPU:
 * copies the zones that the snapshot has not copied yet, and makes `stream` wait for that. Needed on other streams than
 * the snapshot's own, and after a fenced one; it does nothing for memory of the host. Errors: invalid_argument
 * (`snapshot` is none, a stream of another GPU), unsupported. */
ebb_status ebb_before_write(ebb_future* snapshot, uint32_t region, ebb_stream stream);
/* The versions whose bytes a snapshot needs beside its own, ascending, and its own bytes in the store; `capacity` as
 * for ebb_versions(). Of an ordinary checkpoint: none. `bytes` may be NULL. */
ebb_status ebb_leans_on(const ebb_store* store, int64_t version, uint64_t* bytes, int64_t* versions, size_t capacity,
                        size_t* count);

/* --- files --- */

/* A new file, to be written. ebb_file_close() makes it visible, whole; freed before that, or in a process that dies, it
 * leaves nothing. Errors: version_exists (it is there, or being written), invalid_argument, unsupported (read-only).
 *
 *   ebb_create_file(store, "model", 3, &file);
 *   ebb_file_write(file, weights, bytes);
 *   ebb_file_close(file);                             // now it is there
 *   ebb_file_wait(file, "storage", EBB_FOREVER);      // and survives a power loss
 *   ebb_file_free(&file);
 */
ebb_status ebb_create_file(ebb_store* store, const char* name, int64_t version, ebb_file** file);
/* A file to be read; `version` -1: the newest. Errors: unknown_version (it is not there, or not whole), damaged, lost.
 */
ebb_status ebb_open_file(ebb_store* store, const char* name, int64_t version, ebb_file** file);
/* Reads at the position, which moves on; `*count` is less than `bytes` only at the end. Errors as ebb_restore(). */
ebb_status ebb_file_read(ebb_file* file, void* to, size_t bytes, size_t* count);
/* Writes at the position, which moves on; what lies between the end and the position becomes zeros. Errors as
 * ebb_checkpoint(). */
ebb_status ebb_file_write(ebb_file* file, const void* from, size_t bytes);
/* The position may be beyond the end. */
ebb_status ebb_file_seek(ebb_file* file, uint64_t position);
ebb_status ebb_file_tell(const ebb_file* file, uint64_t* position);
ebb_status ebb_file_size(const ebb_file* file, uint64_t* bytes);
/* Makes it so long: cut off, or zeros at its end. */
ebb_status ebb_file_truncate(ebb_file* file, uint64_t bytes);
/* Ends it. On an error it stays open, and may be closed again. */
ebb_status ebb_file_close(ebb_file* file);
/* Waits until all of a closed file is on tier `level` or as durable as `level`; see ebb_wait(). */
ebb_status ebb_file_wait(ebb_file* file, const char* level, double timeout);
/* Frees the handle; one that was being written and is not closed leaves nothing. */
ebb_status ebb_file_free(ebb_file** file);
/* The versions of a file that are there, whole, ascending; see ebb_versions(). */
ebb_status ebb_file_versions(ebb_store* store, const char* name, int64_t* versions, size_t capacity, size_t* count);
/* Forgets a file and its bytes. Errors: unknown_version, unsupported (read-only). */
ebb_status ebb_drop_file(ebb_store* store, const char* name, int64_t version);

/* --- processes that checkpoint together --- */

/* The ranks of a job, each with a store of its own, which restart together. *Collective* calls are made by all of them,
 * in the same order, and wait for each other; an error in one rank is an error in all, and those that did not fail say
 * which one did. One thread at a time calls a group.
 *
 *   ebb_group_open_mpi(MPI_COMM_WORLD, &options, &group);              // ebbtide/mpi.h
 *   ebb_group_resume(group, -1, &newest);                              // the same on every rank; -1: none
 *   if (newest >= 0) ebb_group_restore(group, newest, &target, 1, NULL);
 *   for (step = newest + 1; step < n; ++step) {
 *     advance(field);                                                  // exchanges data with other ranks
 *     ebb_group_checkpoint(group, step, &source, 1, NULL, NULL);
 *   }
 *   ebb_group_close(group);
 *   ebb_group_free(&group);
 */
typedef struct ebb_group ebb_group; /* an open group, or a history of one: the same calls */

/* How the ranks talk: ebbtide/mpi.h makes one of an MPI communicator. It is called by the thread that calls the group.
 * Functions return 0, or a number of their own that errors tell. */
typedef struct ebb_collective {
  void* context;
  int rank, count; /* of this rank, from 0; of ranks */
  /* Begins to replace each value by the least that a rank gave in its place. One at a time. */
  int (*begin_least)(void* context, int64_t* values, size_t count);
  /* Whether it is done; `wait` not 0: once it is. */
  int (*test)(void* context, int wait, int* done);
  void (*free)(void* context); /* called once, when the group is freed, or could not be opened; may be NULL */
} ebb_collective;

/* Opens this rank's store: in `directory`/rank-N, and rank-N of `shared`; in a node's pool (`node_pool`) ranks share
 * the directory of their node. Without a `durability` it is "storage", or "shared". Errors: as ebb_open(), and
 * invalid_argument (a group of another size wrote the directory). Collective. */
ebb_status ebb_group_open(const ebb_collective* collective, const ebb_options* options, ebb_group** group);
/* A history of every rank. Free it with ebb_group_free(). Collective. */
ebb_status ebb_group_history(ebb_group* group, const char* name, int reverse, ebb_group** history);
/* This rank's store, or its part of a history, for all else. It belongs to the group. */
ebb_status ebb_group_mine(ebb_group* group, ebb_store** mine);
/* The newest version, not above `at_most` (-1: any), that is complete and intact in every rank; -1: none. Collective.
 */
ebb_status ebb_group_latest(ebb_group* group, int64_t at_most, int64_t* version);
/* The same, and the job goes on from there: it is durable in every rank then, and what is newer is dropped for good, to
 * be written again. -1: no rank has a version. To be called before the first checkpoint, and to go back. Error: lost
 * (ranks have versions, and none that all have: a directory is missing). Collective. */
ebb_status ebb_group_resume(ebb_group* group, int64_t at_most, int64_t* version);
/* Forgets every version in every rank. Collective. */
ebb_status ebb_group_drop(ebb_group* group);
/* The versions that every rank has, ascending, as ebb_versions(). Collective. */
ebb_status ebb_group_versions(ebb_group* group, int64_t* versions, size_t capacity, size_t* count);
/* ebb_checkpoint() of this rank's part. It waits for no other rank, unless the disk is full of what the others have not
 * agreed on. Versions ascend, and every rank writes the same ones. If one rank cannot store its part, the version is
 * void: it is dropped in all, and `dropped` in those that come to it later. `keep_last` counts versions that are
 * durable in every rank, so the newest of those is always kept. */
ebb_status ebb_group_checkpoint(ebb_group* group, int64_t version, const ebb_source* sources, size_t count,
                                const ebb_checkpoint_options* options, ebb_future** future);
/* ebb_restore() of this rank's part; the version is kept. */
ebb_status ebb_group_restore(ebb_group* group, int64_t version, const ebb_target* targets, size_t count,
                             const ebb_restore_options* options);
/* Waits until what every rank has written is as durable as `level`; as ebb_wait(). Collective. */
ebb_status ebb_group_wait(ebb_group* group, const char* level, double timeout);
/* A snapshot of what this rank has protected (ebb_protect() on ebb_group_mine()), at the same point of the program in
 * all: one version, or none. As ebb_snapshot(). Collective. */
ebb_status ebb_group_snapshot(ebb_group* group, int64_t version, const ebb_snapshot_options* options,
                              ebb_future** future);
/* Waits until what every rank has written is as durable as promised, and closes the stores. Collective. */
ebb_status ebb_group_close(ebb_group* group);
/* Frees the handle; of a group that is not closed, closes this rank's store alone. */
ebb_status ebb_group_free(ebb_group** group);

/* --- counters --- */

/* Every counter as JSON text, the names those of stats.hpp: {"tiers": [{"name": "device", ...,
 * "arena": {"strategy": "mapped", "ready": 4294967296, ...}}], "links": [...], "blocked_s": {...}, "checkpoints": 3,
 * ...}. Free it with ebb_text_free(). */
ebb_status ebb_stats_json(const ebb_store* store, char** text);
ebb_status ebb_text_free(char** text);
/* One counter by its name: "restores", "blocked_s.room", "tier.device.used", "tier.host.arena.pinned" (bytes),
 * "tier.host.arena.huge_pages" (1 or 0), "link.host>local.bytes", "snapshots.faults" (see SnapshotStats), ... */
ebb_status ebb_stat(const ebb_store* store, const char* name, double* value);

#ifdef __cplusplus
}
#endif
#endif
