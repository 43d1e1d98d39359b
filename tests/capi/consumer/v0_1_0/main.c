/* A program of 0.1.0 in C: every call with its type, every field, every code of <ebbtide/ebbtide.h>. */
#include <ebbtide/ebbtide.h>
#include <stdio.h>
#include <string.h>

static const char* (*const call_status_name)(ebb_status status) = ebb_status_name;
static const char* (*const call_last_error)(void) = ebb_last_error;
static const char* (*const call_version)(void) = ebb_version;
static ebb_status (*const call_options_init)(ebb_options* options) = ebb_options_init;
static ebb_status (*const call_open)(const ebb_options* options, ebb_store** store) = ebb_open;
static ebb_status (*const call_open_text)(const char* const* keys_and_values, ebb_store** store) = ebb_open_text;
static ebb_status (*const call_history)(ebb_store* store, const char* name, int reverse,
                                        ebb_store** history) = ebb_history;
static ebb_status (*const call_close)(ebb_store* store) = ebb_close;
static ebb_status (*const call_store_free)(ebb_store** store) = ebb_store_free;
static ebb_status (*const call_checkpoint)(ebb_store* store, int64_t version, const ebb_source* sources, size_t count,
                                           const ebb_checkpoint_options* options, ebb_future** future) = ebb_checkpoint;
static ebb_status (*const call_restore)(ebb_store* store, int64_t version, const ebb_target* targets, size_t count,
                                        const ebb_restore_options* options) = ebb_restore;
static ebb_status (*const call_restore_async)(ebb_store* store, int64_t version, const ebb_target* targets,
                                              size_t count, const ebb_restore_options* options,
                                              ebb_future** future) = ebb_restore_async;
static ebb_status (*const call_future_done)(const ebb_future* future, const char* level, int* done) = ebb_future_done;
static ebb_status (*const call_future_wait)(const ebb_future* future, const char* level,
                                            double timeout) = ebb_future_wait;
static ebb_status (*const call_future_error)(const ebb_future* future) = ebb_future_error;
static ebb_status (*const call_future_free)(ebb_future** future) = ebb_future_free;
static ebb_status (*const call_hint)(ebb_store* store, const int64_t* versions, size_t count, int replace) = ebb_hint;
static ebb_status (*const call_hint_front)(ebb_store* store, int64_t version) = ebb_hint_front;
static ebb_status (*const call_unhint)(ebb_store* store, const int64_t* versions, size_t count) = ebb_unhint;
static ebb_status (*const call_start_prefetch)(ebb_store* store) = ebb_start_prefetch;
static ebb_status (*const call_wait)(ebb_store* store, const char* level, double timeout) = ebb_wait;
static ebb_status (*const call_wait_version)(ebb_store* store, int64_t version, const char* level,
                                             double timeout) = ebb_wait_version;
static ebb_status (*const call_drop)(ebb_store* store, int64_t version) = ebb_drop;
static ebb_status (*const call_drop_all)(ebb_store* store) = ebb_drop_all;
static ebb_status (*const call_versions)(const ebb_store* store, int64_t* versions, size_t capacity,
                                         size_t* count) = ebb_versions;
static ebb_status (*const call_latest)(ebb_store* store, int64_t at_most, int64_t* version) = ebb_latest;
static ebb_status (*const call_info)(const ebb_store* store, int64_t version, ebb_region_info* regions, size_t capacity,
                                     size_t* count) = ebb_info;
static ebb_status (*const call_metadata)(const ebb_store* store, int64_t version, void* metadata, size_t capacity,
                                         size_t* bytes) = ebb_metadata;
static ebb_status (*const call_reserve)(ebb_store* store, int64_t version, const ebb_source* regions, size_t count,
                                        const ebb_checkpoint_options* options,
                                        ebb_reservation** reservation) = ebb_reserve;
static ebb_status (*const call_reservation_data)(const ebb_reservation* reservation, uint32_t id, void** data,
                                                 size_t* bytes) = ebb_reservation_data;
