/* The C interface over the real store: bytes go round, each refusal has its code, threads have their own messages. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "tests/capi/check.h"

enum { kBytes = 64 * 1024, kSmall = 1000 };

static ebb_store* open_store(const char* device, const char* host, const char* disk) {
  const char* const options[] = {"device", "cpu", "device_cache", device, "host_cache", host, "disk", disk, NULL};
  ebb_store* store = NULL;
  OK(ebb_open_text(options, &store));
  CHECK(store);
  return store;
}

static void fill(unsigned char* bytes, size_t count, int64_t version) {
  for (size_t i = 0; i < count; ++i) bytes[i] = (unsigned char)(version * 31 + (int64_t)(i * 7 + i / 251));
}

static bool holds(const unsigned char* bytes, size_t count, int64_t version) {
  for (size_t i = 0; i < count; ++i)
    if (bytes[i] != (unsigned char)(version * 31 + (int64_t)(i * 7 + i / 251))) return false;
  return true;
}

static void test_opening(void) {
  ebb_store* store = NULL;
  ebb_options options;
  OK(ebb_options_init(&options));
  options.device = "cpu";
  options.device_cache = 1 << 20;
  options.host_cache = 1 << 20;
  options.disk = 16 << 20;
  options.prefetch = "manual";
  options.eviction = "lru";
  options.tuning = "io=threads, direct_io=false";
  options.close_timeout = 5;
  OK(ebb_open(&options, &store));
  double capacity = 0;
  OK(ebb_stat(store, "tier.device.capacity", &capacity));
  CHECK(capacity == 1 << 20);
  OK(ebb_start_prefetch(store));
  OK(ebb_close(store));
  OK(ebb_store_free(&store));

  OK(ebb_options_init(&options));
  options.device = "cpu";
  options.memory = 64 << 20;
  options.disk = 16 << 20;
  OK(ebb_open(&options, &store));
  OK(ebb_stat(store, "tier.host.capacity", &capacity));
  CHECK(capacity == 56 << 20); /* the staging ring has the rest */
  OK(ebb_close(store));
  OK(ebb_store_free(&store));

  OK(ebb_options_init(&options));
  options.device = "cpu";
  options.device_cache = options.host_cache = 1 << 20;
  options.disk = 0;
  options.lend = 64 << 20;
  options.lend_share = 0.25;
  options.borrow = "auto";
  OK(ebb_open(&options, &store));
  OK(ebb_stat(store, "tier.peer.capacity", &capacity));
  OK(ebb_lend(store, 0, 5.0));
  CHECK_STATUS(ebb_lend(store, 4096, 0.0), EBB_INVALID_ARGUMENT);
  CHECK(strstr(ebb_last_error(), "bytes=\"4096\"") && strstr(ebb_last_error(), "at least 67108864"));
  CHECK_STATUS(ebb_lend(store, UINT64_MAX, 0.0), EBB_INVALID_ARGUMENT);
  CHECK(strstr(ebb_last_error(), "bytes=\"18446744073709551615\"") && strstr(ebb_last_error(), "below 8 EiB"));
  OK(ebb_close(store));
  OK(ebb_store_free(&store));
  options.borrow = "1MiB";
  CHECK_STATUS(ebb_open(&options, &store), EBB_INVALID_ARGUMENT);
  options.borrow = NULL;
  options.lend_share = 1.5;
  CHECK_STATUS(ebb_open(&options, &store), EBB_INVALID_ARGUMENT);
  CHECK(strstr(ebb_last_error(), "lend_share"));
  options.lend_share = 0;

  options.eviction = "best";
  CHECK_STATUS(ebb_open(&options, &store), EBB_INVALID_ARGUMENT);
  CHECK(strstr(ebb_last_error(), "eviction") && strstr(ebb_last_error(), "best") && strstr(ebb_last_error(), "lru"));
  const char* const wrong_size[] = {"host_cache", "4 potatoes", NULL};
  CHECK_STATUS(ebb_open_text(wrong_size, &store), EBB_INVALID_ARGUMENT);
  CHECK(strstr(ebb_last_error(), "host_cache") && strstr(ebb_last_error(), "potatoes"));
  CHECK(!store);
}

