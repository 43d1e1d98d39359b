#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>

#include "platform/pages.hpp"

namespace ebb::platform {
namespace {

TEST(Pages, are_aligned_zeroed_and_usable_to_the_last_byte) {
  for (const std::size_t bytes : std::initializer_list<std::size_t>{1, 4096, 5 << 20, (2 << 20) + 1}) {
    Result<std::byte*> mapped = map_pages(bytes);
    ASSERT_TRUE(mapped);
    std::byte* memory = *mapped;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % (bytes >= (2 << 20) ? 2 << 20 : 4096), 0u);
    EXPECT_EQ(memory[0], std::byte{0});
    EXPECT_EQ(memory[bytes - 1], std::byte{0});
    memory[0] = memory[bytes - 1] = std::byte{1};
    unmap_pages(memory, bytes);
  }
}

TEST(Pages, too_many_are_refused_by_name) {
  for (const std::size_t bytes : {std::size_t{1} << 60, SIZE_MAX, std::size_t{0}}) {
    Result<std::byte*> mapped = map_pages(bytes);
    ASSERT_FALSE(mapped);
    EXPECT_EQ(mapped.error().code, Errc::out_of_memory);
    EXPECT_NE(mapped.error().message.find(std::to_string(bytes)), std::string::npos) << mapped.error().message;
  }
}

}  // namespace
}  // namespace ebb::platform
