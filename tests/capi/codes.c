/* Every call against a store that fails as told: each error code comes through with its message, no exception crosses,
 * nulls and wrong handles are answered, what a call hands out is cleared when it fails. */
#include <math.h>
#include <string.h>

#include "tests/capi/check.h"

enum { kThrowBadAlloc = 100, kThrowLogicError, kThrowNumber, kThrowBadResult, kThrowInvalid };

/* What is to happen, as scripted_store.cpp takes it, and the code to be answered. */
typedef struct script {
  int64_t number;
  ebb_status status;
} script;
static script scripts[EBB_OUT_OF_MEMORY + 5];
static size_t script_count;

static void write_scripts(void) {
  for (int code = EBB_OK; code <= EBB_OUT_OF_MEMORY; ++code) scripts[script_count++] = (script){code, (ebb_status)code};
  scripts[script_count++] = (script){kThrowBadAlloc, EBB_OUT_OF_MEMORY};
  scripts[script_count++] = (script){kThrowLogicError, EBB_INTERNAL};
  scripts[script_count++] = (script){kThrowNumber, EBB_INTERNAL};
  scripts[script_count++] = (script){kThrowBadResult, EBB_LOST};
}

static ebb_store* open_scripted(int64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)number);
  const char* const options[] = {"device_cache", text, NULL};
  ebb_store* store = NULL;
  OK(ebb_open_text(options, &store));
  CHECK(store);
  return store;
}

static void test_names(void) {
  CHECK(strcmp(ebb_last_error(), "") == 0); /* nothing has failed yet */
  CHECK(strcmp(ebb_status_name(EBB_OK), "ok") == 0);
  CHECK(strcmp(ebb_status_name(EBB_NO_SPACE), "no_space") == 0);
  CHECK(strcmp(ebb_status_name(EBB_INTERNAL), "internal") == 0);
  CHECK(strcmp(ebb_status_name((ebb_status)99), "unknown") == 0);
  CHECK(strcmp(ebb_status_name((ebb_status)-1), "unknown") == 0);
  for (int code = EBB_OK; code <= EBB_INTERNAL; ++code)
    CHECK(strcmp(ebb_status_name((ebb_status)code), "unknown") != 0);
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", EBB_VERSION_MAJOR, EBB_VERSION_MINOR, EBB_VERSION_PATCH);
  CHECK(strcmp(ebb_version(), version) == 0);
}