static ebb_status (*const call_reservation_commit)(ebb_reservation* reservation,
                                                   const ebb_hand_back_options* how) = ebb_reservation_commit;
static ebb_status (*const call_reservation_abandon)(ebb_reservation* reservation) = ebb_reservation_abandon;
static ebb_status (*const call_reservation_free)(ebb_reservation** reservation) = ebb_reservation_free;
static ebb_status (*const call_borrow)(ebb_store* store, int64_t version, const ebb_restore_options* options,
                                       ebb_loan** loan) = ebb_borrow;
static ebb_status (*const call_loan_data)(const ebb_loan* loan, uint32_t id, const void** data,
                                          size_t* bytes) = ebb_loan_data;
static ebb_status (*const call_loan_release)(ebb_loan* loan, int keep,
                                             const ebb_hand_back_options* how) = ebb_loan_release;
static ebb_status (*const call_loan_free)(ebb_loan** loan) = ebb_loan_free;
static ebb_status (*const call_stats_json)(const ebb_store* store, char** text) = ebb_stats_json;
static ebb_status (*const call_text_free)(char** text) = ebb_text_free;
static ebb_status (*const call_stat)(const ebb_store* store, const char* name, double* value) = ebb_stat;

_Static_assert(EBB_OK == 0, "EBB_OK");
_Static_assert(EBB_INVALID_ARGUMENT == 1, "EBB_INVALID_ARGUMENT");
_Static_assert(EBB_VERSION_EXISTS == 2, "EBB_VERSION_EXISTS");
_Static_assert(EBB_UNKNOWN_VERSION == 3, "EBB_UNKNOWN_VERSION");
_Static_assert(EBB_CONSUMED == 4, "EBB_CONSUMED");
_Static_assert(EBB_TOO_LARGE == 5, "EBB_TOO_LARGE");
_Static_assert(EBB_NO_SPACE == 6, "EBB_NO_SPACE");
_Static_assert(EBB_SIZE_MISMATCH == 7, "EBB_SIZE_MISMATCH");
_Static_assert(EBB_TIMED_OUT == 8, "EBB_TIMED_OUT");
_Static_assert(EBB_IO_ERROR == 9, "EBB_IO_ERROR");
_Static_assert(EBB_LOST == 10, "EBB_LOST");
_Static_assert(EBB_DROPPED == 11, "EBB_DROPPED");
_Static_assert(EBB_CLOSED == 12, "EBB_CLOSED");
_Static_assert(EBB_UNSUPPORTED == 13, "EBB_UNSUPPORTED");
_Static_assert(EBB_OUT_OF_MEMORY == 14, "EBB_OUT_OF_MEMORY");
_Static_assert(EBB_DAMAGED == 15, "EBB_DAMAGED");
_Static_assert(EBB_IN_USE == 16, "EBB_IN_USE");
_Static_assert(EBB_NOT_A_STORE == 17, "EBB_NOT_A_STORE");
_Static_assert(EBB_NOT_PERMITTED == 18, "EBB_NOT_PERMITTED");
_Static_assert(EBB_INTERNAL == 255, "EBB_INTERNAL");
_Static_assert(EBB_VERSION_MAJOR == 0 && EBB_VERSION_MINOR >= 1 && EBB_VERSION_PATCH >= 0, "the version");

static int never(void* context) { return context != NULL; }
static void no_log(const char* line, void* context) {
  (void)line;
  (void)context;
}

