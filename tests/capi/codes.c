/* Every call against a store that fails as told: each error code comes through with its message, no exception crosses,
 * what a call hands out is cleared when it fails. */
#include <math.h>
#include <string.h>

#include "tests/capi/scripted.h"

enum { kThrowBadAlloc = 100, kThrowLogicError, kThrowNumber, kThrowBadResult, kThrowInvalid };

/* What is to happen, as scripted_store.cpp takes it, and the code to be answered. */
typedef struct script {
  int64_t number;
  ebb_status status;
} script;
static script scripts[EBB_SUSPENDED + 5];
static size_t script_count;

static void write_scripts(void) {
  for (int code = EBB_OK; code <= EBB_SUSPENDED; ++code) scripts[script_count++] = (script){code, (ebb_status)code};
  scripts[script_count++] = (script){kThrowBadAlloc, EBB_OUT_OF_MEMORY};
  scripts[script_count++] = (script){kThrowLogicError, EBB_INTERNAL};
  scripts[script_count++] = (script){kThrowNumber, EBB_INTERNAL};
  scripts[script_count++] = (script){kThrowBadResult, EBB_LOST};
}

static void test_names(void) {
  CHECK(strcmp(ebb_last_error(), "") == 0); /* nothing has failed yet */
  CHECK(strcmp(ebb_status_name(EBB_OK), "ok") == 0);
  CHECK(strcmp(ebb_status_name(EBB_NO_SPACE), "no_space") == 0);
  CHECK(strcmp(ebb_status_name(EBB_INTERNAL), "internal") == 0);
  CHECK(strcmp(ebb_status_name((ebb_status)99), "unknown") == 0);
  CHECK(strcmp(ebb_status_name((ebb_status)-1), "unknown") == 0);
  CHECK(strcmp(ebb_status_name((ebb_status)(EBB_SUSPENDED + 1)), "unknown") == 0);
  for (int code = EBB_OK; code <= EBB_SUSPENDED; ++code)
    CHECK(strcmp(ebb_status_name((ebb_status)code), "unknown") != 0);
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", EBB_VERSION_MAJOR, EBB_VERSION_MINOR, EBB_VERSION_PATCH);
  CHECK(strcmp(ebb_version(), version) == 0);
}

