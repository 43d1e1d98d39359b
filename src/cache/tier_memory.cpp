#include "cache/tier_memory.hpp"

#include <system_error>
#include <utility>

#include "os/files.hpp"
#include "os/processors.hpp"

namespace ebb::memory {

std::string_view name_of(HostStrategy strategy) { return strategy == HostStrategy::direct ? "direct" : "incremental"; }
std::string_view name_of(DeviceStrategy strategy) { return strategy == DeviceStrategy::direct ? "direct" : "mapped"; }

std::optional<HostStrategy> host_strategy(std::string_view name) {
  for (const auto strategy : {HostStrategy::direct, HostStrategy::incremental})
    if (name == name_of(strategy)) return strategy;
  return {};
}

std::optional<DeviceStrategy> device_strategy(std::string_view name) {
  for (const auto strategy : {DeviceStrategy::direct, DeviceStrategy::mapped})
    if (name == name_of(strategy)) return strategy;
  return {};
}

namespace {

// Too many threads that touch hold up the one that pins, and the program; with too few it waits for them.
policy::ProvisionSpec usual() {
  policy::ProvisionSpec spec;
  spec.touchers = static_cast<int>(std::clamp(platform::usable_processors() / 2, 1u, 6u));
  return spec;
}

}  // namespace

// --- made ----------------------------------------------------------------------------------------------------------

TierMemory::TierMemory(platform::Device& device, std::size_t bytes, std::string name, MemoryOptions options)
    : device_(device), size_(bytes), name_(std::move(name)), options_(std::move(options)) {}

Result<std::unique_ptr<TierMemory>> TierMemory::make(platform::Device& device, std::size_t bytes, std::string name,
                                                     MemoryOptions options) {
  if (bytes > SIZE_MAX - platform::kBlock) {
    return Error{Errc::out_of_memory, std::to_string(bytes) + " bytes fit no memory"};
  }
  return std::unique_ptr<TierMemory>(
      new TierMemory(device, platform::round_up(bytes), std::move(name), std::move(options)));
}

Result<std::unique_ptr<TierMemory>> TierMemory::host(platform::Device& device, std::size_t bytes, HostStrategy strategy,
                                                     MemoryOptions options) {
  if (strategy == HostStrategy::incremental) {
    return growing(device, bytes, std::string(name_of(strategy)), usual(), std::move(options));
  }
  auto arena = make(device, bytes, std::string(name_of(strategy)), std::move(options));
  if (!arena || (*arena)->size_ == 0) return arena;
  if (auto made = (*arena)->all_at_once(device.allocate_host((*arena)->size_), Source::host); !made)
    return made.error();
  return arena;
}

Result<std::unique_ptr<TierMemory>> TierMemory::on_device(platform::Device& device, std::size_t bytes,
                                                          DeviceStrategy strategy, MemoryOptions options) {
  if (strategy == DeviceStrategy::mapped && device.host_memory()) {
    return growing(device, bytes, std::string(name_of(strategy)), usual(), std::move(options));
  }
  auto arena = make(device, bytes, std::string(name_of(strategy)), std::move(options));
  if (!arena || (*arena)->size_ == 0) return arena;
  TierMemory& made = **arena;
  const auto begun = strategy == DeviceStrategy::mapped ? made.start_mapping()
                                                        : made.all_at_once(device.allocate(made.size_), Source::device);
  if (!begun) return begun.error();
  return arena;
}

Result<std::unique_ptr<TierMemory>> TierMemory::growing(platform::Device& device, std::size_t bytes, std::string name,
                                                        policy::ProvisionSpec spec, MemoryOptions options) {
  auto arena = make(device, bytes, std::move(name), std::move(options));
  if (!arena || (*arena)->size_ == 0) return arena;
  if (auto begun = (*arena)->start_growing(spec); !begun) return begun.error();
  return arena;
}

Result<void> TierMemory::all_at_once(Result<std::byte*> memory, Source source) {
  if (!memory) return memory.error();
  data_ = *memory;
  source_ = source;
  ready_ = limit_ = size_;
  return {};
}

Result<void> TierMemory::start_mapping() {
  Result<std::byte*> range = device_.reserve(size_);
  if (!range) return range.error();
  data_ = *range;
  source_ = Source::device_range;
  const std::size_t first = std::min(size_, map_piece());
  if (auto mapped = device_.map(data_, 0, first); !mapped) return mapped.error();
  ready_ = mapped_ = first;
  limit_ = size_;
  return first < size_ ? start_thread(&TierMemory::run_mapping) : Result<void>();
}

Result<void> TierMemory::start_growing(policy::ProvisionSpec spec) {
  addresses_ = size_;
  Result<std::byte*> pages = platform::map_pages(addresses_);
  const Result<void> all = pages ? Result<void>() : pages.error();
  for (int half = 0; !pages && half < 3 && !options_.whole; ++half) {
    addresses_ = platform::round_up(addresses_ / 2);
    pages = platform::map_pages(addresses_);
  }
  if (!pages) return all;
  data_ = *pages;
  source_ = Source::pages;
  spec.capacity = addresses_;
  if (device_.host_memory()) {
    spec.pinning = policy::Pinning::none;
    spec.faults_in = true;
  }
  if (!device_.host_memory()) platform::keep_from_children(data_, addresses_);
  const std::size_t pieces = (addresses_ - 1) / std::max<std::size_t>(spec.touch_piece, 1) + 1;
  if (pieces < static_cast<std::size_t>(std::max(spec.touchers, 0))) spec.touchers = static_cast<int>(pieces);
  limit_ = addresses_;
  if (!all) trouble_locked(had_text(addresses_) + all.error().message, unsaid_);
  if (spec.faults_in && addresses_ <= platform::kHugePage) {
    ready_ = addresses_;  // sooner written than touched by a thread that would have to be started
    return {};
  }
  News news;
  registers_ = spec.pinning != policy::Pinning::none;
  provisioner_.emplace(spec);
  finished_ = false;
  feed_locked({}, news);
  for (int i = 0; i < spec.touchers; ++i) {
    if (auto started = start_thread(&TierMemory::run_touching); !started) return started;
  }
  return spec.pinning == policy::Pinning::none ? Result<void>() : start_thread(&TierMemory::run_pinning);
}

Result<void> TierMemory::start_thread(void (TierMemory::*work)()) {
  try {
    threads_.emplace_back(&TierMemory::run, this, work);
  } catch (const std::system_error& error) {
    return Error{Errc::out_of_memory, std::string("a thread cannot be started: ") + error.what()};
  }
  return {};
}

void TierMemory::stop() {
  std::lock_guard stopping(stop_mutex_);
  {
    std::lock_guard lock(mutex_);
    stop_.request_stop();
    finished_ = true;
  }
  touching_.notify_all();
  pinning_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

TierMemory::~TierMemory() {
  stop();
  for (const policy::ByteRange& piece : pinned_) device_.unpin(data_ + piece.offset, piece.length);
  switch (source_) {
    case Source::none: break;
    case Source::device: device_.free(data_, size_); break;
    case Source::device_range: device_.unreserve(data_, size_); break;
    case Source::host: device_.free_host(data_, size_); break;
    case Source::pages: platform::unmap_pages(data_, addresses_); break;
  }
}

// --- asked ---------------------------------------------------------------------------------------------------------

std::size_t TierMemory::border_after(std::size_t offset) const {
  const auto next = std::upper_bound(borders_.begin(), borders_.end(), offset);
  return next == borders_.end() ? SIZE_MAX : *next;
}

std::size_t TierMemory::map_piece() const {
  return platform::round_up(std::max<std::size_t>(options_.map_piece, 1), device_.map_granule());
}

policy::Time TierMemory::now() const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begun_).count();
}

MemoryReport TierMemory::report() const {
  std::lock_guard lock(mutex_);
  MemoryReport report;
  report.strategy = name_;
  report.bytes = size_;
  report.limit = limit();
  report.ready = ready();
  report.trouble = troubles_;
  report.mapped = source_ == Source::device ? size_ : mapped_;
  if (source_ == Source::host) {
    report.touched = size_;
    report.pinned = device_.host_memory() ? 0 : size_;
  }
  report.huge_pages = source_ == Source::pages && size_ >= platform::kHugePage && platform::huge_pages().on;
  if (provisioner_) {
    const policy::ProvisionState& state = provisioner_->state();
    report.touched = state.touched;
    report.pinned = state.pinned;
    report.piece = state.piece;
    report.pieces = state.pieces;
    report.sequential = state.sequential;
    report.figures = state.figures;
  }
  return report;
}

}  // namespace ebb::memory
