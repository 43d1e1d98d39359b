#include "share/pool/pool_file.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

#include "storage/format/sector.hpp"
#include "tests/doubles/fake_shared_memory.hpp"

namespace ebb::share {
namespace {

using doubles::FakeSharedMemory;
using doubles::SharedCall;
using Block = std::array<std::byte, os::kBlock>;

const PoolHeader kHeader{
    choose_shape(64 << 20, kDefaultChunk, 8).value(), "slurm-4711", {"/a", 1 << 30, 65536, true, true, 0}};

void expect_refused(const Result<PoolShape>& shape, const char* why) {
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.error().code, Errc::invalid_argument);
  EXPECT_NE(shape.error().message.find(why), std::string::npos) << shape.error().message;
}

TEST(PoolShape, what_cannot_be_is_refused_with_its_values) {
  expect_refused(choose_shape(64 << 20, 3 << 20, 1), "3145728");
  expect_refused(choose_shape(64 << 20, 2048, 1), "power of two");
  expect_refused(choose_shape(1ull << 40, kMaxChunk * 2, 1), "power of two");
  expect_refused(choose_shape(64 << 20, 0, 1), "power of two");
  expect_refused(choose_shape((64 << 20) - 1, 4 << 20, 8), "67108863");
  expect_refused(choose_shape((64 << 20) - 1, 4 << 20, 8), "each of 8 processes");
  expect_refused(choose_shape(0, 4 << 20, 0), "each of 1 processes");
  expect_refused(choose_shape(kMaxBudget + 1, 4 << 20, 8), "at most 70368744177664 bytes");
  EXPECT_TRUE(choose_shape(64 << 20, 4 << 20, 8));
}

TEST(PoolShape, its_parts_follow_one_another_and_a_list_is_below_1_mib) {
  for (const std::uint64_t budget :
       std::array<std::uint64_t, 5>{8ull << 20, 64ull << 20, 8ull << 30, 777ull << 30, kMaxBudget}) {
    for (const std::uint64_t chunk : {4096ull, 256ull << 10, 4ull << 20}) {
      const PoolShape shape = choose_shape(budget, chunk, 1).value();
      EXPECT_LE(shape.slabs(), kMaxSlabs);
      EXPECT_GE(shape.slabs(), 2u);
      EXPECT_LE(shape.slabs() * shape.slab_bytes(), budget);
      EXPECT_GT((shape.slabs() + 1) * shape.slab_bytes(), budget);
      EXPECT_LE(shape.list_bytes(), 1u << 20);
      EXPECT_GE(shape.list_entries, shape.slabs());
      EXPECT_LE(shape.slab_word_at(shape.slabs()), shape.tables_end());
      EXPECT_EQ(shape.list(0).offset, shape.tables_end());
      EXPECT_EQ(shape.list(1).offset, shape.list(0).offset + shape.list_bytes());
      EXPECT_GE(shape.slab(0).offset, shape.list(shape.processes).offset);
      EXPECT_EQ(shape.slab(1).offset, shape.slab(0).offset + shape.slab_bytes());
      EXPECT_EQ(shape.marks_at() % kLine, 0u);
    }
  }
}

TEST(PoolHeaderTest, what_is_written_is_read) {
  EXPECT_EQ(parse_pool_header(encode(kHeader)).value(), kHeader);
  const PoolHeader longest{kHeader.shape, std::string(208, '%'), {std::string(kMaxDirectory, 'd')}};
  EXPECT_EQ(parse_pool_header(encode(longest)).value(), longest);
}

TEST(PoolHeaderTest, any_flipped_bit_is_found) {
  const Block whole = encode(kHeader);
  for (std::size_t bit = 0; bit < storage::kSector * 8; ++bit) {
    Block block = whole;
    block[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    ASSERT_FALSE(parse_pool_header(block)) << bit;
    EXPECT_EQ(parse_pool_header(block).error().code, Errc::damaged);
  }
  EXPECT_EQ(parse_pool_header(std::span(whole).first(4095)).error().code, Errc::damaged);
  EXPECT_EQ(parse_pool_header(Block{}).error().code, Errc::lost);
}

TEST(PoolHeaderTest, another_version_is_refused_with_both) {
  Block block = encode(kHeader);
  storage::BytesWriter(block.data() + 8).number(kPoolVersion + 1);
  storage::seal_sector(block.data());
  const auto refused = parse_pool_header(block);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  EXPECT_EQ(refused.error().message, "the pool is of version " + std::to_string(kPoolVersion + 1) +
                                         "; this program knows version " + std::to_string(kPoolVersion));
}

TEST(PoolHeaderTest, hostile_numbers_under_a_right_checksum_are_damage) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    Block block = encode(kHeader);
    const std::size_t at = 12 + random() % 240;
    for (std::size_t byte = at; byte < at + random() % 8; ++byte) block[byte] = static_cast<std::byte>(random());
    storage::seal_sector(block.data());
    auto header = parse_pool_header(block);
    if (header) {
      ASSERT_LE(header->shape.slabs(), kMaxSlabs);
      ASSERT_TRUE(encode(*header) == encode(parse_pool_header(encode(*header)).value()));
    } else {
      ASSERT_EQ(header.error().code, Errc::damaged) << header.error().message;
    }
  }
}

