// Opening, closing, hints and versions.
#include "capi/convert.hpp"

using namespace ebb::capi;

namespace {

constexpr const char* kNoLevel = "the level is NULL; it may be a tier (\"local\") or a durability (\"storage\")";

void set(ebb::Options& options, const char* key, const char* text) { ebb::set_option(options, key, text).value(); }

ebb_status open_with(const ebb::Options& options, ebb_store** store) {
  auto opened = ebb::Store::open(options);
  if (!opened) return fail(opened.error());
  *store = new ebb_store(std::move(*opened));
  return EBB_OK;
}

// Most calls: a valid handle, one call of the history, its status.
template <class Body>
ebb_status with_history(ebb_store* store, Body&& body) noexcept {
  return guarded([&]() -> ebb_status {
    if (!valid(store)) return refuse(kNoStore);
    return status_of(body(store->history));
  });
}

}  // namespace

ebb::Options ebb::capi::options_of(const ebb_options* given) {
  ebb::Options options;
  if (!given) return options;
  check_seconds(given->close_timeout);
  if (given->device) set(options, "device", given->device);
  if (given->directory) options.directory = given->directory;
  if (given->device_cache != EBB_UNSET) options.device_cache = given->device_cache;
  if (given->host_cache != EBB_UNSET) options.host_cache = given->host_cache;
  if (given->disk != EBB_UNSET) options.disk = given->disk;
  if (given->adopted != 0 && given->adopted != EBB_UNSET) options.adopted = given->adopted;
  if (given->memory != 0) options.memory = given->memory;
  if (given->prefetch) set(options, "prefetch", given->prefetch);
  if (given->eviction) set(options, "eviction", given->eviction);
  options.close_timeout = timeout_of(given->close_timeout);
  if (given->event_log) options.event_log = given->event_log;
  if (given->tuning) set(options, "tuning", given->tuning);
  if (given->warm > 0) options.warm = true;
  if (given->durability) set(options, "durability", given->durability);
  if (given->readonly >= 0) options.readonly = given->readonly != 0;
  if (given->keep_last != EBB_UNSET) options.keep_last = given->keep_last;
  if (given->keep_every != EBB_UNSET) options.keep_every = given->keep_every;
  if (given->agreed > 0) options.agreed = true;
  if (given->shared) options.shared = given->shared;
  if (given->keep_last_shared != EBB_UNSET) options.keep_last_shared = given->keep_last_shared;
  if (given->shared_every != EBB_UNSET) options.shared_every = given->shared_every;
  if (given->veloc_rank != EBB_UNSET) options.veloc_rank = given->veloc_rank;
  if (given->veloc_meta) options.veloc_meta = given->veloc_meta;
  if (given->veloc_chksum > 0) options.veloc_chksum = true;
  if (given->limit_shared) set(options, "limit_shared", given->limit_shared);
  if (given->node_pool != 0 && given->node_pool != EBB_UNSET) options.node_pool = given->node_pool;
  if (given->node_overflow) set(options, "node_overflow", given->node_overflow);
  if (given->lend != 0 && given->lend != EBB_UNSET) options.lend = given->lend;
  if (given->lend_share != 0) options.lend_share = given->lend_share;
  if (given->borrow) set(options, "borrow", given->borrow);
  if (given->verify) set(options, "verify", given->verify);
  if (given->log) {
    options.log = [log = given->log, context = given->log_context](std::string_view line) {
      log(std::string(line).c_str(), context);
    };
  }
  return options;
}

