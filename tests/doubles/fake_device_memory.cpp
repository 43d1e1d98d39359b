// The double's memory: allocating, reserving, mapping, pinning, discarding.
#include <sys/mman.h>
#include <vector>

#include "os/files.hpp"
#include "os/pages.hpp"
#include "tests/doubles/fake_device.hpp"

namespace ebb::doubles {
namespace {

bool present(std::byte* memory, std::size_t bytes) {
  std::vector<unsigned char> pages(bytes / os::kBlock);
  if (::mincore(memory, bytes, pages.data()) != 0) return false;
  for (const unsigned char page : pages) {
    if (!(page & 1)) return false;
  }
  return true;
}

Error no_memory(const char* what, std::size_t bytes) {
  return {Errc::out_of_memory, std::string("the device could not ") + what + " " + std::to_string(bytes) + " bytes"};
}

}  // namespace

std::size_t FakeDevice::allocated() const {
  std::lock_guard lock(mutex_);
  return memory_.allocated_bytes();
}

std::size_t FakeDevice::reserved() const {
  std::lock_guard lock(mutex_);
  return memory_.reserved_bytes();
}

std::size_t FakeDevice::pinned() const {
  std::lock_guard lock(mutex_);
  return memory_.pinned_bytes();
}

Result<std::byte*> FakeDevice::allocate(std::size_t bytes) {
  Result<std::byte*> memory = os::map_pages(bytes);
  if (!memory) return memory;
  poison(*memory, bytes);
  std::lock_guard lock(mutex_);
  memory_.allocated(*memory, bytes);
  return memory;
}

void FakeDevice::free(std::byte* memory, std::size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  check_locked("free", memory, bytes, true);
  if (memory_.freed(memory)) os::unmap_pages(memory, bytes);
}

Result<std::byte*> FakeDevice::allocate_host(std::size_t bytes) {
  Result<std::byte*> memory = allocate(bytes);
  if (!memory || !discrete_) return memory;
  std::lock_guard lock(mutex_);
  memory_.pin(*memory, os::round_up(bytes));
  return memory;
}

void FakeDevice::free_host(std::byte* memory, std::size_t bytes) noexcept {
  {
    std::lock_guard lock(mutex_);
    memory_.unpin(memory, os::round_up(bytes));
  }
  free(memory, bytes);
}

Result<std::byte*> FakeDevice::reserve(std::size_t bytes) {
  if (bytes == 0 || bytes > SIZE_MAX - os::kHugePage) return no_memory("reserve", bytes);
  Result<std::byte*> range = os::map_pages(os::round_up(bytes, os::kHugePage));
  if (!range) return range;
  // Not even the test may look at it by mistake.
  ::mprotect(*range, os::round_up(bytes, os::kHugePage), PROT_NONE);
  std::lock_guard lock(mutex_);
  memory_.reserved(*range, bytes);
  return range;
}

Result<void> FakeDevice::map(std::byte* range, std::size_t at, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  std::size_t mapped = 0;
  for (const auto& [each, reserved] : memory_.all_reserved()) mapped += reserved.mapped;
  if (fail_map_.next() || mapped > map_limit_ || bytes > map_limit_ - mapped) return no_memory("map", bytes);
  memory_.mapped(range, at, bytes, granule_);
  ::mprotect(range + at, os::round_up(bytes), PROT_READ | PROT_WRITE);
  poison(range + at, bytes);
  return {};
}

void FakeDevice::unreserve(std::byte* range, std::size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  check_locked("unreserve", range, bytes, true);
  const FakeMemory::Reserved* reserved = memory_.range(range);
  if (!reserved || reserved->bytes != bytes) {
    violations_.push_back("a range is given back that was not reserved so");
    return;
  }
  memory_.unreserved(range);
  os::unmap_pages(range, os::round_up(bytes, os::kHugePage));
}

Result<void> FakeDevice::pin(std::byte* memory, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  check_locked("pin", memory, bytes, true);
  const std::size_t pinned = memory_.pinned_bytes();
  if (fail_pin_.next() || pinned > pin_limit_ || bytes > pin_limit_ - pinned) return no_memory("pin", bytes);
  if (const auto why = memory_.pin(memory, bytes)) {
    violations_.push_back("pages are pinned, but " + *why);
    return Error{Errc::io_error, "the device could not pin " + std::to_string(bytes) + " bytes: " + *why};
  }
  if (!present(memory, bytes)) violations_.push_back("pages are pinned that are not present");
  return {};
}

void FakeDevice::unpin(std::byte* memory, std::size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  check_locked("unpin", memory, bytes, true);
  if (!memory_.unpin(memory, bytes)) violations_.push_back("memory is unpinned that was not pinned so");
}

std::optional<Error> FakeDevice::refusal_locked(const void* to, const void* from, std::size_t bytes) const {
  for (const auto& [name, place] : {std::pair("source", from), std::pair("target", static_cast<const void*>(to))}) {
    auto why = memory_.unusable(place, bytes);
    if (!why && discrete_) why = memory_.crosses(place, bytes);
    if (why) {
      return Error{Errc::io_error, "the device could not copy " + std::to_string(bytes) +
                                       " bytes: invalid argument: of its " + name + ", " + *why};
    }
  }
  return {};
}

void FakeDevice::discard(void* memory, std::size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  check_locked("discard", memory, bytes, true);
  if (memory_.unusable(memory, bytes)) {
    violations_.push_back("discard meets reserved memory that is not mapped");
    return;
  }
  poison(memory, bytes);
}

}  // namespace ebb::doubles
