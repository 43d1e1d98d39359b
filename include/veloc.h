#ifndef VELOC_H
#define VELOC_H
/* VELOC's interface for C and C++, kept by Ebbtide: docs/veloc.md.
 *
 *   VELOC_Init(MPI_COMM_WORLD, "veloc.cfg");
 *   VELOC_Mem_protect(0, field, points, sizeof(double));
 *   int step = VELOC_Restart_test("heat", 0);                    // the newest that every rank has; -1: none
 *   if (step > 0 && VELOC_Restart("heat", step) != VELOC_SUCCESS) return 1;
 *   while (++step < steps) { advance(field); VELOC_Checkpoint("heat", step); }
 *   VELOC_Finalize(1);
 *
 * A call answers VELOC_SUCCESS or VELOC_FAILURE unless it says otherwise, and tells a failure in one line on stderr.
 * None ends the process or throws. *Collective* calls are made by all ranks, in the same order; in a job of
 * VELOC_Init_single each process is alone. One thread at a time makes calls. */
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "veloc/defs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens what `cfg_file` describes, for the ranks of `comm`. After MPI_Init. Without effect where it is open.
 * Collective. */
int VELOC_Init(MPI_Comm comm, const char* cfg_file);
/* The same for one process, without MPI; `id` is its own among those that use the same directories. */
int VELOC_Init_single(unsigned int id, const char* cfg_file);
/* Waits until what was written is durable, and closes. With `drain` an earlier checkpoint that failed fails this call
 * too. Before MPI_Finalize. Collective. */
int VELOC_Finalize(int drain);

/* From now on checkpoints have these count * base_size bytes as region `id`, and restarts read into them. A region of
 * that id is replaced. */
int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size);
/* Failure: it is not protected. */
int VELOC_Mem_unprotect(int id);
int VELOC_Mem_clear(void);
/* The same for the checkpoints called `name` alone, which then have none of the regions above. */
int VELOC_Region_protect(int id, void* ptr, size_t count, size_t base_size, const char* name);
int VELOC_Region_unprotect(int id, const char* name);
int VELOC_Region_clear(const char* name);

/* Between Checkpoint_begin and Checkpoint_end: the file that the program is to write, in place of `original`, and that
 * is the checkpoint then. With a `persistent`, `original` is written as well: once it is waited for, or the next file
 * is routed, or in Finalize. Between Restart_begin and Restart_end: a file with those bytes. `routed` has room for
 * VELOC_MAX_NAME bytes. */
int VELOC_Route_file(const char* original, char* routed);
/* Forgets the checkpoints called `name` that are in `scratch` alone: all of them where there is no `persistent`, else
 * none. Collective. */
int VELOC_Cleanup(const char* name);

/* Collective. `version` is not negative and above the last one of this name; any other is dropped first, with all that
 * are newer. */
int VELOC_Checkpoint_begin(const char* name, int version);
/* Writes the regions; they may be overwritten when it returns. */
int VELOC_Checkpoint_mem(void);
int VELOC_Checkpoint_selective(int mode, int* ids, int no_ids);
/* With mode=sync the version is durable on all ranks when this returns; with mode=async it becomes so in the
 * background. `success` of 0 on one rank: the version is void on all. Collective. */
int VELOC_Checkpoint_end(int success);
/* Waits until what was written is durable on all ranks. A failure of one rank since the last wait fails it on all.
 * Collective. */
int VELOC_Checkpoint_wait(void);
/* VELOC_SUCCESS once Checkpoint_wait would wait for nothing of this rank, VELOC_FAILURE before. */
int VELOC_Checkpoint_finished(void);
/* Checkpoint_wait, unless a cache size is configured, and then all of a checkpoint. Collective. */
int VELOC_Checkpoint(const char* name, int version);

/* The newest version, not above `version` (0: no bound), that is complete and intact on every rank; none: -1.
 * Collective. */
int VELOC_Restart_test(const char* name, int version);
/* Failure on all ranks if one cannot read its part. Collective. */
int VELOC_Restart_begin(const char* name, int version);
/* Reads into the protected regions, each from its start. */
int VELOC_Recover_mem(void);
int VELOC_Recover_selective(int mode, int* ids, int no_ids);
/* Bytes of region `id`; -1: it has none, or more than an int counts. */
int VELOC_Recover_size(int id);
int VELOC_Restart_end(int success);
int VELOC_Restart(const char* name, int version);

/* What VELOC's GPU prototype adds (hpdc23 sec. 4.3). Versions will be restarted from in the order in which they were
 * enqueued, and may be enqueued before they are written. */
int VELOC_Prefetch_enqueue(const char* name, int version);
/* From now on they are fetched into the caches. */
int VELOC_Prefetch_start(void);
/* Whether all of a version is on the fastest tier now. Of all its regions; `id` is one that it has. */
bool VELOC_Next_prefetched(const char* name, int version, int id);
/* Writes what went over each link so far, in bytes, as text of less than 1,024 bytes: "{AtoD : 4096, DtoH : 0}". A is
 * the application, D the device cache (of a GPU), H the host cache, L the disk below `scratch`, S `persistent`. */
int VELOC_Get_trf_metrics(char* text);
/* Bytes of region `id` of a version, outside a restart; (size_t)-1: there is none. */
size_t VELOC_Recover_ckpt_size(const char* name, int version, int id);

#ifdef __cplusplus
}

#ifndef VELOC_NO_FLAGS
/* As with four arguments. `release_routine` is called with `ptr` when a checkpoint of the region has its bytes. */
int VELOC_Mem_protect(int id, void* ptr, size_t count, size_t base_size, unsigned int flags,
                      void (*release_routine)(void*) = nullptr);
#endif
#endif

#endif
