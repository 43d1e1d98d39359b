#include <utility>

#include "share/member/pooled_storage.hpp"
#include "share/node_storage.hpp"

namespace ebb::share {

Result<std::unique_ptr<NodeStorage>> open_node_storage(const NodeSeams& seams, os::Files& files, os::Clock& clock,
                                                       const NodeStorageOptions& options, storage::Done done,
                                                       storage::Persisted persisted, Listed listed, Delayed delayed,
                                                       storage::BytesRead bytes_read) {
  auto member = PoolMember::join(seams, files, clock, options);
  if (!member) return member.error();
  storage::PersistentOptions reading = options.store;
  reading.readonly = true;
  reading.prefix = RankRecords::prefix_of(options.pool.rank);
  auto reader = storage::open_persistent_storage(
      files, clock, reading, done, [](storage::ObjectId, const Result<void>&) {}, std::move(bytes_read));
  if (!reader) return reader.error();
  auto storage = std::make_unique<PooledStorage>(std::move(*member), std::move(*reader), options, std::move(done),
                                                 std::move(persisted), std::move(listed), std::move(delayed));
  if (auto started = storage->start(); !started) return started.error();
  return std::unique_ptr<NodeStorage>(std::move(storage));
}

}  // namespace ebb::share
