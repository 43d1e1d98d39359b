/* A job of backend.sh: `backend_job CONFIG LAST END [EXPECTED]` finds EXPECTED (-1: nothing) as its newest version,
 * reads it, writes the versions from there up to LAST, and ends: killed as soon as Checkpoint_end has returned on all
 * ranks ("killed", "killed_after_agent"), or by Finalize(0) ("left") or Finalize(1) ("drained"). With
 * `persistent_interval = 1` the version that the variable DUE names is one of those that go to `persistent`. FROM is
 * the first version that it writes; with another TURN they have other bytes, which FOUND
 * expects. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <veloc.h>

#include "tests/veloc/check.h"

enum { kWords = 200000 };

static int rank;
static int64_t field[kWords];

static int64_t word(int version, int i) { return (int64_t)version * 1000003 + (int64_t)rank * 7919 + i; }

static int number(const char* name, int otherwise) { return getenv(name) ? atoi(getenv(name)) : otherwise; }

int main(int argc, char** argv) {
  CHECK(argc == 5);
  const int last = atoi(argv[2]), expected = atoi(argv[4]);
  const int due = number("DUE", -1), from = number("FROM", expected + 1), turn = number("TURN", 0),
            found = number("FOUND", 0);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  OK(VELOC_Init(MPI_COMM_WORLD, argv[1]));
  OK(VELOC_Mem_protect(0, field, kWords, sizeof field[0]));
  CHECK(VELOC_Restart_test("heat", 0) == expected);
  if (expected >= 0) {
    OK(VELOC_Restart("heat", expected));
    for (int i = 0; i < kWords; ++i) CHECK(field[i] == word(expected, i) + found);
  }
  for (int version = from; version <= last; ++version) {
    for (int i = 0; i < kWords; ++i) field[i] = word(version, i) + turn;
    if (version == due) usleep(1200000);
    OK(VELOC_Checkpoint_begin("heat", version));
    OK(VELOC_Checkpoint_mem());
    OK(VELOC_Checkpoint_end(1));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && strcmp(argv[3], "killed_after_agent") == 0) CHECK(system("sh \"$BACKEND_TEST/kill-agent\"") >= 0);
  MPI_Barrier(MPI_COMM_WORLD);
  if (strncmp(argv[3], "killed", 6) == 0) raise(SIGKILL);
  OK(VELOC_Finalize(strcmp(argv[3], "drained") == 0));
  MPI_Finalize();
  return 0;
}
