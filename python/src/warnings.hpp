#pragma once
// What the store warns of while a call goes on becomes `ebbtide.DamagedWarning`, raised when the call has ended.
#include <string>
#include <string_view>
#include <vector>

namespace ebb::python {

/// Gathers the warnings that this thread's call writes to the log, from construction to destruction.
/// Thread safety: each thread has its own; those of one thread may lie inside each other, and the innermost gathers.
class Warnings {
 public:
  Warnings();
  ~Warnings();
  Warnings(const Warnings&) = delete;

  /// A warning of the log, on the thread that the call is on. Needs no GIL.
  static void note(std::string_view text);
  /// Python's `warnings.warn` for each, as of the Python function `level` calls above the extension (1: its caller).
  /// Where a filter turns one into an error it is thrown. Needs the GIL.
  void raise(int level = 1);

 private:
  std::vector<std::string> lines_;
  Warnings* outer_;
};

}  // namespace ebb::python