/* Whether the counters say that tier `tier` has its memory by `strategy`. */
static bool has_arena(ebb_store* store, const char* tier, const char* strategy) {
  char *text = NULL, name[64], arena[64];
  OK(ebb_stats_json(store, &text));
  snprintf(name, sizeof name, "{\"name\": \"%s\", ", tier);
  snprintf(arena, sizeof arena, "\"arena\": {\"strategy\": \"%s\", ", strategy);
  const char* found = strstr(text, name);
  CHECK(found && (found = strstr(found, "\"arena\": ")));
  const bool so = strncmp(found, arena, strlen(arena)) == 0;
  OK(ebb_text_free(&text));
  return so;
}

static void test_arenas(void) {
  ebb_store* store = open_store("1MiB", "1MiB", "16MiB");
  CHECK(has_arena(store, "device", "mapped") && has_arena(store, "host", "incremental") &&
        has_arena(store, "local", ""));
  OK(ebb_store_free(&store));
  ebb_options options;
  OK(ebb_options_init(&options));
  options.device = "cpu";
  options.device_cache = options.host_cache = 1 << 20;
  options.disk = 0;
  options.tuning = "device_arena=direct";
  OK(ebb_open(&options, &store));
  CHECK(has_arena(store, "device", "direct") && has_arena(store, "host", "incremental"));
  OK(ebb_store_free(&store));
  options.tuning = "host_arena=direct";
  OK(ebb_open(&options, &store));
  CHECK(has_arena(store, "device", "mapped") && has_arena(store, "host", "direct"));
  double ready = 0;
  OK(ebb_stat(store, "tier.host.arena.ready", &ready));
  CHECK(ready == 1 << 20);
  OK(ebb_store_free(&store));
  options.tuning = NULL;
  options.warm = 1;
  OK(ebb_open(&options, &store));
  CHECK(has_arena(store, "device", "direct") && has_arena(store, "host", "direct"));
  OK(ebb_store_free(&store));
  options.tuning = "device_arena=lazy";
  CHECK_STATUS(ebb_open(&options, &store), EBB_INVALID_ARGUMENT);
  CHECK(strcmp(ebb_last_error(), "tuning.device_arena=\"lazy\" is not valid: expected one of \"mapped\", \"direct\"") ==
        0);
  const char* const wrong[] = {"tuning", "host_arena=mapped", NULL};
  CHECK_STATUS(ebb_open_text(wrong, &store), EBB_INVALID_ARGUMENT);
  CHECK(strcmp(ebb_last_error(),
               "tuning.host_arena=\"mapped\" is not valid: expected one of \"incremental\", \"direct\"") == 0);
  CHECK(!store);
}

