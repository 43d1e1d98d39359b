#pragma once
// What benches/gpu_peers.cpp moves bytes with: lanes, a relay, a pattern to verify, and a lender in another process.
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cuda.hpp"
#include "device/peer_memory.hpp"
#include "os/local_socket.hpp"

namespace bench {

namespace device = ebb::device;
namespace os = ebb::os;

/// "cuda", or "cpu" to try the program out: then one device of ordinary memory stands for both GPUs.
inline std::shared_ptr<device::Device> open_gpu(const std::string& kind, int ordinal) {
  if (kind == "cuda") return device::make_cuda_device(ordinal).value();
  if (kind != "cpu") throw std::invalid_argument("--device " + kind + ": expected cuda or cpu");
  static const std::shared_ptr<device::Device> all = device::make_host_device();
  return all;
}

/// Device memory, or pinned host memory; freed at its end.
class Memory {
 public:
  Memory(device::Device& device, std::size_t bytes, bool host) : device_(device), bytes_(bytes), host_(host) {
    data_ = (host ? device.allocate_host(bytes) : device.allocate(bytes)).value();
  }
  Memory(const Memory&) = delete;
  ~Memory() {
    if (host_) {
      device_.free_host(data_, bytes_);
    } else {
      device_.free(data_, bytes_);
    }
  }
  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  device::Device& device_;
  const std::size_t bytes_;
  const bool host_;
  std::byte* data_ = nullptr;
};

/// A stream of a device and events on it.
class Lane {
 public:
  static constexpr std::size_t kEvents = 4;
  explicit Lane(device::Device& device) : device_(device), stream_(device.create_stream().value()) {
    for (device::EventId& event : events_) event = device.create_event().value();
  }
  Lane(const Lane&) = delete;
  ~Lane() {
    device_.destroy_stream(stream_);  // ends its work first
    for (const device::EventId event : events_) device_.destroy_event(event);
  }
  void copy(void* to, const void* from, std::size_t bytes) { device_.copy(stream_, to, from, bytes).value(); }
  void record(std::size_t event) { device_.record(events_[event], stream_).value(); }
  void wait_for(const Lane& other, std::size_t event) { device_.stream_wait(stream_, other.events_[event]).value(); }
  /// The host waits for all of it.
  void finish() {
    record(0);
    device_.wait(events_[0]).value();
  }

 private:
  device::Device& device_;
  const device::StreamId stream_;
  std::array<device::EventId, kEvents> events_{};
};

/// Between GPU `near` and the host, over the link of GPU `far`: through a ring of slots in the memory of `far`, of
/// which each GPU has its own address. Only enqueues.
class Relay {
 public:
  static constexpr std::size_t kHop = std::size_t{16} << 20, kRing = Lane::kEvents * kHop;
  Relay(device::Device& near, std::byte* near_ring, device::Device& far, std::byte* far_ring)
      : near_(near), far_(far), near_ring_(near_ring), far_ring_(far_ring) {}

  void down(std::byte* host, const std::byte* own, std::size_t bytes) {
    each_hop(bytes, [&](std::size_t at, std::size_t size, std::size_t slot) {
      near_.wait_for(far_, slot);  // which has emptied the slot
      near_.copy(near_ring_ + slot * kHop, own + at, size);
      near_.record(slot);
      far_.wait_for(near_, slot);
      far_.copy(host + at, far_ring_ + slot * kHop, size);
      far_.record(slot);
    });
  }
  void up(std::byte* own, const std::byte* host, std::size_t bytes) {
    each_hop(bytes, [&](std::size_t at, std::size_t size, std::size_t slot) {
      far_.wait_for(near_, slot);
      far_.copy(far_ring_ + slot * kHop, host + at, size);
      far_.record(slot);
      near_.wait_for(far_, slot);
      near_.copy(own + at, near_ring_ + slot * kHop, size);
      near_.record(slot);
    });
  }
  void finish() {
    near_.finish();
    far_.finish();
  }

