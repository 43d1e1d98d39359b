#pragma once
// Lenders and borrowers of ordinary memory, with real sockets and shared memory.
#include <condition_variable>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "share/leases/lender.hpp"
#include "share/leases/lenders.hpp"
#include "tests/share/rank.hpp"

namespace ebb::share::test {

using test::Place;

inline constexpr std::uint64_t kLease = planner::kSmallestLease;
inline constexpr std::chrono::seconds kLong{60};

// Ordinary memory, before whose calls a test does something.
class HookedFabric final : public device::PeerFabric {
 public:
  std::function<Result<void>()> before_lend = [] { return Result<void>(); };
  std::function<void()> before_map = [] {};
  Result<std::shared_ptr<device::Device>> owner_of_all = std::shared_ptr<device::Device>();

  std::size_t granularity() const noexcept override { return memory_->granularity(); }
  Result<std::unique_ptr<device::LentMemory>> lend(std::size_t bytes) override {
    if (const auto may = before_lend(); !may) return may.error();
    return memory_->lend(bytes);
  }
  Result<std::shared_ptr<std::byte>> map(const device::LentMemory& lent) override { return memory_->map(lent); }
  Result<std::shared_ptr<std::byte>> map(int descriptor, std::size_t bytes) override {
    before_map();
    return memory_->map(descriptor, bytes);
  }
  Result<std::shared_ptr<device::Device>> owner(std::byte*, std::size_t) override { return owner_of_all; }

 private:
  const std::unique_ptr<device::PeerFabric> memory_ = device::make_host_fabric();
};

class TestLender {
 public:
  TestLender(const Place& place, std::uint64_t leases, std::shared_ptr<device::PeerFabric> memory = {},
             std::uint32_t link = planner::kWholeLink)
      : memory_(memory ? std::move(memory) : device::make_host_fabric()) {
    LenderOptions options{.group = "job-test", .bytes = leases * kLease, .link = link, .recall_within = {}};
    options.warn = [this](const std::string& text) {
      const std::lock_guard lock(mutex_);
      warnings_.push_back(text);
    };
    lender_ = Lender::open(place.seams(), files_, clock_, *memory_, std::move(options)).value();
  }
  Lender& operator*() { return *lender_; }
  Lender* operator->() { return lender_.get(); }
  std::vector<std::string> warnings() {
    const std::lock_guard lock(mutex_);
    return warnings_;
  }
  std::uint64_t lent() const {
    std::uint64_t sum = 0;
    for (const LeaseRow& lease : lender_->state().leases) sum += lease.bytes;
    return sum;
  }
  // Its thread is looked at until it has noticed.
  template <class Condition>
  void await(Condition&& condition) {
    while (!condition()) std::this_thread::yield();
  }

 private:
  os::PosixFiles files_;
  os::SteadyClock clock_;
  std::shared_ptr<device::PeerFabric> memory_;
  std::mutex mutex_;
  std::vector<std::string> warnings_;
  std::unique_ptr<Lender> lender_;
};

class TestBorrower {
 public:
  explicit TestBorrower(const Place& place, std::uint64_t bytes = UINT64_MAX,
                        std::shared_ptr<device::PeerFabric> memory = nullptr)
      : lenders_(Lenders::open(place.seams(), std::make_shared<os::PosixFiles>(), std::make_shared<os::SteadyClock>(),
                               device::make_host_device(), memory ? std::move(memory) : device::make_host_fabric(),
                               {.group = "job-test", .bytes = bytes})
                     .value()) {
    lenders_->borrow([told = told_](std::uint32_t lease, bool lent) {
      const std::lock_guard lock(told->mutex);
      (lent ? told->lent : told->recalled).insert(lease);
      told->changed.notify_all();
    });
  }
  ~TestBorrower() {
    if (!lenders_) return;
    lenders_->borrow({});
    lenders_->stop();
  }
  Lenders& operator*() { return *lenders_; }
  Lenders* operator->() { return lenders_.get(); }
  std::set<std::uint32_t> await_lent(std::size_t count) { return await(told_->lent, count); }
  std::set<std::uint32_t> await_recalled(std::size_t count) { return await(told_->recalled, count); }

 private:
  struct Told {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<std::uint32_t> lent, recalled;
  };
  std::set<std::uint32_t> await(const std::set<std::uint32_t>& what, std::size_t count) {
    std::unique_lock lock(told_->mutex);
    EXPECT_TRUE(told_->changed.wait_for(lock, std::chrono::seconds(60), [&] { return what.size() >= count; }));
    return what;
  }
  const std::shared_ptr<Told> told_ = std::make_shared<Told>();
  std::shared_ptr<Lenders> lenders_;
};

}  // namespace ebb::share::test
