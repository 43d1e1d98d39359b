// One short program and its store: how long it stands in open, checkpoints and restores, with one way for the caches'
// memory to come to be (hipc22 sec. V). `--mode`:
//   shot    checkpoints with an interval slept after each, then restores in reverse; --beside: the program copies on
//           its device all the while, and a second before; --watch: how much is flushed in the first second; --others:
//           so many stand in the line for turns to register memory, each for --turn seconds
//   copies  copies from and to memory that was provisioned in the background and is complete, beside such from `direct`
//   touch   makes so much of the machine's memory present once, registers it with the GPU once, and gives it back
// With --barrier it says "ready" and waits for a line before it opens the store, and before the raw rates.
#include <cmath>
#include <cstring>
#include <exception>
#include <iostream>
#include <numeric>
#include <thread>

#include "benches/common.hpp"
#include "benches/init_device.hpp"
#include "benches/init_paper.hpp"
#include "benches/init_program.hpp"
#include "cache/tier_memory.hpp"
#include "ebbtide/store.hpp"
#include "options/device_choice.hpp"
#include "os/clock.hpp"
#include "os/pages.hpp"
#include "store/engine.hpp"

namespace {

using namespace bench;
constexpr std::chrono::seconds kAlone(1);  // that the program copies before it opens the store

/// Waits for the others, that this process measures beside.
void barrier(const bench::Options& options) {
  if (options.number("barrier") == 0) return;
  std::cout << "ready" << std::endl;
  std::string line;
  if (!std::getline(std::cin, line)) throw std::runtime_error("nobody said that it may go on");
}

void put_raw_rates(bench::Json& json, Own& own, std::byte* one, std::byte* other, std::byte* host, std::size_t bytes) {
  std::vector<double> copies, down, up;
  for (int i = 0; i < 20; ++i) copies.push_back(own.timed(other, one, bytes));
  const auto rate = [&](auto enqueue) {
    const int count = 8;
    const Moment begin = Clock::now();
    for (int i = 0; i < count; ++i) enqueue();
    own.finish();
    return count * static_cast<double>(bytes) / since(begin);
  };
  for (int i = 0; i < 3; ++i) {
    down.push_back(rate([&] { own.enqueue(host, one, bytes); }));
    up.push_back(rate([&] { own.enqueue(other, host, bytes); }));
  }
  json.put("device_copy_s", bench::median(copies));
  json.put("d2h_bytes_per_s", bench::median(down)).put("h2d_bytes_per_s", bench::median(up));
}

constexpr std::pair<std::string_view, bench::PaperMemory::Form> kPaper[] = {
    {"touch_then_register", bench::PaperMemory::Form::touch_then_register},
    {"concurrent", bench::PaperMemory::Form::concurrent},
    {"sequential", bench::PaperMemory::Form::sequential},
};

/// Opens a store as Store::open() does, with memory of the strategies named.
std::shared_ptr<ebb::store::Engine> open(const bench::Options& options, bench::Registrations& registrations) {
  const std::string& host = options.text("host-strategy");
  const std::string& device = options.text("device-strategy");
  ebb::options::Seams seams;
  seams.files = std::make_shared<os::PosixFiles>();
  seams.clock = std::make_shared<os::SteadyClock>();
  seams.device = ebb::options::open_device(options.text("device")).value();
  ebb::Options chosen;
  chosen.device_cache = options.number("device-cache");
  chosen.host_cache = options.number("host-cache");
  chosen.disk = 0;
  auto setup = ebb::options::choose_setup(chosen, *seams.files, *seams.device, {}).value();
  setup.host_arena = ebb::HostArena::incremental;
  setup.device_arena = ebb::DeviceArena::mapped;
  if (host == "direct" || host == "cuda_host_alloc") {
    setup.host_arena = ebb::HostArena::direct;
  } else if (const auto form =
                 std::find_if(std::begin(kPaper), std::end(kPaper), [&](auto& one) { return one.first == host; });
             form != std::end(kPaper)) {
    setup.make_host_memory = [form](auto& on, std::size_t bytes, ebb::cache::MemoryOptions&& given) {
      return ebb::cache::MadeMemory(
          std::make_unique<bench::PaperMemory>(on, bytes, std::string(form->first), form->second, std::move(given)));
    };
  } else if (host != "incremental") {
    throw std::invalid_argument("no host strategy " + host);
  }
  if (device == "direct" || device == "cuda_malloc") {
    setup.device_arena = ebb::DeviceArena::direct;
  } else if (device != "mapped") {
    throw std::invalid_argument("no device strategy " + device);
  }
  if (host == "cuda_host_alloc" || device == "cuda_malloc") {
    if (!bench::RuntimeAllocations::there()) throw std::invalid_argument("cuda_host_alloc and cuda_malloc need CUDA");
    seams.device = std::make_shared<bench::RuntimeAllocations>(seams.device);
  }
  seams.device = std::make_shared<bench::ToldRegistrations>(seams.device, registrations);
  return ebb::store::Engine::open(std::move(seams), std::move(setup)).value();
}

std::string plain(std::string text) {
  for (char& c : text) {
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ') c = '\'';
  }
  return text;
}

void put_arenas(bench::Json& json, const ebb::Stats& stats, const std::string& when) {
  for (const ebb::TierStats& tier : stats.tiers) {
    const ebb::ArenaStats& arena = tier.arena;
    const std::string name = tier.name + "_" + when + "_";
    json.put(name + "strategy", plain(arena.strategy)).put(name + "trouble", plain(arena.trouble));
    json.put(name + "used_bytes", static_cast<double>(tier.used));
    const std::pair<const char*, double> numbers[] = {{"ready_bytes", static_cast<double>(arena.ready)},
                                                      {"limit_bytes", static_cast<double>(arena.limit)},
                                                      {"touched_bytes", static_cast<double>(arena.touched)},
                                                      {"pinned_bytes", static_cast<double>(arena.pinned)},
                                                      {"mapped_bytes", static_cast<double>(arena.mapped)},
                                                      {"piece_bytes", static_cast<double>(arena.piece)},
                                                      {"pieces", arena.pieces},
                                                      {"huge_pages", arena.huge_pages ? 1 : 0}};
    for (const auto& [key, value] : numbers) json.put(name + key, value);
  }
}

/// Sum, the longest five and where they were, and every one.
void put_calls(bench::Json& json, const std::string& name, const std::vector<double>& calls) {
  std::vector<std::size_t> order(calls.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return calls[a] > calls[b]; });
  order.resize(std::min<std::size_t>(order.size(), 5));
  std::vector<double> at, longest;
  for (const std::size_t i : order) at.push_back(static_cast<double>(i)), longest.push_back(calls[i]);
  json.put(name + "_s", std::accumulate(calls.begin(), calls.end(), 0.0)).put(name + "_median_s", bench::median(calls));
  json.put(name + "_longest_s", longest).put(name + "_longest_at", at).put("raw_" + name + "_s", calls);
}

