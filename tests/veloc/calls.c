/* Every call of veloc.h, and what it refuses: `calls DIRECTORY sync|async single|job`, a job under mpirun. */
#include <limits.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>
#include <veloc.h>

#include "tests/veloc/check.h"

enum { kPoints = 20000 };

static int rank, count = 1, job, sync_mode;
static char config[4096];
static int64_t step, field[kPoints], other[kPoints + 7];

static void fill(int version) {
  step = version;
  for (int i = 0; i < kPoints; ++i) field[i] = (int64_t)version * 1000003 + (int64_t)rank * 7919 + i;
}
static void expect(int version) {
  CHECK(step == version);
  for (int i = 0; i < kPoints; ++i) CHECK(field[i] == (int64_t)version * 1000003 + (int64_t)rank * 7919 + i);
}
static void clear(void) {
  step = -7;
  memset(field, 0xee, sizeof field);
}

static int init(void) { return job ? VELOC_Init(MPI_COMM_WORLD, config) : VELOC_Init_single((unsigned)rank, config); }
static void protect(void) {
  OK(VELOC_Mem_protect(0, &step, 1, sizeof step));
  OK(VELOC_Mem_protect(-3, field, kPoints, sizeof field[0]));
}

static void nothing_is_open(void) {
  char routed[VELOC_MAX_NAME];
  FAILS(VELOC_Mem_protect(0, &step, 1, 8));
  FAILS(VELOC_Mem_unprotect(0));
  FAILS(VELOC_Mem_clear());
  FAILS(VELOC_Region_protect(0, &step, 1, 8, "heat"));
  FAILS(VELOC_Region_unprotect(0, "heat"));
  FAILS(VELOC_Region_clear("heat"));
  FAILS(VELOC_Route_file("file", routed));
  FAILS(VELOC_Cleanup("heat"));
  FAILS(VELOC_Checkpoint_begin("heat", 1));
  FAILS(VELOC_Checkpoint_mem());
  FAILS(VELOC_Checkpoint_selective(VELOC_CKPT_ALL, NULL, 0));
  FAILS(VELOC_Checkpoint_end(1));
  FAILS(VELOC_Checkpoint_wait());
  FAILS(VELOC_Checkpoint_finished());
  FAILS(VELOC_Checkpoint("heat", 1));
  FAILS(VELOC_Restart_test("heat", 0));
  FAILS(VELOC_Restart_begin("heat", 1));
  FAILS(VELOC_Recover_mem());
  FAILS(VELOC_Recover_selective(VELOC_RECOVER_ALL, NULL, 0));
  FAILS(VELOC_Recover_size(0));
  FAILS(VELOC_Restart_end(1));
  FAILS(VELOC_Restart("heat", 1));
  FAILS(VELOC_Prefetch_enqueue("heat", 1));
  FAILS(VELOC_Prefetch_start());
  CHECK(VELOC_Recover_ckpt_size("heat", 1, 0) == (size_t)-1);
  CHECK(!VELOC_Next_prefetched("heat", 1, 0));
  FAILS(VELOC_Get_trf_metrics(routed));
  FAILS(VELOC_Finalize(0));
}

