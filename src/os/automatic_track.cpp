#include "os/automatic_track.hpp"

#include <algorithm>

namespace ebb::os {

Track automatic_track(std::span<const WatchAbility> abilities) {
  const auto usable = [&](WatchForm form, bool user_faults_only) {
    return std::ranges::any_of(abilities, [&](const WatchAbility& one) {
      return one.form == form && one.usable && (!one.user_faults_only || user_faults_only);
    });
  };
  // Where only user-mode faults are seen, a read() into protected memory would fail.
  if (usable(WatchForm::userfaultfd_sync, false)) return Track::faults;
  return usable(WatchForm::userfaultfd_async, true) ? Track::scan : Track::digest;
}

}  // namespace ebb::os
