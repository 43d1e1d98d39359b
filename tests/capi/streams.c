/* Devices and streams over the real store: what cannot be is refused by name and loses nothing; on a GPU, a history
 * goes out and comes back in stream order. Ends with 77, "skipped", where there is no GPU and the program was called
 * with "gpu". */
#include <string.h>

#include "tests/capi/check.h"

enum { kBytes = 64 * 1024, kSkipped = 77 };

static ebb_status open_on(const char* device, ebb_store** store) {
  ebb_options options;
  OK(ebb_options_init(&options));
  options.device = device;
  options.device_cache = 1 << 20;
  options.host_cache = 1 << 20;
  options.disk = 0;
  return ebb_open(&options, store);
}

static void check_told(const char* what) {
  if (strstr(ebb_last_error(), what)) return;
  fprintf(stderr, "'%s' is not in '%s'\n", what, ebb_last_error());
  exit(1);
}

static void test_devices(void) {
  ebb_store* store = NULL;
  const char* const wrong[] = {"quantum", "cuda:", "cuda:one", "cuda 1", ""};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    CHECK_STATUS(open_on(wrong[i], &store), EBB_INVALID_ARGUMENT);
    CHECK(!store);
    check_told("device=");
    check_told(wrong[i]);
    check_told("\"cuda:N\"");
    const char* const text[] = {"device", wrong[i], NULL};
    CHECK_STATUS(ebb_open_text(text, &store), EBB_INVALID_ARGUMENT);
    check_told("device=");
  }
  CHECK_STATUS(open_on("cuda:4096", &store), EBB_UNSUPPORTED);
  check_told("cuda:4096");
  CHECK(!store);
  OK(open_on("cpu", &store));
  OK(ebb_store_free(&store));
  const ebb_status status = open_on("cuda", &store);
  if (status == EBB_OK) {
    OK(ebb_store_free(&store));
    return;
  }
  CHECK_STATUS(status, EBB_UNSUPPORTED); /* no GPU here: the message says why, and what there is instead */
  check_told("device=\"cuda\"");
  check_told("no GPU");
  check_told("device=\"cpu\"");
}

/* A stream is no use to a store in ordinary memory: every call says so, and everything is as it was. */
static void test_refused(void) {
  ebb_store* store = NULL;
  OK(open_on("cpu", &store));
  static unsigned char field[kBytes], back[kBytes];
  memset(field, 5, kBytes);
  const ebb_source source = {0, field, kBytes};
  const ebb_target target = {0, back, kBytes};
  const int64_t version = 1;
  ebb_checkpoint_options writing = EBB_CHECKPOINT_OPTIONS_INIT;
  ebb_restore_options reading = EBB_RESTORE_OPTIONS_INIT;
  ebb_hand_back_options how = EBB_HAND_BACK_OPTIONS_INIT;
  writing.stream = reading.stream = how.stream = 2;

  CHECK_STATUS(ebb_checkpoint(store, version, &source, 1, &writing, NULL), EBB_UNSUPPORTED);
  check_told("stream");
  check_told("GPU");
  CHECK_STATUS(ebb_restore(store, version, &target, 1, NULL), EBB_UNKNOWN_VERSION); /* nothing was written */
  OK(ebb_checkpoint(store, version, &source, 1, NULL, NULL));
  OK(ebb_hint(store, &version, 1, 0));

  ebb_future* future = NULL;
  CHECK_STATUS(ebb_restore(store, version, &target, 1, &reading), EBB_UNSUPPORTED);
  check_told("stream");
  CHECK(back[0] == 0);
  CHECK(ebb_restore_async(store, version, &target, 1, &reading, &future) != EBB_OK && !future);
  check_told("stream");

  ebb_loan* loan = NULL;
  const void* seen = NULL;
  CHECK_STATUS(ebb_borrow(store, version, &reading, &loan), EBB_UNSUPPORTED);
  check_told("stream");
  OK(ebb_borrow(store, version, NULL, &loan));
  CHECK_STATUS(ebb_loan_release(loan, 0, &how), EBB_UNSUPPORTED);
  check_told("stream");
  OK(ebb_loan_data(loan, 0, &seen, NULL)); /* it is still lent */
  CHECK(memcmp(seen, field, kBytes) == 0);
  OK(ebb_loan_release(loan, 1, NULL));
  OK(ebb_loan_free(&loan));

  ebb_reservation* reservation = NULL;
  void* data = NULL;
  CHECK_STATUS(ebb_reserve(store, 2, &source, 1, &writing, &reservation), EBB_UNSUPPORTED);
  check_told("stream");
  OK(ebb_reserve(store, 2, &source, 1, NULL, &reservation));
  OK(ebb_reservation_data(reservation, 0, &data, NULL));
  memset(data, 6, kBytes);
  CHECK_STATUS(ebb_reservation_commit(reservation, &how), EBB_UNSUPPORTED);
  check_told("stream");
  OK(ebb_reservation_commit(reservation, NULL)); /* it was still reserved */
  OK(ebb_reservation_free(&reservation));

  OK(ebb_restore(store, version, &target, 1, NULL)); /* nothing was consumed */
  CHECK(memcmp(back, field, kBytes) == 0);
  OK(ebb_restore(store, 2, &target, 1, NULL));
  CHECK(back[0] == 6 && back[kBytes - 1] == 6);
  OK(ebb_store_free(&store));
}

