#include "snapshots/cut.hpp"

#include <array>
#include <chrono>
#include <unistd.h>

#include "snapshots/device_copies.hpp"
#include "store/lifetime.hpp"

namespace ebb::snapshots {

static Error forked() {
  return {Errc::unsupported, "this snapshot was taken by the parent process, and this is a forked child"};
}

namespace {

using Clock = std::chrono::steady_clock;

bool is_level(std::string_view level) {
  constexpr std::array<std::string_view, 9> kLevels = {"copied",  "device", "host",    "local", "ephemeral",
                                                       "process", "node",   "storage", "shared"};
  return std::ranges::find(kLevels, level) != kLevels.end();
}

Error unknown_level(std::string_view level) {
  return {Errc::invalid_argument, "level=\"" + std::string(level) +
                                      "\" is not valid: expected one of \"copied\", \"device\", \"host\", \"local\", "
                                      "\"ephemeral\", \"process\", \"node\", \"storage\", \"shared\""};
}

std::string text_of(const Cut& cut) { return "the snapshot of version " + std::to_string(cut.version); }

Seconds left_until(Clock::time_point end) {
  return std::max(Seconds{0}, std::chrono::duration_cast<Seconds>(end - Clock::now()));
}

// By the board's mutex.
bool is_copied(const Cut& cut) { return cut.copied && !cut.on_device; }

// Waits until all of an ended cut, which changes no more, is stored.
Result<void> wait_stored(const Cut& cut, std::string_view level, std::optional<Clock::time_point> end) {
  const auto left = [&] { return end ? std::optional(left_until(*end)) : std::nullopt; };
  if (auto map = cut.future.wait(level, left()); !map) return map;
  return {};
}

}  // namespace

bool done(const Cut& cut, std::optional<std::string_view> level) {
  if (!level) return true;
  if (!is_level(*level)) throw BadResult(unknown_level(*level));
  if (cut.process != ::getpid()) throw BadResult(forked());
  bool ended = false, copied = false;
  std::shared_ptr<const Error> error;
  {
    const std::lock_guard lock(cut.board->mutex);
    ended = cut.ended;
    copied = is_copied(cut);
    error = cut.error;
  }
  if (*level == "copied" && copied) return true;
  if (ended && error) throw BadResult(*error);
  return ended && *level != "copied" && cut.future.done(level);
}

Result<void> wait(const Cut& cut, std::optional<std::string_view> level, std::optional<Seconds> timeout) {
  if (!level) return {};
  if (!is_level(*level)) return unknown_level(*level);
  if (cut.process != ::getpid()) return forked();
  // Longer than anyone waits; more would overflow.
  std::optional<Clock::time_point> end;
  if (timeout && *timeout < std::chrono::hours{24 * 365})
    end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::max(*timeout, Seconds{0}));
  std::shared_ptr<const Error> error;
  bool over = false;
  {
    const bool copied = *level == "copied";
    const std::uint64_t ask = cut.board->ask();
    std::unique_lock lock(cut.board->mutex);
    const auto is_over = [&] {
      return cut.ended || (copied ? is_copied(cut) : cut.board->held_up_since(ask) != nullptr);
    };
    if (end)
      over = cut.board->changed.wait_until(lock, *end, is_over);
    else
      cut.board->changed.wait(lock, is_over), over = true;
    if (over && copied && is_copied(cut)) return {};
    error = cut.ended ? cut.error : cut.board->held_up_since(ask);
  }
  if (!over)
    return Error{Errc::timed_out, "the time limit passed before " + text_of(cut) + " reached \"" + std::string(*level) +
                                      "\": it goes on"};
  if (error) return *error;
  return wait_stored(cut, *level, end);
}

Result<void> wait_until(const Cut& cut, Reached what, std::optional<Seconds> timeout, const Interrupt& interrupted) {
  const auto begun = Clock::now();
  std::shared_ptr<const Error> error;
  const std::uint64_t ask = cut.board->ask();
  const auto is_over = [&] {
    return cut.ended || (what == Reached::copied ? cut.copied : cut.board->held_up_since(ask) != nullptr);
  };
  for (;;) {
    {
      std::unique_lock lock(cut.board->mutex);
      const bool over = cut.board->changed.wait_for(lock, store::kInterruptEvery, is_over);
      if (over && what == Reached::copied && cut.copied) return {};
      error = cut.ended ? cut.error : cut.board->held_up_since(ask);
      if (over) break;
    }
    const Seconds passed = Clock::now() - begun;
    if ((interrupted && interrupted()) || (timeout && passed > *timeout))
      return Error{Errc::timed_out, "the time limit passed, or the call was interrupted, before " + text_of(cut) +
                                        (what == Reached::copied ? " was copied" : " was stored: it goes on")};
  }
  if (error) return *error;
  return {};
}

std::optional<Error> error_of(const Cut& cut) {
  if (cut.process != ::getpid()) return forked();
  std::shared_ptr<const Error> error;
  {
    const std::lock_guard lock(cut.board->mutex);
    if (!cut.ended) return {};
    error = cut.error;
  }
  if (error) return *error;
  return cut.future.error();
}

}  // namespace ebb::snapshots

namespace ebb {

namespace {
Error no_snapshot() { return {Errc::closed, "this is no snapshot: it was made without one"}; }
}  // namespace

Version Snapshot::version() const { return cut_ ? cut_->version : 0; }

bool Snapshot::done(std::optional<std::string_view> level) const {
  if (!cut_) throw BadResult(no_snapshot());
  return snapshots::done(*cut_, level);
}

Result<void> Snapshot::wait(std::optional<std::string_view> level, std::optional<Seconds> timeout) const {
  if (!cut_) return no_snapshot();
  return snapshots::wait(*cut_, level, timeout);
}

Result<void> Snapshot::before_write(std::uint32_t region, std::optional<StreamHandle> stream,
                                    const Interrupt& interrupted) const {
  if (!cut_) return no_snapshot();
  if (cut_->process != ::getpid()) return snapshots::forked();
  return snapshots::DeviceCopies::before_write(*cut_, region, stream, interrupted);
}

std::optional<Error> Snapshot::error() const {
  if (!cut_) return no_snapshot();
  return snapshots::error_of(*cut_);
}

}  // namespace ebb
