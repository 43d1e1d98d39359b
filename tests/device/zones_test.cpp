// What every device keeps to when it finds, packs and puts back zones, against a naive model on the host.
#include <algorithm>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <vector>
#include <xxhash.h>  // compiled into this file (ebb_xxhash): there is nothing to link

#include "device/cuda.hpp"
#include "device/zone_checksum.hpp"
#include "device/zone_tracker.hpp"
#include "tests/doubles/fake_device.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::device {
namespace {

using Bytes = std::vector<std::byte>;

struct ZoneKind {
  const char* name;
  std::function<std::shared_ptr<Device>()> make;  // null: there is none here
  bool at_once = false;                           // on the inline stream
};

class ZoneContract : public ::testing::TestWithParam<ZoneKind> {
 protected:
  void SetUp() override {
    device_ = GetParam().make();
    if (!device_) GTEST_SKIP() << "no CUDA device: " << cuda_absent_reason();
    stream_ = GetParam().at_once ? kInlineStream : device_->create_stream().value();
    event_ = device_->create_event().value();
  }
  void TearDown() override {
    if (!device_) return;
    wait();
    device_->destroy_event(event_);
    if (stream_ != kInlineStream) device_->destroy_stream(stream_);
    for (const auto& [memory, bytes] : memory_) device_->free(memory, bytes);
  }

  std::byte* memory(std::size_t bytes) {
    std::byte* const place = device_->allocate(bytes).value();
    memory_.emplace_back(place, bytes);
    return place;
  }
  ZoneTracker track(std::byte* there, std::size_t bytes, std::size_t zone) {
    return ZoneTracker::make(device_, there, bytes, zone).value();
  }
  void wait() {
    device_->record(event_, stream_).value();
    device_->wait(event_).value();
  }
  void upload(std::byte* to, const Bytes& from) { upload(to, from.data(), from.size()); }
  void upload(std::byte* to, const void* from, std::size_t bytes) {
    device_->copy(stream_, to, from, bytes).value();
    wait();
  }
  template <class T = std::byte>
  std::vector<T> download(const void* from, std::size_t n) {
    std::vector<T> all(n);
    device_->copy(stream_, all.data(), from, n * sizeof(T)).value();
    wait();
    return all;
  }
  ZoneCounts counts(const ZoneTracker& tracker) { return download<ZoneCounts>(tracker.tables().counts, 1)[0]; }
  std::vector<std::uint32_t> dirty(const ZoneTracker& tracker) {
    return download<std::uint32_t>(tracker.tables().dirty, counts(tracker).dirty);
  }
  static Bytes scrambled(std::size_t bytes, std::uint64_t seed) {
    test::Buffer buffer(bytes);
    buffer.scramble(seed);
    return {buffer.data(), buffer.data() + bytes};
  }
  static std::vector<std::uint32_t> all_of(std::size_t zones) {
    std::vector<std::uint32_t> all(zones);
    std::iota(all.begin(), all.end(), 0u);
    return all;
  }

  std::shared_ptr<Device> device_;
  StreamId stream_ = kInlineStream;
  EventId event_ = 0;

 private:
  std::vector<std::pair<std::byte*, std::size_t>> memory_;
};

/// Memory in zones, as the host would keep it: what it holds, and what it held when it was last clean.
struct ZoneModel {
  Bytes now, clean;
  std::size_t zone;
  bool first = true;

