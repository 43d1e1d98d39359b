#pragma once
// Device memory that restores of snapshots use, kept from one to the next.
#include <memory>
#include <mutex>
#include <vector>

#include "device/device_buffer.hpp"

namespace ebb::store {

/// Memory to check and place the zones of one piece on the device: a checksum and a place for each.
struct ZoneScratch {
  device::DeviceBuffer device, host;
  std::size_t zones = 0;
};

/// Keeps what restores used for the next ones, since freeing memory of a GPU waits for all of its work.
///
/// Thread safety: every method may be called from any thread.
class ZoneScratches {
 public:
  Result<std::unique_ptr<ZoneScratch>> take(const std::shared_ptr<device::Device>& device, std::size_t zones);
  void put_back(std::unique_ptr<ZoneScratch> scratch);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<ZoneScratch>> free_;
};

}  // namespace ebb::store
