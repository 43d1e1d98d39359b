/* veloc.h as C11 and as C++17; with the flags of regions and without. */
#include <veloc.h>

int veloc_header(void);
int veloc_header(void) {
#ifdef VELOC_NO_FLAGS
  int DEFAULT = 1, READ_ONLY = 2;
  return DEFAULT + READ_ONLY + VELOC_FAILURE;
#else
  return DEFAULT + READ_ONLY + VELOC_SUCCESS;
#endif
}
