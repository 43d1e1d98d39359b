// The program of hpdc23, Listing 1, with VELOC's calls and the sleeps of `ebbtide bench shot`: how long each call
// blocks, as JSON. One process, with memory of the GPU or (--device cpu) of the host. benches/gpu_veloc.py runs it.
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>
#include <unistd.h>
#include <veloc.h>

#include "benches/gpu_common.hpp"

namespace {

using bench::Clock;
using bench::seconds;

void ok(int answer, const char* call) {
  if (answer != VELOC_SUCCESS) throw std::runtime_error(std::string(call) + " failed");
}

/// The program's one array.
class Field {
 public:
  Field(std::size_t bytes, bool on_gpu) : on_gpu_(on_gpu) {
    if (on_gpu_) {
      gpu_ = bench::make_device_buffer(bytes);
    } else {
      host_.assign(bytes, std::byte{1});
    }
  }
  std::byte* data() { return on_gpu_ ? gpu_.get() : host_.data(); }
  void set(std::uint64_t mark) { copy(data(), &mark); }
  std::uint64_t mark() {
    std::uint64_t found = 0;
    copy(&found, data());
    return found;
  }
  void synchronize() const {
    if (on_gpu_) bench::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

 private:
  void copy(void* to, const void* from) const {
    if (on_gpu_) {
      bench::check(cudaMemcpy(to, from, sizeof(std::uint64_t), cudaMemcpyDefault), "cudaMemcpy");
    } else {
      std::memcpy(to, from, sizeof(std::uint64_t));
    }
  }
  bool on_gpu_;
  bench::DeviceBuffer gpu_;
  std::vector<std::byte> host_;
};

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv,
                               {{"device", "cuda"},
                                {"config", ""},
                                {"json", ""},
                                {"checkpoints", "384"},
                                {"size", "134217728"},
                                {"interval-us", "10000"}});
  const int checkpoints = static_cast<int>(options.number("checkpoints"));
  const std::size_t bytes = options.number("size");
  const auto interval = std::chrono::microseconds(options.number("interval-us"));
  if (options.text("device") == "cuda") bench::warm_up();
  Field field(bytes, options.text("device") == "cuda");
  ok(VELOC_Init_single(0, options.text("config").c_str()), "VELOC_Init_single");

  std::vector<double> checkpoint, restore, slept;
  std::uint64_t wrong = 0;
  const auto begun = Clock::now();
  const auto blocked = [&](std::vector<double>& times, const std::function<void()>& call) {
    const auto start = Clock::now();
    call();
    field.synchronize();
    times.push_back(seconds(Clock::now() - start));
  };
  // In place of computing.
  const auto compute = [&](const std::function<void()>& work) {
    const auto start = Clock::now();
    work();
    std::this_thread::sleep_until(start + interval);
    slept.push_back(seconds(Clock::now() - start));
  };
  for (int i = checkpoints; i-- > 0;) ok(VELOC_Prefetch_enqueue("shot", i), "VELOC_Prefetch_enqueue");
  ok(VELOC_Mem_protect(1, field.data(), bytes, 1), "VELOC_Mem_protect");
  for (int i = 0; i < checkpoints; ++i) {
    compute([&] { field.set(static_cast<std::uint64_t>(i) + 1000); });
    blocked(checkpoint, [&] { ok(VELOC_Checkpoint("shot", i), "VELOC_Checkpoint"); });
  }
  ok(VELOC_Prefetch_start(), "VELOC_Prefetch_start");
  for (int i = checkpoints; i-- > 0;) {
    blocked(restore, [&] {
      const std::size_t size = VELOC_Recover_ckpt_size("shot", i, 1);
      ok(VELOC_Mem_protect(1, field.data(), size, 1), "VELOC_Mem_protect");
      ok(VELOC_Restart("shot", i), "VELOC_Restart");
    });
    compute([&] { wrong += field.mark() != static_cast<std::uint64_t>(i) + 1000; });
  }
  const double wall = seconds(Clock::now() - begun);
  bench::Json json;
  json.put("checkpoint_s", checkpoint).put("restore_s", restore).put("slept_s", slept);
  json.put("wall_s", wall).put("wrong", static_cast<double>(wrong));
  json.write(options.text("json"));
  std::fflush(nullptr);
  ::_exit(wrong == 0 ? 0 : 1);  // what is not yet durable is no part of a shot
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_veloc: %s\n", error.what());
  ::_exit(1);
}
