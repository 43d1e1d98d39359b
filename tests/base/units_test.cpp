#include "ebbtide/units.hpp"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(ParseBytes, ReadsWhatPeopleWrite) {
  const auto bytes = [](const char* text) { return parse_bytes("disk", text).value(); };
  EXPECT_EQ(bytes("0"), 0u);
  EXPECT_EQ(bytes("4096"), 4096u);
  EXPECT_EQ(bytes("4GiB"), 4ull << 30);
  EXPECT_EQ(bytes("512 MiB"), 512ull << 20);
  EXPECT_EQ(bytes("1.5GB"), 1'500'000'000u);
  EXPECT_EQ(bytes(" 2tib "), 2ull << 40);
  EXPECT_EQ(bytes("8k"), 8192u);
  EXPECT_EQ(bytes("0.5KiB"), 512u);
  EXPECT_EQ(bytes("9007199254740993"), 9007199254740993u);  // more than a double can tell
}

TEST(ParseBytes, RefusesTheRestNamingKeyValueAndWhatIsRight) {
  for (const char* text : {"", "GiB", "-1", "-4GiB", "4 parsecs", "4GiB2", "0x10", "inf", "nan", "1e3", "9EiB",
                           "16777216TiB", "9223372036854775808", "18446744073709551616"}) {
    const auto parsed = parse_bytes("host_cache", text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Errc::invalid_argument);
    EXPECT_NE(parsed.error().message.find("host_cache=\"" + std::string(text) + "\""), std::string::npos);
    EXPECT_NE(parsed.error().message.find("expected"), std::string::npos);
  }
}

TEST(ParseSeconds, ReadsWhatPeopleWrite) {
  const auto seconds = [](const char* text) { return parse_seconds("close_timeout", text).value().count(); };
  EXPECT_DOUBLE_EQ(seconds("10ms"), 0.01);
  EXPECT_DOUBLE_EQ(seconds("2s"), 2);
  EXPECT_DOUBLE_EQ(seconds("1.5"), 1.5);
  EXPECT_DOUBLE_EQ(seconds("3 min"), 180);
  EXPECT_DOUBLE_EQ(seconds("250us"), 250e-6);
}

TEST(ParseSeconds, RefusesTheRest) {
  for (const char* text : {"", "s", "-1s", "ten", "1 day"}) EXPECT_FALSE(parse_seconds("close_timeout", text)) << text;
}

TEST(FormatBytes, IsShortAndParsesBack) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(4294967296), "4 GiB");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  for (const std::uint64_t bytes : {1ull, 4096ull, 3ull << 20, 5ull << 30, 7ull << 40}) {
    EXPECT_EQ(parse_bytes("x", format_bytes(bytes)).value(), bytes);
  }
}

}  // namespace
}  // namespace ebb
