#ifndef EBBTIDE_TESTS_CHECK_H
#define EBBTIDE_TESTS_CHECK_H
/* The smallest test harness: a failed check is told with its line and the last error, and ends the program with 1. */
#include <stdio.h>
#include <stdlib.h>

#include "ebbtide/ebbtide.h"

#define CHECK(condition)                                                                             \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, ebb_last_error()); \
      exit(1);                                                                                       \
    }                                                                                                \
  } while (0)

#define CHECK_STATUS(call, expected)                                                           \
  do {                                                                                         \
    const ebb_status status_ = (call);                                                         \
    if (status_ != (expected)) {                                                               \
      fprintf(stderr, "%s:%d: %s answered %s instead of %s (%s)\n", __FILE__, __LINE__, #call, \
              ebb_status_name(status_), ebb_status_name(expected), ebb_last_error());          \
      exit(1);                                                                                 \
    }                                                                                          \
  } while (0)

#define OK(call) CHECK_STATUS(call, EBB_OK)

#endif