TEST(PoolHeaderTest, another_budget_chunk_or_store_is_refused_with_both_values) {
  EXPECT_TRUE(check_same(kHeader, kHeader));
  const auto with = [](std::uint64_t bytes, std::uint64_t chunk) {
    PoolHeader header = kHeader;
    header.shape = choose_shape(bytes, chunk, 8).value();
    return header;
  };
  const auto budget = check_same(kHeader, with(128 << 20, kDefaultChunk));
  EXPECT_EQ(budget.error().code, Errc::invalid_argument);
  EXPECT_EQ(budget.error().message,
            "this job's pool has a budget of 67108864 bytes, and this process asks for 134217728");
  const auto chunk = check_same(kHeader, with(64 << 20, 1 << 20));
  EXPECT_EQ(chunk.error().message, "this job's pool has a chunk of 4194304 bytes, and this process asks for 1048576");
  PoolHeader elsewhere = kHeader;
  elsewhere.store.directory = "/b";
  const auto store = check_same(kHeader, elsewhere);
  EXPECT_EQ(store.error().message,
            "this job's pool on this node is for the store in \"/a\", and this process asks for the store in \"/b\"");
}

class PoolFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<os::SharedFile> file() {
    auto file = memory_.open("pool").value();
    return file ? std::move(file) : memory_.create("pool").value();
  }
  FakeSharedMemory memory_;
};

TEST_F(PoolFileTest, processes_share_tables_lists_and_slabs) {
  PoolFile agent = PoolFile::create(file(), kHeader).value();
  PoolFile process = PoolFile::open(file()).value();
  EXPECT_EQ(process.header(), kHeader);
  EXPECT_EQ(agent.tables().take_over(), 1u);
  const Member member = agent.admit({7, 70}, 8 << 20).value();
  EXPECT_EQ(process.tables().process(0), (PoolProcess{member, {7, 70}, 8 << 20}));
  for (const std::uint32_t slab : {5u, 2u}) {
    agent.allocate(slab).value();
    EXPECT_TRUE(agent.tables().lend(slab, member));
  }
  const auto cache = process.map(std::array{5u, 2u}).value();
  const std::size_t slab_bytes = kHeader.shape.slab_bytes();
  ASSERT_EQ(cache.size(), 2 * slab_bytes);
  std::memcpy(cache.data() + slab_bytes - 3, "across", 6);  // one after the other in the process
  MappedList list = process.list(member).value();
  list.list.add({.object = 1, .at = 0, .part = {5, slab_bytes - 3, 3}}).value();
  const std::string text = "description";
  HandedOver last{.object = 1, .at = 3, .part = {2, 0, 3}, .description = {2, 100, text.size()}};
  std::memcpy(cache.data() + slab_bytes + 100, text.data(), text.size());
  last.description_sum = storage::checksum_of(std::as_bytes(std::span(text)));
  list.list.add(last).value();

  const auto whole = whole_objects(agent.list(member).value().list.unfinished());
  ASSERT_EQ(whole.size(), 1u);
  std::string found;
  for (const HandedOver& part : whole[0].parts) {
    const auto slab = agent.map(std::array{part.part.slab}).value();
    found.append(reinterpret_cast<const char*>(slab.data() + part.part.offset), part.part.bytes);
  }
  EXPECT_EQ(found, "across");
  const auto slab = agent.map(std::array{2u}).value();
  const auto description = read_description(whole[0].last(), {slab.data(), slab.size()}).value();
  EXPECT_EQ(std::memcmp(description.data(), text.data(), text.size()), 0);
}

TEST_F(PoolFileTest, the_next_process_of_a_slot_has_an_empty_list) {
  PoolFile agent = PoolFile::create(file(), kHeader).value();
  const Member first = agent.admit({7, 70}, 0).value();
  EXPECT_TRUE(agent.tables().lend(0, first));
  {
    MappedList list = agent.list(first).value();
    list.list.add({.object = 1, .part = {0, 0, 1}}).value();
    list.list.finish(1);
  }
  EXPECT_TRUE(agent.tables().take_back(0, first));
  agent.dismiss(first).value();
  EXPECT_EQ(agent.dismiss(first).error().code, Errc::invalid_argument);
  EXPECT_EQ(agent.list(first).error().code, Errc::invalid_argument);
  const Member second = agent.admit({7, 71}, 0).value();
  EXPECT_EQ(second.slot, first.slot);
  MappedList list = agent.list(second).value();
  EXPECT_FALSE(list.list.is_finished(1));
  EXPECT_TRUE(agent.tables().lend(0, second));
  list.list.add({.object = 2, .part = {0, 0, 1}}).value();
  ASSERT_EQ(list.list.unfinished().size(), 1u);
  EXPECT_EQ(list.list.unfinished()[0].object, 2u);
  EXPECT_EQ(agent.list({kHeader.shape.processes, 1}).error().code, Errc::invalid_argument);
}

