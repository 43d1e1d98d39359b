// What memory that one device lends and another maps keeps to, and that a probe sees copies that do not arrive.
#include "device/peer_memory.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "device/cuda.hpp"
#include "device/peer_pairs.hpp"
#include "device/peer_probe.hpp"
#include "os/local_socket.hpp"
#include "tests/doubles/fake_device.hpp"
#include "tests/doubles/forward_device.hpp"
#include "tests/os/test_files.hpp"

namespace ebb::device {
namespace {

constexpr std::size_t kBytes = std::size_t{8} << 20;

struct OwnedEnd {
  std::shared_ptr<Device> device;
  std::unique_ptr<PeerFabric> fabric;
  operator PeerEnd() const { return {*device, *fabric}; }
};

OwnedEnd end_of(std::shared_ptr<Device> device) {
  std::unique_ptr<PeerFabric> fabric = make_peer_fabric(*device).value();
  return {std::move(device), std::move(fabric)};
}

struct PeerKind {
  const char* name;
  std::size_t gpus;  // needed
  std::function<std::shared_ptr<Device>(bool lender)> make;
};

std::string what_lacks(std::size_t gpus) {
  if (gpus == 0) return {};
  const char* plain = std::getenv("EBBTIDE_CUDA_PLAIN");
  if (plain && std::string_view(plain) == "1") return "memcheck sees no memory that can be lent";
  const std::size_t found = find_cuda_devices().size();
  if (found >= gpus) {
    const Result<void> linked = gpus < 2 ? Result<void>() : check_link(0, 1, cuda_peer_link(0, 1));
    return linked ? "" : linked.error().message;
  }
  return "needs " + std::to_string(gpus) + " CUDA device(s), found " + std::to_string(found) +
         (found == 0 ? ": " + cuda_absent_reason() : "");
}

class PeerMemoryContract : public ::testing::TestWithParam<PeerKind> {
 protected:
  void SetUp() override {
    if (const std::string lacking = what_lacks(GetParam().gpus); !lacking.empty()) GTEST_SKIP() << lacking;
    lender_ = end_of(GetParam().make(true));
    borrower_ = end_of(GetParam().make(false));
  }

  static std::shared_ptr<std::byte> map(const OwnedEnd& end, const LentMemory& lent) {
    return end.fabric->map(lent.descriptor().value().fd(), lent.bytes()).value();
  }
  static void copy(const OwnedEnd& end, void* to, const void* from, std::size_t bytes) {
    const StreamId on = end.device->create_stream().value();
    end.device->copy(on, to, from, bytes).value();
    end.device->destroy_stream(on);  // ends its work first
  }
  static std::vector<std::byte> download(const OwnedEnd& end, const std::byte* from, std::size_t bytes) {
    std::vector<std::byte> all(bytes);
    copy(end, all.data(), from, bytes);
    return all;
  }
  static std::vector<std::byte> scrambled(std::size_t bytes, std::uint64_t seed) {
    test::Buffer buffer(bytes);
    buffer.scramble(seed);
    return {buffer.data(), buffer.data() + bytes};
  }

  OwnedEnd lender_, borrower_;
};

constexpr const char* kLenderSocket = "EBB_TEST_LENDER_SOCKET";

/// Two processes. The lender is this program again, started anew: a forked child cannot use its parent's CUDA.
class PeerMemoryApart : public ::testing::TestWithParam<PeerKind> {
 protected:
  // The lender's part: lends, sends the descriptor, and stays until it is killed.
  [[noreturn]] static void lend_over(int fd) {
    const OwnedEnd lender = end_of(GetParam().make(true));
    const auto lent = lender.fabric->lend(kBytes).value();
    const os::OwnDescriptor descriptor = lent->descriptor().value();
    const auto mine = lender.fabric->map(*lent).value();
    const StreamId on = lender.device->create_stream().value();
    const std::vector<std::byte> sevens(kBytes, std::byte{7});
    lender.device->copy(on, mine.get(), sevens.data(), kBytes).value();
    lender.device->destroy_stream(on);
    const auto connection = os::connection_over(os::OwnDescriptor([&] { return fd; }), ::getppid());
    const std::byte word{1};
    connection->send({&word, 1}, descriptor.fd()).value();
    for (;;) ::pause();
  }