static void test_round_trip(void) {
  /* Three times what memory holds, so that most of it goes to the file and comes back. */
  ebb_store* store = open_store("256KiB", "256KiB", "32MiB");
  static unsigned char field[kBytes], small[kSmall];
  const int64_t count = 24;
  for (int64_t version = 0; version < count; ++version) {
    fill(field, kBytes, version);
    fill(small, kSmall, version + 1000);
    const ebb_source sources[] = {{0, field, kBytes}, {7, small, kSmall}};
    ebb_checkpoint_options writing = EBB_CHECKPOINT_OPTIONS_INIT;
    writing.metadata = &version;
    writing.metadata_bytes = sizeof version;
    ebb_future* future = NULL;
    OK(ebb_checkpoint(store, version, sources, 2, &writing, &future));
    memset(field, 0, kBytes); /* the source may be overwritten at once */
    if (version == 0) {
      OK(ebb_future_wait(future, "local", 30));
      int done = 0;
      OK(ebb_future_done(future, "local", &done));
      CHECK(done);
      CHECK_STATUS(ebb_future_done(future, "process", &done), EBB_UNSUPPORTED);
      CHECK(!done);
      OK(ebb_future_error(future));
    }
    OK(ebb_future_free(&future));
    OK(ebb_hint_front(store, version));
  }
  OK(ebb_wait(store, "device", 30));
  size_t written = 0;
  int64_t versions[64];
  OK(ebb_versions(store, versions, 64, &written));
  CHECK(written == (size_t)count && versions[0] == 0 && versions[count - 1] == count - 1);
  ebb_region_info regions[2];
  OK(ebb_info(store, 5, regions, 2, &written));
  CHECK(written == 2 && regions[0].bytes == kBytes && regions[1].id == 7 && regions[1].offset % 256 == 0);
  int64_t metadata = -1;
  OK(ebb_metadata(store, 5, &metadata, sizeof metadata, &written));
  CHECK(written == sizeof metadata && metadata == 5);

  for (int64_t version = count; version-- > 0;) {
    const ebb_target targets[] = {{7, small, kSmall}, {0, field, kBytes}}; /* any order */
    if (version % 2 == 0) {
      OK(ebb_restore(store, version, targets, 2, NULL));
    } else {
      ebb_future* future = NULL;
      OK(ebb_restore_async(store, version, targets, 2, NULL, &future));
      OK(ebb_future_wait(future, NULL, EBB_FOREVER));
      OK(ebb_future_free(&future));
    }
    CHECK(holds(field, kBytes, version) && holds(small, kSmall, version + 1000));
  }
  OK(ebb_versions(store, NULL, 0, &written));
  CHECK(written == 0);
  double restores = 0;
  OK(ebb_stat(store, "restores", &restores));
  CHECK(restores == (double)count);
  char* text = NULL;
  OK(ebb_stats_json(store, &text));
  CHECK(strstr(text, "\"name\": \"local\"") && strstr(text, "\"name\": \"host>local\""));
  OK(ebb_text_free(&text));
  OK(ebb_close(store));
  OK(ebb_store_free(&store));
}

