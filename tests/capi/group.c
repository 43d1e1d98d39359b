/* A group from C, of one rank that talks to itself: each call, and what each refuses. */
#include <string.h>
#include <unistd.h>

#include "tests/capi/check.h"

enum { kBytes = 64 * 1024 };

typedef struct alone {
  int failing, freed;
} alone;

static int begin_least(void* context, int64_t* values, size_t count) {
  (void)values, (void)count;
  return ((alone*)context)->failing;
}

static int test(void* context, int wait, int* done) {
  (void)wait;
  *done = 1;
  return ((alone*)context)->failing;
}

static void end(void* context) { ++((alone*)context)->freed; }

int main(void) {
  static unsigned char field[kBytes], back[kBytes];
  char directory[4096], command[4200];
  const char* base = getenv("EBBTIDE_DIR");
  snprintf(directory, sizeof directory, "%s/capi-group-XXXXXX", base ? base : "/tmp");
  CHECK(mkdtemp(directory));
  ebb_options options;
  OK(ebb_options_init(&options));
  options.device = "cpu";
  options.device_cache = options.host_cache = 256 << 10;
  options.disk = 32 << 20;
  options.directory = directory;
  options.keep_last = 2;

  alone us = {0, 0};
  const ebb_collective collective = {&us, 0, 1, begin_least, test, end};
  const ebb_source source = {0, field, kBytes};
  const ebb_target target = {0, back, kBytes};
  ebb_group* group = NULL;
  CHECK_STATUS(ebb_group_open(NULL, &options, &group), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_open(&(ebb_collective){&us, 0, 1, NULL, test, end}, &options, &group), EBB_INVALID_ARGUMENT);
  CHECK(us.freed == 1);
  CHECK_STATUS(ebb_group_open(&collective, &options, NULL), EBB_INVALID_ARGUMENT);
  CHECK(us.freed == 2);
  options.durability = "ephemeral";
  CHECK_STATUS(ebb_group_open(&collective, &options, &group), EBB_INVALID_ARGUMENT);
  CHECK(us.freed == 3);
  options.durability = "process";

  int64_t newest = 7, versions[8];
  size_t count = 0;
  for (int start = 0; start < 2; ++start) {
    OK(ebb_group_open(&collective, &options, &group));
    OK(ebb_group_resume(group, -1, &newest));
    CHECK(newest == (start == 0 ? -1 : 9));
    OK(ebb_group_latest(group, -1, &newest));
    for (int64_t step = newest + 1; step < 10; ++step) {
      memset(field, (int)step, kBytes);
      OK(ebb_group_checkpoint(group, step, &source, 1, NULL, NULL));
    }
    OK(ebb_group_wait(group, "process", EBB_FOREVER));
    OK(ebb_group_versions(group, versions, 8, &count));
    CHECK(count == 2 && versions[0] == 8 && versions[1] == 9);
    OK(ebb_group_restore(group, 9, &target, 1, NULL));
    CHECK(back[0] == 9 && back[kBytes - 1] == 9);
    CHECK_STATUS(ebb_group_checkpoint(group, 9, &source, 1, NULL, NULL), EBB_INVALID_ARGUMENT);

    ebb_store* mine = NULL;
    ebb_group* other = NULL;
    OK(ebb_group_mine(group, &mine));
    OK(ebb_versions(mine, versions, 8, &count));
    CHECK(count == 2);
    OK(ebb_group_history(group, "other", 0, &other));
    OK(ebb_group_resume(other, -1, &newest));
    OK(ebb_group_checkpoint(other, newest + 1, &source, 1, NULL, NULL));
    CHECK_STATUS(ebb_group_close(other), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_group_snapshot(other, 1, NULL, NULL), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_group_snapshot(group, 10, NULL, NULL), EBB_INVALID_ARGUMENT); /* nothing is protected */
    OK(ebb_group_close(group));
    OK(ebb_group_free(&other));
    OK(ebb_group_free(&group));
    CHECK(us.freed == 4 + start && group == NULL);
  }

  OK(ebb_group_open(&collective, &options, &group));
  OK(ebb_group_drop(group));
  OK(ebb_group_resume(group, -1, &newest));
  CHECK(newest == -1);
  us.failing = 5;
  CHECK_STATUS(ebb_group_latest(group, -1, &newest), EBB_IO_ERROR);
  CHECK(strstr(ebb_last_error(), "rank 0") && strstr(ebb_last_error(), "error 5"));
  OK(ebb_group_free(&group));

  CHECK_STATUS(ebb_group_latest(NULL, -1, &newest), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_resume(NULL, -1, &newest), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_versions(NULL, versions, 8, &count), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_checkpoint(NULL, 1, &source, 1, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_restore(NULL, 1, &target, 1, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_drop(NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_wait(NULL, "process", EBB_FOREVER), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_snapshot(NULL, 1, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_history(NULL, "h", 0, &group), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_mine(NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_group_close(NULL), EBB_INVALID_ARGUMENT);
  OK(ebb_group_free(&group));
  snprintf(command, sizeof command, "rm -r '%s'", directory);
  CHECK(system(command) == 0);
  return 0;
}
