#include "storage/space_keeper.hpp"

#include <algorithm>
#include <cerrno>

namespace ebb::storage {

SpaceKeeper::SpaceKeeper(platform::Files& files, const platform::File& file, std::uint64_t capacity, std::uint64_t step)
    : files_(files), file_(file), capacity_(capacity), step_(step) {
  std::unique_lock lock(mutex_);
  if (capacity_) take_step(lock);
  if (taken_ < capacity_ && !refusal_) thread_ = std::thread([this] { work(); });
}

SpaceKeeper::~SpaceKeeper() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::uint64_t SpaceKeeper::wanted_locked() const {
  return std::min(capacity_, platform::round_up(reached_, step_) + step_);
}

void SpaceKeeper::take_step(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t begin = taken_, bytes = std::min(step_, capacity_ - taken_);
  lock.unlock();
  platform::SysResult answer;
  do {
    answer = files_.preallocate(file_.fd(), begin, bytes);
  } while (answer.error == EINTR);
  lock.lock();
  if (answer) {
    taken_ += bytes;
  } else {
    refusal_ = answer.error;
  }
  changed_.notify_all();
}

void SpaceKeeper::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || taken_ < wanted_locked(); });
    if (stopping_) return;
    take_step(lock);
    if (refusal_ || taken_ == capacity_) return;
  }
}

void SpaceKeeper::reached(std::uint64_t end) {
  std::lock_guard lock(mutex_);
  if (end <= reached_) return;
  reached_ = end;
  changed_.notify_all();
}

int SpaceKeeper::refusal() const {
  std::lock_guard lock(mutex_);
  return refusal_;
}

std::uint64_t SpaceKeeper::taken() const {
  std::lock_guard lock(mutex_);
  return taken_;
}

std::string SpaceKeeper::state() const {
  std::lock_guard lock(mutex_);
  if (!refusal_) return "preallocated in steps";
  return "sparse beyond " + std::to_string(taken_) + " bytes: fallocate answered " + platform::describe_errno(refusal_);
}

void SpaceKeeper::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return refusal_ || taken_ >= wanted_locked(); });
}

}  // namespace ebb::storage