static void test_refusals(void) {
  ebb_store* store = open_store("128KiB", "0", "0"); /* two checkpoints of 64 KiB */
  static unsigned char field[kBytes], large[4 * kBytes];
  const ebb_source source = {0, field, kBytes}, too_large = {0, large, sizeof large};
  const ebb_source twice[] = {{0, field, 16}, {0, field, 16}};
  const ebb_target target = {0, field, kBytes}, shorter = {0, field, kBytes - 1}, stranger = {9, field, kBytes};
  CHECK_STATUS(ebb_checkpoint(store, 0, &too_large, 1, NULL, NULL), EBB_TOO_LARGE);
  CHECK_STATUS(ebb_checkpoint(store, 0, twice, 2, NULL, NULL), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_restore(store, 0, &target, 1, NULL), EBB_UNKNOWN_VERSION);
  fill(field, kBytes, 1);
  OK(ebb_checkpoint(store, 1, &source, 1, NULL, NULL));
  CHECK_STATUS(ebb_checkpoint(store, 1, &source, 1, NULL, NULL), EBB_VERSION_EXISTS);
  OK(ebb_checkpoint(store, 2, &source, 1, NULL, NULL));
  CHECK_STATUS(ebb_checkpoint(store, 3, &source, 1, NULL, NULL), EBB_NO_SPACE);
  CHECK(strstr(ebb_last_error(), "device"));
  CHECK_STATUS(ebb_restore(store, 1, &shorter, 1, NULL), EBB_SIZE_MISMATCH);
  CHECK_STATUS(ebb_restore(store, 1, &stranger, 1, NULL), EBB_SIZE_MISMATCH);
  CHECK_STATUS(ebb_restore(store, 1, NULL, 0, NULL), EBB_SIZE_MISMATCH);
  CHECK_STATUS(ebb_wait(store, "tape", 1), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_wait(store, "local", 1), EBB_UNSUPPORTED);
  memset(field, 0, kBytes);
  ebb_restore_options keeping = EBB_RESTORE_OPTIONS_INIT;
  keeping.keep = 1;
  OK(ebb_restore(store, 1, &target, 1, &keeping)); /* the refusals consumed nothing */
  CHECK(holds(field, kBytes, 1));
  OK(ebb_restore(store, 1, &target, 1, NULL));
  CHECK_STATUS(ebb_restore(store, 1, &target, 1, NULL), EBB_CONSUMED);
  OK(ebb_drop(store, 2));
  CHECK_STATUS(ebb_restore(store, 2, &target, 1, NULL), EBB_UNKNOWN_VERSION);
  OK(ebb_checkpoint(store, 2, &source, 1, NULL, NULL)); /* dropped: may be written again */
  OK(ebb_drop_all(store));
  OK(ebb_hint(store, (const int64_t[]){4, 3}, 2, 1));
  OK(ebb_unhint(store, (const int64_t[]){4}, 1));
  OK(ebb_unhint(store, NULL, 0));

  ebb_store* history = NULL;
  OK(ebb_history(store, "adjoint", 1, &history));
  OK(ebb_checkpoint(history, 1, &source, 1, NULL, NULL));
  CHECK_STATUS(ebb_restore(store, 1, &target, 1, NULL), EBB_UNKNOWN_VERSION); /* another history's version 1 */
  ebb_future* future = NULL;
  OK(ebb_checkpoint(history, 2, &source, 1, NULL, &future));
  OK(ebb_close(store));
  CHECK_STATUS(ebb_checkpoint(store, 9, &source, 1, NULL, NULL), EBB_CLOSED);
  CHECK_STATUS(ebb_restore(history, 1, &target, 1, NULL), EBB_CLOSED);
  size_t left = 99;
  CHECK_STATUS(ebb_versions(store, NULL, 0, &left), EBB_CLOSED);
  CHECK(left == 0);
  CHECK_STATUS(ebb_versions(history, NULL, 0, &left), EBB_CLOSED);
  int ended = 0;
  CHECK_STATUS(ebb_future_done(future, "", &ended), EBB_INVALID_ARGUMENT); /* no level, and not none */
  CHECK_STATUS(ebb_future_wait(future, "", 0), EBB_INVALID_ARGUMENT);
  OK(ebb_store_free(&store));
  CHECK_STATUS(ebb_hint_front(history, 1), EBB_CLOSED); /* a history outlives its store */
  OK(ebb_future_free(&future));
  OK(ebb_store_free(&history));
}

static void test_without_a_copy(void) {
  ebb_store* store = open_store("256KiB", "256KiB", "16MiB");
  const ebb_source regions[] = {{0, NULL, kBytes}, {1, NULL, kSmall}};
  ebb_reservation* reservation = NULL;
  OK(ebb_reserve(store, 1, regions, 2, NULL, &reservation));
  void *data = NULL, *other = NULL;
  size_t bytes = 0;
  OK(ebb_reservation_data(reservation, 0, &data, &bytes));
  CHECK(bytes == kBytes);
  OK(ebb_reservation_data(reservation, 1, &other, &bytes));
  CHECK(bytes == kSmall && (unsigned char*)other >= (unsigned char*)data + kBytes);
  void* none = data;
  CHECK_STATUS(ebb_reservation_data(reservation, 9, &none, &bytes), EBB_INVALID_ARGUMENT);
  CHECK(!none && !bytes && strstr(ebb_last_error(), "no region 9") && strstr(ebb_last_error(), "0, 1"));
  fill(data, kBytes, 1);
  fill(other, kSmall, 2);
  OK(ebb_reservation_commit(reservation, NULL));
  OK(ebb_reservation_free(&reservation));

  OK(ebb_reserve(store, 2, regions, 2, NULL, &reservation));
  OK(ebb_reservation_free(&reservation)); /* abandons */
  ebb_loan* loan = NULL;
  CHECK_STATUS(ebb_borrow(store, 2, NULL, &loan), EBB_UNKNOWN_VERSION);

  const void* seen = NULL;
  OK(ebb_borrow(store, 1, NULL, &loan));
  OK(ebb_loan_data(loan, 0, &seen, &bytes));
  CHECK(bytes == kBytes && holds(seen, kBytes, 1));
  CHECK_STATUS(ebb_loan_data(loan, 9, &seen, &bytes), EBB_INVALID_ARGUMENT);
  CHECK(!seen && !bytes && strstr(ebb_last_error(), "no region 9"));
  OK(ebb_loan_release(loan, 1, NULL)); /* kept */
  OK(ebb_loan_free(&loan));
  OK(ebb_borrow(store, 1, NULL, &loan));
  OK(ebb_loan_data(loan, 1, &seen, &bytes));
  CHECK(holds(seen, kSmall, 2));
  OK(ebb_loan_free(&loan)); /* consumed */
  CHECK_STATUS(ebb_borrow(store, 1, NULL, &loan), EBB_CONSUMED);
  const ebb_source empty = {5, NULL, 0};
  OK(ebb_reserve(store, 3, &empty, 1, NULL, &reservation));
  OK(ebb_reservation_data(reservation, 5, &data, &bytes)); /* no bytes, and yet a region */
  CHECK(bytes == 0);
  OK(ebb_reservation_free(&reservation));
  OK(ebb_store_free(&store));
}

