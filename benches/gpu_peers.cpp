// How fast bytes go to and from the memory of another GPU, beside bare peer copies: lent by this process and by another
// one; and how fast the host is reached over two links, by a relay through the other GPU's memory. All bytes that are
// moved are compared. Takes 2 x `burst` bytes of GPU memory and `relay` bytes of pinned memory, and ends within a
// minute.
#include "benches/gpu_peers.hpp"

#include <functional>

#include "benches/gpu_common.hpp"
#include "device/peer_pairs.hpp"

namespace {

using bench::Lane;
using bench::Memory;
using bench::Relay;
namespace device = ebb::device;
namespace os = ebb::os;

constexpr double kSecondsForAll = 50;
constexpr std::size_t kCopies = 24;  // of one sample

using Samples = std::map<std::string, std::vector<double>>;

double seconds_of(const std::function<void()>& work) {
  const auto start = bench::Clock::now();
  work();
  return bench::seconds(bench::Clock::now() - start);
}

/// Copies of `bytes`, one after another, around `room` bytes on both sides.
double rate(Lane& lane, std::byte* to, const std::byte* from, std::size_t bytes, std::size_t room) {
  const double took = seconds_of([&] {
    for (std::size_t i = 0; i < kCopies; ++i) {
      const std::size_t at = i % (room / bytes) * bytes;
      lane.copy(to + at, from + at, bytes);
    }
    lane.finish();
  });
  return static_cast<double>(kCopies * bytes) / took;
}

/// The same by cudaMemcpyPeerAsync alone, between memory of cudaMalloc.
class Bare {
 public:
  Bare(int from, int to, std::size_t bytes) : from_(from), to_(to), bytes_(bytes) {
    source_ = buffer(from, to);
    target_ = buffer(to, from);
    bench::check(cudaSetDevice(from), "cudaSetDevice");
    stream_ = std::make_unique<bench::Stream>();
  }
  double store() { return run(target_.get(), to_, source_.get(), from_); }
  double load() { return run(source_.get(), from_, target_.get(), to_); }

 private:
  bench::DeviceBuffer buffer(int on, int other) const {
    bench::check(cudaSetDevice(on), "cudaSetDevice");
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(other, 0);
    if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(cudaGetLastError());
    } else {
      bench::check(enabled, "cudaDeviceEnablePeerAccess");
    }
    return bench::make_device_buffer(bytes_);
  }
  double run(std::byte* to, int to_gpu, const std::byte* from, int from_gpu) {
    const double took = seconds_of([&] {
      for (std::size_t i = 0; i < kCopies; ++i) {
        bench::check(cudaMemcpyPeerAsync(to, to_gpu, from, from_gpu, bytes_, stream_->get()), "cudaMemcpyPeerAsync");
      }
      stream_->wait();
    });
    return static_cast<double>(kCopies * bytes_) / took;
  }

  const int from_, to_;
  const std::size_t bytes_;
  bench::DeviceBuffer source_, target_;
  std::unique_ptr<bench::Stream> stream_;
};

struct Given {
  std::string device;
  int from = 0, to = 1;
  std::size_t bytes = 0, burst = 0, relay = 0, repeats = 0;
};

/// Fills `own` with the pattern of `seed`, by way of the host.
void upload_words(Lane& lane, Memory& host, std::byte* own, std::size_t bytes, std::uint64_t seed) {
  for (std::size_t at = 0; at < bytes; at += host.size()) {
    const std::size_t piece = std::min(host.size(), bytes - at);
    bench::fill_words(host.data(), piece, seed, at);
    lane.copy(own + at, host.data(), piece);
    lane.finish();
  }
}
void verify_device(const char* what, Lane& lane, Memory& host, const std::byte* there, std::size_t bytes,
                   std::uint64_t seed) {
  for (std::size_t at = 0; at < bytes; at += host.size()) {
    const std::size_t piece = std::min(host.size(), bytes - at);
    std::memset(host.data(), 0, piece);
    lane.copy(host.data(), there + at, piece);
    lane.finish();
    bench::verify_words(what, host.data(), piece, seed, at);
  }
}

