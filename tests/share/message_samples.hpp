#pragma once
// One message of each kind, with small and large values.
#include <cstdint>
#include <string>
#include <vector>

#include "share/messages.hpp"

namespace ebb::share::test {

inline std::vector<message::Any> message_samples() {
  PoolHeader header{
      choose_shape(64 << 20, 1 << 20, 4).value(), "slurm-4711", {"/scratch/run", 5ull << 30, 64 << 10, true, false, 2}};
  PoolHeader longest{choose_shape(kMaxBudget, 4096, 1).value(),
                     std::string(208, '%'),
                     {std::string(kMaxDirectory, 'd'), UINT64_MAX, UINT32_MAX, false, true, 255}};
  return {
      message::Hello{kPoolVersion, header, {4711, 123456789}, 3, 4, {2, 7}},
      message::Hello{kPoolVersion, longest, {INT32_MAX, UINT64_MAX}, UINT64_MAX, UINT64_MAX, {UINT32_MAX, UINT32_MAX}},
      message::Claim{0},
      message::Claim{UINT32_MAX},
      message::Look{},
      message::Drop{1, 2, 3, true, "3/state", -4},
      message::Drop{UINT64_MAX, UINT64_MAX, UINT64_MAX, false, std::string(4096, 'h'), INT64_MIN},
      message::Commit{},
      message::Leave{},
      message::Welcome{{1, 3}, 16, 8, 2, true},
      message::Refused{{Errc::in_use, "rank 0 is taken"}},
      message::Claimed{5, {Errc::no_space, "shared memory is full"}},
      message::Claimed{5, {}},
      message::Finished{9, 1234, {Errc::io_error, std::string(2048, 'e')}},
      message::Dropped{UINT64_MAX},
      message::Stage{16 << 20},
      message::Staged{3, 4 << 20, 8192, 4096, std::string(5000, 'd')},
      message::Moved{3, 4 << 20, {Errc::no_space, "the disk is full"}},
      message::Delayed{9, {Errc::no_space, "the disk is full"}},
      message::Lifeline{kPoolVersion, {4711, 123456789}},
      message::Borrow{UINT64_MAX, 64 << 20},
      message::Granted{3, 1 << 30, UINT64_MAX},
      message::Share{250'000},
      message::Recall{UINT32_MAX},
      message::Return{3, true, UINT64_MAX},
      message::Written{9, 1234},
  };
}

}  // namespace ebb::share::test
