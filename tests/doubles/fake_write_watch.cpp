#include "tests/doubles/fake_write_watch.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "os/files.hpp"
#include "os/sys_result.hpp"

namespace ebb::doubles {

class FakeWriteWatch;

struct FakeWriteWatches::State {
  struct Page {
    FakeWriteWatch* watch = nullptr;
    bool armed = false;
    std::size_t sleepers = 0;
  };
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<std::byte*, Page> pages;  // that are watched
  std::deque<std::pair<FakeWriteWatch*, os::WatchEvent>> late;
  std::map<os::WatchForm, int> forbidden;
  bool user_faults_only = false;
  CallFaults<WatchCall> faults;

  Page* find(std::byte* at) {
    const auto found = pages.find(at - reinterpret_cast<std::uintptr_t>(at) % os::kBlock);
    return found == pages.end() ? nullptr : &found->second;
  }
  // Calls it with each page of a range that is watched; returns how many.
  template <class Each>
  std::size_t for_each(os::PageRange range, Each&& each) {
    std::size_t count = 0;
    const auto end = pages.lower_bound(range.end());
    for (auto at = pages.lower_bound(range.begin); at != end; ++at, ++count) each(at->first, at->second);
    return count;
  }
  void open(Page& page) {
    page.armed = false;
    page.sleepers = 0;
    changed.notify_all();
  }
  void gone(os::WatchEvent event);
};

class FakeWriteWatch final : public os::WriteWatch {
 public:
  FakeWriteWatch(std::shared_ptr<FakeWriteWatches::State> state, os::WatchForm form)
      : state_(std::move(state)), form_(form) {}
  ~FakeWriteWatch() override {
    std::lock_guard lock(state_->mutex);
    std::erase_if(state_->late, [this](const auto& one) { return one.first == this; });
    for (auto& [at, page] : state_->pages) {
      if (page.watch == this) state_->open(page);
    }
    std::erase_if(state_->pages, [this](const auto& one) { return one.second.watch == this; });
  }
  os::WatchForm form() const noexcept override { return form_; }
  bool user_faults_only() const noexcept override {
    std::lock_guard lock(state_->mutex);
    return form_ == os::WatchForm::mprotect || (form_ == os::WatchForm::userfaultfd_sync && state_->user_faults_only);
  }

  Result<void> watch(os::PageRange range) override {
    if (auto whole = os::check_pages(range); !whole) return whole;
    std::lock_guard lock(state_->mutex);
    if (auto good = refused(WatchCall::watch); !good) return good;
    if (state_->for_each(range, [](auto...) {}) > 0)
      throw std::logic_error(os::describe(range) + " are watched already");
    for (std::byte* at = range.begin; at < range.end(); at += os::kBlock) state_->pages[at].watch = this;
    return {};
  }
  void forget(os::PageRange range) override {
    std::lock_guard lock(state_->mutex);
    state_->for_each(range, [&](std::byte*, auto& page) { state_->open(page); });
    state_->pages.erase(state_->pages.lower_bound(range.begin), state_->pages.lower_bound(range.end()));
  }
  os::WatchResult arm(os::PageRange range) override {
    return set(WatchCall::arm, range, [](auto& page) { page.armed = true; });
  }
  os::WatchResult disarm(os::PageRange range) override {
    return set(WatchCall::disarm, range, [this](auto& page) { state_->open(page); });
  }
  Result<os::WatchEvent> next(std::chrono::milliseconds limit) override {
    std::unique_lock lock(state_->mutex);
    if (auto good = refused(WatchCall::next); !good) return good.error();
    state_->changed.wait_for(lock, limit, [&] { return rung_ || !events_.empty(); });
    if (!events_.empty()) {
      const os::WatchEvent event = events_.front();
      events_.pop_front();
      return event;
    }
    return os::WatchEvent{std::exchange(rung_, false) ? os::WatchEvent::Kind::rung : os::WatchEvent::Kind::nothing};
  }
  void ring() noexcept override {
    std::lock_guard lock(state_->mutex);
    rung_ = true;
    state_->changed.notify_all();
  }
  Result<void> take_written(os::PageRange range, std::vector<os::PageRange>& out) override {
    if (form_ != os::WatchForm::userfaultfd_async)
      return Error{Errc::unsupported, "a synchronous double notes no pages"};
    std::vector<std::byte*> written;
    if (auto taken = each(WatchCall::take_written, range,
                          [&](std::byte* at, auto& page) {
                            if (!page.armed) written.push_back(at);
                            page.armed = true;
                          });
        !taken) {
      return taken;
    }
    for (std::byte* const at : written) {
      if (!out.empty() && out.back().end() == at) {
        out.back().bytes += os::kBlock;
      } else {
        out.push_back({at, os::kBlock});
      }
    }
    return {};
  }

  // With the mutex.
  void tell(const os::WatchEvent& event) {
    events_.push_back(event);
    state_->changed.notify_all();
  }

