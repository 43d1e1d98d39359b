#pragma once
// A growth by hand: what it has ordered, and answers to it.
#include <gtest/gtest.h>
#include <optional>
#include <vector>

#include "planner/provisioner.hpp"
#include "units.hpp"

namespace ebb::policy::testing_support {

/// A growth and what it has ordered and not been answered.
struct Hands {
  explicit Hands(const ProvisionSpec& spec) : provisioner(spec) { on(ProvisionEvent::tick); }

  void on(ProvisionEvent::Kind kind, Bytes offset = 0, Bytes length = 0, Time took = 0) {
    provisioner.on({kind, now, offset, length, took}, out);
    touches.insert(touches.end(), out.touch.begin(), out.touch.end());
    if (out.give_back) {
      EXPECT_TRUE(ours);
      ours = false;
    }
    if (out.ask) {
      EXPECT_FALSE(ours || asked);
      asked = true;
    }
    if (out.pin) {
      EXPECT_TRUE(ours && !pin);
      pin = out.pin;
    }
  }
  void placed(Bytes end) { on(ProvisionEvent::placed, 0, end); }
  void touch_one(Time took = kMs, bool failed = false) {
    ASSERT_FALSE(touches.empty());
    const ByteRange range = touches.front();
    touches.erase(touches.begin());
    now += took;
    on(failed ? ProvisionEvent::touch_failed : ProvisionEvent::touched, range.offset, range.length, took);
  }
  void touch_all() {
    while (!touches.empty()) touch_one();
  }
  void grant() {
    ASSERT_TRUE(asked);
    asked = false;
    ours = true;
    on(ProvisionEvent::granted);
  }
  void end_pin(Time took, bool failed = false) {
    ASSERT_TRUE(pin);
    const ByteRange range = *pin;
    pin.reset();
    now += took;
    on(failed ? ProvisionEvent::pin_failed : ProvisionEvent::pinned, range.offset, range.length, took);
  }
  void busy_pin() {
    ASSERT_TRUE(pin);
    const ByteRange range = *pin;
    pin.reset();
    on(ProvisionEvent::pin_busy, range.offset, range.length);
  }
  void rest() {
    now = out.wakeup;
    on(ProvisionEvent::tick);
  }
  // Touches and pins until nothing is ordered any more.
  void settle(Time pin_took = 200 * kUs) {
    while (asked || pin || !touches.empty() || out.wakeup != kNever) {
      if (!asked && !pin && touches.empty()) rest();
      touch_all();
      if (asked) grant();
      if (pin) end_pin(pin_took);
    }
  }
  const ProvisionState& state() const { return provisioner.state(); }

  Provisioner provisioner;
  ProvisionCommands out;
  Time now = 0;
  std::vector<ByteRange> touches;
  bool asked = false, ours = false;
  std::optional<ByteRange> pin;
};

inline ProvisionSpec small(Bytes capacity = 256 * kMiB) {
  ProvisionSpec spec;
  spec.capacity = capacity;
  spec.least_lead = 16 * kMiB;
  spec.most_lead = 64 * kMiB;
  spec.touchers = 2;
  spec.longest_pin = 500 * kUs;
  return spec;
}

}  // namespace ebb::policy::testing_support
