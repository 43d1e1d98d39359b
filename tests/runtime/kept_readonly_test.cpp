// A store looked at while another process writes it. (The other process is another store object here: the two share
// nothing but the directory.)
#include "kept_rig.hpp"

namespace ebb::runtime {
namespace {

using namespace testing_support;

/// A writer and, beside it, a reader of the same directory.
struct Beside {
  KeptRig writer;
  Rig reader{Backend::threads, {.device = 64 * kKiB, .host = 128 * kKiB}};
  Lines lines;
  Store& write_side() { return writer.rig().store(); }
  Store& read_side() {
    reader.setup().directory = writer.path();
    reader.setup().readonly = true;
    reader.setup().machine.ephemeral = false;
    reader.setup().log = lines.sink();
    return reader.store();
  }
};

TEST(KeptReadonly, WhatIsAddedMeanwhileIsSeen) {
  Beside both;
  Store& writer = both.write_side();
  keep(writer, 1);
  Store& reader = both.read_side();
  EXPECT_EQ(reader.latest().value(), 1);
  expect_restored(reader, 1, kSize);
  for (Version v = 2; v < 8; ++v) {
    keep(writer, v);
    expect_restored(reader, v, kSize);  // asked for by name: looked for
    EXPECT_EQ(reader.latest().value(), v);
    EXPECT_EQ(reader.versions().value().size(), static_cast<std::size_t>(v));
  }
  History other = both.write_side().history("other");
  keep(other, 5);
  History seen = reader.history("other");
  EXPECT_EQ(seen.latest().value(), 5);
  EXPECT_EQ(both.lines.starting("warning: ").size(), 0u);
}

TEST(KeptReadonly, NothingCanBeWritten) {
  Beside both;
  keep(both.write_side(), 1);
  Store& reader = both.read_side();
  EXPECT_EQ(code_of(write(reader, 2, kSize)), Errc::unsupported);
  EXPECT_EQ(code_of(reader.drop(1)), Errc::unsupported);
  EXPECT_EQ(code_of(reader.drop()), Errc::unsupported);
  const Source room{0, nullptr, kSize};
  EXPECT_EQ(code_of(reader.reserve(2, std::span(&room, 1))), Errc::unsupported);
  EXPECT_TRUE(reader.wait("storage", Seconds(60))) << "all that it sees is kept";
  expect_restored(reader, 1, kSize);
  expect_restored(reader, 1, kSize);
  ASSERT_TRUE(reader.close());
  EXPECT_EQ(both.write_side().versions(), std::vector<Version>{1});
}

TEST(KeptReadonly, WhatIsDroppedMeanwhileIsSaidToBe) {
  Beside both;
  Store& writer = both.write_side();
  for (Version v : {1, 2, 3}) keep(writer, v);
  Store& reader = both.read_side();
  expect_restored(reader, 2, kSize, {.keep = true});  // its regions are known
  ASSERT_TRUE(writer.drop(2));
  ASSERT_TRUE(writer.drop(3));
  keep(writer, 4);
  keep(writer, 5);  // the drops before it are carried out
  EXPECT_EQ(code_of(reader.info(3)), Errc::unknown_version);
  EXPECT_EQ(reader.latest(3).value(), 1);
  EXPECT_EQ(reader.latest().value(), 5);
  EXPECT_EQ(both.lines.starting("warning: ").size(), 0u) << "a drop is no damage";
}

TEST(KeptReadonly, WhatIsDroppedAndWrittenAnewIsSeenAsItIs) {
  Beside both;
  Store& writer = both.write_side();
  keep(writer, 1, 2 * kSize);
  Store& reader = both.read_side();
  EXPECT_EQ(reader.info(1).value().bytes, 2 * kSize);
  ASSERT_TRUE(writer.drop(1));
  keep(writer, 1, kSize);
  keep(writer, 2);
  EXPECT_EQ(reader.latest().value(), 2);
  EXPECT_EQ(reader.info(1).value().bytes, kSize);
  expect_restored(reader, 1, kSize);
}

}  // namespace
}  // namespace ebb::runtime
