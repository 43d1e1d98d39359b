#include "snapshots/watch_thread.hpp"

#include "base/start_thread.hpp"

namespace ebb::snapshots {

using os::WatchEvent;

WatchThread::WatchThread(std::unique_ptr<os::WriteWatch> watch, Told told, std::function<void()> confirmed)
    : watch_(std::move(watch)), told_(std::move(told)), on_confirmed_(std::move(confirmed)) {
  thread_ = base::thread([this] { run(); });
}

WatchThread::~WatchThread() {
  stop_ = true;
  watch_->ring();
  thread_.join();
}

std::uint64_t WatchThread::ask() noexcept {
  const std::uint64_t ticket = ++asked_;
  watch_->ring();
  return ticket;
}

void WatchThread::run() {
  constexpr std::chrono::milliseconds kLimit{60'000};
  while (!stop_) {
    // A ring that comes after this may be told together with an earlier one, before what it was rung for.
    const std::uint64_t asked = asked_;
    const Result<WatchEvent> event = watch_->next(kLimit);
    if (event && event->kind == WatchEvent::Kind::rung) {
      confirmed_ = asked;
      if (asked_ > asked) watch_->ring();
      on_confirmed_();
    } else if (!event || event->kind != WatchEvent::Kind::nothing) {
      if (!event) failed_ = true;
      told_(event);
    }
    if (event) continue;
    confirmed_ = UINT64_MAX;  // so that no thread waits for a watch that has ended
    on_confirmed_();
    return;
  }
}

}  // namespace ebb::snapshots
