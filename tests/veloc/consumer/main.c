#include <veloc.h>

int main(void) { return VELOC_Init_single(0, "none.cfg") == VELOC_FAILURE ? 0 : 1; }