  std::size_t count() const { return (now.size() + zone - 1) / zone; }
  std::size_t bytes_of(std::size_t number) const { return std::min(zone, now.size() - number * zone); }
  bool differs(std::size_t number) const {
    return std::memcmp(&now[number * zone], &clean[number * zone], bytes_of(number)) != 0;
  }
  std::vector<std::uint32_t> find() {
    std::vector<std::uint32_t> dirty;
    for (std::uint32_t number = 0; number < count(); ++number) {
      if (first || differs(number)) dirty.push_back(number);
    }
    first = false;
    clean = now;
    return dirty;
  }
  // A byte, a bit or a stretch of some zones; some of them the same value as before.
  void change(std::mt19937_64& random) {
    const std::size_t n = random() % 3 == 0 ? random() % (2 * count()) : random() % 4;
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t number = random() % 4 == 0 ? count() - 1 : random() % count(), at = number * zone;
      const std::size_t from = at + random() % bytes_of(number);
      const std::size_t length = 1 + random() % (at + bytes_of(number) - from);
      if (random() % 2 == 0) {
        now[from] ^= std::byte(1u << random() % 8);
      } else {
        std::memset(&now[from], random() % 2 == 0 ? 0 : static_cast<int>(random() % 256), length);
      }
    }
  }
  Bytes packed(std::span<const std::uint32_t> zones) const {
    Bytes all;
    for (const std::uint32_t number : zones) {
      all.insert(all.end(), &now[number * zone], &now[number * zone] + bytes_of(number));
    }
    return all;
  }
};

TEST_P(ZoneContract, what_changed_is_found_packed_and_put_back) {
  constexpr std::byte kGuard{0xA5};
  std::mt19937_64 random(20);
  for (int round = 0; round < 12; ++round) {
    const std::size_t zone = std::size_t{4096} << (round * 2 % 9), zones = 1 + random() % (zone < 65536 ? 70 : 9);
    const std::size_t bytes = zones * zone - (round % 3 == 0 ? 0 : random() % (round % 3 == 1 ? zone : 64));
    SCOPED_TRACE(::testing::Message() << "zone " << zone << " bytes " << bytes << " round " << round);
    ZoneModel model{scrambled(bytes, static_cast<std::uint64_t>(round)), Bytes(bytes), zone};
    const std::size_t buffer_bytes = bytes + 8192;
    std::byte *const there = memory(bytes), *const buffer = memory(buffer_bytes);
    std::byte* const list = memory(zones * sizeof(PlacedZone));
    ZoneTracker tracker = track(there, bytes, zone);
    for (int cut = 0; cut < 12; ++cut) {
      upload(there, model.now);
      if (cut == 7) {
        tracker.forget();
        model.first = true;
      }
      tracker.find(stream_).value();
      const std::vector<std::uint32_t> expected = model.find();
      ASSERT_EQ(dirty(tracker), expected) << cut;

      // Packed in as many gathers as the room makes necessary; nothing behind the room is touched.
      const std::size_t room = cut % 3 == 0   ? bytes
                               : cut % 3 == 1 ? std::min(bytes, zone + random() % (3 * zone))
                                              : bytes - random() % std::min(bytes, zone);
      for (std::size_t from = 0, gathers = 0;; ++gathers) {
        ASSERT_LE(gathers, expected.size());
        upload(buffer, Bytes(buffer_bytes, kGuard));
        tracker.gather(stream_, buffer, room, from).value();
        const ZoneCounts told = counts(tracker);
        EXPECT_EQ(told.dirty, expected.size());
        EXPECT_EQ(told.begin, 0u);
        ASSERT_LE(told.end, room);
        ASSERT_LE(from + told.packed, expected.size());
        const Bytes packed = model.packed(std::span(expected).subspan(from, told.packed));
        ASSERT_EQ(packed.size(), told.end);
        const Bytes found = download(buffer, buffer_bytes);
        ASSERT_TRUE(std::equal(packed.begin(), packed.end(), found.begin()));
        ASSERT_TRUE(std::all_of(found.begin() + static_cast<std::ptrdiff_t>(told.end), found.end(),
                                [&](std::byte b) { return b == kGuard; }));
        from += told.packed;
        if (from == expected.size()) break;
        ASSERT_GT(told.end + model.bytes_of(expected[from]), room) << "one more would have fitted";
        if (told.packed == 0) break;
      }

      // Some zones get other contents, in any order and from anywhere in a buffer; settled, they are clean.
      std::vector<std::uint32_t> restored = all_of(model.count());
      std::shuffle(restored.begin(), restored.end(), random);
      restored.resize(random() % (restored.size() + 1));
      const Bytes contents = scrambled(buffer_bytes, random());
      std::vector<PlacedZone> placed;
      std::uint64_t at = 0;
      for (const std::uint32_t number : restored) {
        if (at + model.bytes_of(number) > contents.size()) break;
        placed.push_back({number, at});
        std::memcpy(&model.now[number * zone], &contents[at], model.bytes_of(number));
        at += (model.bytes_of(number) + 15) / 16 * 16;
      }
      upload(buffer, contents);
      upload(list, placed.data(), placed.size() * sizeof(PlacedZone));
      const auto* const listed = reinterpret_cast<const PlacedZone*>(list);
      const auto n = static_cast<std::uint32_t>(placed.size());
      tracker.scatter(stream_, listed, n, buffer).value();
      ASSERT_EQ(download(there, bytes), model.now);
      if (cut % 4 == 1) {
        model.change(random);
        upload(there, model.now);
        tracker.settle(stream_).value();
      } else if (cut % 4 != 2) {
        tracker.settle(stream_, listed, n).value();
      }
      if (cut % 4 != 2) model.clean = model.now;  // else what was put back counts as changed
      model.change(random);
    }
    wait();
    if (device_->gpu()) {
      const auto digests = download<Digest>(tracker.tables().digests, model.count());
      for (std::size_t i = 0; i < model.count(); ++i) {
        EXPECT_EQ(digests[i], digest_of(&model.clean[i * zone], model.bytes_of(i))) << i;
      }
    }
  }
}

