// Stores that a signal suspends.
#include "capi/convert.hpp"

using namespace ebb::capi;

namespace {

template <class Body>
ebb_status with_root(ebb_store* store, Body&& body) noexcept {
  return guarded([&]() -> ebb_status {
    if (!valid(store)) return refuse(kNoStore);
    if (!store->root) return refuse("a history is not suspended alone: give the store that was opened");
    return status_of(body(*store->root));
  });
}

}  // namespace

extern "C" {

ebb_status ebb_suspend_on(ebb_store* store, int signal, const char* level, double within) {
  return with_root(store, [&](ebb::Store& root) {
    check_seconds(within);
    ebb::SuspendOptions options{.within = timeout_of(within)};
    if (level) options.level.emplace(level);
    return root.suspend_on(signal, options);
  });
}

ebb_status ebb_check_suspended(ebb_store* store) {
  return with_root(store, [](ebb::Store& root) { return root.check_suspended(); });
}

ebb_status ebb_suspended(const ebb_store* store, int64_t* since) {
  return guarded([&]() -> ebb_status {
    if (since) *since = -1;
    if (!valid(store)) return refuse(kNoStore);
    if (!store->root) return refuse("a history is not suspended alone: give the store that was opened");
    if (!since) return refuse("the pointer for the time is NULL");
    const auto mark = store->root->suspended();
    if (!mark) return fail(mark.error());
    *since = (*mark).value_or(-1);
    return EBB_OK;
  });
}

ebb_status ebb_clear_suspended(ebb_store* store) {
  return with_root(store, [](ebb::Store& root) { return root.clear_suspended(); });
}
}
