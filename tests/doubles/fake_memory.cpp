#include "tests/doubles/fake_memory.hpp"

#include <cstdint>
#include <iterator>
#include <stdexcept>

#include "os/files.hpp"

namespace ebb::doubles {
namespace {

std::string range_of(std::size_t from, std::size_t to) {
  return std::string("[") + std::to_string(from) + ", " + std::to_string(to) + ")";
}

}  // namespace

bool overlap(const void* a, std::size_t a_bytes, const void* b, std::size_t b_bytes) {
  const auto* x = static_cast<const std::byte*>(a);
  const auto* y = static_cast<const std::byte*>(b);
  return a_bytes && b_bytes && x < y + b_bytes && y < x + a_bytes;
}

const FakeMemory::Reserved* FakeMemory::range(std::byte* range) const {
  const auto found = reserved_.find(range);
  return found == reserved_.end() ? nullptr : &found->second;
}

void FakeMemory::mapped(std::byte* range, std::size_t at, std::size_t bytes, std::size_t granule) {
  const auto found = reserved_.find(range);
  if (found == reserved_.end()) throw std::logic_error("memory is mapped to a range that was not reserved");
  Reserved& reserved = found->second;
  const std::string piece = "the piece " + range_of(at, at + bytes) + " of " + std::to_string(reserved.bytes) + " ";
  if (bytes == 0 || at > reserved.bytes || bytes > reserved.bytes - at) {
    throw std::logic_error(piece + "is empty or beyond its range");
  }
  if (at != reserved.mapped) {
    throw std::logic_error(piece + "does not follow the one that ended at " + std::to_string(reserved.mapped));
  }
  if (at % granule || (bytes % granule && at + bytes != reserved.bytes)) {
    throw std::logic_error(piece + "is none of whole granules of " + std::to_string(granule));
  }
  reserved.mapped += bytes;
}

FakeMemory::Pinned::const_iterator FakeMemory::pinned_before(const std::byte* memory) const {
  const auto above = pinned_.upper_bound(const_cast<std::byte*>(memory));
  return above == pinned_.begin() ? above : std::prev(above);
}

std::optional<std::string> FakeMemory::pin(std::byte* memory, std::size_t bytes) {
  const bool whole = bytes % os::kBlock == 0 && reinterpret_cast<std::uintptr_t>(memory) % os::kBlock == 0;
  if (bytes == 0 || !whole) return "they are no whole pages";
  const auto before = pinned_before(memory);
  for (auto it = before; it != pinned_.end() && it->first < memory + bytes; ++it) {
    if (overlap(memory, bytes, it->first, it->second)) return "some of them are pinned already";
  }
  pinned_[memory] = bytes;
  return {};
}

bool FakeMemory::unpin(std::byte* memory, std::size_t bytes) {
  const auto found = pinned_.find(memory);
  if (found == pinned_.end() || found->second != bytes) return false;
  pinned_.erase(found);
  return true;
}

bool FakeMemory::is_device(const void* memory, std::size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(memory);
  const auto after = allocated_.upper_bound(const_cast<std::byte*>(begin));
  if (after == allocated_.begin()) return false;
  const auto [there, size] = *std::prev(after);
  const auto pinned = pinned_before(begin);
  return bytes <= size && begin + bytes <= there + size &&
         (pinned == pinned_.end() || !overlap(memory, bytes, pinned->first, pinned->second));
}

std::optional<std::string> FakeMemory::unusable(const void* memory, std::size_t bytes) const {
  for (const auto& [range, reserved] : reserved_) {
    const std::size_t missing = reserved.bytes - reserved.mapped;
    if (!overlap(memory, bytes, range + reserved.mapped, missing)) continue;
    return "of a reserved range of " + std::to_string(reserved.bytes) + " bytes only the first " +
           std::to_string(reserved.mapped) + " are mapped";
  }
  return {};
}

std::optional<std::string> FakeMemory::crosses(const void* memory, std::size_t bytes) const {
  const auto* begin = static_cast<const std::byte*>(memory);
  for (auto it = pinned_before(begin); it != pinned_.end() && it->first < begin + bytes; ++it) {
    const auto& [piece, length] = *it;
    if (!overlap(memory, bytes, piece, length) || (begin >= piece && begin + bytes <= piece + length)) continue;
    return begin < piece ? "it comes into a pinned piece from outside" : "it leaves the pinned piece that it begins in";
  }
  return {};
}

std::size_t FakeMemory::allocated_bytes() const {
  std::size_t sum = 0;
  for (const auto& [memory, bytes] : allocated_) sum += bytes;
  for (const auto& [range, reserved] : reserved_) sum += reserved.mapped;
  return sum;
}

std::size_t FakeMemory::reserved_bytes() const {
  std::size_t sum = 0;
  for (const auto& [range, reserved] : reserved_) sum += reserved.bytes;
  return sum;
}

std::size_t FakeMemory::pinned_bytes() const {
  std::size_t sum = 0;
  for (const auto& [memory, bytes] : pinned_) sum += bytes;
  return sum;
}

}  // namespace ebb::doubles
