#include "device/peer_probe.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

namespace ebb::device {
namespace {

constexpr int kPeerRuns = 5;
constexpr std::array<std::size_t, 6> kPieces{4095, 1, 65537, 4096, (std::size_t{1} << 20) + 3, 513};

// splitmix64.
std::uint64_t mixed(std::uint64_t word) {
  word += 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

std::uint64_t pattern(std::uint64_t seed, std::size_t at) { return mixed(seed + at); }

// Calls `each` with the place and the length of every word, the last of which may be short.
template <class Each>
void for_words(std::byte* memory, std::size_t bytes, const Each& each) {
  for (std::size_t at = 0; at < bytes; at += 8) each(memory + at, at, std::min<std::size_t>(8, bytes - at));
}

void fill(std::byte* memory, std::size_t bytes, std::uint64_t seed, std::uint64_t flipped) {
  for_words(memory, bytes, [&](std::byte* place, std::size_t at, std::size_t length) {
    const std::uint64_t word = pattern(seed, at) ^ flipped;
    std::memcpy(place, &word, length);
  });
}

Result<void> compare(std::byte* memory, std::size_t bytes, std::uint64_t seed) {
  std::size_t wrong = 0, first = bytes;
  for_words(memory, bytes, [&](std::byte* place, std::size_t at, std::size_t length) {
    const std::uint64_t expected = pattern(seed, at);
    if (std::memcmp(place, &expected, length) == 0) return;
    first = std::min(first, at);
    wrong += length;
  });
  if (wrong == 0) return {};
  return Error{Errc::damaged, std::to_string(wrong) + " of " + std::to_string(bytes) +
                                  " probed bytes arrived wrong, the first of them at " + std::to_string(first)};
}

// A device's own memory, host memory, a stream and an event; freed at the end. Not movable.
class Staging {
 public:
  Staging(Device& device, std::size_t bytes) : device_(device), bytes_(bytes) {}
  Staging(const Staging&) = delete;
  ~Staging() {
    if (stream_) device_.destroy_stream(stream_);  // ends its work first
    if (event_) device_.destroy_event(event_);
    if (host) device_.free_host(host, bytes_);
    if (own) device_.free(own, bytes_);
  }

  Result<void> prepare(bool with_host) {
    const auto place = device_.allocate(bytes_);
    if (!place) return place.error();
    own = *place;
    if (with_host) {
      const auto outside = device_.allocate_host(bytes_);
      if (!outside) return outside.error();
      host = *outside;
    }
    const auto stream = device_.create_stream();
    if (!stream) return stream.error();
    stream_ = *stream;
    const auto event = device_.create_event();
    if (!event) return event.error();
    event_ = *event;
    return {};
  }

  Result<void> copy(std::byte* to, const std::byte* from) { return device_.copy(stream_, to, from, bytes_); }
  // The same in pieces of odd sizes, of which `first` is the first.
  Result<void> copy_in_pieces(std::byte* to, const std::byte* from, std::size_t first) {
    for (std::size_t at = 0, piece = first; at < bytes_; ++piece) {
      const std::size_t size = std::min(kPieces[piece % kPieces.size()], bytes_ - at);
      if (auto copied = device_.copy(stream_, to + at, from + at, size); !copied) return copied;
      at += size;
    }
    return {};
  }
  Result<void> finish() {
    if (auto recorded = device_.record(event_, stream_); !recorded) return recorded;
    return device_.wait(event_);
  }

  std::byte *own = nullptr, *host = nullptr;

 private:
  Device& device_;
  const std::size_t bytes_;
  StreamId stream_ = 0;
  EventId event_ = 0;
};

Result<void> write_pattern(PeerView to, std::size_t bytes, std::uint64_t seed) {
  Staging staging(to.device, bytes);
  if (auto prepared = staging.prepare(true); !prepared) return prepared;
  fill(staging.host, bytes, seed, 0);
  if (auto copied = staging.copy(staging.own, staging.host); !copied) return copied;
  if (auto copied = staging.copy_in_pieces(to.memory, staging.own, 0); !copied) return copied;
  return staging.finish();
}

Result<void> check_pattern(PeerView from, std::size_t bytes, std::uint64_t seed) {
  Staging staging(from.device, bytes);
  if (auto prepared = staging.prepare(true); !prepared) return prepared;
  // Other bytes first, so that a copy that does nothing is seen.
  fill(staging.host, bytes, seed, ~std::uint64_t{0});
  if (auto copied = staging.copy(staging.own, staging.host); !copied) return copied;
  if (auto copied = staging.copy_in_pieces(staging.own, from.memory, 2); !copied) return copied;
  if (auto copied = staging.copy(staging.host, staging.own); !copied) return copied;
  if (auto ended = staging.finish(); !ended) return ended;
  return compare(staging.host, bytes, seed);
}

}  // namespace

Result<void> probe(PeerView writer, PeerView reader, std::size_t bytes) {
  // A new seed: what an earlier probe left behind must not look like this one's.
  std::random_device random;
  const std::uint64_t seed = mixed((std::uint64_t{random()} << 32) | random());
  if (auto written = write_pattern(writer, bytes, seed); !written) return written;
  return check_pattern(reader, bytes, seed);
}

Result<PeerRates> measure_peer(PeerView view, std::size_t bytes) {
  Staging staging(view.device, bytes);
  if (auto prepared = staging.prepare(false); !prepared) return prepared.error();
  // The first run, which loads code and touches pages, does not count.
  const auto rate = [&](std::byte* to, const std::byte* from) -> Result<double> {
    std::array<double, kPeerRuns> seconds{};
    for (int i = -1; i < kPeerRuns; ++i) {
      const auto begun = std::chrono::steady_clock::now();
      if (auto copied = staging.copy(to, from); !copied) return copied.error();
      if (auto ended = staging.finish(); !ended) return ended.error();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begun;
      if (i >= 0) seconds[static_cast<std::size_t>(i)] = std::max(taken.count(), 1e-9);
    }
    std::nth_element(seconds.begin(), seconds.begin() + kPeerRuns / 2, seconds.end());
    return static_cast<double>(bytes) / seconds[kPeerRuns / 2];
  };
  const Result<double> store = rate(view.memory, staging.own);
  if (!store) return store.error();
  const Result<double> load = rate(staging.own, view.memory);
  if (!load) return load.error();
  return PeerRates{*store, *load};
}

}  // namespace ebb::device