  static pid_t start_lender(int fd) {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    const std::string filter = "--gtest_filter=*PeerMemoryApart." + name;
    const std::string socket = std::to_string(fd);
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setenv(kLenderSocket, socket.c_str(), 1);
    ::execl("/proc/self/exe", "lender", filter.c_str(), nullptr);
    ::_exit(127);
  }
};

// Copies between what is mapped and the host can be made by the GPU whose memory it is.
TEST_P(PeerMemoryContract, the_owner_of_mapped_memory_copies_there_too) {
  const auto lent = lender_.fabric->lend(kBytes).value();
  const auto mapped = map(borrower_, *lent);
  const std::shared_ptr<Device> owner = borrower_.fabric->owner(mapped.get(), kBytes).value();
  const bool another = lender_.device->gpu() != borrower_.device->gpu();
  ASSERT_EQ(owner != nullptr, another) << "of a GPU's own memory, and of ordinary memory, there is no other owner";
  if (!another) return;
  EXPECT_EQ(owner->gpu(), lender_.device->gpu());
  const OwnedEnd at_home{owner, nullptr};
  const std::vector<std::byte> down = scrambled(kBytes, 1), up = scrambled(kBytes, 2);
  copy(borrower_, mapped.get(), down.data(), kBytes);
  EXPECT_TRUE(download(at_home, mapped.get(), kBytes) == down);
  copy(at_home, mapped.get(), up.data(), kBytes);
  EXPECT_TRUE(download(borrower_, mapped.get(), kBytes) == up);
}

TEST_P(PeerMemoryContract, what_one_writes_the_other_reads) {
  const auto lent = lender_.fabric->lend(kBytes).value();
  EXPECT_EQ(lent->bytes(), kBytes);
  const auto here = map(borrower_, *lent), there = lender_.fabric->map(*lent).value();
  const auto first = scrambled(kBytes, 1);
  copy(borrower_, here.get(), first.data(), kBytes);
  EXPECT_EQ(download(lender_, there.get(), kBytes), first);
  const auto second = scrambled(5000, 2);
  copy(lender_, there.get() + 4097, second.data(), second.size());
  EXPECT_EQ(download(borrower_, here.get() + 4097, second.size()), second);
  EXPECT_EQ(download(borrower_, here.get(), 4097), std::vector(first.begin(), first.begin() + 4097));
}

TEST_P(PeerMemoryContract, a_mapping_outlives_descriptor_lender_and_fabrics) {
  auto lent = lender_.fabric->lend(kBytes).value();
  const auto here = borrower_.fabric->map(*lent).value();
  const auto bytes = scrambled(kBytes, 3);
  copy(borrower_, here.get(), bytes.data(), kBytes);
  lent.reset();
  lender_.fabric.reset();
  borrower_.fabric.reset();
  EXPECT_EQ(download(borrower_, here.get(), kBytes), bytes);
}

TEST_P(PeerMemoryContract, a_descriptor_outlives_the_lender) {
  auto lent = lender_.fabric->lend(kBytes).value();
  const os::OwnDescriptor descriptor = lent->descriptor().value();
  EXPECT_TRUE(::fcntl(descriptor.fd(), F_GETFD) & FD_CLOEXEC);
  auto here = map(borrower_, *lent);
  const auto bytes = scrambled(kBytes, 4);
  copy(borrower_, here.get(), bytes.data(), kBytes);
  here.reset();
  lent.reset();
  here = borrower_.fabric->map(descriptor.fd(), kBytes).value();
  EXPECT_EQ(download(borrower_, here.get(), kBytes), bytes);
}

TEST_P(PeerMemoryContract, what_is_not_possible_is_refused_by_name) {
  const auto lent = lender_.fabric->lend(kBytes).value();
  const os::OwnDescriptor descriptor = lent->descriptor().value();
  const auto code = [](const auto& result) { return result ? Errc::ok : result.error().code; };
  const std::size_t granularity = borrower_.fabric->granularity();
  EXPECT_EQ(kBytes % granularity, 0u);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, granularity + 1}) {
    EXPECT_EQ(code(lender_.fabric->lend(bytes)), Errc::invalid_argument) << bytes;
    EXPECT_EQ(code(borrower_.fabric->map(descriptor.fd(), bytes)), Errc::invalid_argument) << bytes;
  }
  EXPECT_NE(code(borrower_.fabric->map(descriptor.fd(), kBytes + granularity)), Errc::ok) << "in a driver's own words";
  EXPECT_EQ(code(lender_.fabric->lend(std::size_t{1} << 60)), Errc::out_of_memory);
  const os::OwnDescriptor other([] { return ::open("/dev/null", O_RDWR | O_CLOEXEC); });
  EXPECT_NE(code(borrower_.fabric->map(other.fd(), kBytes)), Errc::ok) << "a driver has its own words for it";
  EXPECT_EQ(code(borrower_.fabric->map(-1, kBytes)), Errc::invalid_argument);
  EXPECT_TRUE(borrower_.fabric->map(descriptor.fd(), kBytes)) << "the refusals did no harm";
}