static void names_and_pointers(void) {
  char routed[VELOC_MAX_NAME], name[129];
  memset(name, 'n', 128);
  name[128] = 0;
  OK(init()); /* it is open */
  FAILS(job ? VELOC_Init(MPI_COMM_WORLD, NULL) : VELOC_Init_single(0, NULL));
  FAILS(VELOC_Mem_protect(5, NULL, 1, 8));
  FAILS(VELOC_Mem_protect(5, &step, SIZE_MAX, 2));
  FAILS(VELOC_Mem_unprotect(5));
  FAILS(VELOC_Region_protect(5, &step, 1, 8, NULL));
  FAILS(VELOC_Region_unprotect(5, NULL));
  FAILS(VELOC_Region_unprotect(5, "heat"));
  FAILS(VELOC_Region_clear(NULL));
  FAILS(VELOC_Cleanup(NULL));
  FAILS(VELOC_Cleanup("a-b"));
  FAILS(VELOC_Checkpoint_begin(NULL, 1));
  FAILS(VELOC_Checkpoint_begin("", 1));
  FAILS(VELOC_Checkpoint_begin("a/b", 1));
  FAILS(VELOC_Checkpoint_begin(name, 1));
  FAILS(VELOC_Checkpoint_begin("heat", -1));
  FAILS(VELOC_Checkpoint_mem());
  FAILS(VELOC_Checkpoint_end(1));
  FAILS(VELOC_Restart_test(NULL, 0));
  FAILS(VELOC_Restart_test("heat", -1));
  FAILS(VELOC_Restart_test("heat", 0)); /* there is none */
  FAILS(VELOC_Restart_begin(NULL, 1));
  FAILS(VELOC_Restart_begin("heat", 1));
  FAILS(VELOC_Recover_mem());
  FAILS(VELOC_Recover_size(0));
  FAILS(VELOC_Restart_end(1));
  FAILS(VELOC_Restart(NULL, 1));
  FAILS(VELOC_Route_file("file", routed)); /* no phase */
  FAILS(VELOC_Prefetch_enqueue(NULL, 1));
  FAILS(VELOC_Prefetch_enqueue("heat", -1));
  CHECK(VELOC_Recover_ckpt_size(NULL, 1, 0) == (size_t)-1);
  CHECK(!VELOC_Next_prefetched(NULL, 1, 0) && !VELOC_Next_prefetched("heat", 1, 0));
  FAILS(VELOC_Get_trf_metrics(NULL));
}

static void phases(void) {
  int some[] = {0}, unknown[] = {0, 9};
  FAILS(VELOC_Checkpoint("empty", 1)); /* nothing is protected */
  VELOC_Checkpoint_wait();
  protect();
  fill(1);
  OK(VELOC_Checkpoint_begin("heat", 1));
  FAILS(VELOC_Checkpoint_begin("heat", 2));
  FAILS(VELOC_Checkpoint_wait());
  FAILS(VELOC_Checkpoint_finished());
  FAILS(VELOC_Restart_begin("heat", 1));
  OK(VELOC_Checkpoint_mem());
  FAILS(VELOC_Checkpoint_mem());
  clear();                        /* it is copied */
  FAILS(VELOC_Checkpoint_end(1)); /* the second Checkpoint_mem of the phase failed */
  VELOC_Checkpoint_wait();
  FAILS(VELOC_Restart_test("heat", 0));

  fill(2);
  OK(VELOC_Checkpoint_begin("heat", 2));
  OK(VELOC_Checkpoint_selective(VELOC_CKPT_ALL, NULL, 0));
  clear();
  OK(VELOC_Checkpoint_end(1));
  OK(VELOC_Checkpoint_wait());
  OK(VELOC_Checkpoint_finished());
  CHECK(VELOC_Restart_test("heat", 0) == 2);

  OK(VELOC_Checkpoint_begin("heat", 3));
  FAILS(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, NULL, 1));
  FAILS(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, some, -1));
  FAILS(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, unknown, 2));
  FAILS(VELOC_Checkpoint_selective(7, some, 1));
  FAILS(VELOC_Checkpoint_end(0));
  CHECK(VELOC_Checkpoint_wait() == (sync_mode ? VELOC_SUCCESS : VELOC_FAILURE));
  OK(VELOC_Checkpoint_wait());
  CHECK(VELOC_Restart_test("heat", 0) == 2);

  for (int version = 4; version < 9; ++version) { /* while the one before is stored */
    fill(version);
    OK(VELOC_Checkpoint("heat", version));
  }
  clear();
  OK(VELOC_Checkpoint_wait());
  while (VELOC_Checkpoint_finished() != VELOC_SUCCESS) usleep(1000);
  CHECK(VELOC_Restart_test("heat", 0) == 8 && VELOC_Restart_test("heat", 7) == 7 && VELOC_Restart_test("heat", 3) == 2);
}

