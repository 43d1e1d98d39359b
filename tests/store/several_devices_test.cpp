// Several GPUs in one process, on doubles of them.
#include <gtest/gtest.h>
#include <thread>

#include "sizes.hpp"
#include "support.hpp"
#include "tests/doubles/forward_device.hpp"

namespace ebb::store {
namespace {

using namespace testing_support;

/// One of several GPUs: it can tell whose a stream is, and is never given another's.
class NumberedDevice final : public doubles::ForwardDevice {
 public:
  NumberedDevice(std::shared_ptr<device::Device> inner, device::StreamId number)
      : doubles::ForwardDevice(std::move(inner)), number_(number << 32) {}
  Result<device::StreamId> create_stream() override {
    auto made = doubles::ForwardDevice::create_stream();
    if (made) *made += number_;
    return made;
  }
  void destroy_stream(device::StreamId stream) noexcept override {
    doubles::ForwardDevice::destroy_stream(own(stream));
  }
  Result<void> copy(device::StreamId stream, void* to, const void* from, std::size_t bytes) override {
    return foreign(stream) ? refused() : doubles::ForwardDevice::copy(own(stream), to, from, bytes);
  }
  bool capturing(device::StreamId stream) noexcept override {
    return !foreign(stream) && doubles::ForwardDevice::capturing(own(stream));
  }
  bool foreign(device::StreamId stream) noexcept override {
    return stream > device::kLegacyStream && stream >> 32 != number_ >> 32;
  }
  Result<void> record(device::EventId event, device::StreamId stream) override {
    return foreign(stream) ? refused() : doubles::ForwardDevice::record(event, own(stream));
  }
  Result<void> stream_wait(device::StreamId stream, device::EventId event) override {
    return doubles::ForwardDevice::stream_wait(own(stream), event);
  }

 private:
  device::StreamId own(device::StreamId stream) const {
    return stream > device::kLegacyStream ? stream - number_ : stream;
  }
  static Result<void> refused() {
    ADD_FAILURE() << "work on a stream of another GPU";
    return Error{Errc::io_error, "a stream of another GPU"};
  }
  const device::StreamId number_;
};

class SeveralDevices : public ::testing::Test {
 protected:
  SeveralDevices() {
    for (std::size_t i = 0; i < 2; ++i) {
      devices[i] = std::make_shared<NumberedDevice>(rigs[i].seams().device, i + 1);
      rigs[i].seams().device = devices[i];
    }
  }
  Rig rigs[2]{Rig(Backend::gpu, Sizes{}, 1), Rig(Backend::gpu, Sizes{}, 2)};
  std::shared_ptr<NumberedDevice> devices[2];
};

TEST_F(SeveralDevices, AStoreOnEachIsUsedFromAThreadOfItsOwn) {
  const auto work = [&](std::size_t which) {
    Store& store = rigs[which].store();
    const StreamHandle on = devices[which]->create_stream().value();
    std::vector<std::vector<std::byte>> fields, out(24, std::vector<std::byte>(kSize));
    for (Version v = 0; v < 24; ++v) {  // more than either keeps in memory, under the same names
      fields.push_back(bytes_of(1000 * static_cast<Version>(which) + v, kSize));
      ASSERT_TRUE(store.checkpoint(v, {{0, fields.back().data(), kSize}}, {.stream = on}));
    }
    for (Version v = 24; v-- > 0;) {
      ASSERT_TRUE(store.restore(v, {{0, out[static_cast<std::size_t>(v)].data(), kSize}}, {.stream = on}));
    }
    ASSERT_TRUE(devices[which]->synchronize());
    devices[which]->destroy_stream(on);
    EXPECT_EQ(out, fields) << "on device " << which;
  };
  std::thread other(work, 1);
  work(0);
  other.join();
}

TEST_F(SeveralDevices, BothStoresAreUsedFromBothThreads) {
  Store* const stores[2] = {&rigs[0].store(), &rigs[1].store()};
  const auto work = [&](Version first) {
    StreamHandle on[2];
    for (std::size_t i = 0; i < 2; ++i) on[i] = devices[i]->create_stream().value();
    std::vector<std::vector<std::byte>> fields, out(24, std::vector<std::byte>(kSize));
    for (Version v = 0; v < 24; ++v) {
      const auto i = static_cast<std::size_t>(v) % 2;
      fields.push_back(bytes_of(first + v, kSize));
      ASSERT_TRUE(stores[i]->checkpoint(first + v, {{0, fields.back().data(), kSize}}, {.stream = on[i]}));
    }
    for (Version v = 24; v-- > 0;) {
      const auto i = static_cast<std::size_t>(v) % 2;
      auto& target = out[static_cast<std::size_t>(v)];
      ASSERT_TRUE(stores[i]->restore(first + v, {{0, target.data(), kSize}}, {.stream = on[i]}));
    }
    for (std::size_t i = 0; i < 2; ++i) devices[i]->destroy_stream(on[i]);  // waits for it
    EXPECT_EQ(out, fields);
  };
  std::thread other(work, 1000);
  work(0);
  other.join();
}

TEST_F(SeveralDevices, OneThatHangsHoldsUpOnlyItsOwnStore) {
  Store& standing = rigs[0].store();
  Store& going = rigs[1].store();
  const StreamHandle on = devices[0]->create_stream().value();
  const auto field = bytes_of(1, kSize);
  rigs[0].device().hold();
  ASSERT_TRUE(standing.checkpoint(1, {{0, field.data(), kSize}}, {.stream = on}));
  for (Version v = 0; v < 12; ++v) ASSERT_TRUE(write(going, v, kSize));
  for (Version v = 12; v-- > 0;) expect_restored(going, v, kSize);
  ASSERT_TRUE(going.close());
  rigs[0].device().release();
  expect_restored(standing, 1, kSize);
}

TEST_F(SeveralDevices, AStreamOfTheOtherIsRefusedByNameAndNothingIsLost) {
  Store& store = rigs[0].store();
  const StreamHandle own = devices[0]->create_stream().value(), others = devices[1]->create_stream().value();
  ASSERT_TRUE(write(store, 1, kSize));
  ASSERT_TRUE(write(store, 2, kSize));
  auto room = store.reserve(3, std::vector<Source>{{0, nullptr, kSize}});
  ASSERT_TRUE(room);
  auto loan = store.borrow(2);
  ASSERT_TRUE(loan);
  std::vector<std::byte> bytes = bytes_of(3, kSize);
  const auto named = [](const auto& result) {
    return !result && result.error().code == Errc::invalid_argument &&
           result.error().message.find("another GPU") != std::string::npos;
  };
  EXPECT_TRUE(named(store.checkpoint(4, {{0, bytes.data(), kSize}}, {.stream = others})));
  EXPECT_TRUE(named(store.restore(1, {{0, bytes.data(), kSize}}, {.stream = others})));
  EXPECT_TRUE(named(room->commit({.stream = others})));
  EXPECT_TRUE(named(loan->release(false, {.stream = others})));
  EXPECT_EQ(bytes, bytes_of(3, kSize));
  EXPECT_EQ(store.versions(), (std::vector<Version>{1, 2}));

  devices[0]->copy(own, room->data(), bytes.data(), kSize).value();
  ASSERT_TRUE(room->commit({.stream = own})) << "the reservation outlived the refusal";
  ASSERT_TRUE(loan->release(true, {.stream = own})) << "and so did the loan";
  for (Version v = 1; v < 4; ++v) expect_restored(store, v, kSize);
}

}  // namespace
}  // namespace ebb::store