TEST_P(PeerMemoryContract, an_honest_pair_passes_its_probe_both_ways) {
  const auto lent = lender_.fabric->lend(kBytes).value();
  const auto here = map(borrower_, *lent), there = lender_.fabric->map(*lent).value();
  const PeerView borrower{*borrower_.device, here.get()}, lender{*lender_.device, there.get()};
  for (const auto& [writer, reader] : {std::pair{borrower, lender}, {lender, borrower}, {borrower, borrower}}) {
    const Result<void> probed = probe(writer, reader, kBytes);
    EXPECT_TRUE(probed) << probed.error().message;
  }
  EXPECT_TRUE(probe(borrower, lender, 12'345)) << "an odd size";
  const PeerRates rates = measure_peer(borrower, kBytes).value();
  EXPECT_GT(rates.store, 0);
  EXPECT_GT(rates.load, 0);
}

TEST_P(PeerMemoryContract, a_sound_pair_has_rates) {
  const std::size_t bytes = 2 * kBytes;
  const Result<PeerRates> rates = try_pair(borrower_, lender_, bytes);
  ASSERT_TRUE(rates) << rates.error().message;
  EXPECT_GT(rates->store, 0);
  EXPECT_GT(rates->load, 0);
}

std::shared_ptr<Device> cuda(int ordinal) { return make_cuda_device(ordinal).value(); }

std::shared_ptr<Device> host(bool) { return make_host_device(); }

INSTANTIATE_TEST_SUITE_P(All, PeerMemoryContract,
                         ::testing::Values(PeerKind{"host", 0, host},
                                           PeerKind{"fake", 0,
                                                    [](bool) { return std::make_shared<doubles::FakeDevice>(); }},
                                           PeerKind{"cuda_alone", 1, [](bool) { return cuda(0); }},
                                           PeerKind{"cuda_pair", 2, [](bool lender) { return cuda(lender ? 1 : 0); }}),
                         [](const auto& info) { return info.param.name; });

// Some copies between two places are said to be done and are not.
class DroppingDevice final : public doubles::ForwardDevice {
 public:
  using ForwardDevice::ForwardDevice;
  std::function<bool(const void* to, const void* from)> drop;

  Result<void> copy(StreamId stream, void* to, const void* from, std::size_t bytes) override {
    return drop(to, from) ? Result<void>() : ForwardDevice::copy(stream, to, from, bytes);
  }
};

TEST(PeerProbe, a_copy_that_does_not_arrive_fails_the_probe) {
  const std::shared_ptr<Device> device = make_host_device();
  const auto fabric = make_host_fabric();
  const auto lent = fabric->lend(kBytes).value();
  const auto memory = fabric->map(*lent).value();
  const auto inside = [&](const void* place) {
    const auto* const at = static_cast<const std::byte*>(place);
    return at >= memory.get() && at < memory.get() + kBytes;
  };
  for (const bool loads : {false, true}) {
    DroppingDevice dropping(device);
    const PeerView broken{dropping, memory.get()}, sound{*device, memory.get()};
    const auto probed = [&] { return loads ? probe(sound, broken, kBytes) : probe(broken, sound, kBytes); };
    std::size_t seen = 0, dropped = 0;  // none
    dropping.drop = [&](const void* to, const void* from) { return inside(loads ? from : to) && ++seen == dropped; };
    ASSERT_TRUE(probed());
    const std::size_t copies = seen;
    ASSERT_GT(copies, 10u);
    // The memory holds an earlier probe's bytes each time: they must not pass for this one's.
    for (const std::size_t one : {std::size_t{1}, std::size_t{2}, copies / 2, copies}) {
      seen = 0;
      dropped = one;
      const Result<void> failed = probed();
      ASSERT_FALSE(failed) << one;
      EXPECT_EQ(failed.error().code, Errc::damaged);
      EXPECT_NE(failed.error().message.find("arrived wrong"), std::string::npos) << failed.error().message;
    }
  }
}

TEST(PeerProbe, a_pair_that_drops_bytes_has_no_rates) {
  const std::shared_ptr<Device> device = make_host_device();
  const auto fabric = make_host_fabric();
  DroppingDevice dropping(device);
  std::size_t copies = 0;
  dropping.drop = [&](const void*, const void*) { return ++copies == 3; };
  const Result<PeerRates> stored = try_pair({dropping, *fabric}, {*device, *fabric}, kBytes);
  ASSERT_FALSE(stored);
  EXPECT_EQ(stored.error().code, Errc::damaged);
  copies = 0;
  const Result<PeerRates> loaded = try_pair({*device, *fabric}, {dropping, *fabric}, kBytes);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Errc::damaged);
}

TEST(PeerProbe, a_link_that_cannot_serve_is_refused_by_name) {
  const auto reason = [](PeerLink link) { return check_link(3, 5, link).error().message; };
  EXPECT_TRUE(check_link(3, 5, {.mig = false, .access = true, .nvlink = true}));
  EXPECT_EQ(reason({.mig = true, .access = true, .nvlink = true}),
            "no way from cuda:3 to cuda:5: one is a part of a GPU (MIG)");
  EXPECT_EQ(reason({.mig = false, .access = false, .nvlink = true}), "no peer access from cuda:3 to cuda:5");
  EXPECT_EQ(reason({.mig = false, .access = true, .nvlink = false}), "no NVLink from cuda:3 to cuda:5");
}

TEST(CudaPeerMemory, is_free_again_when_its_last_mapping_goes) {
  if (const std::string lacking = what_lacks(1); !lacking.empty()) GTEST_SKIP() << lacking;
  constexpr std::size_t kLent = std::size_t{1} << 30, kSlack = kLent / 2;  // of what others take meanwhile
  const OwnedEnd end = end_of(cuda(0));
  const std::uint64_t before = end.device->free_bytes();
  auto lent = end.fabric->lend(kLent).value();
  auto mapped = end.fabric->map(lent->descriptor().value().fd(), kLent).value();
  lent.reset();
  EXPECT_LE(end.device->free_bytes() + kLent, before + kSlack) << "it is mapped still";
  mapped.reset();
  EXPECT_GE(end.device->free_bytes() + kSlack, before);
}

TEST(CudaPeerPairs, each_ordered_pair_has_rates_or_a_reason) {
  if (const std::string lacking = what_lacks(2); !lacking.empty()) GTEST_SKIP() << lacking;
  const std::size_t gpus = find_cuda_devices().size();
  const std::vector<PeerPair> pairs = cuda_peer_pairs(std::size_t{64} << 20);
  EXPECT_EQ(pairs.size(), gpus * (gpus - 1));
  for (const PeerPair& pair : pairs) {
    EXPECT_NE(pair.from, pair.to);
    if (pair.rates) {
      EXPECT_GT(pair.rates->store, 20e9) << "NVLink is faster than PCIe";
    } else {
      EXPECT_FALSE(pair.rates.error().message.empty());
      EXPECT_NE(pair.rates.error().code, Errc::damaged) << pair.rates.error().message;
    }
  }
}

TEST(CudaPeerPairs, memory_of_a_gpu_without_a_link_is_not_mapped) {
  const int gpus = static_cast<int>(find_cuda_devices().size());
  int refused = 0;
  for (int from = 0; from < gpus; ++from) {
    for (int to = 0; to < gpus; ++to) {
      const Result<void> linked = check_link(from, to, cuda_peer_link(from, to));
      if (from == to || linked) continue;
      const auto borrower = make_cuda_fabric(from), lender = make_cuda_fabric(to);
      if (!borrower || !lender) continue;
      const auto lent = (*lender)->lend(kBytes).value();
      for (const bool by_descriptor : {false, true}) {
        const auto mapped =
            by_descriptor ? (*borrower)->map(lent->descriptor().value().fd(), kBytes) : (*borrower)->map(*lent);
        ASSERT_FALSE(mapped);
        EXPECT_EQ(mapped.error().code, Errc::unsupported);
        EXPECT_EQ(mapped.error().message, linked.error().message);
      }
      ++refused;
    }
  }
  if (refused == 0)
    GTEST_SKIP() << "needs two CUDA devices without NVLink between them, found " << gpus << " device(s)";
}

// The kernel refuses this seal while the file is mapped to be written.
bool mapped_anywhere(int file) { return ::fcntl(file, F_ADD_SEALS, F_SEAL_WRITE) != 0; }

TEST(HostFabric, memory_is_unmapped_when_its_last_owner_goes) {
  const auto fabric = make_host_fabric();
  const auto lent = fabric->lend(kBytes).value();
  const os::OwnDescriptor file = lent->descriptor().value();
  auto one = fabric->map(file.fd(), kBytes).value(), same = one;
  one.reset();
  EXPECT_TRUE(mapped_anywhere(file.fd()));
  same.reset();
  EXPECT_FALSE(mapped_anywhere(file.fd()));
}

TEST(HostFabric, memory_can_never_shrink_under_a_mapping) {
  const auto fabric = make_host_fabric();
  const auto lent = fabric->lend(kBytes).value();
  EXPECT_NE(::ftruncate(lent->descriptor().value().fd(), 4096), 0);
  const os::OwnDescriptor unsealed([] { return ::memfd_create("ebb-test", MFD_CLOEXEC | MFD_ALLOW_SEALING); });
  ASSERT_EQ(::ftruncate(unsealed.fd(), kBytes), 0);
  EXPECT_FALSE(fabric->map(unsealed.fd(), kBytes));
}

TEST_P(PeerMemoryApart, a_killed_lender_takes_nothing_from_the_borrower) {
  if (const char* socket = std::getenv(kLenderSocket)) lend_over(std::atoi(socket));
  if (const std::string lacking = what_lacks(GetParam().gpus); !lacking.empty()) GTEST_SKIP() << lacking;
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()), 0);
  ::fcntl(ends[1], F_SETFD, FD_CLOEXEC);
  const pid_t lender = start_lender(ends[0]);
  ASSERT_GT(lender, 0);
  ::close(ends[0]);
  const auto connection = os::connection_over(os::OwnDescriptor([&] { return ends[1]; }), lender);
  os::Waiting waiting{connection->fd()};
  ASSERT_EQ(os::wait_for({&waiting, 1}, std::chrono::minutes(1)).value(), 1u);
  std::array<std::byte, 8> into{};
  const os::Received received = connection->receive(into).value();
  ASSERT_EQ(received.kind, os::Received::Kind::message);
  const OwnedEnd borrower = end_of(GetParam().make(false));
  const auto here = borrower.fabric->map(received.descriptor.fd(), kBytes).value();
  ::kill(lender, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(lender, &status, 0), lender);
  ASSERT_TRUE(WIFSIGNALED(status));
  std::vector<std::byte> found(kBytes);
  const StreamId on = borrower.device->create_stream().value();
  borrower.device->copy(on, found.data(), here.get(), kBytes).value();
  borrower.device->destroy_stream(on);
  EXPECT_EQ(found, std::vector<std::byte>(kBytes, std::byte{7}));
  const PeerView view{*borrower.device, here.get()};
  const Result<void> probed = probe(view, view, kBytes);
  EXPECT_TRUE(probed) << probed.error().message;
}

INSTANTIATE_TEST_SUITE_P(All, PeerMemoryApart,
                         ::testing::Values(PeerKind{"host", 0, host},
                                           PeerKind{"cuda_alone", 1, [](bool) { return cuda(0); }},
                                           PeerKind{"cuda_pair", 2, [](bool lender) { return cuda(lender ? 1 : 0); }}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ebb::device
