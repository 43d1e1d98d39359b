// The public calls: each names its event and leaves the rest to the engine.
#include "ebbtide/store.hpp"

#include "node/job.hpp"
#include "options/device_choice.hpp"
#include "store/engine.hpp"

namespace ebb {
namespace {

Error no_store() { return {Errc::closed, "this history belongs to no open store: it was moved from"}; }

}  // namespace

History::History(std::shared_ptr<runtime::Engine> engine, std::uint32_t id, std::string name,
                 std::shared_ptr<const runtime::InHand> in_hand)
    : engine_(std::move(engine)), id_(id), name_(std::move(name)), in_hand_(std::move(in_hand)) {}

const std::string& History::name() const { return name_; }

Result<Future> History::checkpoint(Version version, std::span<const Source> sources, const CheckpointOptions& options) {
  if (!engine_) return no_store();
  return engine_->checkpoint(id_, version, sources, options);
}
Result<Future> History::checkpoint(Version version, std::initializer_list<Source> sources,
                                   const CheckpointOptions& options) {
  return checkpoint(version, std::span(sources.begin(), sources.size()), options);
}

Result<void> History::restore(Version version, std::span<const Target> targets, const RestoreOptions& options) {
  if (!engine_) return no_store();
  return engine_->restore(id_, version, targets, options);
}
Result<void> History::restore(Version version, std::initializer_list<Target> targets, const RestoreOptions& options) {
  return restore(version, std::span(targets.begin(), targets.size()), options);
}
Result<Future> History::restore_async(Version version, std::span<const Target> targets, const RestoreOptions& options) {
  if (!engine_) return no_store();
  return engine_->restore_async(id_, version, targets, options);
}

Result<CheckpointInfo> History::info(Version version) const {
  if (!engine_) return no_store();
  return engine_->info(id_, version);
}
Result<std::vector<Version>> History::versions() const {
  if (!engine_) return no_store();
  return engine_->versions(id_);
}

Result<std::optional<Version>> History::latest(std::optional<Version> at_most, const Interrupt& interrupted) {
  if (!engine_) return no_store();
  return engine_->latest(id_, at_most, interrupted);
}

Result<void> History::hint(std::span<const Version> order, bool replace) {
  if (!engine_) return no_store();
  return engine_->hint(id_, policy::event::Hint{replace, {order.begin(), order.end()}});
}
Result<void> History::hint(std::initializer_list<Version> order, bool replace) {
  return hint(std::span(order.begin(), order.size()), replace);
}
Result<void> History::hint_front(Version version) {
  if (!engine_) return no_store();
  return engine_->hint(id_, policy::event::HintFront{version});
}
Result<void> History::unhint(std::span<const Version> versions) {
  if (!engine_) return no_store();
  return engine_->hint(id_, policy::event::Unhint{{versions.begin(), versions.end()}});
}
Result<void> History::unhint() {
  if (!engine_) return no_store();
  return engine_->hint(id_, policy::event::UnhintAll{});
}
Result<void> History::start_prefetch() {
  if (!engine_) return no_store();
  return engine_->hint(id_, policy::event::StartPrefetch{});
}

Result<void> History::wait(std::string_view level, std::optional<Seconds> timeout, const Interrupt& interrupted) {
  if (!engine_) return no_store();
  return engine_->waits().wait(id_, {}, level, timeout, interrupted);
}
Result<void> History::wait(Version version, std::string_view level, std::optional<Seconds> timeout,
                           const Interrupt& interrupted) {
  if (!engine_) return no_store();
  return engine_->waits().wait(id_, version, level, timeout, interrupted);
}
Result<void> History::drop(Version version) {
  if (!engine_) return no_store();
  return engine_->drop(id_, version);
}
Result<void> History::drop() {
  if (!engine_) return no_store();
  return engine_->drop(id_, {});
}

Result<Reservation> History::reserve(Version version, std::span<const Source> regions,
                                     const CheckpointOptions& options) {
  if (!engine_) return no_store();
  return engine_->reserve(id_, version, regions, options);
}
Result<Loan> History::borrow(Version version, const RestoreOptions& options) {
  if (!engine_) return no_store();
  return engine_->borrow(id_, version, options);
}

Result<Store> Store::open(const Options& options) {
  return runtime::Engine::open_store(
      {std::make_shared<platform::PosixFiles>(), std::make_shared<platform::SteadyClock>(), nullptr}, options,
      runtime::process_environment());
}

Result<Store> runtime::Engine::open_store(Seams seams, const Options& options, const Environment& environment) {
  auto filled = with_environment(options, environment);
  if (!filled) return filled.error();
  if (!seams.device) {
    auto device = runtime::open_device(filled->device);
    if (!device) return device.error();
    seams.device = std::move(*device);
  }
  auto setup = choose_setup(*filled, *seams.files, *seams.device, environment);
  if (!setup) return setup.error();
  if (setup->pool) {
    auto job = node::job_identity(environment, *seams.files, node::Ancestry::of_process());
    if (!job) return job.error();
    setup->pool->job = std::move(*job);
  }
  auto engine = open(std::move(seams), std::move(*setup));
  if (!engine) return engine.error();
  return store_over(std::move(*engine));
}

void runtime::Engine::leave_open(std::shared_ptr<Engine> engine) {
  Engine* const stays = engine.get();
  stays->self_ = std::move(engine);
}

Store runtime::Engine::store_over(std::shared_ptr<Engine> engine) { return Store(std::move(engine), 0, ""); }

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
  if (!closed && closed.error().code == Errc::timed_out) runtime::Engine::leave_open(engine_);
}

History Store::history(std::string name, Order order) {
  if (!engine_) return History(nullptr, 0, std::move(name));
  return engine_->view(std::move(name), order);
}

std::optional<int> Store::gpu() const { return engine_ ? engine_->gpu() : std::nullopt; }

Stats Store::stats() const { return engine_ ? engine_->stats() : Stats{}; }

Result<void> Store::close(const Interrupt& interrupted) {
  return engine_ ? engine_->close(interrupted) : Result<void>{};
}

}  // namespace ebb