static void restarts(void) {
  int zero[] = {0}, unknown[] = {9};
  for (int version = 8; version >= 4; --version) {
    clear();
    OK(VELOC_Restart("heat", version));
    expect(version);
  }
  FAILS(VELOC_Restart("heat", 3));
  clear();
  OK(VELOC_Restart_begin("heat", 5));
  CHECK(VELOC_Recover_size(0) == 8 && VELOC_Recover_size(-3) == sizeof field && VELOC_Recover_size(4) == -1);
  FAILS(VELOC_Recover_selective(VELOC_RECOVER_SOME, NULL, 1));
  FAILS(VELOC_Recover_selective(VELOC_RECOVER_SOME, unknown, 1));
  FAILS(VELOC_Recover_selective(-1, zero, 1));
  OK(VELOC_Recover_selective(VELOC_RECOVER_SOME, zero, 1));
  CHECK(step == 5 && field[0] == (int64_t)0xeeeeeeeeeeeeeeee && field[kPoints - 1] == field[0]);
  step = -7;
  OK(VELOC_Recover_selective(VELOC_RECOVER_REST, zero, 1));
  CHECK(step == -7);
  step = 5;
  expect(5);
  OK(VELOC_Restart_end(1));

  /* A larger region is filled from its start, a smaller one and a missing one are refused. */
  memset(other, 0x11, sizeof other);
  OK(VELOC_Mem_protect(-3, other, kPoints + 7, sizeof other[0]));
  OK(VELOC_Restart("heat", 6));
  CHECK(step == 6 && other[kPoints] == 0x1111111111111111 && other[kPoints + 6] == other[kPoints]);
  memcpy(field, other, sizeof field);
  expect(6);
  OK(VELOC_Mem_protect(-3, other, kPoints - 1, sizeof other[0]));
  FAILS(VELOC_Restart("heat", 6));
  OK(VELOC_Mem_unprotect(-3));
  memset(other, 0x11, sizeof other);
  FAILS(VELOC_Restart("heat", 6));
  CHECK(other[0] == 0x1111111111111111); /* what is not protected is not written */
  protect();
}

static void one_rank_gives_up(void) {
  fill(9);
  OK(VELOC_Checkpoint_begin("heat", 9));
  OK(VELOC_Checkpoint_mem());
  const int ended = VELOC_Checkpoint_end(rank != count - 1);
  CHECK(ended == (sync_mode ? VELOC_FAILURE : VELOC_SUCCESS));
  CHECK(VELOC_Checkpoint_wait() == (sync_mode ? VELOC_SUCCESS : VELOC_FAILURE));
  CHECK(VELOC_Restart_test("heat", 0) == 8);
  FAILS(VELOC_Restart("heat", 9));
  fill(9); /* it may be written again */
  OK(VELOC_Checkpoint("heat", 9));
  OK(VELOC_Checkpoint_wait());
  CHECK(VELOC_Restart_test("heat", 0) == 9);
  clear();
  OK(VELOC_Restart("heat", 9));
  expect(9);
  fill(5); /* what is newer is gone */
  OK(VELOC_Checkpoint("heat", 5));
  OK(VELOC_Checkpoint_wait());
  CHECK(VELOC_Restart_test("heat", 0) == 5 && VELOC_Restart_test("heat", 4) == 4);
}

static void a_version_is_replaced_when_the_new_one_is_whole(void) {
  fill(55); /* what one rank gives up replaces nothing */
  OK(VELOC_Checkpoint_begin("heat", 5));
  CHECK(VELOC_Restart_test("heat", 0) == VELOC_FAILURE); /* not in between */
  OK(VELOC_Checkpoint_mem());
  VELOC_Checkpoint_end(rank != count - 1);
  VELOC_Checkpoint_wait();
  for (int before = 5; before >= 4; --before) {
    CHECK(VELOC_Restart_test("heat", before) == before);
    clear();
    OK(VELOC_Restart("heat", before));
    expect(before);
  }
  for (int write = 0; write < 6; ++write) { /* over and over, and two by turns */
    const int version = write < 3 ? 5 : 5 + write % 2;
    fill(50 + write);
    OK(VELOC_Checkpoint("heat", version));
    if (write % 2) OK(VELOC_Checkpoint_wait());
    CHECK(VELOC_Restart_test("heat", 0) == version && VELOC_Restart_test("heat", 4) == 4);
    CHECK(VELOC_Recover_ckpt_size("heat", version, -3) == sizeof field);
    clear();
    OK(VELOC_Restart("heat", version));
    expect(50 + write);
  }
  fill(5);
  OK(VELOC_Checkpoint("heat", 5));
  OK(VELOC_Checkpoint_wait());
  CHECK(VELOC_Restart_test("heat", 0) == 5);
}

