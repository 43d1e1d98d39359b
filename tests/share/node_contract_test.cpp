// The contracts of Storage and PersistentStorage, for a store in a pool: with memory of the pool, and through the
// stage.
#include <cstring>
#include <mutex>

#include "share/member/pool_memory.hpp"
#include "tests/share/rank.hpp"
#include "tests/storage/storage_contract.hpp"

namespace ebb::storage {
namespace {

using share::test::kMiB;
constexpr std::uint64_t kPool = 16 * kMiB;

class PooledOpener final : public ContractOpener {
 public:
  PooledOpener(bool in_pool, bool synced) : in_pool_(in_pool), synced_(synced) {}
  Result<ContractSubject> open(os::Files& files, Done done, Persisted persisted) override {
    share::NodeStorageOptions options;
    options.pool = {"job-contract", 3, 1, kPool, kMiB, false};
    options.store.directory = place_.directory();
    options.store.capacity = kContractCapacity;
    options.store.block_bytes = 4096;
    options.store.synced = synced_;
    auto opened = share::open_node_storage(
        place_.seams(), files, clock_, options, std::move(done), std::move(persisted), [](ObjectId, bool) {},
        [this](ObjectId object, const Error&) { storage_->withdraw(object); });
    if (!opened) return opened.error();
    storage_ = opened->get();
    ContractSubject subject;
    if (in_pool_) {
      const std::uint64_t cache = kPool - static_cast<share::PoolMemory&>((*opened)->memory()).first_bytes();
      EXPECT_TRUE((*opened)->memory().claim(cache));
      subject.place = copier((*opened)->memory().cache_memory(), cache);
    }
    subject.storage = std::move(*opened);
    return subject;
  }

 private:
  share::NodeStorage* storage_ = nullptr;
  // Copies to the pool's memory, over what was put long ago.
  static std::function<const std::byte*(const std::byte*, std::size_t)> copier(std::shared_ptr<std::byte> memory,
                                                                               std::uint64_t bytes) {
    struct Next {
      std::mutex mutex;
      std::uint64_t at = 0;
    };
    return [memory = std::move(memory), bytes, next = std::make_shared<Next>()](const std::byte* from, std::size_t n) {
      const std::lock_guard lock(next->mutex);
      if (next->at + n > bytes) next->at = 0;
      std::byte* const to = memory.get() + next->at;
      next->at += os::round_up(n);
      std::memcpy(to, from, n);
      return static_cast<const std::byte*>(to);
    };
  }

  const share::test::Place place_;
  const bool in_pool_, synced_;
  os::SteadyClock clock_;
};

// Its use() is that of all processes of the node, as it last looked.
ContractCase pooled(const char* name, bool in_pool, bool synced) {
  return {name, [=] { return std::make_unique<PooledOpener>(in_pool, synced); }, false};
}

const auto kPooled = ::testing::Values(pooled("in_the_pool", true, true), pooled("through_the_stage", false, true),
                                       pooled("in_the_pool_unsynced", true, false));
INSTANTIATE_TEST_SUITE_P(Pooled, StorageContract, kPooled, name_of);
INSTANTIATE_TEST_SUITE_P(Pooled, PersistentContract, kPooled, name_of);

}  // namespace
}  // namespace ebb::storage