/// To and from memory that another process lends; the borrower uses its own GPU alone.
void two_processes(const Given& given, device::Device& device, Samples& found) {
  const std::size_t bytes = given.bytes, room = 4 * bytes;
  bench::LenderProcess lender(given.device, given.to, room);
  const os::OwnDescriptor descriptor = lender.descriptor();
  const auto fabric = device::make_peer_fabric(device).value();
  std::shared_ptr<std::byte> peer;
  found["two_processes_map_s"].push_back(seconds_of([&] { peer = fabric->map(descriptor.fd(), room).value(); }));
  device::probe({device, peer.get()}, {device, peer.get()}, std::min(room, std::size_t{8} << 20)).value();
  Memory own(device, room, false), host(device, room, true);
  Lane lane(device);
  upload_words(lane, host, own.data(), room, 11);
  rate(lane, peer.get(), own.data(), bytes, room);
  for (std::size_t i = 0; i < given.repeats; ++i) {
    found["two_processes_store_bytes_per_s"].push_back(rate(lane, peer.get(), own.data(), bytes, room));
    found["two_processes_load_bytes_per_s"].push_back(rate(lane, own.data(), peer.get(), bytes, room));
  }
  if (const std::uint64_t wrong = lender.wrong_words(11)) {
    throw std::runtime_error("the lender finds " + std::to_string(wrong) + " wrong words");
  }
  verify_device("from the lender", lane, host, own.data(), room, 11);
  lender.kill();
  found["lender_killed_load_bytes_per_s"].push_back(rate(lane, own.data(), peer.get(), bytes, room));
  upload_words(lane, host, own.data(), room, 12);
  rate(lane, peer.get(), own.data(), bytes, room);
  verify_device("after the lender was killed", lane, host, peer.get(), room, 12);
  found["two_processes_unmap_s"].push_back(seconds_of([&] { peer.reset(); }));
}

/// Two GPUs of this process, memory of the second lent to the first, and pinned host memory.
class Node {
 public:
  Node(const Given& given, std::shared_ptr<device::Device> device)
      : given_(given),
        near_(std::move(device)),
        far_(bench::open_gpu(given.device, given.to)),
        near_fabric_(device::make_peer_fabric(*near_).value()),
        far_fabric_(device::make_peer_fabric(*far_).value()),
        own_(*near_, std::max(given.burst, given.relay), false),
        host_(*near_, given.relay, true),
        direct_(*near_),
        second_(*near_),
        at_home_(*far_) {}

  void probe() {
    auto tried = device::try_pair({*near_, *near_fabric_}, {*far_, *far_fabric_}, std::size_t{32} << 20);
    auto back = device::try_pair({*far_, *far_fabric_}, {*near_, *near_fabric_}, std::size_t{32} << 20);
    std::move(tried).value();
    std::move(back).value();
  }

  void borrow(Samples& found) {
    std::unique_ptr<device::LentMemory> lent;
    found["lend_s"].push_back(seconds_of([&] { lent = far_fabric_->lend(given_.burst).value(); }));
    found["export_s"].push_back(seconds_of([&] { static_cast<void>(lent->descriptor().value()); }));
    found["map_s"].push_back(seconds_of([&] { peer_ = near_fabric_->map(*lent).value(); }));
    home_ = far_fabric_->map(*lent).value();
  }

  /// What a lease of 64 MiB costs each side, and its end: unmapped and freed.
  void pieces(Samples& found) {
    constexpr std::size_t kPiece = std::size_t{64} << 20;
    for (std::size_t i = 0; i < 4 * given_.repeats; ++i) {
      std::unique_ptr<device::LentMemory> lent;
      os::OwnDescriptor descriptor;
      std::shared_ptr<std::byte> mapped;
      found["piece_lend_s"].push_back(seconds_of([&] {
        lent = far_fabric_->lend(kPiece).value();
        descriptor = lent->descriptor().value();
      }));
      found["piece_map_s"].push_back(seconds_of([&] { mapped = near_fabric_->map(descriptor.fd(), kPiece).value(); }));
      found["piece_end_s"].push_back(seconds_of([&] {
        mapped.reset();
        descriptor.close();
        lent.reset();
      }));
    }
  }

  void one_process(Samples& found) {
    std::unique_ptr<Bare> bare;
    if (near_->gpu()) bare = std::make_unique<Bare>(given_.from, given_.to, given_.bytes);
    const std::size_t bytes = given_.bytes, room = std::min(4 * bytes, given_.burst);
    for (std::size_t i = 0; i <= given_.repeats; ++i) {
      const double bare_store = bare ? bare->store() : 0;
      const double store = rate(direct_, peer_.get(), own_.data(), bytes, room);
      const double bare_load = bare ? bare->load() : 0;
      const double load = rate(direct_, own_.data(), peer_.get(), bytes, room);
      if (i == 0) continue;  // the first run loads code
      found["store_bytes_per_s"].push_back(store);
      found["load_bytes_per_s"].push_back(load);
      if (!bare) continue;
      found["bare_store_bytes_per_s"].push_back(bare_store);
      found["bare_load_bytes_per_s"].push_back(bare_load);
    }
  }

