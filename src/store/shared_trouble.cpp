#include "store/shared_trouble.hpp"

#include <utility>

namespace ebb::store {

void SharedTrouble::note_failure(const Locked& /*locked*/, const FileTier& tier, const Error& why) {
  note(tier, " fails, and is tried again; the store goes on without it: " + why.message);
}

void SharedTrouble::note_silence(const Locked& locked, std::span<const std::unique_ptr<FileTier>> tiers,
                                 const planner::Output& output) {
  silent_ = (silent_ & ~output.heard) | output.silent;
  for (const auto& tier : tiers)
    if ((output.silent >> tier->index() & 1) != 0)
      note(*tier, " has not answered for " + std::to_string(planner::kSilentAfter / 1'000'000'000) +
                      " s; the store goes on without it, and only calls that ask for it wait");
  port_.ended().notify_all();
  lifetime_.wake(locked);
}

void SharedTrouble::note(const FileTier& tier, const std::string& what) {
  if (std::exchange(noted_, true)) return;
  text_ = "the shared directory " + tier.directory().string() + what;
}

void SharedTrouble::log(Locked& locked) {
  const std::string text = std::exchange(text_, {});
  if (!setup_.log) return;
  locked.unlock();
  setup_.log.warning(text);
  locked.lock();
}

}  // namespace ebb::store
