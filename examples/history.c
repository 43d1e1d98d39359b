/* Two histories over one pair of caches, from C: errors by code, the order of reading declared by hints. */
#include <ebbtide/ebbtide.h>
#include <stdio.h>
#include <stdlib.h>

enum { kSteps = 16, kCells = 1 << 15 };

static void check(ebb_status status, const char* call) {
  if (status == EBB_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, ebb_status_name(status), ebb_last_error());
  exit(1);
}
#define CHECK(call) check(call, #call)

int main(void) {
  static double field[kCells];
  const char* const options[] = {"device_cache", "1MiB", "host_cache", "2MiB", "disk", "64MiB", NULL};
  ebb_store *store = NULL, *snapshots = NULL;
  CHECK(ebb_open_text(options, &store));
  CHECK(ebb_history(store, "snapshots", 0, &snapshots));

  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kCells; ++i) field[i] = step + i;
    const ebb_source source = {0, field, sizeof field};
    CHECK(ebb_checkpoint(snapshots, step, &source, 1, NULL, NULL));
  }
  /* Every second one will be read, in the order written. */
  for (int64_t step = 0; step < kSteps; step += 2) CHECK(ebb_hint(snapshots, &step, 1, 0));
  for (int64_t step = 0; step < kSteps; step += 2) {
    const ebb_target target = {0, field, sizeof field};
    CHECK(ebb_restore(snapshots, step, &target, 1, NULL));
    if (field[0] != (double)step || field[kCells - 1] != (double)(step + kCells - 1)) return 1;
  }
  /* What was read and is not hinted again is gone, by name. */
  const ebb_target target = {0, field, sizeof field};
  if (ebb_restore(snapshots, 0, &target, 1, NULL) != EBB_CONSUMED) return 1;
  printf("version 0 again: %s\n", ebb_last_error());

  double restores = 0;
  CHECK(ebb_stat(store, "restores", &restores));
  printf("%g restores\n", restores);
  CHECK(ebb_store_free(&snapshots));
  CHECK(ebb_close(store));
  CHECK(ebb_store_free(&store));
  return 0;
}
