#include "device/copy_bytes.hpp"

#include <cstdint>
#include <cstring>

// A sanitizer sees what memcpy touches, but not non-temporal stores.
#if defined(__SSE2__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#if !defined(__has_feature)
#define EBB_STREAMS 1
#elif !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer) && !__has_feature(memory_sanitizer)
#define EBB_STREAMS 1
#endif
#endif

#ifdef EBB_STREAMS
#include <emmintrin.h>
#endif

namespace ebb::device {

#ifdef EBB_STREAMS
namespace {

constexpr std::size_t kMuch = 1 << 20;  // about the size of a core's own cache
constexpr std::size_t kLine = 64;

// `to` is aligned to a cache line, `bytes` is a multiple of one.
void stream_lines(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kLine) {
    const auto* const source = reinterpret_cast<const __m128i*>(from + at);
    auto* const target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();  // releasing a lock does not order non-temporal stores
}

}  // namespace

void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes == 0) return;
  if (bytes < kMuch) {
    std::memcpy(to, from, bytes);
    return;
  }
  auto* target = static_cast<std::byte*>(to);
  const auto* source = static_cast<const std::byte*>(from);
  const std::size_t first = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  const std::size_t lines = (bytes - first) / kLine * kLine;
  std::memcpy(target, source, first);
  stream_lines(target + first, source + first, lines);
  std::memcpy(target + first + lines, source + first + lines, bytes - first - lines);
}
#else
void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
  if (bytes) std::memcpy(to, from, bytes);
}
#endif

}  // namespace ebb::device
