#pragma once
// The contracts of Storage and PersistentStorage, for whatever a program that includes this opens.
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "storage/persistent_storage.hpp"
#include "tests/os/test_files.hpp"
#include "tests/storage/persisted_objects.hpp"
#include "tests/transfer/completions.hpp"

namespace ebb::storage {

using test::Buffer;

inline constexpr std::uint64_t kContractCapacity = 1 << 20;

/// A storage, and how its caller's memory gets to it.
struct ContractSubject {
  std::unique_ptr<Storage> storage;
  std::function<const std::byte*(const std::byte*, std::size_t)> place{};  // none: as it is
};

/// Opens the same storage again and again.
class ContractOpener {
 public:
  virtual ~ContractOpener() = default;
  virtual Result<ContractSubject> open(os::Files& files, Done done, Persisted persisted) = 0;
};

struct ContractCase {
  const char* name;
  std::function<std::unique_ptr<ContractOpener>()> make;
  bool alone = true;  // use() is of this storage's objects, and not of those of other processes
};

class StorageContract : public ::testing::TestWithParam<ContractCase> {
 protected:
  static constexpr std::uint64_t kCapacity = kContractCapacity;

  void SetUp() override {
    opener_ = GetParam().make();
    auto opened = opener_->open(files_, completions_.done(), persisted_.callback());
    if (!opened && opened.error().message.find("io_uring") != std::string::npos) GTEST_SKIP() << opened.error().message;
    subject_ = std::move(opened).value();
    storage_ = subject_.storage.get();
    persistent_ = storage_->persistent();
  }
  /// The caller's number of an object.
  ObjectId id(std::uint64_t number) const { return persistent_ ? kFirstObject + number : number; }
  /// Before its first put.
  Result<void> begin(ObjectId id, std::uint64_t total) {
    {
      const std::lock_guard lock(mutex_);
      if (!persistent_ || !begun_.insert(id).second) return {};
    }
    Description description{"contract", static_cast<Version>(id - kFirstObject), {}};
    description.info.bytes = total;
    if (total > 0) description.info.regions = {{0, total, 0}};
    return persistent_->begin(id, std::make_shared<const Description>(std::move(description)));
  }
  Result<void> start(Token token, ObjectId id, std::uint64_t total, std::uint64_t offset, const std::byte* memory,
                     std::size_t bytes) {
    if (auto begun = begin(id, total); !begun) return begun;
    if (subject_.place && bytes > 0) memory = subject_.place(memory, bytes);
    return storage_->put(token, id, total, offset, memory, bytes);
  }
  Result<void> put(ObjectId id, std::uint64_t total, std::uint64_t offset, const std::byte* memory, std::size_t bytes) {
    if (persistent_ && total == 0) {  // complete with this
      const auto begun = begin(id, total);
      persistent_->commit();
      return begun ? persisted_.of(id) : begun;
    }
    const Token token = next_++;
    Result<void> taken = start(token, id, total, offset, memory, bytes);
    return taken ? completions_.of(token) : taken;
  }
  Result<void> put(ObjectId id, const Buffer& memory, std::size_t bytes) {
    return put(id, bytes, 0, memory.data(), bytes);
  }
  Result<void> get(ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes) {
    const Token token = next_++;
    Result<void> taken = storage_->get(token, id, offset, memory, bytes);
    return taken ? completions_.of(token) : taken;
  }
  void expect_use(std::uint64_t used, std::uint64_t objects) const {
    if (!GetParam().alone) return;
    EXPECT_EQ(storage_->use().used, used);
    EXPECT_EQ(storage_->use().objects, objects);
  }

