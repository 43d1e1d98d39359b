// The contract of both file engines, on good files and on files that constantly interrupt and shorten transfers.
#include <atomic>
#include <cerrno>
#include <stdexcept>

#include "tests/transfer/file_engine_fixture.hpp"

namespace ebb::transfer {
namespace {

using Kind = FileEngineOptions::Kind;
using test::Buffer;

class FileEngineContract : public test::FileEngineTest {};

bool same(const Buffer& a, const Buffer& b, std::size_t bytes) {
  return std::ranges::equal(a.first(bytes), b.first(bytes));
}

TEST_P(FileEngineContract, reads_back_what_it_wrote_at_every_length) {
  EXPECT_EQ(engine_->name(), GetParam().kind == Kind::uring ? "io_uring" : "threads");
  for (const std::size_t bytes : {1u, 511u, 4095u, 4096u, 4097u, 65535u, 65536u, 65537u, 200000u, 1u << 20}) {
    Buffer out(bytes), in(bytes);
    out.scramble(bytes);
    ASSERT_TRUE(write({{8192, out.data(), bytes}}));
    ASSERT_TRUE(read({{8192, in.data(), bytes}}));
    EXPECT_TRUE(same(out, in, bytes)) << bytes;
  }
}

TEST_P(FileEngineContract, pieces_lie_where_they_are_said_to) {
  Buffer out(40960), in(40960), whole(1 << 20);
  out.scramble(1);
  // Out of order in the file, in order in memory; the last one odd.
  const std::vector<Piece> pieces{{900 * 1024, out.data(), 8192},
                                  {0, out.data() + 8192, 4096},
                                  {100 * 4096, out.data() + 12288, 16384},
                                  {8192, out.data() + 28672, 9999}};
  ASSERT_TRUE(write(pieces));
  ASSERT_TRUE(read({{0, whole.data(), whole.size()}}));
  for (const Piece& piece : pieces) {
    EXPECT_TRUE(std::equal(piece.memory, piece.memory + piece.length, whole.data() + piece.offset));
  }
  std::vector<Piece> back = pieces;
  for (Piece& piece : back) piece.memory = in.data() + (piece.memory - out.data());
  ASSERT_TRUE(read(back));
  EXPECT_TRUE(same(out, in, 28672 + 9999));
}

TEST_P(FileEngineContract, moves_nothing_beyond_the_rounded_length) {
  Buffer guard(16384, std::byte{7}), zeros(16384), out(8192, std::byte{5});
  ASSERT_TRUE(write({{0, guard.data(), 16384}}));
  ASSERT_TRUE(write({{4096, out.data(), 5000}}));
  ASSERT_TRUE(read({{0, zeros.data(), 16384}}));
  EXPECT_EQ(zeros.data()[4095], std::byte{7});
  EXPECT_EQ(zeros.data()[4096], std::byte{5});
  EXPECT_EQ(zeros.data()[4096 + 4999], std::byte{5});
  EXPECT_EQ(zeros.data()[4096 + 8192], std::byte{7});

  Buffer in(16384, std::byte{9});
  ASSERT_TRUE(read({{0, in.data(), 100}}));
  EXPECT_EQ(in.data()[99], std::byte{7});
  EXPECT_EQ(in.data()[4096], std::byte{9});
}

TEST_P(FileEngineContract, nothing_at_all_is_reported_too) {
  EXPECT_TRUE(write({}));
  EXPECT_TRUE(read({{0, nullptr, 0}, {4096, nullptr, 0}}));
  EXPECT_NE(completions_.last_thread(), std::this_thread::get_id());
}

TEST_P(FileEngineContract, many_small_ones_from_several_threads) {
  constexpr Token kThreads = 4, kEach = 60;
  Buffer out(kThreads * kEach * 4096), in(out.size());
  out.scramble(2);
  for (const Direction direction : {Direction::write, Direction::read}) {
    const Buffer& memory = direction == Direction::write ? out : in;
    std::vector<std::thread> threads;
    const Token base = direction == Direction::write ? 0 : 10000;
    for (Token t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (Token i = t * kEach; i < (t + 1) * kEach; ++i) {
          const Piece piece{i * 4096, memory.data() + i * 4096, 4096};
          engine_->submit(base + i, direction, file_, {&piece, 1});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Token i = 0; i < kThreads * kEach; ++i) ASSERT_TRUE(completions_.of(base + i));
  }
  EXPECT_TRUE(same(out, in, out.size()));
  engine_->stop();
  EXPECT_EQ(completions_.order().size(), 2 * kThreads * kEach);
  EXPECT_EQ(engine_->pending(), 0u);
}

TEST_P(FileEngineContract, large_ones_with_the_sizes_of_production) {
  constexpr std::size_t kBytes = 64 << 20;
  if (GetParam().faulty) return;  // said enough by the small ones
  open(1 << 20, 2 * kBytes);
  Buffer out(kBytes), in(kBytes);
  out.scramble(3);
  const Piece halves[2] = {{kBytes, out.data(), kBytes / 2}, {0, out.data() + kBytes / 2, kBytes / 2}};
  engine_->submit(1, Direction::write, file_, {&halves[0], 1});
  engine_->submit(2, Direction::write, file_, {&halves[1], 1});
  ASSERT_TRUE(completions_.of(1));
  ASSERT_TRUE(completions_.of(2));
  ASSERT_TRUE(read({{kBytes, in.data(), kBytes / 2}, {0, in.data() + kBytes / 2, kBytes / 2}}));
  EXPECT_TRUE(same(out, in, kBytes));
}

TEST_P(FileEngineContract, the_end_of_the_file_is_an_error_that_names_the_place) {
  Buffer in(16384);
  const Result<void> how = read({{kFileBytes - 8192, in.data(), 16384}});
  ASSERT_FALSE(how);
  EXPECT_EQ(how.error().code, Errc::io_error);
  EXPECT_NE(how.error().message.find("offset " + std::to_string(kFileBytes)), std::string::npos) << how.error().message;
  EXPECT_NE(how.error().message.find("test file"), std::string::npos);
  EXPECT_TRUE(read({{kFileBytes - 8192, in.data(), 8192}}));
}

TEST_P(FileEngineContract, what_is_pending_when_it_stops_is_reported) {
  using doubles::FileCall;
  Buffer out(1 << 20, std::byte{3}), in(1 << 20);
  const Piece piece{0, out.data(), 1 << 20};
  files_.hold(FileCall::write);
  for (Token i = 0; i < 5; ++i) engine_->submit(i, Direction::write, file_, {&piece, 1});
  files_.await_held(FileCall::write, 1);
  EXPECT_EQ(engine_->pending(), 5u);
  EXPECT_TRUE(completions_.order().empty());
  std::thread releaser([&] { files_.release(FileCall::write); });
  engine_->stop();
  releaser.join();
  engine_->stop();
  EXPECT_EQ(completions_.order().size(), 5u);
  for (Token i = 0; i < 5; ++i) EXPECT_TRUE(completions_.of(i));
  EXPECT_THROW(engine_->submit(9, Direction::read, file_, {&piece, 1}), std::logic_error);
}

TEST_P(FileEngineContract, a_report_may_submit_more_even_while_stopping) {
  Buffer out(4096, std::byte{1});
  const Piece piece{0, out.data(), 4096};
  std::atomic<int> reports{0};
  FileEngine* engine = nullptr;
  FileEngineOptions options;
  options.kind = GetParam().kind;
  auto made = make_file_engine(files_, options, [&](Token token, Result<void>) {
                ++reports;
                if (token < 20) engine->submit(token + 1, Direction::write, file_, {&piece, token % 2});
              }).value();
  engine = made.get();
  engine->submit(0, Direction::write, file_, {&piece, 1});
  engine->stop();
  EXPECT_EQ(reports, 21);
}

TEST_P(FileEngineContract, a_direct_piece_that_is_not_aligned_breaks_the_contract) {
  if (!GetParam().direct) return;
  Buffer out(8192);
  EXPECT_THROW(static_cast<void>(write({{512, out.data(), 4096}})), std::logic_error);
  EXPECT_THROW(static_cast<void>(write({{0, out.data() + 512, 4096}})), std::logic_error);
  EXPECT_EQ(engine_->pending(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    All, FileEngineContract,
    ::testing::Values(test::EngineCase{Kind::threads, false, false}, test::EngineCase{Kind::threads, true, false},
                      test::EngineCase{Kind::uring, false, false}, test::EngineCase{Kind::uring, true, false},
                      test::EngineCase{Kind::threads, false, true}, test::EngineCase{Kind::threads, true, true},
                      test::EngineCase{Kind::uring, false, true}, test::EngineCase{Kind::uring, true, true}),
    test::name_of_case);

TEST(MakeFileEngine, takes_threads_where_the_ring_is_refused) {
  os::PosixFiles posix;
  doubles::FaultyFiles files(posix, 1);
  for (const int error : {ENOSYS, EPERM}) {
    files.fail_nth(doubles::FileCall::open_ring, 1, error, 2);
    test::Completions completions;
    auto automatic = make_file_engine(files, {}, completions.done());
    ASSERT_TRUE(automatic);
    EXPECT_EQ((*automatic)->name(), "threads");
    FileEngineOptions options;
    options.kind = Kind::uring;
    const auto asked = make_file_engine(files, options, completions.done());
    ASSERT_FALSE(asked);
    EXPECT_EQ(asked.error().code, Errc::unsupported);
    EXPECT_NE(asked.error().message.find(error == EPERM ? "EPERM" : "ENOSYS"), std::string::npos);
  }
}

TEST(MakeFileEngine, impossible_options_break_the_contract) {
  os::PosixFiles files;
  test::Completions completions;
  for (const FileEngineOptions& options :
       {FileEngineOptions{.threads = 0}, FileEngineOptions{.entries = 0}, FileEngineOptions{.request_bytes = 0},
        FileEngineOptions{.request_bytes = 5000}, FileEngineOptions{.request_bytes = std::size_t{1} << 31}}) {
    EXPECT_THROW(static_cast<void>(make_file_engine(files, options, completions.done())), std::logic_error);
  }
}

}  // namespace
}  // namespace ebb::transfer
