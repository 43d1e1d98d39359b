#ifndef EBBTIDE_TESTS_SCRIPTED_H
#define EBBTIDE_TESTS_SCRIPTED_H
/* A store of scripted_store.cpp: what its calls answer is told by its script's number (0: they succeed). */
#include "tests/capi/check.h"

static ebb_store* open_scripted(int64_t number) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)number);
  const char* const options[] = {"device_cache", text, NULL};
  ebb_store* store = NULL;
  OK(ebb_open_text(options, &store));
  CHECK(store);
  return store;
}

#endif
