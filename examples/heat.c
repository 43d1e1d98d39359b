/* Heat in a plane, in stripes over the ranks of an MPI job, which goes on where it was if it is killed.
 *
 *   mpicc -O2 heat.c -lebbtide -o heat && mpirun -n 4 ./heat run-7 1000
 */
#include <ebbtide/mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kRows = 128, kColumns = 512 }; /* of a rank */

static double field[kRows + 2][kColumns], next[kRows + 2][kColumns];

static void check(ebb_status status) {
  if (status == EBB_OK) return;
  fprintf(stderr, "heat: %s: %s\n", ebb_status_name(status), ebb_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* One step: the stripe's edges from the neighbours, then each point from the four around it. */
static void advance(int rank, int count) {
  const int above = rank > 0 ? rank - 1 : MPI_PROC_NULL, below = rank + 1 < count ? rank + 1 : MPI_PROC_NULL;
  MPI_Sendrecv(field[1], kColumns, MPI_DOUBLE, above, 0, field[kRows + 1], kColumns, MPI_DOUBLE, below, 0,
               MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Sendrecv(field[kRows], kColumns, MPI_DOUBLE, below, 1, field[0], kColumns, MPI_DOUBLE, above, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  for (int y = 1; y <= kRows; ++y)
    for (int x = 1; x + 1 < kColumns; ++x)
      next[y][x] = 0.25 * (field[y - 1][x] + field[y + 1][x] + field[y][x - 1] + field[y][x + 1]);
  if (rank == 0) memcpy(next[1], field[1], sizeof next[1]); /* the upper edge stays hot */
  memcpy(field, next, sizeof field);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, count;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  const long steps = argc > 2 ? atol(argv[2]) : 1000;

  ebb_options options;
  check(ebb_options_init(&options));
  options.directory = argc > 1 ? argv[1] : "run-7";
  options.keep_last = 2;
  options.device_cache = options.host_cache = 8 << 20;
  options.disk = 64 << 20;
  ebb_group* group;
  check(ebb_group_open_mpi(MPI_COMM_WORLD, &options, &group));

  if (rank == 0)
    for (int x = 0; x < kColumns; ++x) field[1][x] = 100.0;
  int64_t newest;
  check(ebb_group_resume(group, -1, &newest)); /* the same on every rank */
  const ebb_target target = {0, field, sizeof field};
  if (newest >= 0) check(ebb_group_restore(group, newest, &target, 1, NULL));

  for (int64_t step = newest + 1; step < steps; ++step) {
    advance(rank, count);
    const ebb_source source = {0, field, sizeof field};
    check(ebb_group_checkpoint(group, step, &source, 1, NULL, NULL));
  }
  check(ebb_group_close(group));
  check(ebb_group_free(&group));

  double mine = 0, sum = 0;
  for (int y = 1; y <= kRows; ++y)
    for (int x = 0; x < kColumns; ++x) mine += field[y][x];
  MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("heat after %ld steps: %.9e\n", steps, sum);
  MPI_Finalize();
  return 0;
}