  /// `down`: from GPU to host; the GPU's own link alone, the relay alone, and both at once with shares by these rates.
  void relay(bool down, Samples& found) {
    const std::string name = down ? "relay_down_" : "relay_up_";
    Relay around(*near_, peer_.get(), *far_, home_.get());
    const std::uint64_t seed = down ? 21 : 22;
    if (down) {
      upload_words(direct_, host_, own_.data(), host_.size(), seed);
      std::memset(host_.data(), 0, host_.size());
    } else {
      bench::fill_words(host_.data(), host_.size(), seed);
    }
    const auto run = [&](std::size_t alone) {  // so many bytes over the own link
      const std::size_t rest = host_.size() - alone;
      const double took = seconds_of([&] {
        if (down && alone) direct_.copy(host_.data(), own_.data(), alone);
        if (!down && alone) direct_.copy(own_.data(), host_.data(), alone);
        if (down && rest) around.down(host_.data() + alone, own_.data() + alone, rest);
        if (!down && rest) around.up(own_.data() + alone, host_.data() + alone, rest);
        direct_.finish();
        around.finish();
      });
      return static_cast<double>(host_.size()) / took;
    };
    run(host_.size() / 2);
    for (std::size_t i = 0; i < given_.repeats; ++i) {
      const double alone = run(host_.size()), relayed = run(0);
      const double share = alone / (alone + relayed);
      const auto hops = static_cast<std::size_t>(share * static_cast<double>(host_.size() / Relay::kHop) + 0.5);
      found[name + "alone_bytes_per_s"].push_back(alone);
      found[name + "relayed_bytes_per_s"].push_back(relayed);
      if (down) std::memset(host_.data(), 0, host_.size());
      found[name + "both_bytes_per_s"].push_back(run(hops * Relay::kHop));
    }
    if (down) {
      bench::verify_words("relay to the host", host_.data(), host_.size(), seed);
    } else {
      verify_device("relay from the host", direct_, host_, own_.data(), host_.size(), seed);
    }
  }

  /// A burst to the peer, to the host alone (around the pinned memory), and to both with shares by their rates.
  void burst(Samples& found) {
    const std::size_t bytes = given_.burst;
    upload_words(direct_, host_, own_.data(), bytes, 31);
    const auto to_host = [&](std::size_t from) {
      std::size_t to = 0;
      for (std::size_t at = from; at < bytes; at += given_.bytes) {
        if (to + given_.bytes > host_.size()) to = 0;
        second_.copy(host_.data() + to, own_.data() + at, std::min(given_.bytes, bytes - at));
        to += given_.bytes;
      }
    };
    const auto run = [&](std::size_t to_peer) {
      return seconds_of([&] {
        if (to_peer < bytes) to_host(to_peer);
        for (std::size_t at = 0; at < to_peer; at += given_.bytes) {
          direct_.copy(peer_.get() + at, own_.data() + at, std::min(given_.bytes, to_peer - at));
        }
        direct_.finish();
        second_.finish();
      });
    };
    for (std::size_t i = 0; i < given_.repeats; ++i) {
      const double peer = run(bytes), host = run(0);
      const double share = host / (peer + host);
      found["burst_peer_s"].push_back(peer);
      found["burst_host_s"].push_back(host);
      found["burst_both_s"].push_back(run(static_cast<std::size_t>(share * static_cast<double>(bytes)) / 4096 * 4096));
      found["burst_least_s"].push_back(1 / (1 / peer + 1 / host));
    }
    run(bytes);
    verify_device("burst", at_home_, host_, home_.get(), bytes, 31);
  }

 private:
  const Given given_;
  std::shared_ptr<device::Device> near_, far_;
  std::unique_ptr<device::PeerFabric> near_fabric_, far_fabric_;
  Memory own_, host_;
  Lane direct_, second_, at_home_;
  std::shared_ptr<std::byte> peer_, home_;  // the lent memory: the first GPU's address, and its owner's
};

void judge(const Samples& found) {
  const auto told = [&](const char* what, const char* above, const char* below, double bar) {
    if (!found.count(above) || !found.count(below)) return;
    const double ratio = bench::median(found.at(above)) / bench::median(found.at(below));
    std::printf("%-58s %.3f (at least %.2f)%s\n", what, ratio, bar, ratio < bar ? " MISSED" : "");
  };
  told("store to a peer, one process, over bare", "store_bytes_per_s", "bare_store_bytes_per_s", 0.95);
  told("load from a peer, one process, over bare", "load_bytes_per_s", "bare_load_bytes_per_s", 0.95);
  told("store to a peer, two processes, over bare", "two_processes_store_bytes_per_s", "bare_store_bytes_per_s", 0.95);
  told("load from a peer, two processes, over bare", "two_processes_load_bytes_per_s", "bare_load_bytes_per_s", 0.95);
  told("to the host by both links, over alone", "relay_down_both_bytes_per_s", "relay_down_alone_bytes_per_s", 1.8);
  told("from the host by both links, over alone", "relay_up_both_bytes_per_s", "relay_up_alone_bytes_per_s", 1.8);
  told("burst: host only over peer", "burst_host_s", "burst_peer_s", 6);
  told("burst: least time over peer and host", "burst_least_s", "burst_both_s", 1 / 1.1);
}