 private:
  template <class Hop>
  static void each_hop(std::size_t bytes, const Hop& hop) {
    for (std::size_t at = 0; at < bytes; at += kHop) hop(at, std::min(kHop, bytes - at), at / kHop % Lane::kEvents);
  }
  Lane near_, far_;
  std::byte *near_ring_, *far_ring_;
};

/// Words that differ from place to place and from seed to seed.
inline std::uint64_t word_at(std::uint64_t seed, std::size_t word) {
  return (seed * 0xd1342543de82ef95u + word) * 0x9e3779b97f4a7c15u;
}
/// `first` is the place of the first byte in the whole; both are multiples of 8.
inline void fill_words(std::byte* memory, std::size_t bytes, std::uint64_t seed, std::size_t first = 0) {
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = word_at(seed, (first + at) / 8);
    std::memcpy(memory + at, &word, 8);
  }
}
inline std::size_t wrong_words(const std::byte* memory, std::size_t bytes, std::uint64_t seed, std::size_t first = 0) {
  std::size_t wrong = 0;
  for (std::size_t at = 0; at < bytes; at += 8) {
    const std::uint64_t word = word_at(seed, (first + at) / 8);
    wrong += std::memcmp(memory + at, &word, 8) != 0;
  }
  return wrong;
}
inline void verify_words(const char* what, const std::byte* memory, std::size_t bytes, std::uint64_t seed,
                         std::size_t first = 0) {
  const std::size_t wrong = wrong_words(memory, bytes, seed, first);
  if (wrong == 0) return;
  throw std::runtime_error(std::string(what) + ": " + std::to_string(wrong) + " of " + std::to_string(bytes / 8) +
                           " words arrived wrong");
}

/// A message of one number; its descriptor, if one came.
inline os::OwnDescriptor receive_number(os::LocalConnection& connection, std::uint64_t& number) {
  os::Waiting waiting{connection.fd()};
  if (os::wait_for({&waiting, 1}, std::chrono::seconds(30)).value() == 0) {
    throw std::runtime_error("the other process does not answer");
  }
  auto received = connection.receive(std::as_writable_bytes(std::span(&number, 1))).value();
  if (received.kind != os::Received::Kind::message) throw std::runtime_error("the other process has ended");
  return std::move(received.descriptor);
}
inline void send_number(os::LocalConnection& connection, std::uint64_t number, int descriptor = -1) {
  if (!connection.send(std::as_bytes(std::span(&number, 1)), descriptor).value()) {
    throw std::runtime_error("the other process does not receive");
  }
}

/// The lender's process: lends memory of GPU `gpu`, then compares it with the pattern of each seed that it is sent.
inline void serve_as_lender(int socket, const std::string& kind, int gpu, std::size_t bytes) {
  const auto device = open_gpu(kind, gpu);
  const auto fabric = device::make_peer_fabric(*device).value();
  const auto lent = fabric->lend(bytes).value();
  const os::OwnDescriptor descriptor = lent->descriptor().value();
  const auto mine = fabric->map(*lent).value();
  const auto connection = os::connection_over(os::OwnDescriptor([&] { return socket; }), ::getppid());
  send_number(*connection, bytes, descriptor.fd());
  Memory host(*device, bytes, true);
  Lane lane(*device);
  for (std::uint64_t seed = 0;;) {
    receive_number(*connection, seed);
    lane.copy(host.data(), mine.get(), bytes);
    lane.finish();
    send_number(*connection, wrong_words(host.data(), bytes, seed));
  }
}

/// That process, seen from here: this program again, with --lender and its socket. Killed at its end.
class LenderProcess {
 public:
  LenderProcess(const std::string& kind, int gpu, std::size_t bytes) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends.data()) != 0) throw std::runtime_error("no socket pair");
    ::fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    const std::string socket = std::to_string(ends[0]), to = std::to_string(gpu), size = std::to_string(bytes);
    child_ = ::fork();
    if (child_ < 0) throw std::runtime_error("no second process");
    if (child_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execl("/proc/self/exe", "gpu_peers", "--lender", socket.c_str(), "--to", to.c_str(), "--size", size.c_str(),
              "--device", kind.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(ends[0]);
    connection_ = os::connection_over(os::OwnDescriptor([&] { return ends[1]; }), child_);
  }
  LenderProcess(const LenderProcess&) = delete;
  ~LenderProcess() { kill(); }

  /// A descriptor of the memory that it lends.
  os::OwnDescriptor descriptor() {
    std::uint64_t bytes = 0;
    return receive_number(*connection_, bytes);
  }
  /// Words that it does not find as the pattern of `seed` has them.
  std::uint64_t wrong_words(std::uint64_t seed) {
    send_number(*connection_, seed);
    std::uint64_t wrong = 0;
    receive_number(*connection_, wrong);
    return wrong;
  }
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }

 private:
  pid_t child_ = -1;
  std::unique_ptr<os::LocalConnection> connection_;
};

}  // namespace bench