static int give_up(void* asked) {
  ++*(int*)asked;
  return 1;
}

/* Calls that wait: by their time limit, and by being interrupted. Everything is borrowed, so nothing can make room. */
static void test_waiting(void) {
  ebb_store* store = open_store("64KiB", "0", "0");
  static unsigned char field[kBytes];
  const ebb_source source = {0, field, kBytes};
  OK(ebb_checkpoint(store, 1, &source, 1, NULL, NULL));
  ebb_loan* loan = NULL;
  OK(ebb_borrow(store, 1, NULL, &loan));
  ebb_checkpoint_options writing = EBB_CHECKPOINT_OPTIONS_INIT;
  writing.timeout = 0.01;
  CHECK_STATUS(ebb_checkpoint(store, 2, &source, 1, &writing, NULL), EBB_NO_SPACE);
  int asked = 0;
  writing.timeout = EBB_FOREVER;
  writing.interrupted = give_up;
  writing.context = &asked;
  CHECK_STATUS(ebb_checkpoint(store, 2, &source, 1, &writing, NULL), EBB_TIMED_OUT);
  CHECK(asked == 1);
  CHECK_STATUS(ebb_wait(store, "device", 0), EBB_OK);
  OK(ebb_loan_free(&loan));
  OK(ebb_checkpoint(store, 2, &source, 1, NULL, NULL));
  OK(ebb_store_free(&store));
}

static void test_files(void) {
  ebb_store* store = open_store("64KiB", "64KiB", "16MiB");
  unsigned char text[kSmall], back[kSmall];
  fill(text, kSmall, 5);
  ebb_file* file = NULL;
  OK(ebb_create_file(store, "model", 3, &file));
  for (int part = 0; part < 100; ++part) OK(ebb_file_write(file, text, kSmall));
  OK(ebb_file_truncate(file, 99 * kSmall));
  OK(ebb_file_close(file));
  OK(ebb_file_wait(file, "ephemeral", 10));
  OK(ebb_file_free(&file));
  CHECK_STATUS(ebb_create_file(store, "model", 3, &file), EBB_VERSION_EXISTS);
  OK(ebb_open_file(store, "model", -1, &file));
  uint64_t number = 0;
  OK(ebb_file_size(file, &number));
  CHECK(number == 99 * kSmall);
  OK(ebb_file_seek(file, 98 * kSmall + 10));
  size_t count = 0;
  OK(ebb_file_read(file, back, kSmall, &count));
  CHECK(count == kSmall - 10 && memcmp(back, text + 10, count) == 0);
  OK(ebb_file_tell(file, &number));
  CHECK(number == 99 * kSmall);
  CHECK_STATUS(ebb_file_write(file, text, 1), EBB_UNSUPPORTED);
  OK(ebb_file_free(&file));
  int64_t version = 0;
  OK(ebb_file_versions(store, "model", &version, 1, &count));
  CHECK(count == 1 && version == 3);
  OK(ebb_drop_file(store, "model", 3));
  CHECK_STATUS(ebb_open_file(store, "model", 3, &file), EBB_UNKNOWN_VERSION);
  CHECK(!file);
  OK(ebb_store_free(&store));
}