void shot(const bench::Options& options, bench::Json& json) {
  const std::size_t bytes = options.number("size"), count = options.number("checkpoints");
  const auto interval = std::chrono::duration<double>(std::stod(options.text("interval")));
  const bool copies = options.number("beside") > 0, watch = options.number("watch") > 0;
  Own own(options.text("device"));
  std::byte* const source = own.on_device(bytes);
  std::byte* const target = own.on_device(bytes);
  std::byte* const mark = own.on_host(std::max<std::size_t>(bytes, 4096));
  own.timed(source, mark, bytes);  // the first copies of each kind
  own.timed(target, source, bytes);
  own.timed(mark, target, bytes);
  barrier(options);
  put_raw_rates(json, own, source, target, mark, bytes);
  std::optional<Copier> copier;
  if (copies) copier.emplace(options, bytes);
  Flushes flushes;
  std::vector<ebb::Version> order(count);
  std::iota(order.rbegin(), order.rend(), 0);
  const auto marked = [](std::size_t version) { return 0x9E3779B97F4A7C15u * (version + 1); };
  // Just after a call, and not before the next: what holds up the GPU meanwhile must be met by that call.
  const auto put_mark = [&](std::size_t version) {
    const std::uint64_t word = marked(version);
    std::memcpy(mark, &word, sizeof word);
    own.timed(source, mark, sizeof word);
  };
  put_mark(0);
  barrier(options);

  const Others others(options.number("others"), std::chrono::duration<double>(std::stod(options.text("turn"))));
  bench::Registrations registrations;  // ends after the store
  std::atomic<ebb::Store*> opened{nullptr};
  std::atomic<Moment> first{Moment{}};
  std::optional<ebb::Store> store;
  std::optional<Beside> copying, looking;  // end before it does
  if (copies) copying.emplace(std::chrono::milliseconds(2), [&] { copier->copy(opened); });
  if (copies) std::this_thread::sleep_for(kAlone);
  const Moment begin = Clock::now();
  store.emplace(ebb::store::Engine::store_over(open(options, registrations)));
  const Moment open_done = Clock::now();
  opened = &*store;
  if (watch) looking.emplace(std::chrono::milliseconds(2), [&] { flushes.look(opened, first); });
  store->hint(order).value();
  const double hint_s = since(open_done);
  std::vector<double> writes, reads;
  double first_s = 0;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Moment call = Clock::now();
    if (i == 0) first = call;
    store->checkpoint(static_cast<ebb::Version>(i), {{0, source, bytes}}).value();
    writes.push_back(rounded(since(call)));
    if (i == 0) first_s = since(begin);
    put_mark(i + 1);
    if (interval.count() > 0) std::this_thread::sleep_for(interval);
  }
  const double writing_s = since(begin);
  if (watch) {  // until the first second is over
    while (since(first) < 1.05) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    looking->stop();
  }
  if (options.number("others") > 0) {
    json.put("others", static_cast<double>(options.number("others"))).put("turn_s", std::stod(options.text("turn")));
  }
  put_arenas(json, store->stats(), "written");
  if (options.number("restores") > 0) {
    for (std::size_t i = count; i-- > 0;) {
      const Moment call = Clock::now();
      store->restore(static_cast<ebb::Version>(i), {{0, target, bytes}}).value();
      reads.push_back(rounded(since(call)));
      std::uint64_t word = 0;
      own.timed(mark, target, sizeof word);
      std::memcpy(&word, mark, sizeof word);
      if (word != marked(i)) ++wrong;
      if (interval.count() > 0) std::this_thread::sleep_for(interval);
    }
    put_arenas(json, store->stats(), "read");
  }
  const double all_s = since(begin);
  if (copies) copying->stop();
  const ebb::Stats stats = store->stats();
  const Moment closing = Clock::now();
  opened = nullptr;
  store->close().value();
  store.reset();
  json.put("close_s", since(closing));
  json.put("open_s", bench::seconds(open_done - begin)).put("hint_s", hint_s).put("first_s", first_s);
  json.put("writing_s", writing_s).put("all_s", all_s).put("wrong", static_cast<double>(wrong));
  put_calls(json, "checkpoints", writes);
  if (!reads.empty()) put_calls(json, "restores", reads);
  for (const auto& [cause, seconds] : stats.blocked_s) json.put("stats_blocked_" + cause + "_s", seconds);
  if (copies) copier->put(json, begin, open_done, registrations);
  if (watch) flushes.put(json, 1.0);
}

