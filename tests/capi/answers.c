/* What a store answers reaches the caller: descriptions, numbers, text, and his interrupts; and the caller's streams
 * reach the store. */
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
  int64_t newest = 0;
  OK(ebb_latest(store, -1, &newest));
  CHECK(newest == 3);
  OK(ebb_latest(store, INT64_MIN, &newest)); /* below 0: no limit */
  CHECK(newest == 3);
  OK(ebb_latest(store, 2, &newest));
  CHECK(newest == 2);
  OK(ebb_latest(store, 0, &newest)); /* none */
  CHECK(newest == -1);

  double value = 0;
  OK(ebb_stat(store, "blocked_s.room", &value));
  CHECK(value == 1.5);
  OK(ebb_stat(store, "tier.device.used", &value));
  CHECK(value == 32);
  const char* const arena[] = {"ready", "limit", "touched", "pinned", "mapped", "piece", "pieces"};
  for (int i = 0; i < 7; ++i) {
    char name[64];
    snprintf(name, sizeof name, "tier.device.arena.%s", arena[i]);
    OK(ebb_stat(store, name, &value));
    CHECK(value == i + 1);
  }
  OK(ebb_stat(store, "tier.device.arena.huge_pages", &value));
  CHECK(value == 1);
  OK(ebb_stat(store, "snapshots.blocked_s", &value));
  CHECK(value == 0.5);
  OK(ebb_stat(store, "link.app>device.busy_s", &value));
  CHECK(value == 0.25);
  const char* const wrong[] = {"",
                               "restore",
                               "tier.device",
                               "tier.host.used",
                               "link.app>device.",
                               "blocked_s.x",
                               "tier.device.arena",
                               "tier.device.arena.",
                               "tier.device.arena.used",
                               "tier.device.arena.strategy", /* no number */
                               "link.app>device.arena.ready"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i)
    CHECK_STATUS(ebb_stat(store, wrong[i], &value), EBB_INVALID_ARGUMENT);

  char* text = NULL;
  OK(ebb_stats_json(store, &text));
  const char* const parts[] = {
      "{\"tiers\": [{\"name\": \"device\", \"capacity\": 64, \"used\": 32, ",
      "\"hits\": 0, \"arena\": {\"strategy\": \"incremental\", \"ready\": 1, \"limit\": 2, \"touched\": 3, \"pinned\": "
      "4, "
      "\"mapped\": 5, \"piece\": 6, \"pieces\": 7, \"huge_pages\": true, "
      "\"trouble\": \"mlock \\\"no\\\"\"}}], \"links\"",
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

static void check_refused(ebb_status status, const char* message) {
  CHECK_STATUS(status, EBB_UNSUPPORTED);
  if (strcmp(ebb_last_error(), message) != 0) {
    fprintf(stderr, "told '%s', not '%s'\n", ebb_last_error(), message);
    exit(1);
  }
}

/* The scripted store refuses a stream with its number. */
static void test_streams(void) {
  ebb_store* store = open_scripted(0);
  char byte = 0;
  const ebb_source source = {0, &byte, 1};
  const ebb_target target = {0, &byte, 1};
  ebb_checkpoint_options writing = EBB_CHECKPOINT_OPTIONS_INIT;
  ebb_restore_options reading = EBB_RESTORE_OPTIONS_INIT;
  ebb_hand_back_options how = EBB_HAND_BACK_OPTIONS_INIT;
  ebb_future* future = NULL;
  ebb_reservation* reservation = NULL;
  ebb_loan* loan = NULL;

  OK(ebb_checkpoint(store, 1, &source, 1, &writing, NULL)); /* none is given */
  OK(ebb_restore(store, 1, &target, 1, &reading));
  writing.stream = 0; /* the legacy default stream is a stream */
  check_refused(ebb_checkpoint(store, 1, &source, 1, &writing, NULL), "stream 0");
  writing.stream = 42;
  check_refused(ebb_checkpoint(store, 1, &source, 1, &writing, NULL), "stream 42");
  check_refused(ebb_reserve(store, 1, &source, 1, &writing, &reservation), "stream 42, reserve");
  reading.stream = 43;
  check_refused(ebb_restore(store, 1, &target, 1, &reading), "stream 43");
  check_refused(ebb_restore_async(store, 1, &target, 1, &reading, &future), "stream 43, async");
  check_refused(ebb_borrow(store, 1, &reading, &loan), "stream 43, borrow");
  CHECK(!reservation && !loan && !future);

  how.stream = 44;
  OK(ebb_reserve(store, 1, &source, 1, NULL, &reservation));
  check_refused(ebb_reservation_commit(reservation, &how), "stream 44");
  how.hold = 1;
  check_refused(ebb_reservation_commit(reservation, &how), "stream 44, hold");
  OK(ebb_borrow(store, 1, NULL, &loan));
  check_refused(ebb_loan_release(loan, 0, &how), "stream 44, hold");
  check_refused(ebb_loan_release(loan, 1, &how), "stream 44, keep");

  how.stream = EBB_NO_STREAM; /* held alone: given back all the same, and the handle is good for nothing but freeing */
  void* data = NULL;
  const void* seen = NULL;
  OK(ebb_reservation_commit(reservation, &how));
  CHECK_STATUS(ebb_reservation_commit(reservation, &how), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_reservation_data(reservation, 0, &data, NULL), EBB_INVALID_ARGUMENT);
  OK(ebb_loan_release(loan, 0, &how));
  CHECK_STATUS(ebb_loan_release(loan, 0, &how), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_loan_data(loan, 0, &seen, NULL), EBB_INVALID_ARGUMENT);
  OK(ebb_reservation_free(&reservation));
  OK(ebb_loan_free(&loan));
  OK(ebb_store_free(&store));
}

static void keep_line(const char* line, void* context) { snprintf(context, 256, "%s", line); }

/* What a kept store is opened with, and the log. */
static void test_options(void) {
  char line[256] = "";
  ebb_options options;
  OK(ebb_options_init(&options));
  ebb_store* store = NULL;
  OK(ebb_open(&options, &store)); /* no log: nobody is told */
  OK(ebb_store_free(&store));
  options.log = keep_line;
  options.log_context = line;
  OK(ebb_open(&options, &store));
  OK(ebb_store_free(&store));
  CHECK(strcmp(line, "durability unset, readonly unset, keep_last unset, keep_every unset") == 0);
  options.durability = "storage";
  options.readonly = 1;
  options.keep_last = 0;
  options.keep_every = 7;
  OK(ebb_open(&options, &store));
  OK(ebb_store_free(&store));
  CHECK(strcmp(line, "durability 2, readonly 1, keep_last 0, keep_every 7") == 0);
  options.readonly = 0;
  options.keep_last = 3;
  options.keep_every = EBB_UNSET;
  OK(ebb_open(&options, &store));
  OK(ebb_store_free(&store));
  CHECK(strcmp(line, "durability 2, readonly 0, keep_last 3, keep_every unset") == 0);
  options.durability = "for ever";
  CHECK_STATUS(ebb_open(&options, &store), EBB_INVALID_ARGUMENT);
  options.durability = NULL;
  options.verify = "some";
  CHECK_STATUS(ebb_open(&options, &store), EBB_INVALID_ARGUMENT);
  CHECK(!store && strstr(ebb_last_error(), "verify"));
}

int main(void) {
  test_answers();
  test_options();
  test_streams();
  puts("capi_answers: all as it should be");
  return 0;
}
