/* A job of reliability/veloc/trial.py: `job CONFIG LOG GENERATION STEPS` goes on from the newest version that all ranks
 * have, whose bytes it checks, writes some more, and tells in LOG what it found and what was reported durable. With
 * ABORT_RANK, ABORT_AT and ABORT_US in the environment that rank calls MPI_Abort (status 7) so long after that step. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <veloc.h>

enum { kWords = 30000 };

static int rank;
static int64_t state[2], field[kWords]; /* the version, and the job that wrote it */

static int64_t word(int i) { return state[0] * 1000003 + state[1] * 15485863 + (int64_t)rank * 7919 + i; }

static long number(const char* name) {
  const char* const text = getenv(name);
  return text ? atol(text) : -1;
}

static void tell(const char* log, const char* what, int version, int more) {
  if (rank != 0) return;
  char line[96];
  const int length = snprintf(line, sizeof line, "%s %d %d\n", what, version, more);
  const int file = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file < 0 || write(file, line, (size_t)length) != length) MPI_Abort(MPI_COMM_WORLD, 3);
  close(file);
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* const log = argv[2];
  if (VELOC_Init(MPI_COMM_WORLD, argv[1]) != VELOC_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 4);
  VELOC_Mem_protect(0, state, 2, sizeof state[0]);
  VELOC_Mem_protect(1, field, kWords, sizeof field[0]);

  const int newest = VELOC_Restart_test("heat", 0);
  int64_t wrong = 0, most = 0, ends[2] = {0, 0}, all[2];
  if (newest >= 0) {
    wrong = VELOC_Restart("heat", newest) != VELOC_SUCCESS || state[0] != newest;
    for (int i = 0; i < kWords; ++i) wrong += field[i] != word(i);
    ends[0] = state[1];
    ends[1] = -state[1];
  }
  MPI_Allreduce(ends, all, 2, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&wrong, &most, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  tell(log, "restarted", newest, most != 0 || all[0] != -all[1]); /* also if ranks have it of different jobs */

  const int generation = atoi(argv[3]), end = newest + 1 + atoi(argv[4]);
  for (int version = newest + 1; version < end; ++version) {
    state[0] = version;
    state[1] = generation;
    for (int i = 0; i < kWords; ++i) field[i] = word(i);
    tell(log, "begun", version, 0);
    const int accepted = VELOC_Checkpoint("heat", version) == VELOC_SUCCESS;
    if (!accepted) tell(log, "refused", version, 0);
    if (rank == number("ABORT_RANK") && version - newest == number("ABORT_AT")) {
      usleep((useconds_t)number("ABORT_US"));
      MPI_Abort(MPI_COMM_WORLD, 7);
    }
    if (version % 3 == 0) {
      const int durable = VELOC_Checkpoint_wait() == VELOC_SUCCESS && accepted;
      tell(log, durable ? "durable" : "failed", version, 0);
    }
  }
  tell(log, "ended", VELOC_Finalize(1) == VELOC_SUCCESS, 0);
  MPI_Finalize();
  return 0;
}
