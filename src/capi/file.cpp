// Files of a store.
#include "capi/convert.hpp"

using namespace ebb::capi;

namespace {

constexpr const char* kNoFile = "the file is NULL or another kind of handle";

// The calls on a store's files: `body(store, name)`.
template <class Body>
ebb_status with_name(ebb_store* store, const char* name, Body&& body) noexcept {
  return guarded([&]() -> ebb_status {
    if (!valid(store)) return refuse(kNoStore);
    if (!store->root) return refuse("a history has no files: give the store that was opened");
    if (!name) return refuse("the file's name is NULL");
    return body(*store->root, std::string(name));
  });
}

// Those that open one.
template <class Open>
ebb_status open_file(ebb_store* store, const char* name, ebb_file** file, Open&& open) noexcept {
  if (!file) return refuse("the pointer for the file is NULL");
  *file = nullptr;
  return with_name(store, name, [&](ebb::Store& root, std::string named) -> ebb_status {
    auto handle = std::make_unique<ebb_file>();
    auto opened = open(root, std::move(named));
    if (!opened) return fail(opened.error());
    handle->file = std::move(*opened);
    *file = handle.release();
    return EBB_OK;
  });
}

template <class Body>
ebb_status with_file(const ebb_file* file, Body&& body) noexcept {
  return guarded([&]() -> ebb_status {
    if (!valid(file)) return refuse(kNoFile);
    return body();
  });
}

ebb_status tell(const ebb_file* file, std::uint64_t* number, std::uint64_t (ebb::File::*of)() const) {
  if (number) *number = 0;
  return with_file(file, [&] {
    if (!number) return refuse("the pointer for the number is NULL");
    *number = ((*file->file).*of)();
    return EBB_OK;
  });
}

}  // namespace

extern "C" {

ebb_status ebb_create_file(ebb_store* store, const char* name, int64_t version, ebb_file** file) {
  return open_file(store, name, file,
                   [&](ebb::Store& root, std::string named) { return root.create_file(std::move(named), version); });
}

ebb_status ebb_open_file(ebb_store* store, const char* name, int64_t version, ebb_file** file) {
  return open_file(store, name, file, [&](ebb::Store& root, std::string named) {
    return root.open_file(std::move(named), version == -1 ? std::nullopt : std::optional(version));
  });
}

ebb_status ebb_file_read(ebb_file* file, void* to, size_t bytes, size_t* count) {
  if (count) *count = 0;
  return with_file(file, [&]() -> ebb_status {
    check_array(to, bytes);
    if (!count) return refuse("the pointer for the count is NULL");
    auto read = file->file->read({static_cast<std::byte*>(to), bytes});
    if (!read) return fail(read.error());
    *count = *read;
    return EBB_OK;
  });
}

ebb_status ebb_file_write(ebb_file* file, const void* from, size_t bytes) {
  return with_file(file, [&] {
    check_array(from, bytes);
    return status_of(file->file->write({static_cast<const std::byte*>(from), bytes}));
  });
}

ebb_status ebb_file_seek(ebb_file* file, uint64_t position) {
  return with_file(file, [&] { return status_of(file->file->seek(position)); });
}

ebb_status ebb_file_tell(const ebb_file* file, uint64_t* position) { return tell(file, position, &ebb::File::tell); }

ebb_status ebb_file_size(const ebb_file* file, uint64_t* bytes) { return tell(file, bytes, &ebb::File::size); }

ebb_status ebb_file_truncate(ebb_file* file, uint64_t bytes) {
  return with_file(file, [&] { return status_of(file->file->truncate(bytes)); });
}

ebb_status ebb_file_close(ebb_file* file) {
  return with_file(file, [&] { return status_of(file->file->close()); });
}

ebb_status ebb_file_wait(ebb_file* file, const char* level, double timeout) {
  return with_file(file, [&] {
    require(level, "the level is NULL");
    check_seconds(timeout);
    return status_of(file->file->wait(level, timeout_of(timeout)));
  });
}

ebb_status ebb_file_free(ebb_file** file) { return free_handle(file, kNoFile); }

ebb_status ebb_file_versions(ebb_store* store, const char* name, int64_t* versions, size_t capacity, size_t* count) {
  return with_name(store, name, [&](ebb::Store& root, std::string named) {
    if (count) *count = 0;
    auto found = root.files(std::move(named));
    if (!found) return fail(found.error());
    return copy_out(*found, versions, capacity, count, [](const ebb::FileInfo& each) { return each.version; });
  });
}

ebb_status ebb_drop_file(ebb_store* store, const char* name, int64_t version) {
  return with_name(store, name, [&](ebb::Store& root, std::string named) {
    return status_of(root.drop_file(std::move(named), version));
  });
}
}
