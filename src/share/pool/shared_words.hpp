#pragma once
// Memory that processes share, as words.
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ebb::share {

/// A view of mapped memory as words of 64 bits, each by the offset of its first byte. All accesses are atomic and
/// lock-free: a writer that is killed leaves each word old or new.
class SharedWords {
 public:
  using Word = std::atomic_ref<std::uint64_t>;
  static_assert(Word::is_always_lock_free);

  explicit SharedWords(std::byte* memory) noexcept : memory_(memory) {}
  Word operator()(std::uint64_t at) const noexcept { return Word(*reinterpret_cast<std::uint64_t*>(memory_ + at)); }

 private:
  std::byte* memory_;
};

}  // namespace ebb::share