static void test_open(void) {
  for (size_t i = 0; i < script_count; ++i) {
    ebb_options options;
    OK(ebb_options_init(&options));
    options.host_cache = (uint64_t)scripts[i].number;
    ebb_store* store = (ebb_store*)&options; /* anything: it must be overwritten */
    CHECK_STATUS(ebb_open(&options, &store), scripts[i].status);
    CHECK((store != NULL) == (scripts[i].status == EBB_OK));
    OK(ebb_store_free(&store));
    CHECK(!store);
  }
  ebb_store* store = NULL;
  OK(ebb_open(NULL, &store));
  OK(ebb_store_free(&store));
  OK(ebb_open_text(NULL, &store));
  OK(ebb_store_free(&store));
  CHECK_STATUS(ebb_options_init(NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_open(NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_open_text(NULL, NULL), EBB_INVALID_ARGUMENT);
  const char* const wrong_key[] = {"colour", "blue", NULL};
  CHECK_STATUS(ebb_open_text(wrong_key, &store), EBB_INVALID_ARGUMENT);
  CHECK(strstr(ebb_last_error(), "colour"));
  const char* const no_value[] = {"host_cache", NULL};
  CHECK_STATUS(ebb_open_text(no_value, &store), EBB_INVALID_ARGUMENT);
  CHECK(strstr(ebb_last_error(), "host_cache"));
  ebb_options options;
  OK(ebb_options_init(&options));
  options.eviction = "best";
  CHECK_STATUS(ebb_open(&options, &store), EBB_INVALID_ARGUMENT);
  OK(ebb_options_init(&options));
  options.close_timeout = NAN;
  CHECK_STATUS(ebb_open(&options, &store), EBB_INVALID_ARGUMENT);
  CHECK(!store);
}

/* Calls that name a version: the script is the version. */
static void test_versions(void) {
  ebb_store* store = open_scripted(0);
  char byte = 0;
  const ebb_source source = {0, &byte, 1};
  const ebb_target target = {0, &byte, 1};
  for (size_t i = 0; i < script_count; ++i) {
    const int64_t version = -scripts[i].number;
    const ebb_status status = scripts[i].status;
    ebb_future* const anything = (ebb_future*)&byte;
    ebb_future* future = anything;
    CHECK_STATUS(ebb_checkpoint(store, version, &source, 1, NULL, &future), status);
    CHECK(status == EBB_OK ? future && future != anything : !future);
    OK(ebb_future_free(&future));
    CHECK_STATUS(ebb_checkpoint(store, version, &source, 1, NULL, NULL), status);
    CHECK_STATUS(ebb_restore(store, version, &target, 1, NULL), status);
    future = anything;
    CHECK_STATUS(ebb_restore_async(store, version, &target, 1, NULL, &future), status);
    CHECK(status == EBB_OK ? future && future != anything : !future);
    OK(ebb_future_free(&future));
    CHECK_STATUS(ebb_hint(store, &version, 1, 0), status);
    CHECK_STATUS(ebb_hint_front(store, version), status);
    CHECK_STATUS(ebb_unhint(store, &version, 1), status);
    CHECK_STATUS(ebb_wait_version(store, version, "host", 1.0), status);
    CHECK_STATUS(ebb_drop(store, version), status);
    size_t count = 99;
    CHECK_STATUS(ebb_info(store, version, NULL, 0, &count), status);
    CHECK(count == (status == EBB_OK ? 2 : 0));
    CHECK_STATUS(ebb_metadata(store, version, NULL, 0, &count), status);
    CHECK(count == (status == EBB_OK ? 4 : 0));
    ebb_reservation* reservation = (ebb_reservation*)&byte;
    CHECK_STATUS(ebb_reserve(store, version, &source, 1, NULL, &reservation), status);
    CHECK((reservation != NULL) == (status == EBB_OK));
    OK(ebb_reservation_free(&reservation));
    ebb_loan* loan = (ebb_loan*)&byte;
    CHECK_STATUS(ebb_borrow(store, version, NULL, &loan), status);
    CHECK((loan != NULL) == (status == EBB_OK));
    OK(ebb_loan_free(&loan));
  }
  CHECK_STATUS(ebb_drop(store, -(int64_t)EBB_NO_SPACE), EBB_NO_SPACE);
  CHECK(strcmp(ebb_last_error(), "scripted") == 0);
  OK(ebb_drop(store, 1));
  CHECK(strcmp(ebb_last_error(), "scripted") == 0); /* success does not disturb it */
  CHECK_STATUS(ebb_drop(store, -kThrowInvalid), EBB_INVALID_ARGUMENT);
  OK(ebb_store_free(&store));
}

/* Calls without a version: the script is the store's. */
static void test_store_calls(void) {
  for (size_t i = 0; i < script_count; ++i) {
    ebb_store* store = open_scripted(scripts[i].number);
    const ebb_status status = scripts[i].status;
    const ebb_status thrown = status; /* answers that are no Result throw BadResult: the same code */
    CHECK_STATUS(ebb_unhint(store, NULL, 0), status);
    CHECK_STATUS(ebb_start_prefetch(store), status);
    CHECK_STATUS(ebb_wait(store, "local", EBB_FOREVER), status);
    CHECK_STATUS(ebb_drop_all(store), status);
    size_t count = 99;
    CHECK_STATUS(ebb_versions(store, NULL, 0, &count), thrown);
    CHECK(count == (status == EBB_OK ? 3 : 0));
    char* text = (char*)&count;
    CHECK_STATUS(ebb_stats_json(store, &text), thrown);
    CHECK((text != NULL) == (status == EBB_OK));
    OK(ebb_text_free(&text));
    CHECK(!text);
    double value = 99;
    CHECK_STATUS(ebb_stat(store, "restores", &value), thrown);
    CHECK(value == (status == EBB_OK ? 4 : 0));
    ebb_store* history = (ebb_store*)&count;
    CHECK_STATUS(ebb_history(store, "adjoint", 1, &history), thrown);
    CHECK((history != NULL) == (status == EBB_OK));
    if (history) {
      CHECK_STATUS(ebb_close(history), EBB_INVALID_ARGUMENT);
      CHECK_STATUS(ebb_stat(history, "restores", &value), EBB_INVALID_ARGUMENT);
      ebb_store* nested = NULL;
      CHECK_STATUS(ebb_history(history, "x", 0, &nested), EBB_INVALID_ARGUMENT);
      OK(ebb_drop(history, 1));
    }
    OK(ebb_store_free(&history));
    CHECK_STATUS(ebb_close(store), status);
    OK(ebb_store_free(&store));
  }
}

/* Handles that fail only when they are used: versions above 1000. */
static void test_handles(void) {
  ebb_store* store = open_scripted(0);
  char byte = 0;
  const ebb_source source = {0, &byte, 1};
  for (size_t i = 0; i < script_count; ++i) {
    const int64_t version = 1000 + scripts[i].number;
    const ebb_status status = scripts[i].status;
    const int throws = scripts[i].number >= kThrowBadAlloc;
    ebb_future* future = NULL;
    OK(ebb_checkpoint(store, version, &source, 1, NULL, &future));
    CHECK_STATUS(ebb_future_wait(future, NULL, 0.5), status);
    CHECK_STATUS(ebb_future_error(future), status);
    int done = 99;
    CHECK_STATUS(ebb_future_done(future, NULL, &done), throws ? status : EBB_OK);
    CHECK(done == (status == EBB_OK));
    OK(ebb_future_free(&future));

    void* data = NULL;
    size_t bytes = 0;
    ebb_reservation* reservation = NULL;
    OK(ebb_reserve(store, version, &source, 1, NULL, &reservation));
    OK(ebb_reservation_data(reservation, 0, &data, &bytes));
    CHECK(data && bytes == 64);
    OK(ebb_reservation_data(reservation, 0, &data, NULL));
    CHECK_STATUS(ebb_reservation_data(reservation, 5, &data, &bytes), EBB_INVALID_ARGUMENT);
    CHECK(!data && bytes == 0);
    CHECK_STATUS(ebb_reservation_commit(reservation), status);
    if (status == EBB_OK) { /* it is the checkpoint now */
      CHECK_STATUS(ebb_reservation_commit(reservation), EBB_INVALID_ARGUMENT);
      CHECK_STATUS(ebb_reservation_abandon(reservation), EBB_INVALID_ARGUMENT);
      CHECK_STATUS(ebb_reservation_data(reservation, 0, &data, &bytes), EBB_INVALID_ARGUMENT);
    } else { /* it is still held: it may be given up */
      CHECK_STATUS(ebb_reservation_abandon(reservation), status);
    }
    OK(ebb_reservation_free(&reservation));

    const void* seen = NULL;
    ebb_loan* loan = NULL;
    OK(ebb_borrow(store, version, NULL, &loan));
    OK(ebb_loan_data(loan, 0, &seen, &bytes));
    CHECK(seen && bytes == 64);
    CHECK_STATUS(ebb_loan_data(loan, 5, &seen, &bytes), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_loan_release(loan, 1), status);
    if (status == EBB_OK) {
      CHECK_STATUS(ebb_loan_release(loan, 1), EBB_INVALID_ARGUMENT);
      CHECK_STATUS(ebb_loan_data(loan, 0, &seen, &bytes), EBB_INVALID_ARGUMENT);
      CHECK(!seen);
    }
    OK(ebb_loan_free(&loan));
  }
  ebb_reservation* reservation = NULL;
  OK(ebb_reserve(store, 1, &source, 1, NULL, &reservation));
  OK(ebb_reservation_abandon(reservation));
  CHECK_STATUS(ebb_reservation_commit(reservation), EBB_INVALID_ARGUMENT);
  OK(ebb_reservation_free(&reservation));
  OK(ebb_store_free(&store));
}

/* One NULL or wrong handle at a time, everything else right. */
static void test_wrong_arguments(void) {
  ebb_store* store = open_scripted(0);
  char byte = 0;
  const ebb_source source = {0, &byte, 1}, no_source = {0, NULL, 1};
  const ebb_target target = {0, &byte, 1}, no_target = {0, NULL, 1};
  const int64_t version = 1;
  size_t count = 0;
  double value = 0;
  char* text = NULL;
  int done = 0;
  ebb_future* future = NULL;
  ebb_reservation* reservation = NULL;
  ebb_loan* loan = NULL;
  ebb_store* history = NULL;
  OK(ebb_checkpoint(store, 1, &source, 1, NULL, &future));
  OK(ebb_reserve(store, 1, &source, 1, NULL, &reservation));
  OK(ebb_borrow(store, 1, NULL, &loan));

  /* NULL, and a handle of another kind, where a store belongs */
  ebb_store* const no_stores[] = {NULL, (ebb_store*)future};
  for (int i = 0; i < 2; ++i) {
    ebb_store* none = no_stores[i];
    CHECK_STATUS(ebb_history(none, "x", 0, &history), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_close(none), EBB_INVALID_ARGUMENT);
    ebb_future* out = NULL;
    CHECK_STATUS(ebb_checkpoint(none, 1, &source, 1, NULL, &out), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_restore(none, 1, &target, 1, NULL), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_restore_async(none, 1, &target, 1, NULL, &out), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_hint(none, &version, 1, 0), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_hint_front(none, 1), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_unhint(none, NULL, 0), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_start_prefetch(none), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_wait(none, "host", 0), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_wait_version(none, 1, "host", 0), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_drop(none, 1), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_drop_all(none), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_versions(none, NULL, 0, &count), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_info(none, 1, NULL, 0, &count), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_metadata(none, 1, NULL, 0, &count), EBB_INVALID_ARGUMENT);
    ebb_reservation* held = NULL;
    CHECK_STATUS(ebb_reserve(none, 1, &source, 1, NULL, &held), EBB_INVALID_ARGUMENT);
    ebb_loan* lent = NULL;
    CHECK_STATUS(ebb_borrow(none, 1, NULL, &lent), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_stats_json(none, &text), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_stat(none, "restores", &value), EBB_INVALID_ARGUMENT);
    CHECK(strlen(ebb_last_error()) > 0);
  }
  ebb_future* const no_futures[] = {NULL, (ebb_future*)loan};
  ebb_reservation* const no_reservations[] = {NULL, (ebb_reservation*)store};
  ebb_loan* const no_loans[] = {NULL, (ebb_loan*)reservation};
  for (int i = 0; i < 2; ++i) {
    CHECK_STATUS(ebb_future_done(no_futures[i], NULL, &done), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_future_wait(no_futures[i], NULL, 0), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_future_error(no_futures[i]), EBB_INVALID_ARGUMENT);
    void* data = NULL;
    CHECK_STATUS(ebb_reservation_data(no_reservations[i], 0, &data, NULL), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_reservation_commit(no_reservations[i]), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_reservation_abandon(no_reservations[i]), EBB_INVALID_ARGUMENT);
    const void* seen = NULL;
    CHECK_STATUS(ebb_loan_data(no_loans[i], 0, &seen, NULL), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_loan_release(no_loans[i], 0), EBB_INVALID_ARGUMENT);
  }

  /* freeing: NULL is fine, another kind is refused and stays what it is */
  OK(ebb_store_free(NULL));
  OK(ebb_future_free(NULL));
  OK(ebb_reservation_free(NULL));
  OK(ebb_loan_free(NULL));
  OK(ebb_text_free(NULL));
  ebb_store* wrong_store = (ebb_store*)future;
  CHECK_STATUS(ebb_store_free(&wrong_store), EBB_INVALID_ARGUMENT);
  CHECK(wrong_store == (ebb_store*)future);
  ebb_future* wrong_future = (ebb_future*)store;
  CHECK_STATUS(ebb_future_free(&wrong_future), EBB_INVALID_ARGUMENT);
  ebb_reservation* wrong_reservation = (ebb_reservation*)loan;
  CHECK_STATUS(ebb_reservation_free(&wrong_reservation), EBB_INVALID_ARGUMENT);
  ebb_loan* wrong_loan = (ebb_loan*)reservation;
  CHECK_STATUS(ebb_loan_free(&wrong_loan), EBB_INVALID_ARGUMENT);

  /* places for what is handed out */
  CHECK_STATUS(ebb_restore_async(store, 1, &target, 1, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_reserve(store, 1, &source, 1, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_borrow(store, 1, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_history(store, "x", 0, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_future_done(future, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_reservation_data(reservation, 0, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_loan_data(loan, 0, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_versions(store, NULL, 0, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_info(store, 1, NULL, 0, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_metadata(store, 1, NULL, 0, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_stats_json(store, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_stat(store, "restores", NULL), EBB_INVALID_ARGUMENT);

  /* what goes in */
  CHECK_STATUS(ebb_checkpoint(store, 1, NULL, 1, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_checkpoint(store, 1, &no_source, 1, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_restore(store, 1, NULL, 1, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_restore(store, 1, &no_target, 1, NULL), EBB_INVALID_ARGUMENT);
  ebb_reservation* sized = NULL;
  OK(ebb_reserve(store, 1, &no_source, 1, NULL, &sized)); /* a reservation names sizes alone */
  OK(ebb_reservation_free(&sized));
  CHECK_STATUS(ebb_reserve(store, 1, NULL, 1, NULL, &sized), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_hint(store, NULL, 1, 0), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_unhint(store, NULL, 1), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_wait(store, NULL, 0), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_wait(store, "host", NAN), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_wait_version(store, 1, NULL, 0), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_future_wait(future, NULL, NAN), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_history(store, NULL, 0, &history), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_stat(store, NULL, &value), EBB_INVALID_ARGUMENT);
  ebb_checkpoint_options writing = EBB_CHECKPOINT_OPTIONS_INIT;
  writing.metadata_bytes = 3; /* of NULL */
  CHECK_STATUS(ebb_checkpoint(store, 1, &source, 1, &writing, NULL), EBB_INVALID_ARGUMENT);
  ebb_restore_options reading = EBB_RESTORE_OPTIONS_INIT;
  reading.timeout = NAN;
  CHECK_STATUS(ebb_restore(store, 1, &target, 1, &reading), EBB_INVALID_ARGUMENT);
  ebb_loan* unread = NULL;
  CHECK_STATUS(ebb_borrow(store, 1, &reading, &unread), EBB_INVALID_ARGUMENT);

  OK(ebb_future_free(&future));
  OK(ebb_reservation_free(&reservation));
  OK(ebb_loan_free(&loan));
  OK(ebb_store_free(&store));
}

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
  write_scripts();
  test_names();
  test_open();
  test_versions();
  test_store_calls();
  test_handles();
  test_wrong_arguments();
  test_answers();
  puts("capi_codes: all as it should be");
  return 0;
}