/* Memory that is written to after it was committed, through a pointer that outlived that, is found out. */
static void test_checked(void) {
  ebb_store* store = NULL;
  OK(open_on("cpu", &store));
  const ebb_source region = {0, NULL, kBytes};
  const ebb_hand_back_options before = {.stream = EBB_NO_STREAM, .hold = 1}; /* without `check`: none */
  CHECK(before.check == 0);
  ebb_hand_back_options how = EBB_HAND_BACK_OPTIONS_INIT;
  CHECK(how.check == 0);
  how.hold = how.check = 1;
  static unsigned char back[kBytes];
  ebb_target target = {0, back, kBytes};
  for (int64_t version = 1; version <= 2; ++version) {
    ebb_reservation* reservation = NULL;
    void* data = NULL;
    OK(ebb_reserve(store, version, &region, 1, NULL, &reservation));
    OK(ebb_reservation_data(reservation, 0, &data, NULL));
    memset(data, 7, kBytes);
    OK(ebb_reservation_commit(reservation, version == 1 ? &how : &before));
    OK(ebb_wait(store, "host", EBB_FOREVER)); /* the flush reads it no more */
    ((unsigned char*)data)[kBytes / 2] = 8;
    ebb_loan* loan = NULL;
    if (version == 1) {
      CHECK_STATUS(ebb_borrow(store, version, NULL, &loan), EBB_DAMAGED);
      check_told("version 1 is damaged");
      CHECK(!loan);
    }
    OK(ebb_restore(store, version, &target, 1, NULL)); /* the first from the copy below, which is good */
    CHECK(back[0] == 7 && back[kBytes / 2] == (version == 1 ? 7 : 8));
    OK(ebb_reservation_free(&reservation));
  }
  OK(ebb_store_free(&store));
}

/* Memory that was given back with `hold` may be looked at until its handle is freed, after the store too. */
static void test_held(void) {
  ebb_store* store = NULL;
  OK(open_on("cpu", &store));
  const ebb_source region = {0, NULL, kBytes};
  ebb_hand_back_options how = EBB_HAND_BACK_OPTIONS_INIT;
  how.hold = 1;
  ebb_reservation* reservation = NULL;
  void* data = NULL;
  OK(ebb_reserve(store, 1, &region, 1, NULL, &reservation));
  OK(ebb_reservation_data(reservation, 0, &data, NULL));
  memset(data, 7, kBytes);
  OK(ebb_reservation_commit(reservation, &how));
  ebb_loan* loan = NULL;
  const void* seen = NULL;
  OK(ebb_borrow(store, 1, NULL, &loan));
  OK(ebb_loan_data(loan, 0, &seen, NULL));
  OK(ebb_loan_release(loan, 0, &how));

  /* Others come and go: what is held is not theirs. */
  static unsigned char field[kBytes];
  memset(field, 8, kBytes);
  const ebb_source source = {0, field, kBytes};
  for (int64_t version = 2; version < 40; ++version) {
    OK(ebb_checkpoint(store, version, &source, 1, NULL, NULL));
    OK(ebb_drop(store, version));
  }
  const unsigned char* bytes = seen;
  CHECK(bytes[0] == 7 && bytes[kBytes - 1] == 7);
  OK(ebb_close(store));
  OK(ebb_store_free(&store));
  CHECK(bytes[0] == 7 && bytes[kBytes - 1] == 7);
  OK(ebb_loan_free(&loan));
  OK(ebb_reservation_free(&reservation));
}

/* On the legacy default stream, which needs no CUDA in this program: closing waits for what is on it. */
static int test_in_order(void) {
  ebb_store* store = NULL;
  if (open_on("cuda", &store) != EBB_OK) {
    printf("skipped: %s\n", ebb_last_error());
    return kSkipped;
  }
  enum { kSteps = 8 };
  static unsigned char fields[kSteps][kBytes], back[kSteps][kBytes];
  ebb_checkpoint_options writing = EBB_CHECKPOINT_OPTIONS_INIT;
  ebb_restore_options reading = EBB_RESTORE_OPTIONS_INIT;
  writing.stream = reading.stream = 0;
  for (int step = 0; step < kSteps; ++step) {
    memset(fields[step], step + 1, kBytes);
    const ebb_source source = {0, fields[step], kBytes};
    OK(ebb_checkpoint(store, step, &source, 1, &writing, NULL));
  }
  for (int step = kSteps; step-- > 0;) {
    const ebb_target target = {0, back[step], kBytes};
    OK(ebb_restore(store, step, &target, 1, &reading));
  }
  const ebb_source source = {0, fields[0], kBytes};
  writing.stream = 1; /* the same stream by its other name */
  OK(ebb_checkpoint(store, 100, &source, 1, &writing, NULL));
  ebb_loan* loan = NULL;
  ebb_hand_back_options how = EBB_HAND_BACK_OPTIONS_INIT;
  how.stream = 2;
  OK(ebb_borrow(store, 100, NULL, &loan));
  OK(ebb_loan_release(loan, 0, &how));
  OK(ebb_loan_free(&loan));
  OK(ebb_close(store));
  OK(ebb_store_free(&store));
  CHECK(memcmp(fields, back, sizeof back) == 0);
  return 0;
}

int main(int count, char** arguments) {
  if (count > 1 && strcmp(arguments[1], "gpu") == 0) return test_in_order();
  test_devices();
  test_refused();
  test_held();
  test_checked();
  puts("capi_streams: all as it should be");
  return 0;
}
