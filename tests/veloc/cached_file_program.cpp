// A program that ends with bytes that were not copied yet: SCRATCH FILE end|shutdown. Its file ends after main().
#include <cstring>
#include <fcntl.h>
#include <string>
#include <veloc/cache.hpp>

int main(int count, char** words) {
  if (count != 4) return 2;
  static veloc::cached_file_t file(words[1]);
  if (!file.open(words[2], O_RDWR | O_CREAT | O_TRUNC, 0644)) return 3;
  const std::string bytes(1 << 16, 'y');
  for (int i = 0; i < 64; ++i)
    if (!file.pwrite(bytes.data(), bytes.size(), i << 16)) return 4;
  if (std::strcmp(words[3], "shutdown") != 0) return 0;
  veloc::cached_file_t::shutdown();
  veloc::cached_file_t::shutdown();
  if (file.pwrite(bytes.data(), 1, 0)) return 5;  // too late
  file.close();
  return veloc::cached_file_t::flush() ? 0 : 6;
}
