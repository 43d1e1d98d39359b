// A transfer for which any allocation fails is not submitted at all, and the engine continues and stops normally.
#include "tests/os/refused_memory.hpp"
#include "tests/transfer/file_engine_fixture.hpp"

namespace ebb::transfer {
namespace {

using Kind = FileEngineOptions::Kind;

class NoMemoryTest : public test::FileEngineTest {};

TEST_P(NoMemoryTest, a_submit_is_whole_or_not_at_all) {
  open(65536, 1 << 20);
  if (IsSkipped()) return;
  test::Buffer in(1 << 20);
  const Piece whole{0, in.data(), 1 << 20};
  int refused = 0;
  for (bool all = false; !all; refused += !all) {
    const Token token = next_++;
    test::refuse_nth = refused + 1;
    try {
      engine_->submit(token, Direction::read, file_, {&whole, 1});
      all = test::refuse_nth > 0;
      test::refuse_nth = 0;
      EXPECT_TRUE(all) << "allocation " << refused + 1 << " failed without an error";
      EXPECT_TRUE(completions_.of(token));
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(engine_->pending(), 0u) << "after allocation " << refused + 1;
    }
  }
  EXPECT_GT(refused, 2);
  engine_->stop();
  EXPECT_EQ(completions_.order().size(), 1u) << "nothing of those that were refused was ever reported";
}

INSTANTIATE_TEST_SUITE_P(All, NoMemoryTest,
                         ::testing::Values(test::EngineCase{Kind::threads}, test::EngineCase{Kind::uring}),
                         test::name_of_case);

}  // namespace
}  // namespace ebb::transfer
