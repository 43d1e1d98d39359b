/* Nulls and wrong handles are answered: one at a time, everything else right. */
#include <math.h>
#include <string.h>

#include "tests/capi/scripted.h"

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
    CHECK_STATUS(ebb_lend(none, 0, 0.0), EBB_INVALID_ARGUMENT);
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
    CHECK_STATUS(ebb_agree(none, 1), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_drop_all(none), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_suspend_on(none, 15, NULL, 1.0), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_check_suspended(none), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_clear_suspended(none), EBB_INVALID_ARGUMENT);
    int64_t since = 99;
    CHECK_STATUS(ebb_suspended(none, &since), EBB_INVALID_ARGUMENT);
    CHECK(since == -1);
    CHECK_STATUS(ebb_versions(none, NULL, 0, &count), EBB_INVALID_ARGUMENT);
    int64_t newest = 99;
    CHECK_STATUS(ebb_latest(none, -1, &newest), EBB_INVALID_ARGUMENT);
    CHECK(newest == -1);
    CHECK_STATUS(ebb_info(none, 1, NULL, 0, &count), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_metadata(none, 1, NULL, 0, &count), EBB_INVALID_ARGUMENT);
    ebb_reservation* held = NULL;
    CHECK_STATUS(ebb_reserve(none, 1, &source, 1, NULL, &held), EBB_INVALID_ARGUMENT);
    ebb_loan* lent = NULL;
    CHECK_STATUS(ebb_borrow(none, 1, NULL, &lent), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_protect(none, 0, &byte, 1, NULL), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_unprotect(none, 0), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_touch(none, 0, 0, 1), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_snapshot(none, 1, NULL, NULL), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_before_write(NULL, 0, EBB_NO_STREAM), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_leans_on(none, 1, NULL, NULL, 0, &count), EBB_INVALID_ARGUMENT);
    ebb_file* file = (ebb_file*)&byte;
    CHECK_STATUS(ebb_create_file(none, "f", 1, &file), EBB_INVALID_ARGUMENT);
    CHECK(!file);
    CHECK_STATUS(ebb_open_file(none, "f", 1, &file), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_file_versions(none, "f", NULL, 0, &count), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_drop_file(none, "f", 1), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_stats_json(none, &text), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_stat(none, "restores", &value), EBB_INVALID_ARGUMENT);
    CHECK(strlen(ebb_last_error()) > 0);
  }
  ebb_file* file = NULL;
  OK(ebb_create_file(store, "f", 1, &file));
  ebb_file* const no_files[] = {NULL, (ebb_file*)loan};
  uint64_t number = 99;
  for (int i = 0; i < 2; ++i) {
    CHECK_STATUS(ebb_file_read(no_files[i], &byte, 1, &count), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_file_write(no_files[i], &byte, 1), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_file_seek(no_files[i], 0), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_file_tell(no_files[i], &number), EBB_INVALID_ARGUMENT);
    CHECK(number == 0);
    CHECK_STATUS(ebb_file_size(no_files[i], &number), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_file_truncate(no_files[i], 0), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_file_close(no_files[i]), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_file_wait(no_files[i], "host", 0), EBB_INVALID_ARGUMENT);
  }
  OK(ebb_file_free(&file));
  CHECK_STATUS(ebb_create_file(store, NULL, 1, &file), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_create_file(store, "f", 1, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_open_file(store, "f", 1, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_file_versions(store, "f", NULL, 0, NULL), EBB_INVALID_ARGUMENT);
  OK(ebb_create_file(store, "f", 1, &file));
  CHECK_STATUS(ebb_file_read(file, NULL, 1, &count), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_file_read(file, &byte, 1, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_file_write(file, NULL, 1), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_file_tell(file, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_file_wait(file, NULL, 0), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_file_wait(file, "host", NAN), EBB_INVALID_ARGUMENT);
  OK(ebb_file_free(&file));
  CHECK(!file);
  ebb_future* const no_futures[] = {NULL, (ebb_future*)loan};
  ebb_reservation* const no_reservations[] = {NULL, (ebb_reservation*)store};
  ebb_loan* const no_loans[] = {NULL, (ebb_loan*)reservation};
  for (int i = 0; i < 2; ++i) {
    CHECK_STATUS(ebb_future_done(no_futures[i], NULL, &done), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_future_wait(no_futures[i], NULL, 0), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_future_error(no_futures[i]), EBB_INVALID_ARGUMENT);
    void* data = NULL;
    CHECK_STATUS(ebb_reservation_data(no_reservations[i], 0, &data, NULL), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_reservation_commit(no_reservations[i], NULL), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_reservation_abandon(no_reservations[i]), EBB_INVALID_ARGUMENT);
    const void* seen = NULL;
    CHECK_STATUS(ebb_loan_data(no_loans[i], 0, &seen, NULL), EBB_INVALID_ARGUMENT);
    CHECK_STATUS(ebb_loan_release(no_loans[i], 0, NULL), EBB_INVALID_ARGUMENT);
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
  CHECK_STATUS(ebb_latest(store, -1, NULL), EBB_INVALID_ARGUMENT);
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
  CHECK_STATUS(ebb_protect(store, 0, NULL, 1, NULL), EBB_INVALID_ARGUMENT);
  ebb_protect_options tracked = EBB_PROTECT_OPTIONS_INIT;
  tracked.track = "guess";
  CHECK_STATUS(ebb_protect(store, 0, &byte, 1, &tracked), EBB_INVALID_ARGUMENT);
  CHECK(strstr(ebb_last_error(), "guess"));
  ebb_snapshot_options no_metadata = EBB_SNAPSHOT_OPTIONS_INIT;
  no_metadata.metadata_bytes = 1;
  CHECK_STATUS(ebb_snapshot(store, 1, &no_metadata, NULL), EBB_INVALID_ARGUMENT);
  OK(ebb_history(store, "x", 0, &history));
  CHECK_STATUS(ebb_snapshot(history, 1, NULL, NULL), EBB_UNSUPPORTED);
  OK(ebb_store_free(&history));
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

int main(void) {
  test_wrong_arguments();
  puts("capi_arguments: all as it should be");
  return 0;
}
