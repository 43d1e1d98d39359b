#ifndef EBBTIDE_TESTS_VELOC_CHECK_H
#define EBBTIDE_TESTS_VELOC_CHECK_H
/* A check that fails is told with its line, and ends the program with 1. */
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                \
    }                                                                         \
  } while (0)
#define OK(call) CHECK((call) == VELOC_SUCCESS)
#define FAILS(call) CHECK((call) == VELOC_FAILURE)

#endif