// Each bit of a zone of 4 KiB, and a good many of larger ones: those zones alone in which one was flipped are found.
TEST_P(ZoneContract, one_flipped_bit_is_found) {
  std::mt19937_64 random(7);
  for (const std::size_t zone : {std::size_t{4096}, std::size_t{16384}, std::size_t{65536}, std::size_t{1} << 20}) {
    const std::size_t zones = zone == 4096 ? 512 : 16, rounds = zone == 4096 ? 128 : 24;
    Bytes now = scrambled(zones * zone, zone);
    std::byte* const there = memory(now.size());
    ZoneTracker tracker = track(there, now.size(), zone);
    upload(there, now);
    tracker.settle(stream_).value();
    for (std::size_t round = 0; round < rounds; ++round) {
      std::vector<std::uint32_t> flipped;
      for (std::size_t number = round % 2; number < zones; number += 2) {
        const std::size_t bit = zone == 4096 ? (round * zones / 2 + number / 2) % (zone * 8) : random() % (zone * 8);
        now[number * zone + bit / 8] ^= std::byte(1u << bit % 8);
        flipped.push_back(static_cast<std::uint32_t>(number));
      }
      upload(there, now);
      tracker.find(stream_).value();
      ASSERT_EQ(dirty(tracker), flipped) << zone << " " << round;
    }
  }
}

// So many that the list is made by several blocks of threads.
TEST_P(ZoneContract, many_zones_are_listed_in_order) {
  constexpr std::size_t kZones = 9001, kBytes = kZones * 4096 - 5;
  std::byte *const there = memory(kBytes), *const buffer = memory(kBytes);
  ZoneTracker tracker = track(there, kBytes, 4096);
  ZoneModel model{scrambled(kBytes, 1), Bytes(kBytes), 4096};
  std::mt19937_64 random(5);
  for (const std::size_t share : {1, 1, 2, 100, 4000}) {
    if (!model.first) {
      for (std::size_t i = random() % share; i < kZones; i += 1 + random() % (2 * share)) {
        model.now[i * 4096 + random() % model.bytes_of(i)] ^= std::byte{1};
      }
    }
    upload(there, model.now);
    tracker.find(stream_).value();
    tracker.gather(stream_, buffer, kBytes).value();
    const std::vector<std::uint32_t> expected = model.find();
    ASSERT_EQ(dirty(tracker), expected) << share;
    const Bytes packed = model.packed(expected);
    ASSERT_EQ(counts(tracker).end, packed.size());
    ASSERT_EQ(download(buffer, packed.size()), packed);
  }
}

