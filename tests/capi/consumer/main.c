#include <ebbtide/ebbtide.h>
#include <stdio.h>

int main(void) {
  ebb_store* store = NULL;
  if (ebb_open_text((const char* const[]){"eviction", "best", NULL}, &store) != EBB_INVALID_ARGUMENT) return 1;
  printf("%s: %s\n", ebb_version(), ebb_last_error());
  return store != NULL;
}
