// What is dropped stays dropped, also when the store closes while it is still being written.
#include <thread>

#include "kept_rig.hpp"

namespace ebb::runtime {
namespace {

using namespace testing_support;
using platform::testing::FileCall;

TEST(KeptClose, WhatWasDroppedWhileItWasWrittenIsNotThereAgain) {
  KeptRig rig;
  keep(rig.open(), 1);
  rig.files().hold(FileCall::write);
  ASSERT_TRUE(write(rig.rig().store(), 2, kSize));
  rig.files().await_held(FileCall::write, 1);
  ASSERT_TRUE(rig.rig().store().drop(2));
  std::thread closer([&] { EXPECT_TRUE(rig.rig().engine().close()); });
  while (code_of(rig.rig().store().drop(3)) != Errc::closed) std::this_thread::yield();
  rig.files().release(FileCall::write);
  closer.join();
  EXPECT_EQ(rig.open().versions(), std::vector<Version>{1});
}

}  // namespace
}  // namespace ebb::runtime
