/* Ranks that ask each other at Checkpoint_begin whether a version goes to `persistent`: `interval_job DIRECTORY`. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <veloc.h>

#include "tests/veloc/check.h"

enum { kBytes = 3 << 20, kVersions = 40 };

int main(int argc, char** argv) {
  CHECK(argc == 2);
  char file[4096];
  snprintf(file, sizeof file, "%s/veloc.cfg", argv[1]);
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    FILE* const config = fopen(file, "w");
    CHECK(config);
    CHECK(fprintf(config,
                  "scratch = %s/scratch\npersistent = %s/persistent\nmode = async\nhost_cache_size = 0.03\n"
                  "max_versions = 1\npersistent_interval = 1000000\n",
                  argv[1], argv[1]) > 0);
    CHECK(fclose(config) == 0);
  }
  CHECK(setenv("EBBTIDE_DISK", "8MiB", 1) == 0);
  MPI_Barrier(MPI_COMM_WORLD);
  OK(VELOC_Init(MPI_COMM_WORLD, file));
  char* const field = malloc(kBytes);
  CHECK(field);
  memset(field, rank, kBytes);
  OK(VELOC_Mem_protect(0, field, rank == 0 ? 1 : kBytes, 1));
  /* There is room for two versions, and for another once the ranks have agreed on one: rank 1 waits for rank 0, which
   * is ahead, and reads meanwhile what it has. */
  int version = 0;
  for (; version < kVersions; ++version) {
    OK(VELOC_Checkpoint("heat", version));
    if (version % 8 == 7) OK(VELOC_Restart("heat", version));
  }
  /* What fails on one rank fails on all, and leaves nobody in it. */
  FAILS(VELOC_Checkpoint_begin("heat", rank == 0 ? version : -1));
  FAILS(VELOC_Checkpoint_begin(rank == 0 ? "" : "wind", 0));
  FAILS(VELOC_Restart_begin("heat", rank == 0 ? version - 1 : -1));
  OK(VELOC_Checkpoint("heat", version));
  OK(VELOC_Checkpoint_wait());
  CHECK(VELOC_Restart_test("heat", 0) == version);
  OK(VELOC_Finalize(1));
  free(field);
  MPI_Finalize();
  return 0;
}