static void test_files(void) {
  ebb_store* store = open_scripted(0);
  for (size_t i = 0; i < script_count; ++i) {
    const int64_t version = -scripts[i].number;
    const ebb_status status = scripts[i].status;
    ebb_file* file = (ebb_file*)&store; /* anything: it must be overwritten */
    CHECK_STATUS(ebb_create_file(store, "f", version, &file), status);
    CHECK((file != NULL) == (status == EBB_OK));
    OK(ebb_file_free(&file));
    if (version != -1) CHECK_STATUS(ebb_open_file(store, "f", version, &file), status); /* -1: the newest */
    OK(ebb_file_free(&file));
    CHECK_STATUS(ebb_drop_file(store, "f", version), status);
    OK(ebb_create_file(store, "f", 1000 + scripts[i].number, &file)); /* it fails when it is used */
    const ebb_status used = scripts[i].number == 0 ? EBB_OK : status;
    char byte = 0;
    size_t count = 99;
    uint64_t number = 99;
    CHECK_STATUS(ebb_file_read(file, &byte, 1, &count), used);
    CHECK(count == (used == EBB_OK ? 1u : 0u));
    CHECK_STATUS(ebb_file_write(file, &byte, 1), used);
    CHECK_STATUS(ebb_file_seek(file, 1), used);
    CHECK_STATUS(ebb_file_tell(file, &number), used);
    CHECK(number == (used == EBB_OK ? 7u : 0u));
    CHECK_STATUS(ebb_file_size(file, &number), used);
    CHECK_STATUS(ebb_file_truncate(file, 1), used);
    CHECK_STATUS(ebb_file_wait(file, "host", 0), used);
    CHECK_STATUS(ebb_file_close(file), used);
    OK(ebb_file_free(&file));
  }
  int64_t versions[2] = {0, 0};
  size_t count = 0;
  OK(ebb_file_versions(store, "f", versions, 2, &count));
  CHECK(count == 2 && versions[0] == 1 && versions[1] == 2);
  OK(ebb_store_free(&store));
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
    future = anything;
    CHECK_STATUS(ebb_snapshot(store, version, NULL, &future), status);
    CHECK(status == EBB_OK ? future && future != anything : !future);
    OK(ebb_future_free(&future));
    const uint32_t region = (uint32_t)scripts[i].number;
    CHECK_STATUS(ebb_protect(store, region, &byte, 1, NULL), status);
    CHECK_STATUS(ebb_unprotect(store, region), status);
    CHECK_STATUS(ebb_touch(store, region, 0, 1), status);
    CHECK_STATUS(ebb_hint(store, &version, 1, 0), status);
    CHECK_STATUS(ebb_hint_front(store, version), status);
    CHECK_STATUS(ebb_unhint(store, &version, 1), status);
    CHECK_STATUS(ebb_wait_version(store, version, "host", 1.0), status);
    CHECK_STATUS(ebb_drop(store, version), status);
    CHECK_STATUS(ebb_agree(store, version), status);
    size_t count = 99;
    CHECK_STATUS(ebb_info(store, version, NULL, 0, &count), status);
    CHECK(count == (status == EBB_OK ? 2 : 0));
    CHECK_STATUS(ebb_metadata(store, version, NULL, 0, &count), status);
    CHECK(count == (status == EBB_OK ? 4 : 0));
    uint64_t bytes = 99;
    CHECK_STATUS(ebb_leans_on(store, version, &bytes, NULL, 0, &count), status);
    CHECK(bytes == (status == EBB_OK ? 276 : 0) && count == (status == EBB_OK ? 2 : 0));
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
    CHECK_STATUS(ebb_lend(store, 0, EBB_FOREVER), status);
    size_t count = 99;
    CHECK_STATUS(ebb_versions(store, NULL, 0, &count), thrown);
    CHECK(count == (status == EBB_OK ? 3 : 0));
    CHECK_STATUS(ebb_suspend_on(store, 0, NULL, EBB_FOREVER), status);
    CHECK_STATUS(ebb_check_suspended(store), status);
    CHECK_STATUS(ebb_clear_suspended(store), status);
    int64_t since = 99;
    CHECK_STATUS(ebb_suspended(store, &since), status);
    CHECK(since == (status == EBB_OK ? 17 : -1));
    int64_t newest = 99;
    CHECK_STATUS(ebb_latest(store, -1, &newest), status);
    CHECK(newest == (status == EBB_OK ? 3 : -1));
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
      CHECK_STATUS(ebb_suspend_on(history, 15, NULL, 1.0), EBB_INVALID_ARGUMENT);
      CHECK_STATUS(ebb_suspended(history, &since), EBB_INVALID_ARGUMENT);
      CHECK_STATUS(ebb_lend(history, 0, 0.0), EBB_INVALID_ARGUMENT);
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
    CHECK_STATUS(ebb_reservation_commit(reservation, NULL), status);
    if (status == EBB_OK) { /* it is the checkpoint now */
      CHECK_STATUS(ebb_reservation_commit(reservation, NULL), EBB_INVALID_ARGUMENT);
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
    CHECK_STATUS(ebb_loan_release(loan, 1, NULL), status);
    if (status == EBB_OK) {
      CHECK_STATUS(ebb_loan_release(loan, 1, NULL), EBB_INVALID_ARGUMENT);
      CHECK_STATUS(ebb_loan_data(loan, 0, &seen, &bytes), EBB_INVALID_ARGUMENT);
      CHECK(!seen);
    }
    OK(ebb_loan_free(&loan));
  }
  ebb_reservation* reservation = NULL;
  OK(ebb_reserve(store, 1, &source, 1, NULL, &reservation));
  OK(ebb_reservation_abandon(reservation));
  CHECK_STATUS(ebb_reservation_commit(reservation, NULL), EBB_INVALID_ARGUMENT);
  OK(ebb_reservation_free(&reservation));
  OK(ebb_store_free(&store));
}

int main(void) {
  write_scripts();
  test_names();
  test_open();
  test_files();
  test_versions();
  test_store_calls();
  test_handles();
  puts("capi_codes: all as it should be");
  return 0;
}
