/* What a store answers reaches the caller: descriptions, numbers, text, and his interrupts. */
#include <string.h>

#include "tests/capi/scripted.h"

static int interrupt(void* context) {
  ++*(int*)context;
  return 1;
}

static void test_answers(void) {
  ebb_store* store = open_scripted(0);
  ebb_region_info regions[2];
  size_t count = 0;
  CHECK_STATUS(ebb_info(store, 1, regions, 1, &count), EBB_SIZE_MISMATCH);
  CHECK(count == 2);
  OK(ebb_info(store, 1, regions, 2, &count));
  CHECK(regions[1].id == 7 && regions[1].bytes == 20 && regions[1].offset == 256);
  char metadata[8] = "";
  OK(ebb_metadata(store, 1, metadata, sizeof metadata, &count));
  CHECK(count == 4 && memcmp(metadata, "meta", 4) == 0);
  int64_t versions[4];
  OK(ebb_versions(store, versions, 4, &count));
  CHECK(count == 3 && versions[2] == 3);

  double value = 0;
  OK(ebb_stat(store, "blocked_s.room", &value));
  CHECK(value == 1.5);
  OK(ebb_stat(store, "tier.device.used", &value));
  CHECK(value == 32);
  OK(ebb_stat(store, "link.app>device.busy_s", &value));
  CHECK(value == 0.25);
  const char* const wrong[] = {"", "restore", "tier.device", "tier.host.used", "link.app>device.", "blocked_s.x"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
    CHECK_STATUS(ebb_stat(store, wrong[i], &value), EBB_INVALID_ARGUMENT);

  char* text = NULL;
  OK(ebb_stats_json(store, &text));
  const char* const parts[] = {
      "{\"tiers\": [{\"name\": \"device\", \"capacity\": 64, \"used\": 32, ",
      "\"links\": [{\"name\": \"app>device\", \"bytes\": 5, \"transfers\": 0, \"busy_s\": 0.25, ",
      "\"blocked_s\": {\"odd\": null, \"room\": 1.5}, ",
      "\"restores\": 4, ",
      "\"prefetch_distance\": [3, 2], \"found_on\": [-1, 0], ",
      "\"settings\": \"a \\\"b\\\"\\u000a\\\\c\"}",
  };
  for (size_t i = 0; i < sizeof parts / sizeof *parts; ++i)
    if (!strstr(text, parts[i])) {
      fprintf(stderr, "%s\n is not in\n%s\n", parts[i], text);
      exit(1);
    }
  OK(ebb_text_free(&text));

  int asked = 0;
  char byte = 0;
  const ebb_source source = {0, &byte, 1};
  const ebb_target target = {0, &byte, 1};
  ebb_checkpoint_options writing = EBB_CHECKPOINT_OPTIONS_INIT;
  writing.interrupted = interrupt;
  writing.context = &asked;
  CHECK_STATUS(ebb_checkpoint(store, 1, &source, 1, &writing, NULL), EBB_TIMED_OUT);
  ebb_restore_options reading = EBB_RESTORE_OPTIONS_INIT;
  reading.interrupted = interrupt;
  reading.context = &asked;
  CHECK_STATUS(ebb_restore(store, 1, &target, 1, &reading), EBB_TIMED_OUT);
  CHECK(asked == 2);
  OK(ebb_store_free(&store));
}

int main(void) {
  test_answers();
  puts("capi_answers: all as it should be");
  return 0;
}
