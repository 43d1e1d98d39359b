#include "tests/doubles/fake_storage.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "os/files.hpp"

namespace ebb::storage::testing {
namespace {

using os::kBlock;
using os::round_up;

}  // namespace

FakeStorage::FakeStorage(Options options, Done done)
    : options_(options), done_(std::move(done)), random_(options.seed), held_(!options.automatic) {
  scheduler_ = std::thread([this] { schedule(); });
}

FakeStorage::~FakeStorage() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    transfers_.clear();
    changed_.notify_all();
  }
  if (scheduler_.joinable()) scheduler_.join();
}

// --- completing ---

bool FakeStorage::step() {
  std::unique_lock lock(mutex_);
  if (transfers_.empty()) return false;
  std::swap(transfers_[random_() % transfers_.size()], transfers_.back());
  const Transfer transfer = transfers_.back();
  transfers_.pop_back();
  Object& object = objects_.at(transfer.object);
  Result<void> how;
  const std::uint64_t number = transfer.write ? ++puts_ : ++gets_;
  for (const Fault& fault : transfer.write ? put_faults_ : get_faults_) {
    if (number >= fault.first && number <= fault.last) how = fault.error;
  }
  if (how && transfer.bytes) {
    std::byte* place = object.bytes.data() + transfer.offset;
    if (transfer.write) {
      std::memcpy(place, transfer.memory, transfer.bytes);
      const auto first = object.written.begin() + static_cast<std::ptrdiff_t>(transfer.offset / kBlock);
      std::fill_n(first, round_up(transfer.bytes) / kBlock, true);
    } else {
      std::memcpy(transfer.memory, place, transfer.bytes);
    }
  }
  --object.in_flight;
  ++reporting_;
  lock.unlock();
  done_(transfer.token, std::move(how));
  lock.lock();
  --reporting_;
  changed_.notify_all();
  return true;
}

std::size_t FakeStorage::run() {
  std::size_t count = 0;
  while (step()) ++count;
  return count;
}

void FakeStorage::schedule() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || (!held_ && !transfers_.empty()); });
    if (stopping_ && transfers_.empty()) return;
    const auto turns = random_() % 8;
    lock.unlock();
    for (std::uint64_t turn = 0; turn < turns; ++turn) std::this_thread::yield();
    step();
    lock.lock();
  }
}

void FakeStorage::hold() {
  std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeStorage::release() {
  std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

void FakeStorage::fail_nth_put(std::uint64_t n, Error error, std::uint64_t times) {
  std::lock_guard lock(mutex_);
  put_faults_.push_back({puts_ + n, puts_ + n + times - 1, std::move(error)});
}

void FakeStorage::fail_nth_get(std::uint64_t n, Error error, std::uint64_t times) {
  std::lock_guard lock(mutex_);
  get_faults_.push_back({gets_ + n, gets_ + n + times - 1, std::move(error)});
}

std::size_t FakeStorage::unfinished() const {
  std::lock_guard lock(mutex_);
  return transfers_.size();
}

void FakeStorage::await_unfinished(std::size_t n) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return transfers_.size() >= n; });
}

// --- Storage ---

void FakeStorage::submit_locked(Transfer transfer) {
  if (stopping_) throw std::logic_error("a transfer was submitted to a stopped storage");
  Object& object = objects_.at(transfer.object);
  if (transfer.offset % kBlock || transfer.offset + transfer.bytes > object.bytes.size()) {
    throw std::logic_error("a range outside its object, or not aligned to 4096");
  }
  ++object.in_flight;
  transfers_.push_back(transfer);
  changed_.notify_all();
}

Result<void> FakeStorage::put(Token token, ObjectId id, std::uint64_t total, std::uint64_t offset,
                              const std::byte* memory, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (!objects_.contains(id)) {
    if (round_up(total) > options_.capacity - used_) {
      return Error{Errc::no_space, "no room for an object of " + std::to_string(total) + " bytes"};
    }
    used_ += round_up(total);
    objects_[id] = {std::vector<std::byte>(total), std::vector<bool>(round_up(total) / kBlock), 0};
  }
  if (objects_[id].bytes.size() != total) throw std::logic_error("an object's total changed between two puts");
  submit_locked({token, id, true, offset, const_cast<std::byte*>(memory), bytes});
  return {};
}

Result<void> FakeStorage::get(Token token, ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(id);
  if (found == objects_.end()) throw std::logic_error("a get of an object never put");
  for (std::uint64_t block = offset / kBlock; block * kBlock < offset + bytes; ++block) {
    if (!found->second.written.at(block)) throw std::logic_error("a get of a range whose put was not reported");
  }
  submit_locked({token, id, false, offset, memory, bytes});
  if (bytes) std::memset(memory, 0xEB, bytes);
  return {};
}

void FakeStorage::drop(ObjectId id) {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(id);
  if (found == objects_.end()) return;
  if (found->second.in_flight) throw std::logic_error("an object with transfers in flight was dropped");
  used_ -= round_up(found->second.bytes.size());
  objects_.erase(found);
}

StorageUse FakeStorage::use() const {
  std::lock_guard lock(mutex_);
  return {options_.capacity, used_, objects_.size(), objects_.size(), options_.capacity - used_};
}

void FakeStorage::stop() {
  {
    std::unique_lock lock(mutex_);
    if (stopping_) return;
    held_ = false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return transfers_.empty() && reporting_ == 0; });
    stopping_ = true;
    changed_.notify_all();
  }
  scheduler_.join();
}

}  // namespace ebb::storage::testing
