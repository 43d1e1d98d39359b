#include "storage/preallocator.hpp"

#include <algorithm>
#include <cerrno>

#include "base/start_thread.hpp"

namespace ebb::storage {

Preallocator::Preallocator(os::Files& files, const os::File& file, std::uint64_t capacity, std::uint64_t step)
    : files_(files), file_(file), capacity_(capacity), step_(step) {
  std::unique_lock lock(mutex_);
  if (capacity_) allocate_step(lock);
  if (allocated_ < capacity_ && !refusal_) thread_ = base::thread([this] { work(); });
}

Preallocator::~Preallocator() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::uint64_t Preallocator::wanted_locked() const {
  return std::min(capacity_, os::round_up(used_end_, step_) + step_);
}

void Preallocator::allocate_step(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t begin = allocated_, bytes = std::min(step_, capacity_ - allocated_);
  lock.unlock();
  os::SysResult answer;
  do {
    answer = files_.preallocate(file_.fd(), begin, bytes);
  } while (answer.error == EINTR);
  lock.lock();
  if (answer) {
    allocated_ += bytes;
  } else {
    refusal_ = answer.error;
  }
  changed_.notify_all();
}

void Preallocator::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || allocated_ < wanted_locked(); });
    if (stopping_) return;
    allocate_step(lock);
    if (refusal_ || allocated_ == capacity_) return;
  }
}

void Preallocator::use_up_to(std::uint64_t end) {
  std::lock_guard lock(mutex_);
  if (end <= used_end_) return;
  used_end_ = end;
  changed_.notify_all();
}

int Preallocator::refusal() const {
  std::lock_guard lock(mutex_);
  return refusal_;
}

std::uint64_t Preallocator::allocated() const {
  std::lock_guard lock(mutex_);
  return allocated_;
}

std::string Preallocator::state() const {
  std::lock_guard lock(mutex_);
  if (!refusal_) return "preallocated in steps";
  return "sparse beyond " + std::to_string(allocated_) + " bytes: fallocate answered " + os::describe_errno(refusal_);
}

void Preallocator::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return refusal_ || allocated_ >= wanted_locked(); });
}

}  // namespace ebb::storage