typedef struct worker {
  ebb_store* store;
  char name[16];
  int64_t unknown;
} worker;

static void* work(void* argument) {
  const worker* self = argument;
  ebb_store* history = NULL;
  OK(ebb_history(self->store, self->name, 1, &history));
  unsigned char field[kSmall], back[kSmall];
  for (int64_t version = 0; version < 50; ++version) {
    fill(field, kSmall, version + self->unknown);
    const ebb_source source = {0, field, kSmall};
    OK(ebb_checkpoint(history, version, &source, 1, NULL, NULL));
  }
  const ebb_target target = {0, back, kSmall};
  CHECK_STATUS(ebb_restore(history, self->unknown, &target, 1, NULL), EBB_UNKNOWN_VERSION);
  char message[256];
  snprintf(message, sizeof message, "%s", ebb_last_error());
  for (int64_t version = 50; version-- > 0;) {
    OK(ebb_restore(history, version, &target, 1, NULL));
    CHECK(holds(back, kSmall, version + self->unknown));
  }
  CHECK(strcmp(message, ebb_last_error()) == 0); /* the other thread's failure is not told here */
  char number[16];
  snprintf(number, sizeof number, "%lld", (long long)self->unknown);
  CHECK(strstr(message, number));
  OK(ebb_store_free(&history));
  return NULL;
}

static void test_threads(void) {
  worker workers[2] = {{open_store("64KiB", "64KiB", "16MiB"), "left", 7001}, {NULL, "right", 9002}};
  workers[1].store = workers[0].store;
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  for (int i = 0; i < 2; ++i) CHECK(pthread_join(threads[i], NULL) == 0);
  OK(ebb_store_free(&workers[0].store));
}

/* Steps that write a little; each snapshot is the memory as it was. */
static void test_snapshots(void) {
  enum { kField = 1 << 20, kSteps = 6 };
  ebb_store* store = open_store("4MiB", "16MiB", "64MiB");
  unsigned char *field = malloc(kField), *read = malloc(kField);
  CHECK(field && read);
  memset(field, 0, kField);
  const char* const tracks[] = {NULL, "digest", "declared"};
  for (int t = 0; t < 3; ++t) {
    const ebb_protect_options options = {4096, tracks[t], 1, 1};
    OK(ebb_protect(store, 7, field, kField, &options));
    for (int step = 0; step < kSteps; ++step) {
      const size_t at = (size_t)step * 100000;
      memset(field + at, step + 1, 5000);
      OK(ebb_touch(store, 7, at, 5000));
      ebb_snapshot_options described = EBB_SNAPSHOT_OPTIONS_INIT;
      described.metadata = "abc";
      described.metadata_bytes = 3;
      described.dedup = t == 1;
      ebb_future* future = NULL;
      OK(ebb_snapshot(store, 10 * t + step, &described, &future));
      OK(ebb_before_write(future, 7, EBB_NO_STREAM));
      OK(ebb_future_wait(future, "copied", 60));
      OK(ebb_future_free(&future));
    }
    OK(ebb_unprotect(store, 7));
    ebb_restore_options reading = EBB_RESTORE_OPTIONS_INIT;
    reading.keep = 1;
    const ebb_target target = {7, read, kField};
    const int64_t last = 10 * t + kSteps - 1;
    OK(ebb_restore(store, last, &target, 1, &reading));
    CHECK(memcmp(read, field, kField) == 0);
    uint64_t bytes = 0;
    int64_t needed[8];
    size_t count = 0;
    OK(ebb_leans_on(store, last, &bytes, needed, 8, &count));
    CHECK(bytes < kField / 4 && count > 0 && needed[0] == 10 * t);
    const int64_t have = last;
    reading.have = &have;
    OK(ebb_restore(store, last - 1, &target, 1, &reading));
    memset(field + (kSteps - 1) * 100000, t == 0 ? 0 : kSteps, 5000);
    CHECK(t > 0 || memcmp(read, field, kField) == 0);
  }
  double snapshots = 0;
  OK(ebb_stat(store, "snapshots.snapshots", &snapshots));
  CHECK(snapshots == 3 * kSteps);
  CHECK_STATUS(ebb_snapshot(store, 100, NULL, NULL), EBB_INVALID_ARGUMENT); /* nothing is protected */
  OK(ebb_close(store));
  OK(ebb_store_free(&store));
  free(field);
  free(read);
}

