#pragma once
// A store with protected memory, and what its snapshots hold.
#include <sys/mman.h>

#include "os/files.hpp"
#include "snapshots/snapshotter.hpp"
#include "tests/store/support.hpp"

namespace ebb::snapshots::testing_support {

using namespace store::testing_support;

inline constexpr std::size_t kMiB = 1024 * kKiB, kPage = 4 * kKiB;

/// Whole pages, as a program has them.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : bytes_(bytes) {
    void* const made = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::byte*>(made);
  }
  Pages(const Pages&) = delete;
  ~Pages() { unmap(); }
  void unmap() {
    if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), bytes_);
  }
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  std::vector<std::byte> copy() const { return {data_, data_ + bytes_}; }

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
};

/// A snapshotter of this store, which its calls use from now on.
inline std::shared_ptr<Snapshotter> snapshots_of(Rig& rig, std::uint64_t zone, Snapshotter::Setup setup) {
  return Snapshotter::make_for(rig.engine().shared_from_this(), zone, std::move(setup)).value();
}

/// A region of a version, which stays.
inline std::vector<std::byte> stored(Store& store, Version version, std::uint32_t region) {
  const CheckpointInfo info = store.info(version).value();
  std::vector<std::vector<std::byte>> all;
  std::vector<Target> targets;
  std::size_t mine = info.regions.size();
  for (const RegionInfo& one : info.regions) {
    if (one.id == region) mine = all.size();
    all.emplace_back(one.bytes);
    targets.push_back({one.id, all.back().data(), one.bytes});
  }
  const auto restored = store.restore(version, targets, {.keep = true});
  if (!restored) {
    ADD_FAILURE() << "version " << version << ": " << restored.error().message;
    return {};
  }
  return mine < all.size() ? all[mine] : std::vector<std::byte>{};
}

/// Memory of the first cache in a program's hands, so that nothing else finds room there.
class Hog {
 public:
  Hog(Store& store, std::size_t bytes) : history_(store.history("hog")) {
    const Source region{0, nullptr, bytes};
    held_.emplace(history_.reserve(0, {&region, 1}).value());
  }
  void end() { held_->abandon(); }

 private:
  History history_;
  std::optional<Reservation> held_;
};

}  // namespace ebb::snapshots::testing_support