static void groups_of_regions(void) {
  int64_t own = 40 + rank;
  OK(VELOC_Region_protect(0, &own, 1, sizeof own, "alone"));
  OK(VELOC_Checkpoint("alone", 1));
  OK(VELOC_Checkpoint_wait());
  own = 0;
  OK(VELOC_Restart_begin("alone", 1));
  CHECK(VELOC_Recover_size(0) == 8 && VELOC_Recover_size(-3) == -1);
  OK(VELOC_Recover_mem());
  OK(VELOC_Restart_end(1));
  CHECK(own == 40 + rank);
  OK(VELOC_Region_unprotect(0, "alone"));
  FAILS(VELOC_Region_unprotect(0, "alone"));
  OK(VELOC_Region_protect(0, &own, 1, sizeof own, "alone"));
  OK(VELOC_Region_clear("alone"));
  fill(2);
  OK(VELOC_Checkpoint("alone", 2)); /* it has none of its own now */
  OK(VELOC_Mem_clear());
  FAILS(VELOC_Mem_unprotect(0));
  protect();
  clear();
  OK(VELOC_Restart("alone", 2));
  expect(2);
}

static void files(const char* directory) {
  char routed[VELOC_MAX_NAME], again[VELOC_MAX_NAME], text[64] = {0}, original[VELOC_MAX_NAME];
  snprintf(original, sizeof original, "%.900s/original-%d", directory, rank);
  OK(VELOC_Checkpoint_begin("files", 1));
  FAILS(VELOC_Route_file(NULL, routed));
  FAILS(VELOC_Route_file("file", NULL));
  FAILS(VELOC_Route_file("", routed));
  OK(VELOC_Route_file("file", routed));
  OK(VELOC_Route_file(original, again));
  CHECK(strcmp(routed, again) == 0);
  FILE* file = fopen(routed, "w");
  CHECK(file && fprintf(file, "of rank %d", rank) > 0 && fclose(file) == 0);
  OK(VELOC_Checkpoint_end(1));
  OK(VELOC_Checkpoint_wait());
  CHECK(access(routed, F_OK) != 0);
  file = fopen(original, "r");
  CHECK(file && fread(text, 1, sizeof text - 1, file) > 0 && fclose(file) == 0);
  snprintf(again, sizeof again, "of rank %d", rank);
  CHECK(strcmp(text, again) == 0);
  memset(text, 0, sizeof text);
  OK(VELOC_Restart_begin("files", 1));
  OK(VELOC_Route_file("file", routed));
  file = fopen(routed, "r");
  CHECK(file && fread(text, 1, sizeof text - 1, file) > 0 && fclose(file) == 0);
  OK(VELOC_Restart_end(1));
  snprintf(again, sizeof again, "of rank %d", rank);
  CHECK(strcmp(text, again) == 0);
  CHECK(access(routed, F_OK) != 0);

  for (int version = 11; version < 13; ++version) { /* without a wait, the first has its name when the next is routed */
    snprintf(original, sizeof original, "%.900s/version-%d-%d", directory, version, rank);
    OK(VELOC_Checkpoint_begin("routed", version));
    OK(VELOC_Route_file(original, routed));
    file = fopen(routed, "w");
    CHECK(file && fclose(file) == 0);
    OK(VELOC_Checkpoint_end(1));
  }
  snprintf(original, sizeof original, "%.900s/version-11-%d", directory, rank);
  CHECK(access(original, F_OK) == 0);
  OK(VELOC_Checkpoint_wait());

  OK(VELOC_Checkpoint_begin("files", 2)); /* a name that cannot be written */
  OK(VELOC_Route_file("/no/folder/file", routed));
  file = fopen(routed, "w");
  CHECK(file && fclose(file) == 0);
  CHECK(VELOC_Checkpoint_end(1) == (sync_mode ? VELOC_FAILURE : VELOC_SUCCESS));
  CHECK(VELOC_Checkpoint_wait() == (sync_mode ? VELOC_SUCCESS : VELOC_FAILURE));
  CHECK(VELOC_Restart_test("files", 0) == 2); /* it is a checkpoint all the same */

  OK(VELOC_Checkpoint_begin("files", 3)); /* a file that was not written */
  OK(VELOC_Route_file("file", routed));
  FAILS(VELOC_Checkpoint_mem());
  FAILS(VELOC_Checkpoint_end(1));
  VELOC_Checkpoint_wait();
  CHECK(VELOC_Restart_test("files", 0) == 2);
  OK(VELOC_Restart_begin("heat", 4)); /* regions, no file */
  FAILS(VELOC_Route_file("file", routed));
  OK(VELOC_Restart_end(1));
}

