// The contract of Storage: for the scratch file on each engine, for the double, for segment files, and for VELOC's.
#include "tests/storage/storage_contract.hpp"

#include "storage/scratch/scratch_file.hpp"
#include "storage/veloc/veloc_storage.hpp"
#include "tests/doubles/fake_storage.hpp"

namespace ebb::storage {
namespace {

using Kind = transfer::FileEngineOptions::Kind;
using Opening = std::function<Result<std::unique_ptr<Storage>>(os::Files&, Done)>;

class OpenerOf final : public ContractOpener {
 public:
  explicit OpenerOf(Opening opening) : opening_(std::move(opening)) {}
  Result<ContractSubject> open(os::Files& files, Done done, Persisted) override {
    auto opened = opening_(files, std::move(done));
    if (!opened) return opened.error();
    return ContractSubject{std::move(*opened)};
  }

 private:
  const Opening opening_;
};

ContractCase scratch(const char* name, Kind kind, bool direct) {
  const Opening opening = [=](os::Files& files, Done done) {
    ScratchOptions options{test::disk_directory(), kContractCapacity, direct, {}};
    options.engine.kind = kind;
    options.engine.request_bytes = 16384;
    return open_scratch_file(files, options, std::move(done));
  };
  return {name, [opening] { return std::make_unique<OpenerOf>(opening); }};
}

Result<std::unique_ptr<Storage>> open_double(os::Files&, Done done) {
  return std::unique_ptr<Storage>(std::make_unique<testing::FakeStorage>(
      testing::FakeStorage::Options{.seed = 5, .capacity = kContractCapacity}, std::move(done)));
}

class SegmentsOpener final : public ContractOpener {
 public:
  ~SegmentsOpener() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Result<ContractSubject> open(os::Files& files, Done done, Persisted persisted) override {
    PersistentOptions options;
    options.directory = directory_;
    options.capacity = kContractCapacity;
    options.block_bytes = 4096;
    options.sync_interval = std::chrono::milliseconds(1);
    auto opened = open_persistent_storage(files, clock_, options, std::move(done), std::move(persisted));
    if (!opened) return opened.error();
    return ContractSubject{std::move(*opened)};
  }

 private:
  os::SteadyClock clock_;
  const std::filesystem::path directory_ = test::disk_directory() / ("contract-" + std::to_string(::getpid()));
};

class VelocOpener final : public ContractOpener {
 public:
  ~VelocOpener() override {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Result<ContractSubject> open(os::Files& files, Done done, Persisted persisted) override {
    PersistentOptions options;
    options.directory = directory_;
    options.capacity = kContractCapacity;
    options.block_bytes = 4096;
    auto opened = open_veloc_storage(files, options, {3}, std::move(done), std::move(persisted));
    if (!opened) return opened.error();
    return ContractSubject{std::move(*opened)};
  }

 private:
  const std::filesystem::path directory_ = test::disk_directory() / ("veloc-" + std::to_string(::getpid()));
};

const ContractCase kVeloc{"veloc", [] { return std::make_unique<VelocOpener>(); }};
const ContractCase kSegments{"segments", [] { return std::make_unique<SegmentsOpener>(); }};

INSTANTIATE_TEST_SUITE_P(
    All, StorageContract,
    ::testing::Values(scratch("threads_direct", Kind::threads, true), scratch("threads_buffered", Kind::threads, false),
                      scratch("io_uring_direct", Kind::uring, true), scratch("io_uring_buffered", Kind::uring, false),
                      ContractCase{"double", [] { return std::make_unique<OpenerOf>(open_double); }}, kSegments,
                      kVeloc),
    name_of);
INSTANTIATE_TEST_SUITE_P(All, PersistentContract, ::testing::Values(kSegments, kVeloc), name_of);

}  // namespace
}  // namespace ebb::storage
