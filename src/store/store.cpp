// The public calls: each names its event and leaves the rest to the engine.
#include "ebbtide/store.hpp"

#include <array>

#include "options/device_choice.hpp"
#include "share/pool/job.hpp"
#include "storage/format/snapshot_names.hpp"
#include "store/attached.hpp"
#include "store/engine.hpp"

namespace ebb {
namespace {

Error no_store() { return {Errc::closed, "this history belongs to no open store: it was moved from"}; }

struct ReservedNames {
  std::string_view part;
  const char* what;
};
constexpr std::array<ReservedNames, 3> kReservedNames = {{{kReservedInNames, "files (create_file, drop_file)"},
                                                          {kReservedForSnapshots, "snapshots"},
                                                          {kReservedForSuspension, "its mark (suspend_on)"}}};

const ReservedNames* reserved_part(std::string_view name) {
  for (const ReservedNames& one : kReservedNames)
    if (name.find(one.part) != name.npos) return &one;
  return nullptr;
}
bool is_reserved(std::string_view name) { return reserved_part(name) != nullptr; }

Error reserved(const std::string& name) {
  const ReservedNames& part = *reserved_part(name);
  return {Errc::invalid_argument, "a history's name has \"" + std::string(part.part) +
                                      "\" in it, where the store keeps " + part.what +
                                      ": expected a name without it, given: \"" + name + "\""};
}

// The map of a snapshot is known by its regions.
std::optional<Error> like_a_map(std::span<const Source> regions) {
  if (!storage::ids_of_snapshot(regions)) return {};
  return Error{Errc::invalid_argument, "regions " + std::to_string(regions[0].id) + " and " +
                                           std::to_string(regions[1].id) +
                                           " alone are how the store knows a snapshot: give one another id"};
}

std::optional<Error> in_flight(store::Engine& engine, planner::HistoryId id, Version version) {
  const auto attached = id == 0 ? engine.attached() : nullptr;
  if (!attached || !attached->in_flight(version)) return {};
  return Error{Errc::version_exists, "version " + std::to_string(version) + " exists: a snapshot of it is in flight"};
}

// A snapshot in flight is awaited by the calls that need it.
Result<void> settle(store::Engine& engine, planner::HistoryId id, std::optional<Version> version,
                    std::optional<Seconds> timeout = {}, const Interrupt& interrupted = {}) {
  if (id != 0) return {};
  const auto attached = engine.attached();
  return attached ? attached->settle(version, timeout, interrupted) : Result<void>{};
}

}  // namespace

History::History(std::shared_ptr<store::Engine> engine, std::uint32_t id, std::string name,
                 std::shared_ptr<const store::InHand> in_hand)
    : engine_(std::move(engine)), id_(id), name_(std::move(name)), in_hand_(std::move(in_hand)) {}

std::optional<Error> History::refusal(const Interrupt& interrupted) const {
  if (!engine_) return no_store();
  return of_program_ ? engine_->suspender().refusal(interrupted) : std::nullopt;
}

const std::string& History::name() const { return name_; }

Result<Future> History::checkpoint(Version version, std::span<const Source> sources, const CheckpointOptions& options) {
  if (auto refused = refusal(options.interrupted)) return *refused;
  if (read_only_) return reserved(name_);
  if (auto error = like_a_map(sources)) return *error;
  if (auto error = in_flight(*engine_, id_, version)) return *error;
  if (options.adopt) return engine_->writes().adopt(engine_, id_, version, sources, options);
  return engine_->writes().checkpoint(engine_, id_, version, sources, options);
}
Result<Future> History::checkpoint(Version version, std::initializer_list<Source> sources,
                                   const CheckpointOptions& options) {
  return checkpoint(version, std::span(sources.begin(), sources.size()), options);
}

Result<void> History::restore(Version version, std::span<const Target> targets, const RestoreOptions& options) {
  if (auto refused = refusal(options.interrupted)) return *refused;
  if (auto settled = settle(*engine_, id_, version, options.timeout, options.interrupted); !settled) return settled;
  const auto attached = id_ == 0 ? engine_->attached() : nullptr;
  return attached ? attached->restore(version, targets, options) : engine_->restore(id_, version, targets, options);
}
Result<void> History::restore(Version version, std::initializer_list<Target> targets, const RestoreOptions& options) {
  return restore(version, std::span(targets.begin(), targets.size()), options);
}
Result<Future> History::restore_async(Version version, std::span<const Target> targets, const RestoreOptions& options) {
  if (auto refused = refusal()) return *refused;
  if (auto settled = settle(*engine_, id_, version); !settled) return settled.error();
  return engine_->reads().restore_async(engine_, id_, version, targets, options);
}

Result<CheckpointInfo> History::info(Version version, std::optional<Seconds> timeout,
                                     const Interrupt& interrupted) const {
  if (auto refused = refusal(interrupted)) return *refused;
  if (auto settled = settle(*engine_, id_, version, timeout, interrupted); !settled) return settled.error();
  return engine_->info(id_, version);
}
Result<std::vector<Version>> History::versions() const {
  if (!engine_) return no_store();
  return engine_->histories().versions(id_);
}

Result<std::optional<std::string>> History::tier_of(Version version) const {
  if (!engine_) return no_store();
  return engine_->histories().tier_of(id_, version);
}

Result<std::optional<Version>> History::latest(std::optional<Version> at_most, const Interrupt& interrupted) {
  if (auto refused = refusal(interrupted)) return *refused;
  return engine_->latest(id_, at_most, interrupted);
}

Result<void> History::hint(std::span<const Version> order, bool replace) {
  if (auto refused = refusal()) return *refused;
  return engine_->histories().hint(id_, planner::event::Hint{replace, {order.begin(), order.end()}});
}
Result<void> History::hint(std::initializer_list<Version> order, bool replace) {
  return hint(std::span(order.begin(), order.size()), replace);
}
Result<void> History::hint_front(Version version) {
  if (auto refused = refusal()) return *refused;
  return engine_->histories().hint(id_, planner::event::HintFront{version});
}
Result<void> History::unhint(std::span<const Version> versions) {
  if (auto refused = refusal()) return *refused;
  return engine_->histories().hint(id_, planner::event::Unhint{{versions.begin(), versions.end()}});
}
Result<void> History::unhint() {
  if (auto refused = refusal()) return *refused;
  return engine_->histories().hint(id_, planner::event::UnhintAll{});
}
Result<void> History::start_prefetch() {
  if (auto refused = refusal()) return *refused;
  return engine_->histories().hint(id_, planner::event::StartPrefetch{});
}

Result<void> History::wait(std::string_view level, std::optional<Seconds> timeout, const Interrupt& interrupted) {
  if (auto refused = refusal(interrupted)) return *refused;
  if (auto settled = settle(*engine_, id_, {}, timeout, interrupted); !settled) return settled;
  return engine_->waits().wait(id_, {}, level, timeout, interrupted);
}
Result<void> History::wait(Version version, std::string_view level, std::optional<Seconds> timeout,
                           const Interrupt& interrupted) {
  if (auto refused = refusal(interrupted)) return *refused;
  if (auto settled = settle(*engine_, id_, version, timeout, interrupted); !settled) return settled;
  return engine_->waits().wait(id_, version, level, timeout, interrupted);
}
Result<void> History::agree(Version version) {
  if (auto refused = refusal()) return *refused;
  return engine_->histories().agree(id_, version);
}
Result<void> History::wait_for_drops(std::optional<Seconds> timeout, const Interrupt& interrupted) {
  if (auto refused = refusal(interrupted)) return *refused;
  constexpr Seconds kForever(1e9);
  auto stands = engine_->histories().versions(id_);  // of an open store
  if (!stands) return stands.error();
  if (engine_->histories().wait_for_drops(timeout.value_or(kForever), interrupted)) return {};
  return Error{Errc::timed_out,
               "what was dropped may come back still: the disk does not answer, or the wait was interrupted"};
}
Result<void> History::drop(Version version) {
  if (auto refused = refusal()) return *refused;
  // One that failed is no more there.
  if (auto settled = settle(*engine_, id_, version); !settled && in_flight(*engine_, id_, version)) return settled;
  if (const auto attached = id_ == 0 ? engine_->attached() : nullptr) attached->dropped(version);
  return engine_->histories().drop(id_, version);
}
Result<void> History::drop() {
  if (auto refused = refusal()) return *refused;
  if (!settle(*engine_, id_, {})) {  // what is in flight may be held up until the others make room
    if (auto made_room = engine_->histories().drop(id_, {}); !made_room) return made_room;
    static_cast<void>(static_cast<bool>(settle(*engine_, id_, {})));
  }
  if (const auto attached = id_ == 0 ? engine_->attached() : nullptr) attached->dropped({});
  return engine_->histories().drop(id_, {});
}

Result<Reservation> History::reserve(Version version, std::span<const Source> regions,
                                     const CheckpointOptions& options) {
  if (auto refused = refusal(options.interrupted)) return *refused;
  if (read_only_) return reserved(name_);
  if (auto error = like_a_map(regions)) return *error;
  if (auto error = in_flight(*engine_, id_, version)) return *error;
  return engine_->writes().reserve(engine_, id_, version, regions, options);
}
Result<Loan> History::borrow(Version version, const RestoreOptions& options) {
  if (auto refused = refusal(options.interrupted)) return *refused;
  if (auto settled = settle(*engine_, id_, version, options.timeout, options.interrupted); !settled)
    return settled.error();
  return engine_->reads().borrow(engine_, id_, version, options);
}

Result<std::vector<std::string>> Store::histories() const {
  if (!engine_) return no_store();
  auto names = engine_->histories().names("");
  if (names) std::erase_if(*names, is_reserved);
  return names;
}

Result<Store> Store::open(const Options& options) {
  return store::Engine::open_store({std::make_shared<os::PosixFiles>(), std::make_shared<os::SteadyClock>(), nullptr},
                                   options, options::process_environment());
}

Result<Store> store::Engine::open_store(options::Seams seams, const Options& options,
                                        const options::Environment& environment) {
  auto filled = options::with_environment(options, environment);
  if (!filled) return filled.error();
  if (!seams.device) {
    auto device = options::open_device(filled->device);
    if (!device) return device.error();
    seams.device = std::move(*device);
  }
  auto setup = options::choose_setup(*filled, *seams.files, *seams.device, environment);
  if (!setup) return setup.error();
  if (setup->pool) {
    auto job = setup->veloc ? Result(share::job_of_directory(setup->directory))
                            : share::job_identity(environment, *seams.files, share::Ancestry::of_process());
    if (!job) return job.error();
    setup->pool->job = std::move(*job);
  }
  if (auto group = share::lending_group(environment)) {
    setup->lending_group = std::move(*group);
  } else if (setup->lend > 0 || setup->borrow > 0) {
    return group.error();
  }
  auto engine = open(std::move(seams), std::move(*setup));
  if (!engine) return engine.error();
  return store_over(std::move(*engine));
}

void store::Engine::leave_open(std::shared_ptr<Engine> engine) {
  Engine* const stays = engine.get();
  stays->self_ = std::move(engine);
}

Store store::Engine::store_over(std::shared_ptr<Engine> engine) {
  Store store(std::move(engine), 0, "");
  store.of_program_ = true;
  return store;
}

Store& Store::operator=(Store&& other) noexcept {
  if (this == &other) return *this;
  leave();
  History::operator=(std::move(other));
  return *this;
}

Store::~Store() { leave(); }

void Store::leave() noexcept {
  if (!engine_) return;
  // Refused in a forked child, where the engine is never destroyed either.
  const auto close = [this] {
    try {
      return engine_->close();
    } catch (const std::exception&) {  // its contract broke while it drained; there is no caller to throw to
      return engine_->close();
    }
  };
  const Result<void> closed = close();
  if (!closed && closed.error().code == Errc::timed_out) store::Engine::leave_open(engine_);
}

History Store::history(std::string name, Order order) {
  if (!engine_) return History(nullptr, 0, std::move(name));
  const bool reserved = is_reserved(name);
  History history = engine_->view(std::move(name), order);
  history.read_only_ = reserved;
  history.of_program_ = true;
  return history;
}

std::optional<int> Store::gpu() const { return engine_ ? engine_->device()->gpu() : std::nullopt; }

Result<void> Store::suspend_on(int signal, const SuspendOptions& options) {
  return engine_ ? engine_->suspender().on(signal, options) : no_store();
}

Result<void> Store::check_suspended(const Interrupt& interrupted) {
  const auto refused = refusal(interrupted);
  return refused ? *refused : Result<void>();
}

Result<std::optional<std::int64_t>> Store::suspended() const {
  if (!engine_) return no_store();
  return engine_->suspender().mark();
}

Result<void> Store::clear_suspended() { return engine_ ? engine_->suspender().clear() : no_store(); }

Result<void> Store::lend(std::uint64_t bytes, Seconds within, const Interrupt& interrupted) {
  return engine_ ? engine_->lend(bytes, within, interrupted) : Result<void>(no_store());
}

Stats Store::stats() const { return engine_ ? engine_->stats() : Stats{}; }

Result<void> Store::close(const Interrupt& interrupted, const std::optional<Durability>& level) {
  return engine_ ? engine_->close(interrupted, level) : Result<void>{};
}

}  // namespace ebb
