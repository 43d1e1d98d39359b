// A store that finds no memory to read a file with: the call says so, and nothing is lost by it.
#include "kept_rig.hpp"
#include "tests/os/refused_memory.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

TEST(KeptNoMemory, ARestoreThatFindsNoneSaysSoAndCanBeMadeAgain) {
  KeptRig rig;
  keep(rig.open(), 3);
  Store& store = rig.open();
  std::byte small{};
  ASSERT_EQ(code_of(store.restore(3, {{0, &small, 1}})), Errc::size_mismatch) << "from here on it is known what it is";
  std::vector<std::byte> bytes(kSize);
  test::refuse_aligned = true;
  const auto refused = store.restore(3, {{0, bytes.data(), kSize}});
  test::refuse_aligned = false;
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory) << refused.error().message;
  EXPECT_NE(refused.error().message.find("could not be read: version 3 of \"\": there is no memory"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(store.latest().value(), 3);
  expect_restored(store, 3, kSize);
}

}  // namespace
}  // namespace ebb::store