  os::PosixFiles files_;
  test::Completions completions_;
  PersistedObjects persisted_;
  std::unique_ptr<ContractOpener> opener_;
  ContractSubject subject_;
  Storage* storage_ = nullptr;
  PersistentStorage* persistent_ = nullptr;
  std::mutex mutex_;
  std::set<ObjectId> begun_;
  Token next_ = 1;
};

TEST_P(StorageContract, ranges_come_back_in_any_order_and_size) {
  constexpr std::size_t kTotal = 100'001;
  Buffer out(kTotal), in(kTotal);
  out.scramble(1);
  for (const std::size_t offset : {65536u, 0u, 32768u}) {
    ASSERT_TRUE(put(id(1), kTotal, offset, out.data() + offset, offset == 65536 ? kTotal - 65536 : 32768));
  }
  ASSERT_TRUE(get(id(1), 0, in.data(), kTotal));
  EXPECT_TRUE(std::ranges::equal(in.first(kTotal), out.first(kTotal)));
  ASSERT_TRUE(get(id(1), 8192, in.data(), 20'001));
  EXPECT_TRUE(std::equal(in.data(), in.data() + 20'001, out.data() + 8192));
}

TEST_P(StorageContract, objects_of_nothing_are_objects) {
  ASSERT_TRUE(put(id(1), 0, 0, nullptr, 0));
  ASSERT_TRUE(get(id(1), 0, nullptr, 0));
  expect_use(0, 1);
  storage_->drop(id(1));
  expect_use(0, 0);
}

TEST_P(StorageContract, refuses_by_name_what_has_no_room_and_gives_room_back) {
  Buffer out(kCapacity);
  ASSERT_TRUE(put(id(1), out, 600'000));
  expect_use(os::round_up(600'000), 1);
  const Result<void> refused = put(id(2), out, 600'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::no_space);
  expect_use(os::round_up(600'000), 1);
  storage_->drop(id(2));  // never put
  storage_->drop(id(1));
  expect_use(0, 0);
  EXPECT_TRUE(put(id(3), out, kCapacity));
  EXPECT_EQ(storage_->use().capacity, kCapacity);
}

TEST_P(StorageContract, random_programs_read_what_was_last_put) {
  std::mt19937_64 random(7);
  std::map<ObjectId, std::pair<std::size_t, std::uint64_t>> model;  // bytes, seed
  Buffer memory(kCapacity), expected(kCapacity);
  std::uint64_t used = 0;
  ObjectId next = 1;
  for (int step = 0; step < 300; ++step) {
    const auto chosen = [&] { return std::next(model.begin(), static_cast<std::ptrdiff_t>(random() % model.size())); };
    const auto action = random() % 3;
    if (action == 0 || model.empty()) {
      const std::size_t bytes = random() % 150'000;
      memory.scramble(next);
      const bool fits = used + os::round_up(bytes) <= kCapacity;
      ASSERT_EQ(static_cast<bool>(put(id(next), memory, bytes)), fits) << "fragmentation never refuses";
      if (fits) {
        used += os::round_up(bytes);
        model[next] = {bytes, next};
      }
      ++next;
    } else if (action == 1) {
      const auto it = chosen();
      used -= os::round_up(it->second.first);
      storage_->drop(id(it->first));
      model.erase(it);
    } else {
      const auto it = chosen();
      const auto [bytes, seed] = it->second;
      const std::size_t offset = bytes ? random() % bytes / 4096 * 4096 : 0;
      ASSERT_TRUE(get(id(it->first), offset, memory.data(), bytes - offset));
      expected.scramble(seed);
      ASSERT_TRUE(std::equal(memory.data(), memory.data() + (bytes - offset), expected.data() + offset));
    }
    ASSERT_NO_FATAL_FAILURE(expect_use(used, model.size()));
  }
}

TEST_P(StorageContract, several_threads_put_get_and_drop) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Buffer out(65536), in(65536);
      for (std::uint64_t i = 0; i < 30; ++i) {
        const std::uint64_t number = t * 100 + i + 1;
        out.scramble(number);
        start(2 * number, id(number), 65536, 0, out.data(), 65536).value();
        completions_.of(2 * number).value();
        storage_->get(2 * number + 1, id(number), 0, in.data(), 65536).value();
        completions_.of(2 * number + 1).value();
        right += std::ranges::equal(in.first(65536), out.first(65536));
        storage_->drop(id(number));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 120);
  expect_use(0, 0);
}

TEST_P(StorageContract, stopping_reports_what_is_under_way) {
  Buffer out(kCapacity);
  for (Token t = 1; t <= 8; ++t) ASSERT_TRUE(start(t, id(t), 100'000, 0, out.data(), 100'000));
  storage_->stop();
  storage_->stop();
  EXPECT_EQ(completions_.order().size(), 8u);
  EXPECT_THROW(static_cast<void>(start(9, id(9), 10, 0, out.data(), 10)), std::logic_error);
}

TEST_P(StorageContract, broken_contracts_throw) {
  Buffer out(65536);
  ASSERT_TRUE(put(id(1), out, 65536));
  EXPECT_THROW(static_cast<void>(get(id(2), 0, out.data(), 1)), std::logic_error) << "never put";
  EXPECT_THROW(static_cast<void>(put(id(1), 60000, 0, out.data(), 4096)), std::logic_error) << "another total";
  EXPECT_THROW(static_cast<void>(put(id(1), 65536, 4096, out.data(), 65536)), std::logic_error) << "beyond the end";
  EXPECT_THROW(static_cast<void>(put(id(1), 65536, 100, out.data(), 100)), std::logic_error) << "not aligned";
}

// --- what outlives the process ---------------------------------------------------------------------------------------

class PersistentContract : public StorageContract {
 protected:
  Result<void> persist(ObjectId id, const Buffer& memory, std::size_t bytes) {
    if (auto done = put(id, memory, bytes); !done || bytes == 0) return done;
    persistent_->commit();
    return persisted_.of(id);
  }
  void reopen() {
    storage_->stop();
    subject_ = {};
    subject_ = opener_->open(files_, completions_.done(), persisted_.callback()).value();
    storage_ = subject_.storage.get();
    persistent_ = storage_->persistent();
    begun_.clear();
  }
  /// What is found, all of it with the bytes of `seeds`.
  std::set<Version> found(const std::map<Version, std::pair<std::size_t, std::uint64_t>>& seeds) {
    std::set<Version> out;
    for (const Found& one : persistent_->found()) {
      EXPECT_EQ(one.history, "contract");
      const auto [bytes, seed] = seeds.at(one.version);
      EXPECT_EQ(one.bytes, bytes);
      Buffer in(bytes), right(bytes);
      right.scramble(seed);
      EXPECT_TRUE(get(one.object, 0, in.data(), bytes));
      EXPECT_TRUE(std::ranges::equal(in.first(bytes), right.first(bytes))) << one.version;
      EXPECT_TRUE(persistent_->verify(one.object));
      out.insert(one.version);
    }
    return out;
  }
};

TEST_P(PersistentContract, the_next_one_finds_what_was_persisted_and_not_dropped) {
  Buffer out(200'000);
  std::map<Version, std::pair<std::size_t, std::uint64_t>> seeds;
  for (std::uint64_t number = 1; number <= 5; ++number) {
    const std::size_t bytes = number == 5 ? 0 : 40'000 * number;
    out.scramble(number);
    ASSERT_TRUE(persist(id(number), out, bytes));
    seeds[static_cast<Version>(number)] = {bytes, number};
  }
  persistent_->drop(id(2));
  persistent_->abandon(id(3));
  reopen();
  EXPECT_TRUE(persistent_->failed_drops().empty());
  EXPECT_EQ(found(seeds), (std::set<Version>{1, 3, 4, 5}));
  for (const Found& one : persistent_->found())
    if (one.version == 4) persistent_->drop(one.object);
  reopen();
  EXPECT_EQ(found(seeds), (std::set<Version>{1, 3, 5}));
}

TEST_P(PersistentContract, a_version_that_was_dropped_is_written_anew) {
  Buffer out(50'000), in(50'000);
  std::map<Version, std::pair<std::size_t, std::uint64_t>> seeds;
  ASSERT_TRUE(persist(id(1), out, 50'000));
  reopen();
  persistent_->drop(persistent_->found().at(0).object);
  out.scramble(8);
  ASSERT_TRUE(persist(id(1), out, 50'000));
  ASSERT_TRUE(get(id(1), 0, in.data(), 50'000));
  EXPECT_TRUE(std::ranges::equal(in.first(50'000), out.first(50'000)));
  reopen();
  seeds[1] = {50'000, 8};
  EXPECT_EQ(found(seeds), std::set<Version>{1});
}

TEST_P(PersistentContract, an_object_keeps_its_description) {
  Buffer out(90'000);
  Description given{"contract", 7, {}};
  given.info.bytes = 90'000;
  given.info.metadata = "what it is";
  given.info.regions = {{3, 16'384, 0}, {5, 73'616, 16'384}};
  persistent_->begin(id(7), std::make_shared<const Description>(given)).value();
  begun_.insert(id(7));
  ASSERT_TRUE(persist(id(7), out, 90'000));
  std::vector<Checksum> sums;
  for (const auto& region : given.info.regions) {
    sums.push_back(checksum_of(std::span<const std::byte>(out.data() + region.offset, region.bytes)));
  }
  const auto check = [&](ObjectId object) {
    const auto loaded = persistent_->load_description(object).value();
    EXPECT_EQ(loaded->history, given.history);
    EXPECT_EQ(loaded->version, given.version);
    EXPECT_EQ(loaded->info.metadata, given.info.metadata);
    ASSERT_EQ(loaded->info.regions.size(), 2u);
    EXPECT_EQ(loaded->info.regions[1].id, 5u);
    EXPECT_EQ(loaded->info.regions[1].offset, 16'384u);
    EXPECT_EQ(persistent_->region_checksums(object).value(), sums);
  };
  check(id(7));
  reopen();
  check(persistent_->found().at(0).object);
}

TEST_P(PersistentContract, an_object_is_begun_once) {
  Buffer out(10'000);
  ASSERT_TRUE(begin(id(1), 10'000));
  begun_.clear();
  EXPECT_THROW(static_cast<void>(begin(id(1), 10'000)), std::logic_error);
  EXPECT_TRUE(persist(id(1), out, 10'000));
}

inline std::string name_of(const ::testing::TestParamInfo<ContractCase>& info) { return info.param.name; }

}  // namespace ebb::storage
