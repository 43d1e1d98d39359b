/* A job of reliability/veloc/trial.py: `job CONFIG LOG GENERATION STEPS` goes on from the newest version that all ranks
 * have, whose bytes it checks, writes some more, and tells in LOG what it found and what was reported durable. With
 * ABORT_RANK, ABORT_AT and ABORT_US in the environment that rank calls MPI_Abort (status 7) so long after that step.
 * With AGAIN it writes so many versions over and over, and state[1] counts the writes; with ROUTED as a file of its
 * own, of that name. */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <veloc.h>

enum { kWords = 30000 };

static int rank;
static int64_t state[2], field[kWords]; /* the version, and the job that wrote it */
static const char* routed;

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

/* Opens the file in place of which the program's own is written or read. */
static FILE* open_routed(const char* how) {
  char original[VELOC_MAX_NAME], path[VELOC_MAX_NAME];
  snprintf(original, sizeof original, "%s-%d", routed, rank);
  return VELOC_Route_file(original, path) == VELOC_SUCCESS ? fopen(path, how) : NULL;
}

static int write_version(int version) {
  if (!routed) return VELOC_Checkpoint("heat", version) == VELOC_SUCCESS;
  VELOC_Checkpoint_wait();
  if (VELOC_Checkpoint_begin("heat", version) != VELOC_SUCCESS) return 0;
  FILE* const file = open_routed("wb");
  int written = file && fwrite(state, sizeof state, 1, file) == 1 && fwrite(field, sizeof field, 1, file) == 1;
  written = file && fclose(file) == 0 && written;
  return VELOC_Checkpoint_end(written) == VELOC_SUCCESS && written;
}

static int read_version(int version) {
  if (!routed) return VELOC_Restart("heat", version) == VELOC_SUCCESS;
  if (VELOC_Restart_begin("heat", version) != VELOC_SUCCESS) return 0;
  FILE* const file = open_routed("rb");
  const int read = file && fread(state, sizeof state, 1, file) == 1 && fread(field, sizeof field, 1, file) == 1;
  if (file) fclose(file);
  return VELOC_Restart_end(1) == VELOC_SUCCESS && read;
}

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char* const log = argv[2];
  const int again = (int)number("AGAIN");
  routed = getenv("ROUTED");
  if (VELOC_Init(MPI_COMM_WORLD, argv[1]) != VELOC_SUCCESS) MPI_Abort(MPI_COMM_WORLD, 4);
  VELOC_Mem_protect(0, state, 2, sizeof state[0]);
  VELOC_Mem_protect(1, field, kWords, sizeof field[0]);

  const int newest = VELOC_Restart_test("heat", 0);
  int64_t wrong = 0, most = 0, ends[2] = {0, 0}, all[2];
  if (newest >= 0) {
    wrong = !read_version(newest) || state[0] != newest;
    for (int i = 0; i < kWords; ++i) wrong += field[i] != word(i);
    ends[0] = state[1];
    ends[1] = -state[1];
  }
  MPI_Allreduce(ends, all, 2, MPI_INT64_T, MPI_MIN, MPI_COMM_WORLD);
  MPI_Allreduce(&wrong, &most, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  tell(log, "restarted", newest, most != 0 || all[0] != -all[1]); /* also if ranks have it of different jobs */

  if (again > 0) tell(log, "found", newest, newest < 0 ? 0 : (int)state[1]);
  const int generation = atoi(argv[3]), end = newest + 1 + atoi(argv[4]);
  int64_t count = newest < 0 ? 0 : state[1]; /* of writes, with AGAIN */
  for (int step = newest + 1; step < end; ++step) {
    const int version = again > 0 ? 5 + (int)(++count % again) : step;
    state[0] = version;
    state[1] = again > 0 ? count : generation;
    for (int i = 0; i < kWords; ++i) field[i] = word(i);
    tell(log, "begun", version, 0);
    const int accepted = write_version(version);
    if (!accepted) tell(log, "refused", version, 0);
    if (rank == number("ABORT_RANK") && step - newest == number("ABORT_AT")) {
      usleep((useconds_t)number("ABORT_US"));
      MPI_Abort(MPI_COMM_WORLD, 7);
    }
    if (step % 3 == 0) {
      const int durable = VELOC_Checkpoint_wait() == VELOC_SUCCESS && accepted;
      tell(log, durable ? "durable" : "failed", version, again > 0 ? (int)count : 0);
    }
  }
  tell(log, "ended", VELOC_Finalize(1) == VELOC_SUCCESS, 0);
  MPI_Finalize();
  return 0;
}
