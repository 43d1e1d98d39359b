#pragma once
// A store of two file tiers: a local directory, and a shared one below it.
#include "kept_rig.hpp"
#include "tests/doubles/troubled_directory.hpp"

namespace ebb::store::testing_support {

struct SharedSizes {
  std::uint64_t local = 4 * (1024 * kKiB), shared = 64 * (1024 * kKiB);
};

/// A KeptRig with a shared directory.
class SharedRig {
 public:
  explicit SharedRig(SharedSizes sizes = {})
      : rig_(Backend::threads, {.device = 256 * kKiB, .host = 256 * kKiB, .disk = sizes.local}) {
    planner::Machine& machine = rig_.setup().machine;
    const std::uint64_t chunk = machine.links.front().chunk;
    machine.tiers.push_back({"shared", planner::Medium::file, sizes.shared, 4096});
    planner::connect(machine, 4);
    for (auto& link : machine.links) link.chunk = chunk;
    rig_.setup().durability = Durability::shared;
    rig_.setup().shared = {shared_.path(), rig_.setup().direct_io};
    files_ = std::make_shared<doubles::TroubledDirectory>(rig_.files(), shared_.path());
    rig_.rig().seams().files = files_;
  }
  KeptRig& kept() { return rig_; }
  options::EngineSetup& setup() { return rig_.setup(); }
  planner::TierSpec& tier() { return setup().machine.tiers.back(); }
  doubles::TroubledDirectory& files() { return *files_; }
  const OwnDirectory& shared() const { return shared_; }
  Store& open() { return rig_.open(); }
  Result<std::shared_ptr<Engine>> try_open() { return Engine::open(rig_.rig().seams(), setup()); }
  void close() { rig_.close(); }
  void delete_local() { std::filesystem::remove_all(rig_.path()); }

 private:
  OwnDirectory shared_;
  KeptRig rig_;
  std::shared_ptr<doubles::TroubledDirectory> files_;
};

inline void send(History& history, Version version, std::size_t size = kSize) {
  const auto written = write(history, version, size, {.timeout = Seconds(60)});
  ASSERT_TRUE(written) << written.error().message;
  const auto sent = Result<Future>(written).value().wait("shared", Seconds(60));
  ASSERT_TRUE(sent) << sent.error().message;
  EXPECT_TRUE(Result<Future>(written).value().done("shared"));
}

}  // namespace ebb::store::testing_support