/// Copies between the device and a whole arena, in the chunks of the store's links, as one after another on a stream.
double swept(Own& own, const ebb::cache::TierMemory& arena, std::byte* on_device, std::size_t chunk, bool down) {
  const Moment begin = Clock::now();
  for (std::size_t at = 0; at < arena.size(); at += chunk) {
    arena.for_each_part(at, std::min(chunk, arena.size() - at), [&](std::size_t offset, std::size_t bytes) {
      std::byte* const host = arena.data() + offset;
      std::byte* const device = on_device + (offset - at);
      down ? own.enqueue(host, device, bytes) : own.enqueue(device, host, bytes);
    });
  }
  own.finish();
  return static_cast<double>(arena.size()) / since(begin);
}

void copies(const bench::Options& options, bench::Json& json) {
  const std::size_t bytes = options.number("size"), all = options.number("host-cache");
  const std::size_t chunk = std::min<std::size_t>(bytes, 16 << 20);
  using namespace ebb::cache;
  Own own(options.text("device"));
  std::byte* const buffer = own.on_device(bytes);
  own.timed(buffer, own.on_host(bytes), bytes);
  barrier(options);
  barrier(options);
  struct Case {
    std::string name;
    std::unique_ptr<TierMemory> host, device;
    std::vector<double> down, up, into, out;
  };
  Case cases[2] = {{"grown", {}, {}, {}, {}, {}, {}}, {"direct", {}, {}, {}, {}, {}, {}}};
  cases[0].host = incremental_host_memory(own.device(), all).value();
  cases[0].device = mapped_device_memory(own.device(), all).value();
  cases[1].host = direct_host_memory(own.device(), all).value();
  cases[1].device = direct_device_memory(own.device(), all).value();
  Case& grown = cases[0];
  grown.host->want(all);
  grown.device->want(all);
  const Moment begin = Clock::now();
  const bool pins = !own.device().host_memory();
  const auto complete = [&] {
    return grown.host->ready() == grown.host->size() && grown.device->ready() == grown.device->size() &&
           (!pins || grown.host->report().pinned == grown.host->size());
  };
  while (!complete() && since(begin) < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const MemoryReport report = grown.host->report();
  json.put("complete_s", since(begin)).put("pinned_bytes", static_cast<double>(report.pinned));
  json.put("pieces", report.pieces).put("complete", complete() ? 1 : 0).put("trouble", plain(report.trouble));
  for (std::uint64_t repeat = 0; repeat <= options.number("repeats"); ++repeat) {
    for (int turn = 0; turn < 2; ++turn) {  // each first every other time
      Case& now = cases[(turn + repeat) % 2];
      const double down = swept(own, *now.host, buffer, chunk, true), up = swept(own, *now.host, buffer, chunk, false);
      std::vector<double> into, out;
      for (std::size_t at = 0; at + bytes <= now.device->size(); at += bytes) {
        into.push_back(own.timed(now.device->data() + at, buffer, bytes));
        out.push_back(own.timed(buffer, now.device->data() + at, bytes));
      }
      if (repeat == 0) continue;  // for what a first copy costs
      now.down.push_back(down), now.up.push_back(up);
      now.into.push_back(bench::median(into)), now.out.push_back(bench::median(out));
    }
  }
  for (Case& now : cases) {
    json.put(now.name + "_d2h_bytes_per_s", now.down).put(now.name + "_h2d_bytes_per_s", now.up);
    json.put(now.name + "_into_device_s", now.into).put(now.name + "_out_of_device_s", now.out);
    now.host.reset();
    now.device.reset();
  }
}

void touch(const bench::Options& options, bench::Json& json) {
  const std::size_t bytes = options.number("bytes") / os::kHugePage * os::kHugePage;
  const std::size_t piece = 64 * os::kHugePage;
  const Moment begin = Clock::now();
  std::byte* const memory = os::map_pages(bytes).value();
  std::atomic<std::size_t> next{0}, touched{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (std::size_t at; (at = next.fetch_add(piece)) < bytes;) {
        const std::size_t length = std::min(piece, bytes - at);
        if (!os::populate(memory + at, length)) return;
        touched += length;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  json.put("touch_s", since(begin)).put("touched_bytes", static_cast<double>(touched));
  Own own(options.text("device"));
  if (!own.device().host_memory() && touched == bytes) {  // each page for once, and not all of them at a time
    const Moment registering = Clock::now();
    std::size_t registered = 0;
    for (std::size_t at = 0; at < bytes; at += piece) {
      const std::size_t length = std::min(piece, bytes - at);
      if (!own.device().pin(memory + at, length)) break;
      own.device().unpin(memory + at, length);
      registered += length;
    }
    json.put("register_s", since(registering)).put("registered_bytes", static_cast<double>(registered));
  }
  os::unmap_pages(memory, bytes);
}

}  // namespace

int main(int argc, char** argv) try {
  const bench::Options options(argc, argv,
                               {{"mode", "shot"},
                                {"json", ""},
                                {"device", "cuda"},
                                {"host-strategy", "incremental"},
                                {"device-strategy", "mapped"},
                                {"size", "134217728"},
                                {"checkpoints", "256"},
                                {"interval", "0.02"},
                                {"restores", "1"},
                                {"beside", "0"},
                                {"watch", "0"},
                                {"others", "0"},
                                {"turn", "0.001"},
                                {"device-cache", "4294967296"},
                                {"host-cache", "34359738368"},
                                {"barrier", "0"},
                                {"repeats", "5"},
                                {"bytes", "0"}});
  bench::Json json;
  const std::string& mode = options.text("mode");
  if (mode == "shot") {
    shot(options, json);
  } else if (mode == "copies") {
    copies(options, json);
  } else if (mode == "touch") {
    touch(options, json);
  } else {
    throw std::invalid_argument("no mode " + mode + "; there are shot, copies, touch");
  }
  json.write(options.text("json"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "init: %s\n", error.what());
  return 1;
}
