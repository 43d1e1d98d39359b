#include "snapshots/write_recorder.hpp"

#include <algorithm>
#include <chrono>

namespace ebb::snapshots {

using os::PageRange;
using os::WatchEvent;
using os::WatchForm;

namespace {

// Those whose writers wait: their order is known.
Result<std::unique_ptr<os::WriteWatch>> open_watch(os::WriteWatches& watches) {
  auto opened = watches.open(WatchForm::userfaultfd_sync);
  return opened ? std::move(opened) : watches.open(WatchForm::mprotect);
}

}  // namespace

WriteRecorder::WriteRecorder(PageRange memory) : memory_(memory), written_(memory.bytes / kPage) {
  writes_.reserve(2 * written_.size());
}

Result<std::unique_ptr<WriteRecorder>> WriteRecorder::start(os::WriteWatches& watches, PageRange memory) {
  auto opened = open_watch(watches);
  if (!opened) return opened.error();
  std::unique_ptr<WriteRecorder> recorder(new WriteRecorder(memory));
  WriteRecorder& self = *recorder;
  os::WriteWatch& watch = **opened;
  self.watch_ = std::make_unique<WatchThread>(
      std::move(*opened), [&self, &watch](const Result<WatchEvent>& event) { self.told(watch, event); }, [] {});
  if (auto watched = watch.watch(memory); !watched) return watched.error();
  if (const auto armed = watch.arm(memory); !armed) return armed.error();
  return recorder;
}

std::int64_t WriteRecorder::now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void WriteRecorder::told(os::WriteWatch& watch, const Result<WatchEvent>& event) {
  const std::lock_guard lock(mutex_);
  if (!event) {
    static_cast<void>(static_cast<bool>(watch.disarm(memory_)));
    failed_ = event.error();
    return;
  }
  if (event->kind != WatchEvent::Kind::written) return;
  const auto first = static_cast<std::size_t>(event->range.begin - memory_.begin) / kPage;
  const std::size_t end = std::min(first + event->range.bytes / kPage, written_.size());
  for (std::size_t page = first; page < end; ++page) {
    if (written_[page]) continue;  // two writers, or told late
    written_[page] = true;
    writes_.push_back({now(), static_cast<std::uint32_t>(page)});
  }
  const os::WatchResult disarmed = watch.disarm(event->range);
  if (disarmed) return;
  refused_ = disarmed;  // all of it needs no more mappings
  static_cast<void>(static_cast<bool>(watch.disarm(memory_)));
}

Result<void> WriteRecorder::cut() {
  const std::lock_guard lock(mutex_);
  if (!watch_) return Error{Errc::invalid_argument, "the recorder was stopped"};
  if (cut_) return Error{Errc::invalid_argument, "the cut was recorded already"};
  if (const auto armed = watch_->watch().arm(memory_); !armed) return armed.error();
  std::fill(written_.begin(), written_.end(), false);
  cut_ = now();
  return {};
}

Result<std::vector<WriteRecorder::Write>> WriteRecorder::stop() {
  watch_.reset();
  const std::lock_guard lock(mutex_);
  if (failed_) return *failed_;
  if (!refused_) return refused_.error();
  if (!cut_) return Error{Errc::invalid_argument, "no cut was recorded"};
  for (Write& write : writes_) write.nanoseconds -= *cut_;
  return std::move(writes_);
}

}  // namespace ebb::snapshots
