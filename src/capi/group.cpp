// Groups of processes that checkpoint together.
#include "ebbtide/group.hpp"

#include "capi/convert.hpp"

using namespace ebb::capi;

// A group is its own history; a view has `history` alone.
struct ebb_group : ebb::capi::Handle {
  static constexpr auto kKind = ebb::capi::Kind::group;
  explicit ebb_group(ebb::Group opened)
      : Handle(kKind), root(std::move(opened)), history(*root), mine(&root->store()) {}
  explicit ebb_group(ebb::GroupHistory view) : Handle(kKind), history(std::move(view)), mine(history.mine()) {}
  std::optional<ebb::Group> root;
  ebb::GroupHistory history;
  ebb_store mine;
};

namespace {

constexpr const char* kNoGroup =
    "the first argument is NULL or not the handle of an open group, or of a history of one";

class CCollective final : public ebb::Collective {
 public:
  explicit CCollective(const ebb_collective& given) : given_(given) {}
  CCollective(const CCollective&) = delete;
  ~CCollective() override {
    if (given_.free) given_.free(given_.context);
  }
  int rank() const override { return given_.rank; }
  int count() const override { return given_.count; }
  ebb::Result<void> begin_least(std::span<std::int64_t> values) override {
    return told(given_.begin_least(given_.context, values.data(), values.size()));
  }
  ebb::Result<bool> test(bool wait) override {
    int done = 0;
    if (auto failed = told(given_.test(given_.context, wait, &done)); !failed) return failed.error();
    return done != 0;
  }

 private:
  ebb::Result<void> told(int error) const {
    if (error == 0) return {};
    return ebb::Error{ebb::Errc::io_error, "rank " + std::to_string(given_.rank) +
                                               " cannot talk to the other ranks: error " + std::to_string(error)};
  }
  ebb_collective given_;
};

template <class Body>
ebb_status with_group(ebb_group* group, Body&& body) noexcept {
  return guarded([&]() -> ebb_status {
    if (!valid(group)) return refuse(kNoGroup);
    return body(*group);
  });
}

template <class Body>
ebb_status with_root(ebb_group* group, Body&& body) noexcept {
  return with_group(group, [&](ebb_group& handle) -> ebb_status {
    if (!handle.root) return refuse("this is a history: give the group that was opened");
    return body(*handle.root);
  });
}

ebb_status tell(const ebb::Result<std::optional<ebb::Version>>& found, std::int64_t* version) {
  if (!found) return fail(found.error());
  *version = (*found).value_or(-1);
  return EBB_OK;
}

std::optional<ebb::Version> bound_of(std::int64_t at_most) {
  return at_most < 0 ? std::nullopt : std::optional<ebb::Version>(at_most);
}

template <class Make>
ebb_status with_future(ebb_future** future, Make&& make) {
  if (future) *future = nullptr;
  auto handle = std::make_unique<ebb_future>();
  auto made = make();
  if (!made) return fail(made.error());
  handle->future = std::move(*made);
  if (future) *future = handle.release();
  return EBB_OK;
}

}  // namespace

extern "C" {

ebb_status ebb_group_open(const ebb_collective* collective, const ebb_options* options, ebb_group** group) {
  return guarded([&]() -> ebb_status {
    if (group) *group = nullptr;
    if (!collective) return refuse("the collective is NULL");
    auto talk = std::make_unique<CCollective>(*collective);
    if (!collective->begin_least || !collective->test || collective->count < 1)
      return refuse("the collective lacks a function, or has no ranks");
    if (!group) return refuse("the pointer for the group is NULL");
    auto opened = ebb::Group::open(std::move(talk), options_of(options));
    if (!opened) return fail(opened.error());
    *group = new ebb_group(std::move(*opened));
    return EBB_OK;
  });
}

ebb_status ebb_group_history(ebb_group* group, const char* name, int reverse, ebb_group** history) {
  return with_root(group, [&](ebb::Group& root) -> ebb_status {
    require(name && history, "the name, or the pointer for the history, is NULL");
    *history = nullptr;
    auto view = root.history(name, reverse ? ebb::Order::reverse : ebb::Order::none);
    if (!view) return fail(view.error());
    *history = new ebb_group(std::move(*view));
    return EBB_OK;
  });
}

ebb_status ebb_group_mine(ebb_group* group, ebb_store** mine) {
  return with_group(group, [&](ebb_group& handle) -> ebb_status {
    require(mine, "the pointer for the store is NULL");
    *mine = &handle.mine;
    return EBB_OK;
  });
}

ebb_status ebb_group_latest(ebb_group* group, int64_t at_most, int64_t* version) {
  return with_group(group, [&](ebb_group& handle) {
    require(version, "the pointer for the version is NULL");
    return tell(handle.history.latest(bound_of(at_most)), version);
  });
}

ebb_status ebb_group_resume(ebb_group* group, int64_t at_most, int64_t* version) {
  return with_group(group, [&](ebb_group& handle) {
    require(version, "the pointer for the version is NULL");
    return tell(handle.history.resume(bound_of(at_most)), version);
  });
}

ebb_status ebb_group_drop(ebb_group* group) {
  return with_group(group, [&](ebb_group& handle) { return status_of(handle.history.drop()); });
}

ebb_status ebb_group_versions(ebb_group* group, int64_t* versions, size_t capacity, size_t* count) {
  return with_group(group, [&](ebb_group& handle) -> ebb_status {
    if (count) *count = 0;
    const auto found = handle.history.versions();
    if (!found) return fail(found.error());
    return copy_out(*found, versions, capacity, count, [](ebb::Version version) { return version; });
  });
}

ebb_status ebb_group_checkpoint(ebb_group* group, int64_t version, const ebb_source* sources, size_t count,
                                const ebb_checkpoint_options* options, ebb_future** future) {
  return with_group(group, [&](ebb_group& handle) {
    return with_future(
        future, [&] { return handle.history.checkpoint(version, sources_of(sources, count), options_of(options)); });
  });
}

ebb_status ebb_group_restore(ebb_group* group, int64_t version, const ebb_target* targets, size_t count,
                             const ebb_restore_options* options) {
  return with_group(group, [&](ebb_group& handle) {
    return status_of(handle.history.restore(version, targets_of(targets, count), options_of(options)));
  });
}

ebb_status ebb_group_wait(ebb_group* group, const char* level, double timeout) {
  return with_group(group, [&](ebb_group& handle) {
    check_seconds(timeout);
    require(level, "the level is NULL");
    return status_of(handle.history.wait(level, timeout_of(timeout)));
  });
}

ebb_status ebb_group_snapshot(ebb_group* group, int64_t version, const ebb_snapshot_options* options,
                              ebb_future** future) {
  return with_root(group, [&](ebb::Group& root) {
    return with_future(future, [&] { return root.snapshot(version, options_of(options)); });
  });
}

ebb_status ebb_group_close(ebb_group* group) {
  return with_root(group, [&](ebb::Group& root) { return status_of(root.close()); });
}

ebb_status ebb_group_free(ebb_group** group) { return free_handle(group, "not the handle of a group"); }
}
