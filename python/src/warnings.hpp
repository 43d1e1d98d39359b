#pragma once
// The store's warnings during a call become `ebbtide.DamagedWarning`, raised when the call has ended.
#include <string>
#include <string_view>
#include <vector>

namespace ebb::python {

/// Gathers the warnings that this thread's call writes to the log, from construction to destruction.
/// Thread safety: each thread has its own; those of one thread may be nested, and the innermost gathers.
class Warnings {
 public:
  Warnings();
  ~Warnings();
  Warnings(const Warnings&) = delete;

  /// A warning of the log, on the calling thread. Needs no GIL.
  static void note(std::string_view text);
  /// Calls Python's `warnings.warn` for each, at the Python function `level` calls above the extension (1: its caller).
  /// Throws where a filter turns a warning into an error. Needs the GIL.
  void raise(int level = 1);

 private:
  std::vector<std::string> lines_;
  Warnings* outer_;
};

}  // namespace ebb::python
