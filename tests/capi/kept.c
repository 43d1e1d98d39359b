/* A store that is kept, from C: written, closed, opened again, read beside its writer; damage is named and passed over.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/capi/check.h"

enum { kBytes = 64 * 1024, kName = 4096 };

static char directory[kName];

/* A new place on a disk: that of the stores of all tests. */
static void make_directory(void) {
  const char* base = getenv("EBBTIDE_DIR");
  if (!base) base = getenv("TMPDIR");
  CHECK(snprintf(directory, sizeof directory, "%s/capi-kept-XXXXXX", base ? base : "/tmp") < kName);
  CHECK(mkdtemp(directory));
}

static const char* path_of(const char* name) {
  static char path[kName + 64];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return path;
}

static void remove_directory(void) {
  char command[kName + 64];
  snprintf(command, sizeof command, "rm -r '%s'", directory);
  CHECK(system(command) == 0);
}

static ebb_options options_of(const char* name, const char* durability) {
  ebb_options options;
  OK(ebb_options_init(&options));
  options.device = "cpu";
  options.device_cache = options.host_cache = 256 << 10;
  options.disk = 32 << 20;
  options.directory = path_of(name);
  options.durability = durability;
  return options;
}

static ebb_store* open_kept(const char* name, const char* durability) {
  const ebb_options options = options_of(name, durability);
  ebb_store* store = NULL;
  OK(ebb_open(&options, &store));
  return store;
}

static void write_version(ebb_store* store, int64_t version) {
  static unsigned char field[kBytes];
  for (int i = 0; i < kBytes; ++i) field[i] = (unsigned char)(version * 31 + i * 7);
  const ebb_source source = {0, field, kBytes};
  OK(ebb_checkpoint(store, version, &source, 1, NULL, NULL));
}

static void check_version(ebb_store* store, int64_t version) {
  static unsigned char field[kBytes];
  memset(field, 0, sizeof field);
  const ebb_target target = {0, field, kBytes};
  OK(ebb_restore(store, version, &target, 1, NULL));
  for (int i = 0; i < kBytes; ++i) CHECK(field[i] == (unsigned char)(version * 31 + i * 7));
}

static int64_t latest(ebb_store* store, int64_t at_most) {
  int64_t version = 99;
  OK(ebb_latest(store, at_most, &version));
  return version;
}

static void test_restart(const char* level) {
  ebb_store *store = open_kept("restart", level), *history = NULL;
  CHECK(latest(store, EBB_FOREVER) == -1); /* nothing is there yet */
  for (int64_t version = 0; version < 10; ++version) write_version(store, version);
  ebb_future* future = NULL;
  OK(ebb_checkpoint(store, 10, NULL, 0, NULL, &future)); /* of no bytes */
  OK(ebb_future_wait(future, level, 60));
  int done = 0;
  OK(ebb_future_done(future, level, &done));
  CHECK(done);
  OK(ebb_future_free(&future));
  OK(ebb_wait(store, level, 60));
  OK(ebb_wait_version(store, 3, level, 60));
  OK(ebb_history(store, "adjoint", 0, &history));
  write_version(history, 1000);
  OK(ebb_store_free(&history));
  OK(ebb_close(store));
  OK(ebb_store_free(&store));

  store = open_kept("restart", level);
  CHECK(latest(store, -1) == 10);
  CHECK(latest(store, 7) == 7);
  check_version(store, 7);
  check_version(store, 7); /* nothing is consumed from a store that is kept */
  OK(ebb_drop(store, 7));
  CHECK(latest(store, 7) == 6);
  OK(ebb_history(store, "adjoint", 0, &history));
  CHECK(latest(history, -1) == 1000 && latest(history, 999) == -1);
  check_version(history, 1000);
  OK(ebb_store_free(&history));
  OK(ebb_store_free(&store));
  remove_directory();
  make_directory();
}

/* A signal suspends a store: what was written is there for the next process, which is told. */
static void test_suspension(void) {
  ebb_store* store = open_kept("suspended", "storage");
  int64_t since = 99;
  OK(ebb_suspended(store, &since));
  CHECK(since == -1);
  CHECK_STATUS(ebb_suspend_on(store, SIGKILL, NULL, 60), EBB_INVALID_ARGUMENT);
  CHECK_STATUS(ebb_suspend_on(store, SIGUSR1, "disk", 60), EBB_INVALID_ARGUMENT);
  OK(ebb_suspend_on(store, SIGUSR1, NULL, 60));
  OK(ebb_check_suspended(store));
  write_version(store, 1);
  CHECK(raise(SIGUSR1) == 0);
  CHECK_STATUS(ebb_checkpoint(store, 2, NULL, 0, NULL, NULL), EBB_SUSPENDED);
  CHECK_STATUS(ebb_check_suspended(store), EBB_SUSPENDED);
  CHECK(strstr(ebb_last_error(), "SIGUSR1"));
  OK(ebb_store_free(&store));

  store = open_kept("suspended", "storage");
  OK(ebb_suspended(store, &since));
  CHECK(since > 0);
  CHECK(latest(store, -1) == 1);
  check_version(store, 1);
  OK(ebb_clear_suspended(store));
  OK(ebb_suspended(store, &since));
  CHECK(since == -1);
  OK(ebb_store_free(&store));
}

