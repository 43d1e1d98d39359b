// A program of 0.1.0 in as many files as it had headers: each compiles with that header alone, unchanged.
#include <cstdio>

bool use_config();
bool use_error();
bool use_stats();
bool use_store();

int main() {
  const bool right[] = {use_config(), use_error(), use_stats(), use_store()};
  for (const bool one : right) std::printf("%d ", one);
  return right[0] && right[1] && right[2] && right[3] ? 0 : 1;
}