TEST_F(PoolFileTest, a_full_shared_memory_is_an_error_at_every_call) {
  auto& faults = memory_.faults();
  for (int nth = 1; nth <= 4; ++nth) {
    auto fresh = file();
    if (nth <= 1) faults.fail_nth(SharedCall::allocate, 1, ENOSPC);
    if (nth == 2) faults.fail_nth(SharedCall::map, 1, ENOMEM);
    if (nth == 3) faults.fail_nth(SharedCall::punch, 1, EIO);
    const auto created = PoolFile::create(std::move(fresh), kHeader);
    EXPECT_EQ(static_cast<bool>(created), nth == 4);
  }
  faults.fail_nth(SharedCall::map, 1, ENOMEM);
  EXPECT_EQ(PoolFile::open(file()).error().code, Errc::out_of_memory);
  faults.fail_nth(SharedCall::size, 1, EIO);
  EXPECT_EQ(PoolFile::open(file()).error().code, Errc::io_error);
  PoolFile pool = PoolFile::open(file()).value();
  faults.fail_nth(SharedCall::allocate, 1, ENOSPC);
  EXPECT_EQ(pool.admit({7, 70}, 0).error().code, Errc::no_space);
  EXPECT_EQ(pool.tables().process(0), std::nullopt);
  const Member member = pool.admit({7, 70}, 0).value();
  faults.fail_nth(SharedCall::allocate, 2, ENOSPC);
  EXPECT_TRUE(pool.list(member));
  EXPECT_EQ(pool.allocate(0).error().code, Errc::no_space);
  pool.allocate(0).value();
  pool.punch(0).value();
}

TEST_F(PoolFileTest, a_file_that_is_no_whole_pool_is_refused) {
  EXPECT_EQ(PoolFile::open(file()).error().code, Errc::lost);
  file()->allocate({0, os::kBlock}).value();
  EXPECT_EQ(PoolFile::open(file()).error().code, Errc::lost);
  const auto mapped = file()->map(std::array{os::FileRange{0, os::kBlock}}).value();
  const Block block = encode(kHeader);
  std::memcpy(mapped.data(), block.data(), block.size());
  EXPECT_EQ(PoolFile::open(file()).error().message, "the pool's file ends within its tables");
  EXPECT_TRUE(PoolFile::create(file(), kHeader));  // over what a killed creator left
  EXPECT_TRUE(PoolFile::open(file()));
}

// Killed anywhere: what counts is an unbroken row from the first unfinished entry, with its bytes.
TEST_F(PoolFileTest, what_a_killed_process_handed_over_is_there_and_nothing_else) {
  std::mt19937_64 random(1);
  os::TmpfsSharedMemory memory("/dev/shm/ebb-node-test-" + std::to_string(::getpid()));
  memory.remove("pool").value();
  PoolFile agent = PoolFile::create(memory.create("pool").value(), kHeader).value();
  agent.allocate(0).value();
  for (int trial = 0; trial < 20; ++trial) {
    const Member member = agent.admit({7, 70}, 0).value();
    EXPECT_TRUE(agent.tables().lend(0, member));
    const pid_t child = ::fork();
    if (child == 0) {
      PoolFile pool = PoolFile::open(memory.open("pool").value()).value();
      const auto slab = pool.map(std::array{0u}).value();
      auto* const words = reinterpret_cast<std::uint64_t*>(slab.data());
      MappedList mine = pool.list(member).value();
      for (std::uint64_t n = 1;; ++n) {
        while (n > kHeader.shape.list_entries && !mine.list.is_finished(n - kHeader.shape.list_entries)) {
        }
        const std::uint64_t place = n % 4096;
        words[place] = n;
        mine.list.add({.object = n, .at = n, .part = {0, place * 8, 8}}).value();
      }
    }
    const auto slab = agent.map(std::array{0u}).value();
    const auto* const words = reinterpret_cast<const std::uint64_t*>(slab.data());
    std::uint64_t finished = 0;
    {
      MappedList list = agent.list(member).value();
      const std::uint64_t end = random() % 5'000;
      const auto check = [&] {
        for (const HandedOver& entry : list.list.unfinished()) {
          ASSERT_EQ(entry.sequence, finished + 1);
          ASSERT_EQ(entry.object, entry.sequence);
          ASSERT_EQ(words[entry.part.offset / 8], entry.sequence);
          list.list.finish(finished = entry.sequence);
        }
      };
      while (finished < end) check();
      ::kill(child, SIGKILL);
      EXPECT_EQ(::waitpid(child, nullptr, 0), child);
      check();
      EXPECT_TRUE(list.list.unfinished().empty());
    }
    EXPECT_TRUE(agent.tables().take_back(0, member));
    agent.dismiss(member).value();
  }
  memory.remove("pool").value();
  ::rmdir(("/dev/shm/ebb-node-test-" + std::to_string(::getpid())).c_str());
}

}  // namespace
}  // namespace ebb::share
