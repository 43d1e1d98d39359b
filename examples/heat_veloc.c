/* Heat in a plane, in stripes over the ranks of an MPI job, with VELOC's calls; it goes on where it was if it is
 * killed.
 *
 *   mpicc -O2 heat_veloc.c -lveloc-client -o heat_veloc && mpirun -n 4 ./heat_veloc veloc.cfg 1000
 */
#include <stdio.h>
#include <stdlib.h>
#include <veloc.h>

enum { kRows = 128, kColumns = 512, kEvery = 5 }; /* of a rank; steps from one checkpoint to the next */

static double field[kRows + 2][kColumns], next[kRows + 2][kColumns];

static void check(int answer) {
  if (answer != VELOC_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 1); /* why is on stderr */
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
  int rank, count, step = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  const int steps = argc > 2 ? atoi(argv[2]) : 1000;
  check(VELOC_Init(MPI_COMM_WORLD, argc > 1 ? argv[1] : "veloc.cfg"));
  check(VELOC_Mem_protect(0, &step, 1, sizeof step));
  check(VELOC_Mem_protect(1, field, (kRows + 2) * kColumns, sizeof field[0][0]));

  if (rank == 0)
    for (int x = 0; x < kColumns; ++x) field[1][x] = 100.0;
  const int newest = VELOC_Restart_test("heat", 0); /* the same on every rank */
  if (newest > 0) check(VELOC_Restart("heat", newest));

  while (step < steps) {
    advance(rank, count);
    ++step;
    if (step % kEvery == 0) check(VELOC_Checkpoint("heat", step));
  }
  check(VELOC_Finalize(1));

  double mine = 0, sum = 0;
  for (int y = 1; y <= kRows; ++y)
    for (int x = 0; x < kColumns; ++x) mine += field[y][x];
  MPI_Reduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("heat after %d steps: %.9e\n", steps, sum);
  MPI_Finalize();
  return 0;
}