int main(void) {
  ebb_options options;
  if (call_options_init(&options) != EBB_OK) return 1;
  const ebb_options all = {.device = "cpu",
                           .directory = "/tmp",
                           .device_cache = 1 << 20,
                           .host_cache = 1 << 20,
                           .disk = 0,
                           .prefetch = "auto",
                           .eviction = "score",
                           .io = "auto",
                           .direct_io = -1,
                           .close_timeout = -1,
                           .event_log = NULL,
                           .device_arena = "direct",
                           .host_arena = "direct",
                           .durability = "ephemeral",
                           .readonly = 0,
                           .keep_last = EBB_UNSET,
                           .keep_every = EBB_UNSET,
                           .verify = "files",
                           .log = no_log,
                           .log_context = NULL};
  options = all;
  ebb_store *store = NULL, *history = NULL;
  if (call_open(&options, &store) != EBB_OK) return 2;
  if (call_history(store, "h", 0, &history) != EBB_OK) return 3;
  char field[4096], back[4096];
  memset(field, 7, sizeof field);
  const ebb_source source = {.id = 3, .data = field, .bytes = sizeof field};
  const ebb_target target = {.id = 3, .data = back, .bytes = sizeof back};
  ebb_checkpoint_options writing = EBB_CHECKPOINT_OPTIONS_INIT;
  writing = (ebb_checkpoint_options){.metadata = "m",
                                     .metadata_bytes = 1,
                                     .timeout = 1.0,
                                     .interrupted = never,
                                     .context = NULL,
                                     .stream = EBB_NO_STREAM};
  ebb_restore_options reading = EBB_RESTORE_OPTIONS_INIT;
  reading = (ebb_restore_options){
      .keep = 1, .timeout = EBB_FOREVER, .interrupted = never, .context = NULL, .stream = EBB_NO_STREAM};
  ebb_hand_back_options how = EBB_HAND_BACK_OPTIONS_INIT;
  how = (ebb_hand_back_options){.stream = EBB_NO_STREAM, .hold = 0, .check = 0};
  ebb_future* future = NULL;
  if (call_checkpoint(history, 0, &source, 1, &writing, &future) != EBB_OK) return 4;
  if (call_future_wait(future, NULL, EBB_FOREVER) != EBB_OK || call_future_free(&future) != EBB_OK) return 5;
  if (call_restore(history, 0, &target, 1, &reading) != EBB_OK || memcmp(field, back, sizeof field) != 0) return 6;
  ebb_loan* loan = NULL;
  const void* data = NULL;
  size_t bytes = 0;
  if (call_borrow(history, 0, &reading, &loan) != EBB_OK) return 7;
  if (call_loan_data(loan, 3, &data, &bytes) != EBB_OK || bytes != sizeof field) return 8;
  if (call_loan_release(loan, 1, &how) != EBB_OK || call_loan_free(&loan) != EBB_OK) return 9;
  ebb_region_info region = {.id = 0, .bytes = 0, .offset = 0};
  size_t count = 0;
  if (call_info(history, 0, &region, 1, &count) != EBB_OK || count != 1 || region.id != 3) return 10;
  if (call_store_free(&history) != EBB_OK || call_close(store) != EBB_OK) return 11;
  if (call_store_free(&store) != EBB_OK || strcmp(call_status_name(EBB_LOST), "lost") != 0) return 12;
  ebb_interrupt interrupt = never;
  ebb_stream stream = EBB_NO_STREAM;
  ebb_reservation* reservation = NULL;
  printf("%s\n", call_version());
  return call_last_error != NULL && call_open_text != NULL && call_restore_async != NULL && call_future_done != NULL &&
                 call_future_error != NULL && call_hint != NULL && call_hint_front != NULL && call_unhint != NULL &&
                 call_start_prefetch != NULL && call_wait != NULL && call_wait_version != NULL && call_drop != NULL &&
                 call_drop_all != NULL && call_versions != NULL && call_latest != NULL && call_metadata != NULL &&
                 call_reserve != NULL && call_reservation_data != NULL && call_reservation_commit != NULL &&
                 call_reservation_abandon != NULL && call_reservation_free != NULL && call_stats_json != NULL &&
                 call_text_free != NULL && call_stat != NULL && interrupt != NULL && stream != 0 && reservation == NULL
             ? 0
             : 13;
}
