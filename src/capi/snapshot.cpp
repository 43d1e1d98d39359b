// Snapshots of protected memory. They are of the store's own history.
#include "capi/convert.hpp"

using namespace ebb::capi;

namespace {

template <class Body>
ebb_status with_store(ebb_store* store, Body&& body) noexcept {
  return guarded([&]() -> ebb_status {
    if (!valid(store)) return refuse(kNoStore);
    if (!store->root) return fail(EBB_UNSUPPORTED, "snapshots are the store's: give the handle that was opened");
    return body(*store->root);
  });
}

}  // namespace

extern "C" {

ebb_status ebb_protect(ebb_store* store, uint32_t region, void* memory, size_t bytes,
                       const ebb_protect_options* options) {
  return with_store(store, [&](ebb::Store& root) {
    require(memory || bytes == 0, "the memory is NULL although it has bytes");
    return status_of(root.protect(region, memory, bytes, options_of(options)));
  });
}

ebb_status ebb_unprotect(ebb_store* store, uint32_t region) {
  return with_store(store, [&](ebb::Store& root) { return status_of(root.unprotect(region)); });
}

ebb_status ebb_touch(ebb_store* store, uint32_t region, uint64_t offset, uint64_t bytes) {
  return with_store(store, [&](ebb::Store& root) { return status_of(root.touch(region, offset, bytes)); });
}

ebb_status ebb_snapshot(ebb_store* store, int64_t version, const ebb_snapshot_options* options, ebb_future** future) {
  return with_store(store, [&](ebb::Store& root) -> ebb_status {
    if (future) *future = nullptr;
    auto handle = std::make_unique<ebb_future>();
    auto taken = root.snapshot(version, options_of(options));
    if (!taken) return fail(taken.error());
    handle->future = std::move(*taken);
    if (future) *future = handle.release();
    return EBB_OK;
  });
}

ebb_status ebb_before_write(ebb_future* snapshot, uint32_t region, ebb_stream stream) {
  return guarded([&]() -> ebb_status {
    if (!valid(snapshot)) return refuse(kNoFuture);
    const auto* const taken = std::get_if<ebb::Snapshot>(&snapshot->future);
    if (!taken) return refuse("the future is no snapshot's");
    return status_of(taken->before_write(region, stream_of(stream)));
  });
}

ebb_status ebb_leans_on(const ebb_store* store, int64_t version, uint64_t* bytes, int64_t* versions, size_t capacity,
                        size_t* count) {
  return guarded([&]() -> ebb_status {
    if (count) *count = 0;
    if (bytes) *bytes = 0;
    if (!valid(store)) return refuse(kNoStore);
    const auto info = store->history.info(version);
    if (!info) return fail(info.error());
    if (bytes) *bytes = info->bytes;
    return copy_out(info->leans_on, versions, capacity, count, [](ebb::Version needed) { return needed; });
  });
}
}