std::string why_not(const Given& given) {
  if (given.device == "cpu") return "";
  const std::size_t gpus = device::find_cuda_devices().size();
  if (gpus == 0) return "no GPU: " + device::cuda_absent_reason();
  if (gpus < 2) return "there is one GPU";
  const auto linked = device::check_link(given.from, given.to, device::cuda_peer_link(given.from, given.to));
  return linked ? "" : linked.error().message;
}

Given given_by(const bench::Options& options) {
  Given given;
  given.device = options.text("device");
  given.from = static_cast<int>(options.number("from"));
  given.to = static_cast<int>(options.number("to"));
  given.bytes = options.number("size");
  given.burst = options.number("burst");
  given.relay = options.number("relay");
  given.repeats = options.number("repeats");
  const bool lender = !options.text("lender").empty();
  if (!lender && (!given.bytes || given.relay < given.bytes || given.burst < std::max(Relay::kRing, 4 * given.bytes))) {
    throw std::invalid_argument("--relay must be at least --size, and --burst four times that and 64 MiB");
  }
  return given;
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv,
                               {{"json", ""},
                                {"dir", "/tmp"},
                                {"device", "cuda"},
                                {"size", "134217728"},
                                {"burst", "8589934592"},
                                {"relay", "4294967296"},
                                {"repeats", "5"},
                                {"from", "0"},
                                {"to", "1"},
                                {"lender", ""}});
  const Given given = given_by(options);
  if (!options.text("lender").empty()) {
    bench::serve_as_lender(static_cast<int>(options.number("lender")), given.device, given.to, given.bytes);
    return 0;
  }
  const auto started = bench::Clock::now();
  ::alarm(static_cast<unsigned>(kSecondsForAll) + 8);  // whatever hangs
  if (const std::string reason = why_not(given); !reason.empty()) {
    std::printf("nothing measured: %s\n", reason.c_str());
    bench::Json().put("nothing_measured", reason).write(options.text("json"));
    return 0;
  }
  Samples found;
  std::string left_out;
  std::unique_ptr<Node> node;
  const auto save = [&] {
    bench::Json json;
    json.put("size", static_cast<double>(given.bytes)).put("burst", static_cast<double>(given.burst));
    json.put("relay", static_cast<double>(given.relay));
    for (const auto& [name, values] : found) json.put(name, values);
    if (!left_out.empty()) json.put("left_out", left_out);
    json.write(options.text("json"));
  };
  const auto device = bench::open_gpu(given.device, given.from);
  const auto part = [&](const char* name, const std::function<void()>& work) {
    const double begun = bench::seconds(bench::Clock::now() - started);
    try {
      if (begun > kSecondsForAll) throw std::runtime_error("no time is left");
      work();
      std::printf("%s: %.1f s\n", name, bench::seconds(bench::Clock::now() - started) - begun);
    } catch (const std::exception& error) {
      left_out += std::string(left_out.empty() ? "" : "; ") + name + ": " + error.what();
      std::ranges::replace(left_out, '"', '\'');  // as it goes into JSON
      std::printf("%s FAILED: %s\n", name, error.what());
    }
    std::fflush(stdout);
    if (!options.text("json").empty()) save();  // what is measured is kept, whatever happens later
  };
  part("two processes", [&] { two_processes(given, *device, found); });
  part("open both GPUs", [&] { node = std::make_unique<Node>(given, device); });
  if (node) {
    part("probe", [&] { node->probe(); });
    part("leases of 64 MiB", [&] { node->pieces(found); });
    bool borrowed = false;
    part("borrow", [&] {
      node->borrow(found);
      borrowed = true;
    });
    if (borrowed) {
      part("one process", [&] { node->one_process(found); });
      part("relay to the host", [&] { node->relay(true, found); });
      part("relay from the host", [&] { node->relay(false, found); });
      part("burst", [&] { node->burst(found); });
    }
  }
  judge(found);
  save();
  return left_out.empty() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_peers: %s\n", error.what());
  return 1;
}
