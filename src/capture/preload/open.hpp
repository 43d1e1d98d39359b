#pragma once
// What the hooks of streams call of the others.
#include <sys/types.h>

namespace ebb::capture {

int open_file(const char* path, int flags, unsigned mode);
int close_file(int fd);

}  // namespace ebb::capture
