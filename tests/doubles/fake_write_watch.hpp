#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "os/write_watch.hpp"
#include "tests/doubles/call_faults.hpp"

namespace ebb::doubles {

enum class WatchCall : std::uint8_t { open, watch, arm, disarm, next, take_written };

/// Watches of writes that a test makes up. They look at addresses, never at memory. Calls fail on command, and forms
/// are forbidden with an errno (EPERM, ENOSYS). A watch lives no longer than its double.
///
/// Thread safety: every method may be called from any thread; the shared state's mutex guards all.
class FakeWriteWatches final : public os::WriteWatches {
 public:
  FakeWriteWatches();
  ~FakeWriteWatches() override;
  CallFaults<WatchCall>& faults();
  /// Opening this form fails with `error`; 0: it works again.
  void forbid(os::WatchForm form, int error);
  void allow_user_faults_only();

  std::vector<os::WatchAbility> abilities() override;
  Result<std::unique_ptr<os::WriteWatch>> open(os::WatchForm form) override;

  /// What becomes of a fault on its way to next().
  enum class Fault : std::uint8_t {
    told,
    late,     // tell_late() sends it, even if the page is disarmed by then
    doubled,  // told twice
    lost,     // never told: the writer sleeps until another's fault or a disarm() lets it go on
  };
  /// A write comes to this address. True: its thread goes on; false: it sleeps until the page is disarmed.
  bool write(std::byte* at, Fault fault = Fault::told);
  /// The same, on a thread that does sleep.
  void write_and_wait(std::byte* at, Fault fault = Fault::told);
  /// How many writers sleep at this address's page.
  std::size_t sleeping(std::byte* at) const;
  bool is_armed(std::byte* at) const;
  void tell_late();
  /// This memory is gone, armed or not, and next() tells so.
  void remove(os::PageRange range);
  void unmap(os::PageRange range);
  void remap(os::PageRange range);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ebb::doubles