TEST_P(ZoneContract, a_cut_is_the_memory_as_of_its_point_on_the_stream) {
  constexpr std::size_t kZone = 16384, kBytes = 64 * kZone, kRoom = 8 * kZone;
  std::byte *const there = memory(kBytes), *const buffers = memory(4 * kRoom), *const counted = memory(4096);
  ZoneTracker tracker = track(there, kBytes, kZone);
  std::vector<ZoneModel> models;
  ZoneModel model{scrambled(kBytes, 1), Bytes(kBytes), kZone};
  upload(there, model.now);
  tracker.settle(stream_).value();
  wait();
  model.clean = model.now;
  model.first = false;
  for (std::size_t cut = 0; cut < 4; ++cut) {
    for (std::size_t i = 0; i < 8; ++i) model.now[(i * 7 + cut) * kZone + cut] ^= std::byte{1};
    models.push_back(model);
    model.clean = model.now;
  }
  // Nothing waits until all are enqueued; the next contents come right after a cut.
  for (std::size_t cut = 0; cut < 4; ++cut) {
    device_->copy(stream_, there, models[cut].now.data(), kBytes).value();
    tracker.find(stream_).value();
    tracker.gather(stream_, buffers + cut * kRoom, kRoom).value();
    device_->copy(stream_, counted + cut * sizeof(ZoneCounts), tracker.tables().counts, sizeof(ZoneCounts)).value();
  }
  wait();
  const auto all_counts = download<ZoneCounts>(counted, 4);
  for (std::size_t cut = 0; cut < 4; ++cut) {
    const std::vector<std::uint32_t> expected = models[cut].find();
    EXPECT_EQ(all_counts[cut].dirty, expected.size());
    EXPECT_EQ(all_counts[cut].packed, 8u);
    EXPECT_EQ(download(buffers + cut * kRoom, kRoom), models[cut].packed(expected)) << cut;
  }
}

TEST_P(ZoneContract, several_are_packed_one_behind_the_other) {
  constexpr std::size_t kZone = 4096, kBytes = 5 * kZone + 1001, kRoom = 13 * kZone;
  std::byte* const buffer = memory(kRoom);
  std::vector<ZoneModel> models;
  std::vector<ZoneTracker> trackers;
  for (std::uint64_t i = 0; i < 3; ++i) {
    models.push_back({scrambled(kBytes, i), Bytes(kBytes), kZone});
    std::byte* const there = memory(kBytes);
    upload(there, models.back().now);
    trackers.push_back(track(there, kBytes, kZone));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    trackers[i].find(stream_).value();
    trackers[i].gather(stream_, buffer, kRoom, 0, i ? trackers[i - 1].tables().counts : nullptr).value();
  }
  std::size_t end = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const ZoneCounts told = counts(trackers[i]);
    const std::vector<std::uint32_t> expected = models[i].find();
    EXPECT_EQ(told.begin, (end + 15) / 16 * 16);
    EXPECT_EQ(told.packed, i < 2 ? 6u : 2u) << "the third fits in part";
    end = told.end;
    const Bytes packed = models[i].packed(std::span(expected).first(told.packed));
    ASSERT_EQ(told.end - told.begin, packed.size());
    EXPECT_EQ(download(buffer + told.begin, packed.size()), packed);
  }
}

// As the map of a snapshot has them: of whole zones.
TEST_P(ZoneContract, checksums_are_those_that_are_stored) {
  for (const std::uint32_t zone : {4096u, 16384u, 65536u, 1u << 20}) {
    const Bytes bytes = scrambled(3 * zone + 40, zone);
    std::byte* const there = memory(bytes.size());
    std::byte* const sums = memory(4 * sizeof(Digest));
    upload(there, bytes);
    device_->zones(stream_, ChecksumZones{{there, bytes.size(), zone}, reinterpret_cast<Digest*>(sums)}).value();
    const std::vector<Digest> found = download<Digest>(sums, 3);
    for (std::size_t i = 0; i < 3; ++i) {
      const XXH128_hash_t wanted = XXH3_128bits(&bytes[i * zone], zone);
      EXPECT_TRUE((found[i] == Digest{wanted.low64, wanted.high64})) << zone << ' ' << i;
    }
  }
}

