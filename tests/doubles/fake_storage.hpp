#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "storage/storage.hpp"

namespace ebb::storage::testing {

/// Storage in memory, as late as storage may be: a put reads its memory and a get writes its own only when it
/// completes, in any order, by a seeded scheduler thread or on command; a get's target is poison until then; reading
/// bytes that were not put throws. A dropped object's memory is freed.
///
/// Thread safety: every method may be called from any thread. One lock guards all state; `done` is called without it.
class FakeStorage final : public Storage {
 public:
  struct Options {
    std::uint64_t seed = 1;
    std::uint64_t capacity = UINT64_MAX;
    bool automatic = true;  // the scheduler thread completes transfers; false: it begins held
  };
  FakeStorage(Options options, Done done);
  ~FakeStorage() override;

  /// Completes one transfer drawn from the seed, calling `done` on this thread. False: there is none.
  bool step();
  std::size_t run();
  /// Pauses or resumes the scheduler thread.
  void hold();
  void release();
  /// The n-th transfer of this kind to complete from now on (1 is the next), and the `times - 1` after it, fail.
  void fail_nth_put(std::uint64_t n, Error error, std::uint64_t times = 1);
  void fail_nth_get(std::uint64_t n, Error error, std::uint64_t times = 1);
  std::size_t unfinished() const;
  /// Waits until at least `n` transfers are in flight.
  void await_unfinished(std::size_t n);

  Result<void> put(Token token, ObjectId object, std::uint64_t total, std::uint64_t offset, const std::byte* memory,
                   std::size_t bytes) override;
  Result<void> get(Token token, ObjectId object, std::uint64_t offset, std::byte* memory, std::size_t bytes) override;
  void drop(ObjectId object) override;
  StorageUse use() const override;
  std::string describe() const override { return "memory"; }
  void stop() override;

 private:
  struct Object {
    std::vector<std::byte> bytes;
    std::vector<bool> written;  // by block of 4096
    std::size_t in_flight = 0;
  };
  struct Transfer {
    Token token = 0;
    ObjectId object = 0;
    bool write = false;
    std::uint64_t offset = 0;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  struct Fault {
    std::uint64_t first = 0, last = 0;
    Error error;
  };
  void submit_locked(Transfer transfer);
  void schedule();

  const Options options_;
  const Done done_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::map<ObjectId, Object> objects_;
  std::vector<Transfer> transfers_;
  std::uint64_t used_ = 0, puts_ = 0, gets_ = 0;
  std::size_t reporting_ = 0;
  std::vector<Fault> put_faults_, get_faults_;
  bool held_ = false, stopping_ = false;
  std::thread scheduler_;
};

}  // namespace ebb::storage::testing