static void test_retention(void) {
  ebb_options options = options_of("retention", "storage");
  options.keep_last = 2;
  options.keep_every = 5;
  ebb_store* store = NULL;
  OK(ebb_open(&options, &store));
  for (int64_t version = 1; version <= 12; ++version) {
    write_version(store, version);
    OK(ebb_wait(store, "storage", 60));
  }
  int64_t versions[16];
  size_t count = 0;
  OK(ebb_versions(store, versions, 16, &count));
  CHECK(count == 4 && versions[0] == 5 && versions[1] == 10 && versions[2] == 11 && versions[3] == 12);
  OK(ebb_store_free(&store));
  store = open_kept("retention", "storage");
  OK(ebb_versions(store, versions, 16, &count));
  CHECK(count == 4 && versions[0] == 5 && versions[3] == 12);
  OK(ebb_store_free(&store));
}

static void test_refusals(void) {
  const char* const ephemeral[] = {"device", "cpu", "device_cache", "64KiB", "host_cache", "0", "disk", "0", NULL};
  ebb_store *store = NULL, *other = NULL;
  OK(ebb_open_text(ephemeral, &store));
  int64_t version = 99;
  CHECK_STATUS(ebb_latest(store, -1, &version), EBB_UNSUPPORTED);
  CHECK(version == -1 && strstr(ebb_last_error(), "ephemeral"));
  CHECK_STATUS(ebb_wait(store, "storage", 1), EBB_UNSUPPORTED);
  OK(ebb_store_free(&store));
  const char* const keeping[] = {"device", "cpu", "device_cache", "64KiB", "host_cache", "0", "keep_last", "2", NULL};
  CHECK_STATUS(ebb_open_text(keeping, &store), EBB_UNSUPPORTED);
  CHECK(strstr(ebb_last_error(), "keep_last") && strstr(ebb_last_error(), "durability"));

  store = open_kept("refusals", "process");
  CHECK_STATUS(ebb_wait(store, "storage", 1), EBB_UNSUPPORTED); /* more than it was opened for */
  ebb_options options = options_of("refusals", "process");
  CHECK_STATUS(ebb_open(&options, &other), EBB_IN_USE);
  CHECK(strstr(ebb_last_error(), "refusals"));

  options.durability = NULL;
  options.readonly = 1; /* beside the writer */
  write_version(store, 4);
  OK(ebb_wait(store, "process", 60));
  OK(ebb_open(&options, &other));
  CHECK(latest(other, -1) == 4);
  check_version(other, 4);
  const ebb_source source = {0, "x", 1};
  CHECK_STATUS(ebb_checkpoint(other, 5, &source, 1, NULL, NULL), EBB_UNSUPPORTED);
  CHECK(strstr(ebb_last_error(), "readonly"));
  CHECK_STATUS(ebb_drop(other, 4), EBB_UNSUPPORTED);
  OK(ebb_store_free(&other));
  OK(ebb_store_free(&store));

  options = options_of("refusals", NULL); /* ephemerally, where something is kept */
  CHECK_STATUS(ebb_open(&options, &store), EBB_INVALID_ARGUMENT);
  CHECK(strstr(ebb_last_error(), "durability"));
  options.durability = "ephemeral";
  CHECK_STATUS(ebb_open(&options, &store), EBB_INVALID_ARGUMENT);

  CHECK(mkdir(path_of("others"), 0700) == 0);
  const int file = open(path_of("others/thesis.tex"), O_CREAT | O_WRONLY, 0600);
  CHECK(file >= 0 && close(file) == 0);
  options = options_of("others", "storage");
  CHECK_STATUS(ebb_open(&options, &store), EBB_NOT_A_STORE);
  CHECK(!store);
}

typedef struct told {
  int warnings;
  char last[1024];
} told;

static void tell(const char* line, void* context) {
  told* to = context;
  if (strncmp(line, "warning: ", 9) != 0) return;
  ++to->warnings;
  snprintf(to->last, sizeof to->last, "%s", line);
}

static void test_damage(void) {
  ebb_store* store = open_kept("damage", "storage");
  write_version(store, 1);
  OK(ebb_wait(store, "storage", 60)); /* so that 2 lies behind it */
  write_version(store, 2);
  OK(ebb_close(store));
  OK(ebb_store_free(&store));

  const char* const segment = path_of("damage/segment-00000001.ebb");
  const int file = open(segment, O_RDWR);
  CHECK(file >= 0);
  const off_t at = lseek(file, 0, SEEK_END) - kBytes / 2; /* in the payload of 2 */
  unsigned char byte = 0;
  CHECK(pread(file, &byte, 1, at) == 1);
  byte ^= 0x10;
  CHECK(pwrite(file, &byte, 1, at) == 1 && close(file) == 0);

  told said = {0, ""};
  ebb_options options = options_of("damage", "storage");
  options.log = tell;
  options.log_context = &said;
  OK(ebb_open(&options, &store));
  CHECK(latest(store, -1) == 1);
  CHECK(said.warnings == 1 && strstr(said.last, "segment-00000001.ebb") && strstr(said.last, "offset"));
  static unsigned char field[kBytes];
  const ebb_target target = {0, field, kBytes};
  CHECK_STATUS(ebb_restore(store, 2, &target, 1, NULL), EBB_DAMAGED);
  CHECK(strstr(ebb_last_error(), "segment-00000001.ebb"));
  check_version(store, 1);
  OK(ebb_store_free(&store));
}

int main(void) {
  make_directory();
  test_restart("process");
  test_restart("storage");
  test_suspension();
  test_retention();
  test_refusals();
  test_damage();
  remove_directory();
  puts("capi_kept: all as it should be");
  return 0;
}
