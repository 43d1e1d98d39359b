// The contract of Storage: for the scratch file on each engine, and for the double.
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <stdexcept>

#include "storage/scratch/scratch_file.hpp"
#include "tests/doubles/fake_storage.hpp"
#include "tests/os/test_files.hpp"
#include "tests/transfer/completions.hpp"

namespace ebb::storage {
namespace {

using Kind = transfer::FileEngineOptions::Kind;
using test::Buffer;

constexpr std::uint64_t kCapacity = 1 << 20;

struct Case {
  const char* name;
  std::function<Result<std::unique_ptr<Storage>>(platform::Files&, Done)> open;
};

Case scratch(const char* name, Kind kind, bool direct) {
  return {name, [=](platform::Files& files, Done done) {
            ScratchOptions options{test::disk_directory(), kCapacity, direct, {}};
            options.engine.kind = kind;
            options.engine.request_bytes = 16384;
            return open_scratch_file(files, options, std::move(done));
          }};
}

class StorageContract : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto opened = GetParam().open(files_, completions_.done());
    if (!opened && opened.error().message.find("io_uring") != std::string::npos) GTEST_SKIP() << opened.error().message;
    storage_ = std::move(opened).value();
  }
  Result<void> put(ObjectId id, std::uint64_t total, std::uint64_t offset, const std::byte* memory, std::size_t bytes) {
    const Token token = next_++;
    Result<void> taken = storage_->put(token, id, total, offset, memory, bytes);
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
  platform::PosixFiles files_;
  test::Completions completions_;
  std::unique_ptr<Storage> storage_;
  Token next_ = 1;
};

TEST_P(StorageContract, ranges_come_back_in_any_order_and_size) {
  constexpr std::size_t kTotal = 100'001;
  Buffer out(kTotal), in(kTotal);
  out.scramble(1);
  for (const std::size_t offset : {65536u, 0u, 32768u}) {
    ASSERT_TRUE(put(1, kTotal, offset, out.data() + offset, offset == 65536 ? kTotal - 65536 : 32768));
  }
  ASSERT_TRUE(get(1, 0, in.data(), kTotal));
  EXPECT_TRUE(std::ranges::equal(in.first(kTotal), out.first(kTotal)));
  ASSERT_TRUE(get(1, 8192, in.data(), 20'001));
  EXPECT_TRUE(std::equal(in.data(), in.data() + 20'001, out.data() + 8192));
}

TEST_P(StorageContract, objects_of_nothing_are_objects) {
  ASSERT_TRUE(put(1, 0, 0, nullptr, 0));
  ASSERT_TRUE(get(1, 0, nullptr, 0));
  EXPECT_EQ(storage_->use().objects, 1u);
  EXPECT_EQ(storage_->use().used, 0u);
  storage_->drop(1);
  EXPECT_EQ(storage_->use().objects, 0u);
}

TEST_P(StorageContract, refuses_by_name_what_has_no_room_and_gives_room_back) {
  Buffer out(kCapacity);
  ASSERT_TRUE(put(1, out, 600'000));
  EXPECT_EQ(storage_->use().used, platform::round_up(600'000));
  const Result<void> refused = put(2, out, 600'000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::no_space);
  EXPECT_EQ(storage_->use().objects, 1u);
  storage_->drop(2);  // never put
  storage_->drop(1);
  EXPECT_EQ(storage_->use().used, 0u);
  EXPECT_TRUE(put(3, out, kCapacity));
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
      const bool fits = used + platform::round_up(bytes) <= kCapacity;
      ASSERT_EQ(static_cast<bool>(put(next, memory, bytes)), fits) << "fragmentation never refuses";
      if (fits) {
        used += platform::round_up(bytes);
        model[next] = {bytes, next};
      }
      ++next;
    } else if (action == 1) {
      const auto it = chosen();
      used -= platform::round_up(it->second.first);
      storage_->drop(it->first);
      model.erase(it);
    } else {
      const auto it = chosen();
      const auto [bytes, seed] = it->second;
      const std::size_t offset = bytes ? random() % bytes / 4096 * 4096 : 0;
      ASSERT_TRUE(get(it->first, offset, memory.data(), bytes - offset));
      expected.scramble(seed);
      ASSERT_TRUE(std::equal(memory.data(), memory.data() + (bytes - offset), expected.data() + offset));
    }
    ASSERT_EQ(storage_->use().used, used);
    ASSERT_EQ(storage_->use().objects, model.size());
  }
}

TEST_P(StorageContract, several_threads_put_get_and_drop) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Buffer out(65536), in(65536);
      for (std::uint64_t i = 0; i < 30; ++i) {
        const ObjectId id = t * 100 + i + 1;
        out.scramble(id);
        storage_->put(2 * id, id, 65536, 0, out.data(), 65536).value();
        completions_.of(2 * id).value();
        storage_->get(2 * id + 1, id, 0, in.data(), 65536).value();
        completions_.of(2 * id + 1).value();
        right += std::ranges::equal(in.first(65536), out.first(65536));
        storage_->drop(id);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 120);
  EXPECT_EQ(storage_->use().used, 0u);
}

TEST_P(StorageContract, stopping_reports_what_is_under_way) {
  Buffer out(kCapacity);
  for (Token t = 1; t <= 8; ++t) ASSERT_TRUE(storage_->put(t, t, 100'000, 0, out.data(), 100'000));
  storage_->stop();
  storage_->stop();
  EXPECT_EQ(completions_.order().size(), 8u);
  EXPECT_THROW(static_cast<void>(storage_->put(9, 9, 10, 0, out.data(), 10)), std::logic_error);
}

TEST_P(StorageContract, broken_contracts_throw) {
  Buffer out(65536);
  ASSERT_TRUE(put(1, out, 65536));
  EXPECT_THROW(static_cast<void>(get(2, 0, out.data(), 1)), std::logic_error) << "never put";
  EXPECT_THROW(static_cast<void>(put(1, 60000, 0, out.data(), 4096)), std::logic_error) << "another total";
  EXPECT_THROW(static_cast<void>(put(1, 65536, 4096, out.data(), 65536)), std::logic_error) << "beyond the end";
  EXPECT_THROW(static_cast<void>(put(1, 65536, 100, out.data(), 100)), std::logic_error) << "not aligned";
}

INSTANTIATE_TEST_SUITE_P(
    All, StorageContract,
    ::testing::Values(scratch("threads_direct", Kind::threads, true), scratch("threads_buffered", Kind::threads, false),
                      scratch("io_uring_direct", Kind::uring, true), scratch("io_uring_buffered", Kind::uring, false),
                      Case{"double",
                           [](platform::Files&, Done done) -> Result<std::unique_ptr<Storage>> {
                             return std::unique_ptr<Storage>(std::make_unique<testing::FakeStorage>(
                                 testing::FakeStorage::Options{.seed = 5, .capacity = kCapacity}, std::move(done)));
                           }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb::storage
