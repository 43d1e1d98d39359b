// ebbtide-capture: what `ebbtide run --capture` becomes.
//   ebbtide-capture DIR POOL defer|keep LIBRARY SELF PROGRAM ARGUMENT...
//   ebbtide-capture --writer NAME
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <unistd.h>

#include "capture/run.hpp"

namespace {

constexpr int kRefused = 2, kNotWhole = 1;

int fail(std::string_view text, int status) {
  std::fprintf(stderr, "ebbtide: %.*s\n", static_cast<int>(text.size()), text.data());
  return status;
}

}  // namespace

int main(int count, char** words) {
  if (count == 3 && words[1] == std::string_view("--writer")) return ebb::capture::serve_captured(words[2]);
  if (count < 7) return fail("ebbtide-capture is started by `ebbtide run`", kRefused);
  ebb::capture::RunOptions options;
  options.directory = words[1];
  const std::string_view pool = words[2], sync = words[3];
  const auto [end, bad] = std::from_chars(pool.data(), pool.data() + pool.size(), options.pool);
  if (bad != std::errc{} || end != pool.data() + pool.size() || (sync != "defer" && sync != "keep")) {
    return fail("ebbtide-capture is started by `ebbtide run`", kRefused);
  }
  options.defer = sync == "defer";
  options.library = words[4];
  options.self = words[5];
  options.program.assign(words + 6, words + count);
  auto done = ebb::capture::run_captured(options);
  if (!done) return fail(done.error().message, kRefused);
  for (const std::string& note : done->notes) fail(note, 0);
  for (const std::string& failure : done->failures) fail(failure, 0);
  fail("run: " + done->closing, 0);
  return done->failures.empty() || done->status ? done->status : kNotWhole;
}