extern "C" {

ebb_status ebb_options_init(ebb_options* options) {
  if (!options) return refuse("options is NULL");
  *options = {};
  options->device_cache = options->host_cache = options->disk = EBB_UNSET;
  options->keep_last = options->keep_every = options->keep_last_shared = options->shared_every = EBB_UNSET;
  options->veloc_rank = EBB_UNSET;
  options->readonly = -1;
  options->close_timeout = -1.0;
  return EBB_OK;
}

ebb_status ebb_open(const ebb_options* given, ebb_store** store) {
  return guarded([&]() -> ebb_status {
    if (!store) return refuse("the pointer for the store is NULL");
    *store = nullptr;
    return open_with(options_of(given), store);
  });
}

ebb_status ebb_open_text(const char* const* keys_and_values, ebb_store** store) {
  return guarded([&]() -> ebb_status {
    if (!store) return refuse("the pointer for the store is NULL");
    *store = nullptr;
    ebb::Options options;
    for (const char* const* pair = keys_and_values; pair && *pair; pair += 2) {
      if (!pair[1]) throw std::invalid_argument(std::string("option '") + *pair + "' has no value");
      set(options, pair[0], pair[1]);
    }
    return open_with(options, store);
  });
}

ebb_status ebb_history(ebb_store* store, const char* name, int reverse, ebb_store** history) {
  return guarded([&]() -> ebb_status {
    if (!history) return refuse("the pointer for the history is NULL");
    *history = nullptr;
    if (!valid(store)) return refuse(kNoStore);
    if (!store->root) return refuse("a history has no histories: give the store that was opened");
    if (!name) return refuse("the history's name is NULL");
    *history = new ebb_store(store->root->history(name, reverse ? ebb::Order::reverse : ebb::Order::none));
    return EBB_OK;
  });
}

ebb_status ebb_lend(ebb_store* store, uint64_t bytes, double timeout) {
  return guarded([&]() -> ebb_status {
    if (!valid(store)) return refuse(kNoStore);
    if (!store->root) return refuse("a history lends nothing: give the store that was opened");
    check_seconds(timeout);
    constexpr ebb::Seconds kForever(std::numeric_limits<double>::infinity());
    return status_of(store->root->lend(bytes, timeout_of(timeout).value_or(kForever)));
  });
}

ebb_status ebb_close(ebb_store* store) {
  return guarded([&]() -> ebb_status {
    if (!valid(store)) return refuse(kNoStore);
    if (!store->root) return refuse("a history cannot be closed: give the store that was opened");
    return status_of(store->root->close());
  });
}

ebb_status ebb_store_free(ebb_store** store) { return free_handle(store, "not the handle of a store"); }

ebb_status ebb_hint(ebb_store* store, const int64_t* versions, size_t count, int replace) {
  return with_history(store, [&](ebb::History& history) {
    check_array(versions, count);
    return history.hint(std::span(versions, count), replace != 0);
  });
}

ebb_status ebb_hint_front(ebb_store* store, int64_t version) {
  return with_history(store, [&](ebb::History& history) { return history.hint_front(version); });
}

ebb_status ebb_unhint(ebb_store* store, const int64_t* versions, size_t count) {
  return with_history(store, [&](ebb::History& history) {
    check_array(versions, count);
    return versions ? history.unhint(std::span(versions, count)) : history.unhint();
  });
}

ebb_status ebb_start_prefetch(ebb_store* store) {
  return with_history(store, [&](ebb::History& history) { return history.start_prefetch(); });
}

ebb_status ebb_wait(ebb_store* store, const char* level, double timeout) {
  return with_history(store, [&](ebb::History& history) {
    check_seconds(timeout);
    require(level, kNoLevel);
    return history.wait(level, timeout_of(timeout));
  });
}

ebb_status ebb_wait_version(ebb_store* store, int64_t version, const char* level, double timeout) {
  return with_history(store, [&](ebb::History& history) {
    check_seconds(timeout);
    require(level, kNoLevel);
    return history.wait(version, level, timeout_of(timeout));
  });
}

ebb_status ebb_agree(ebb_store* store, int64_t version) {
  return with_history(store, [&](ebb::History& history) { return history.agree(version); });
}

ebb_status ebb_drop(ebb_store* store, int64_t version) {
  return with_history(store, [&](ebb::History& history) { return history.drop(version); });
}

ebb_status ebb_drop_all(ebb_store* store) {
  return with_history(store, [&](ebb::History& history) { return history.drop(); });
}

ebb_status ebb_versions(const ebb_store* store, int64_t* versions, size_t capacity, size_t* count) {
  return guarded([&]() -> ebb_status {
    if (count) *count = 0;
    if (!valid(store)) return refuse(kNoStore);
    const auto found = store->history.versions();
    if (!found) return fail(found.error());
    return copy_out(*found, versions, capacity, count, [](ebb::Version version) { return version; });
  });
}

ebb_status ebb_latest(ebb_store* store, int64_t at_most, int64_t* version) {
  return guarded([&]() -> ebb_status {
    if (version) *version = -1;
    if (!valid(store)) return refuse(kNoStore);
    if (!version) return refuse("the pointer for the version is NULL");
    const auto newest = store->history.latest(at_most < 0 ? std::nullopt : std::optional<ebb::Version>(at_most));
    if (!newest) return fail(newest.error());
    *version = (*newest).value_or(-1);
    return EBB_OK;
  });
}

ebb_status ebb_info(const ebb_store* store, int64_t version, ebb_region_info* regions, size_t capacity, size_t* count) {
  return guarded([&]() -> ebb_status {
    if (count) *count = 0;
    if (!valid(store)) return refuse(kNoStore);
    auto info = store->history.info(version);
    if (!info) return fail(info.error());
    return copy_out(info->regions, regions, capacity, count, [](const ebb::RegionInfo& region) {
      return ebb_region_info{region.id, region.bytes, region.offset};
    });
  });
}

ebb_status ebb_metadata(const ebb_store* store, int64_t version, void* metadata, size_t capacity, size_t* bytes) {
  return guarded([&]() -> ebb_status {
    if (bytes) *bytes = 0;
    if (!valid(store)) return refuse(kNoStore);
    auto info = store->history.info(version);
    if (!info) return fail(info.error());
    return copy_out(info->metadata, static_cast<char*>(metadata), capacity, bytes, [](char byte) { return byte; });
  });
}
}
