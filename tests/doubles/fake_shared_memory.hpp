#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "os/shared_memory.hpp"
#include "tests/doubles/call_faults.hpp"

namespace ebb::doubles {

enum class SharedCall : std::uint8_t { open, create, remove, list, size, read, allocate, map, punch, hold, held };

/// Files of shared memory without a directory (their memory is the system's, so that several mappings of a byte are one
/// byte), whose calls fail on command. Several objects that stand for several processes share one double.
///
/// Thread safety: every method may be called from any thread; mutex_ guards files_.
class FakeSharedMemory final : public os::SharedMemory {
 public:
  ~FakeSharedMemory() override;
  CallFaults<SharedCall>& faults() { return *faults_; }

  Result<std::unique_ptr<os::SharedFile>> open(const std::string& name) override;
  Result<std::unique_ptr<os::SharedFile>> create(const std::string& name) override;
  Result<void> remove(const std::string& name) override;
  Result<std::vector<std::string>> list() override;

 private:
  std::optional<Error> refused(SharedCall call, const std::string& name);
  struct Named {
    int fd = -1;  // of a memory file
    std::shared_ptr<void> name = std::make_shared<int>();
  };
  std::unique_ptr<os::SharedFile> opened(const Named& file, const std::string& name);
  std::shared_ptr<CallFaults<SharedCall>> faults_ = std::make_shared<CallFaults<SharedCall>>();
  std::mutex mutex_;
  std::map<std::string, Named> files_;
};

}  // namespace ebb::doubles