static void prefetching(void) {
  char metrics[1024];
  for (int version = 5; version >= 0; --version) OK(VELOC_Prefetch_enqueue("shots", version));
  for (int version = 0; version < 6; ++version) {
    fill(version);
    OK(VELOC_Checkpoint("shots", version));
  }
  OK(VELOC_Prefetch_start());
  OK(VELOC_Prefetch_start());
  for (int version = 5; version >= 0; --version) {
    CHECK(VELOC_Recover_ckpt_size("shots", version, -3) == sizeof field);
    CHECK(VELOC_Recover_ckpt_size("shots", version, 4) == (size_t)-1);
    while (!VELOC_Next_prefetched("shots", version, -3)) usleep(1000); /* it is the next */
    CHECK(!VELOC_Next_prefetched("shots", version, 4));
    clear();
    OK(VELOC_Restart("shots", version));
    expect(version);
  }
  CHECK(VELOC_Recover_ckpt_size("shots", 77, 0) == (size_t)-1);
  OK(VELOC_Get_trf_metrics(metrics));
  const char* written = strstr(metrics, "AtoD : ");
  if (!written) written = strstr(metrics, "AtoH : "); /* without a GPU */
  CHECK(strlen(metrics) < 1024 && metrics[0] == '{' && written);
  CHECK(atoll(written + 7) >= 6 * (long long)sizeof field);
}

int main(int argc, char** argv) {
  CHECK(argc == 4);
  sync_mode = strcmp(argv[2], "sync") == 0;
  job = strcmp(argv[3], "job") == 0;
  if (job) {
    FAILS(VELOC_Init(MPI_COMM_WORLD, "none.cfg")); /* before MPI_Init */
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
  }
  snprintf(config, sizeof config, "%s/config-%d", argv[1], rank);
  FILE* file = fopen(config, "w");
  CHECK(file &&
        fprintf(file, "scratch = %s/scratch\npersistent = %s/persistent\nmode = %s\n", argv[1], argv[1], argv[2]) > 0);
  CHECK(fclose(file) == 0);

  nothing_is_open();
  FAILS(job ? VELOC_Init(MPI_COMM_WORLD, "/none.cfg") : VELOC_Init_single(0, "/none.cfg"));
  FAILS(job ? VELOC_Init(MPI_COMM_NULL, config) : VELOC_Init_single(UINT_MAX, config));
  OK(init());
  names_and_pointers();
  phases();
  restarts();
  one_rank_gives_up();
  a_version_is_replaced_when_the_new_one_is_whole();
  groups_of_regions();
  files(argv[1]);
  prefetching();
  OK(VELOC_Finalize(1));
  nothing_is_open();

  OK(init()); /* again: what was written is there */
  protect();
  CHECK(VELOC_Restart_test("heat", 0) == 5 && VELOC_Restart_test("files", 0) == 2 &&
        VELOC_Restart_test("none", 0) == -1);
  clear();
  OK(VELOC_Restart("heat", 5));
  expect(5);
  OK(VELOC_Cleanup("heat")); /* in persistent it stays */
  CHECK(VELOC_Restart_test("heat", 0) == 5);
  OK(VELOC_Finalize(0));
  if (job) {
    OK(init());
    MPI_Finalize();
    FAILS(VELOC_Finalize(1)); /* too late */
    nothing_is_open();
  }
  return 0;
}
