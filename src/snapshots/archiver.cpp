#include "snapshots/archiver.hpp"

#include <algorithm>
#include <string>

#include "base/start_thread.hpp"
#include "snapshots/device_copies.hpp"

namespace ebb::snapshots {

void Archiver::start() {
  thread_ = base::thread([this] { run(); });
}

void Archiver::join() {
  if (thread_.joinable()) thread_.join();
}

Result<void> Archiver::not_stored(store::Engine& engine, std::optional<Version> version) {
  const std::lock_guard lock(mutex_);
  if (lost_.empty()) return {};
  if (const auto there = engine.view("").versions(); there)  // written since
    std::erase_if(lost_, [&](const auto& one) { return std::ranges::binary_search(*there, one.first); });
  const auto found = version ? lost_.find(*version) : lost_.begin();
  if (found == lost_.end()) return {};
  return Error{found->second.code,
               "the snapshot of version " + std::to_string(found->first) + " was not stored: " + found->second.message};
}

void Archiver::dropped(std::optional<Version> version) {
  const std::lock_guard lock(mutex_);
  version ? static_cast<void>(lost_.erase(*version)) : lost_.clear();
}

void Archiver::told(Cut& cut) {
  const std::lock_guard lock(mutex_);
  cut.told = true;
  lost_.erase(cut.version);
}

void Archiver::run() {
  while (const std::shared_ptr<Cut> cut = cuts_.next_to_archive()) {
    Result<Future> map = CutDriver::no_memory();
    try {
      const auto failure = driver_.failure_of(*cut);
      map = failure ? Result<Future>(*failure) : archive_.store_map(*cut, [this] { return cuts_.ids(); });
      if (!map) {
        DeviceCopies::abandon(*cut, map.error());
        archive_.leave(*cut);
        const std::lock_guard lock(mutex_);
        if (!cut->told) lost_.insert_or_assign(cut->version, map.error());
      }
    } catch (const std::bad_alloc&) {
      map = CutDriver::no_memory();
      DeviceCopies::abandon(*cut, map.error());
      archive_.leave(*cut);
    }
    driver_.archived(cut, std::move(map));
    try {
      archive_.tidy(cuts_.ids());
    } catch (const std::bad_alloc&) {  // the next one tries again
    }
  }
}

}  // namespace ebb::snapshots