 private:
  os::WatchResult refused(WatchCall call) {
    const int error = state_->faults.next(call);
    return error ? os::WatchResult(os::reason_of(error), "the double refuses", {}, error) : os::WatchResult();
  }
  template <class Each>
  os::WatchResult each(WatchCall call, os::PageRange range, Each&& one) {
    if (auto whole = os::check_pages(range); !whole) return whole;
    std::lock_guard lock(state_->mutex);
    if (auto good = refused(call); !good) return good;
    const std::size_t watched = state_->for_each(range, [](auto...) {});
    if (watched != range.bytes / os::kBlock) return {Errc::invalid_argument, "are not watched", range};
    state_->for_each(range, one);
    return {};
  }
  template <class Change>
  os::WatchResult set(WatchCall call, os::PageRange range, Change&& change) {
    return each(call, range, [&](std::byte*, auto& page) { change(page); });
  }

  const std::shared_ptr<FakeWriteWatches::State> state_;
  const os::WatchForm form_;
  std::deque<os::WatchEvent> events_;
  bool rung_ = false;
};

void FakeWriteWatches::State::gone(os::WatchEvent event) {
  std::lock_guard lock(mutex);
  FakeWriteWatch* watch = nullptr;
  for_each(event.range, [&](std::byte*, Page& page) {
    watch = page.watch;
    open(page);
  });
  if (!watch) throw std::logic_error(os::describe(event.range) + " are not watched");
  if (event.kind != os::WatchEvent::Kind::removed) {
    pages.erase(pages.lower_bound(event.range.begin), pages.lower_bound(event.range.end()));
  }
  watch->tell(event);
}

FakeWriteWatches::FakeWriteWatches() : state_(std::make_shared<State>()) {}
FakeWriteWatches::~FakeWriteWatches() = default;
CallFaults<WatchCall>& FakeWriteWatches::faults() { return state_->faults; }

void FakeWriteWatches::forbid(os::WatchForm form, int error) {
  std::lock_guard lock(state_->mutex);
  state_->forbidden[form] = error;
}

void FakeWriteWatches::allow_user_faults_only() {
  std::lock_guard lock(state_->mutex);
  state_->user_faults_only = true;
}

std::vector<os::WatchAbility> FakeWriteWatches::abilities() {
  std::vector<os::WatchAbility> all;
  for (const os::WatchForm form : os::kWatchForms) {
    const auto opened = open(form);
    all.push_back({form, static_cast<bool>(opened), opened && (*opened)->user_faults_only(),
                   opened ? "" : opened.error().message});
  }
  return all;
}

Result<std::unique_ptr<os::WriteWatch>> FakeWriteWatches::open(os::WatchForm form) {
  std::lock_guard lock(state_->mutex);
  int error = state_->forbidden[form];
  if (!error) error = state_->faults.next(WatchCall::open);
  if (error) return os::system_error("the double refuses " + std::string(os::name_of(form)), error);
  return std::unique_ptr<os::WriteWatch>(std::make_unique<FakeWriteWatch>(state_, form));
}

bool FakeWriteWatches::write(std::byte* at, Fault fault) {
  std::lock_guard lock(state_->mutex);
  State::Page* const page = state_->find(at);
  if (!page || !page->armed) return true;
  if (page->watch->form() == os::WatchForm::userfaultfd_async) {
    page->armed = false;
    return true;
  }
  ++page->sleepers;
  const os::WatchEvent event{os::WatchEvent::Kind::written,
                             {at - reinterpret_cast<std::uintptr_t>(at) % os::kBlock, os::kBlock}};
  if (fault == Fault::late) state_->late.emplace_back(page->watch, event);
  if (fault == Fault::told || fault == Fault::doubled) page->watch->tell(event);
  if (fault == Fault::doubled) page->watch->tell(event);
  return false;
}

void FakeWriteWatches::write_and_wait(std::byte* at, Fault fault) {
  if (write(at, fault)) return;
  std::unique_lock lock(state_->mutex);
  // Whoever disarms a page and arms it again lets its sleepers go first.
  state_->changed.wait(lock, [&] {
    const State::Page* const page = state_->find(at);
    return !page || page->sleepers == 0;
  });
}

std::size_t FakeWriteWatches::sleeping(std::byte* at) const {
  std::lock_guard lock(state_->mutex);
  const State::Page* const page = state_->find(at);
  return page ? page->sleepers : 0;
}

bool FakeWriteWatches::is_armed(std::byte* at) const {
  std::lock_guard lock(state_->mutex);
  const State::Page* const page = state_->find(at);
  return page && page->armed;
}

void FakeWriteWatches::tell_late() {
  std::lock_guard lock(state_->mutex);
  for (const auto& [watch, event] : state_->late) watch->tell(event);
  state_->late.clear();
}

void FakeWriteWatches::remove(os::PageRange range) { state_->gone({os::WatchEvent::Kind::removed, range}); }
void FakeWriteWatches::unmap(os::PageRange range) { state_->gone({os::WatchEvent::Kind::unmapped, range}); }
void FakeWriteWatches::remap(os::PageRange range) { state_->gone({os::WatchEvent::Kind::remapped, range}); }

}  // namespace ebb::doubles