// What a GPU computes, which is compiled for the processor as well.
TEST(ZoneChecksum, is_the_same_in_parts) {
  constexpr SumKeys keys = sum_keys();
  for (const std::uint32_t zone : {4096u, 65536u}) {
    test::Buffer bytes(zone);
    bytes.scramble(zone);
    std::vector<std::uint64_t> words(zone / 8);
    std::memcpy(words.data(), bytes.data(), zone);
    std::uint64_t states[kSumLanes];
    for (unsigned lane = 0; lane < kSumLanes; ++lane) states[lane] = sum_start(lane);
    const unsigned blocks = zone / kSumBlock;
    for (unsigned block = 0; block < blocks; ++block) {
      std::uint64_t sums[kSumLanes] = {};
      for (unsigned stripe = 0; stripe < kSumStripes; ++stripe) {
        const bool last = stripe == kSumStripes - 1 && block == blocks - 1;
        const std::uint64_t* const of = last ? keys.last : keys.stripes + stripe;
        const std::uint64_t* const in = &words[block * (kSumBlock / 8) + stripe * kSumLanes];
        for (unsigned lane = 0; lane < kSumLanes; lane += 2)
          sum_add(sums[lane], sums[lane + 1], in[lane], in[lane + 1], of[lane], of[lane + 1]);
      }
      for (unsigned lane = 0; lane < kSumLanes; ++lane) {
        states[lane] += sums[lane];
        if (block + 1 < blocks) states[lane] = sum_scramble(states[lane], keys.stripes[16 + lane]);
      }
    }
    const XXH128_hash_t wanted = XXH3_128bits(bytes.data(), zone);
    EXPECT_EQ(sum_end(states, keys.low, zone, false), wanted.low64);
    EXPECT_EQ(sum_end(states, keys.high, zone, true), wanted.high64);
  }
}

TEST_P(ZoneContract, what_cannot_be_tracked_throws) {
  std::byte* const there = memory(8192);
  EXPECT_THROW(static_cast<void>(ZoneTracker::make(device_, there, 8192, 6000)), std::logic_error);
  EXPECT_THROW(static_cast<void>(ZoneTracker::make(device_, there, 8192, 2048)), std::logic_error);
  EXPECT_THROW(static_cast<void>(ZoneTracker::make(device_, there, 8192, 2 << 20)), std::logic_error);
  EXPECT_THROW(static_cast<void>(ZoneTracker::make(device_, there, 0, 4096)), std::logic_error);
  EXPECT_THROW(static_cast<void>(ZoneTracker::make(device_, there + 8, 4096, 4096)), std::logic_error);
  ZoneTracker tracker = track(there, 8192, 4096);
  EXPECT_THROW(static_cast<void>(tracker.gather(stream_, there + 8, 100)), std::logic_error);
  EXPECT_THROW(static_cast<void>(tracker.scatter(stream_, nullptr, 0, there + 8)), std::logic_error);
}

std::shared_ptr<Device> make_late(bool discrete) {
  return std::make_shared<doubles::FakeDevice>(doubles::FakeDevice::Options{.seed = 12, .discrete = discrete});
}
std::shared_ptr<Device> make_host() { return make_host_device(); }
// Null without a GPU; one that cannot be used is a failure of every test.
std::shared_ptr<Device> make_gpu() {
  return cuda_absent_reason().empty() ? make_cuda_device(0).value() : std::shared_ptr<Device>();
}

INSTANTIATE_TEST_SUITE_P(All, ZoneContract,
                         ::testing::Values(ZoneKind{"host_at_once", make_host, true}, ZoneKind{"host", make_host},
                                           ZoneKind{"fake", [] { return make_late(false); }},
                                           ZoneKind{"fake_gpu", [] { return make_late(true); }},
                                           ZoneKind{"cuda", make_gpu}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb::device
