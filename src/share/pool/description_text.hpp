#pragma once
// A checkpoint's description as bytes in a pool: the header of a record without a payload checksum (docs/format.md).
#include <span>
#include <vector>

#include "ebbtide/error.hpp"
#include "storage/format/record.hpp"

namespace ebb::share {

std::vector<std::byte> encode_description(const storage::Description& description);
/// Error damaged.
Result<storage::Description> parse_description(std::span<const std::byte> bytes);

}  // namespace ebb::share
