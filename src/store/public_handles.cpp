#include <stdexcept>

#include "store/engine.hpp"
#include "store/handles.hpp"

namespace ebb {
namespace {

Error empty_handle() { return {Errc::invalid_argument, "this handle is empty: it was moved from, or used up"}; }

// Ends what a handle holds. It cannot throw: the engine remembers that the planner's contract is broken, and the next
// call on the store throws.
template <class End>
void quietly(End end) noexcept {
  try {
    end();
  } catch (const std::logic_error&) {
  }
}

}  // namespace

Future::Future() = default;
Future::Future(std::shared_ptr<store::Waitable> state) : state_(std::move(state)) {}

bool Future::done(std::optional<std::string_view> level) const {
  return !state_ || state_->engine->waits().done(*state_, level);
}

Result<void> Future::wait(std::optional<std::string_view> level, std::optional<Seconds> timeout) const {
  if (!state_) return empty_handle();
  return state_->engine->waits().wait(*state_, level, timeout);
}

std::optional<Error> Future::error() const {
  if (!state_) return empty_handle();
  return state_->engine->waits().error(*state_);
}

void Future::keep_until_ended(std::shared_ptr<const void> what) const {
  if (state_) state_->engine->waits().keep_until_ended(*state_, std::move(what));
}

Reservation::Reservation(std::unique_ptr<Impl> state) : state_(std::move(state)) {}
Reservation::Reservation(Reservation&&) noexcept = default;
Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    quietly([this] { abandon(); });
    state_ = std::move(other.state_);
  }
  return *this;
}
Reservation::~Reservation() {
  quietly([this] { abandon(); });
}

std::byte* Reservation::data() const { return state_ ? state_->data : nullptr; }
std::shared_ptr<const void> Reservation::mapping() const { return state_ ? state_->tiers : nullptr; }
std::size_t Reservation::bytes() const { return state_ ? static_cast<std::size_t>(state_->info->bytes) : 0; }
std::span<std::byte> Reservation::region(std::uint32_t id) const {
  if (!state_) return {};
  const RegionInfo& region = store::region_of(*state_->info, id);
  return {state_->data + region.offset, region.bytes};
}

Future Reservation::future() const { return state_ ? state_->engine->writes().future_of(*state_) : Future(); }

Result<void> Reservation::commit(const HandBack& how) {
  if (!state_ || state_->ended) return empty_handle();
  auto done = state_->engine->writes().commit(*state_, how);
  if (state_->ended && !how.hold) state_.reset();
  return done;
}

void Reservation::abandon() {
  if (!state_) return;
  const auto state = std::move(state_);
  if (state->ended)
    state->engine->reads().end_hold(*state);
  else
    state->engine->writes().abandon(*state);
}

Loan::Loan(std::unique_ptr<Impl> state) : state_(std::move(state)) {}
Loan::Loan(Loan&&) noexcept = default;
Loan& Loan::operator=(Loan&& other) noexcept {
  if (this != &other) {
    quietly([this] { leave(); });
    state_ = std::move(other.state_);
  }
  return *this;
}
Loan::~Loan() {
  quietly([this] { leave(); });
}

const std::byte* Loan::data() const { return state_ ? state_->data : nullptr; }
std::size_t Loan::bytes() const { return state_ ? static_cast<std::size_t>(state_->info->bytes) : 0; }
std::span<const std::byte> Loan::region(std::uint32_t id) const {
  if (!state_) return {};
  const RegionInfo& region = store::region_of(*state_->info, id);
  return {state_->data + region.offset, region.bytes};
}

Result<void> Loan::release(bool keep, const HandBack& how) {
  if (!state_ || state_->ended) return empty_handle();
  auto done = state_->engine->reads().release(*state_, keep, how);
  if (state_->ended && !how.hold) state_.reset();
  return done;
}

void Loan::leave() {
  if (!state_) return;
  const auto state = std::move(state_);
  if (state->ended)
    state->engine->reads().end_hold(*state);
  else
    state->engine->reads().release_unordered(*state);
}

}  // namespace ebb
