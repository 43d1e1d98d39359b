#ifndef EBBTIDE_MPI_H
#define EBBTIDE_MPI_H
/* Groups of ranks over MPI, for C and C++. All of it is compiled with the program, by its own MPI: the library needs
 * none.
 *
 *   ebb_group_open_mpi(MPI_COMM_WORLD, &options, &group);
 *
 * MPI is called by the threads that call the group, and by no other: MPI_Init is enough where there is one. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "ebbtide/ebbtide.h"

typedef struct ebb_mpi_group {
  MPI_Comm comm;
  MPI_Request request;
  int64_t *found,
      *to; /* MPI writes to the first, which stays while a request is pending, whatever becomes of the group */
  size_t count, room;
} ebb_mpi_group;

static inline int ebb_mpi_begin_least(void* context, int64_t* values, size_t count) {
  ebb_mpi_group* const group = (ebb_mpi_group*)context;
  if (count > group->room) {
    int64_t* const more = (int64_t*)realloc(group->found, count * sizeof *more);
    if (!more) return MPI_ERR_NO_MEM;
    group->found = more;
    group->room = count;
  }
  memcpy(group->found, values, count * sizeof *values);
  group->to = values;
  group->count = count;
  return MPI_Iallreduce(MPI_IN_PLACE, group->found, (int)count, MPI_INT64_T, MPI_MIN, group->comm, &group->request);
}

static inline int ebb_mpi_test(void* context, int wait, int* done) {
  ebb_mpi_group* const group = (ebb_mpi_group*)context;
  *done = 1;
  const int error =
      wait ? MPI_Wait(&group->request, MPI_STATUS_IGNORE) : MPI_Test(&group->request, done, MPI_STATUS_IGNORE);
  if (error == MPI_SUCCESS && *done) memcpy(group->to, group->found, group->count * sizeof *group->to);
  return error;
}

/* With a request pending, everything stays: MPI may still write there. */
static inline void ebb_mpi_free(void* context) {
  ebb_mpi_group* const group = (ebb_mpi_group*)context;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (group->request != MPI_REQUEST_NULL) return;
  if (!finalized) MPI_Comm_free(&group->comm);
  free(group->found);
  free(group);
}

/* The ranks of `comm`, which is duplicated. Collective. `status` tells what failed, and is EBB_OK otherwise. */
static inline ebb_collective ebb_mpi_collective(MPI_Comm comm, ebb_status* status) {
  ebb_collective made = {NULL, 0, 0, ebb_mpi_begin_least, ebb_mpi_test, ebb_mpi_free};
  ebb_mpi_group* const group = (ebb_mpi_group*)malloc(sizeof *group);
  *status = group ? EBB_OK : EBB_OUT_OF_MEMORY;
  if (!group) return made;
  group->request = MPI_REQUEST_NULL;
  group->found = group->to = NULL;
  group->count = group->room = 0;
  if (MPI_Comm_dup(comm, &group->comm) != MPI_SUCCESS) {
    free(group);
    *status = EBB_IO_ERROR;
    return made;
  }
  MPI_Comm_set_errhandler(group->comm, MPI_ERRORS_RETURN);
  MPI_Comm_rank(group->comm, &made.rank);
  MPI_Comm_size(group->comm, &made.count);
  made.context = group;
  return made;
}

/* ebb_group_open() with these ranks. Collective. */
static inline ebb_status ebb_group_open_mpi(MPI_Comm comm, const ebb_options* options, ebb_group** group) {
  ebb_status status;
  const ebb_collective collective = ebb_mpi_collective(comm, &status);
  return status == EBB_OK ? ebb_group_open(&collective, options, group) : status;
}

#endif