static void count(void* context) { atomic_fetch_add((atomic_int*)context, 1); } /* on any thread */

static ebb_status lend(ebb_store* store, int64_t version, unsigned char* memory, size_t bytes, atomic_int* released) {
  const ebb_source source = {0, memory, bytes};
  ebb_checkpoint_options writing = EBB_CHECKPOINT_OPTIONS_INIT;
  writing.released = count;
  writing.released_context = released;
  return ebb_checkpoint(store, version, &source, 1, &writing, NULL);
}

/* Memory that the program lends is let go of once, whatever becomes of the call. */
static void test_adopted(void) {
  static unsigned char memory[4][kBytes], large[3 * kBytes], out[3 * kBytes];
  atomic_int released[4] = {0, 0, 0, 0}, other = 0;
  ebb_store* store = NULL;
  ebb_options options;
  OK(ebb_options_init(&options));
  options.device = "cpu";
  options.device_cache = options.host_cache = 1 << 20;
  options.adopted = 2 * kBytes;
  options.disk = 0;
  OK(ebb_open(&options, &store));
  for (int version = 0; version < 2; ++version) {
    fill(memory[version], kBytes, version);
    OK(lend(store, version, memory[version], kBytes, &released[version]));
    ebb_loan* loan = NULL;
    const void* data = NULL;
    OK(ebb_borrow(store, version, NULL, &loan));
    OK(ebb_loan_data(loan, 0, &data, NULL));
    CHECK(data == memory[version]); /* it was not copied */
    OK(ebb_loan_release(loan, 1, NULL));
    OK(ebb_loan_free(&loan));
  }
  OK(ebb_wait(store, "host", 30)); /* nothing reads it any more */
  CHECK(released[0] == 0 && released[1] == 0);
  CHECK_STATUS(lend(store, 1, memory[2], kBytes, &other), EBB_VERSION_EXISTS);
  CHECK(other == 1);
  CHECK_STATUS(lend(store, 9, NULL, kBytes, &other), EBB_INVALID_ARGUMENT);
  CHECK(other == 2);

  OK(ebb_drop(store, 0));
  CHECK(released[0] == 1);
  const ebb_target target = {0, out, kBytes}, all = {0, out, sizeof out};
  OK(ebb_restore(store, 1, &target, 1, NULL));
  CHECK(holds(out, kBytes, 1) && released[1] == 1);

  fill(large, sizeof large, 2); /* beyond `adopted`: it is copied */
  OK(lend(store, 2, large, sizeof large, &released[2]));
  CHECK(released[2] == 1);
  memset(large, 0, sizeof large);
  OK(ebb_restore(store, 2, &all, 1, NULL));
  CHECK(holds(out, sizeof out, 2));

  OK(lend(store, 3, memory[3], kBytes, &released[3]));
  CHECK(released[3] == 0);
  OK(ebb_close(store));
  OK(ebb_store_free(&store));
  CHECK(released[0] == 1 && released[1] == 1 && released[2] == 1 && released[3] == 1 && other == 2);
}

int main(void) {
  test_opening();
  test_arenas();
  test_round_trip();
  test_refusals();
  test_without_a_copy();
  test_adopted();
  test_waiting();
  test_files();
  test_snapshots();
  test_threads();
  puts("capi_calls: all as it should be");
  return 0;
}
