// What a program of 0.1.0 may have written with <ebbtide/config.hpp> alone.
#include <ebbtide/config.hpp>

static_assert(std::is_same_v<ebb::Version, std::int64_t> && std::is_same_v<ebb::StreamHandle, std::uintptr_t>);

ebb::Options all_options() {
  return {.device = "cpu",
          .directory = std::filesystem::path("/tmp"),
          .device_cache = std::uint64_t{1} << 20,
          .host_cache = std::uint64_t{1} << 20,
          .device_arena = ebb::DeviceArena::direct,
          .host_arena = ebb::HostArena::direct,
          .disk = 0,
          .durability = ebb::Durability::ephemeral,
          .readonly = false,
          .keep_last = 0,
          .keep_every = 0,
          .verify = ebb::Verify::files,
          .prefetch = ebb::Prefetch::automatic,
          .eviction = ebb::Eviction::score,
          .io = ebb::Io::automatic,
          .direct_io = false,
          .close_timeout = ebb::Seconds(1.5),
          .event_log = std::nullopt,
          .log = [](std::string_view) {}};
}

constexpr ebb::Durability kDurability[] = {ebb::Durability::ephemeral, ebb::Durability::process,
                                           ebb::Durability::storage};
constexpr ebb::DeviceArena kDeviceArena[] = {ebb::DeviceArena::mapped, ebb::DeviceArena::direct};
constexpr ebb::HostArena kHostArena[] = {ebb::HostArena::incremental, ebb::HostArena::direct};
constexpr ebb::Prefetch kPrefetch[] = {ebb::Prefetch::automatic, ebb::Prefetch::manual};
constexpr ebb::Eviction kEviction[] = {ebb::Eviction::score, ebb::Eviction::score_paper, ebb::Eviction::lru,
                                       ebb::Eviction::fifo};
constexpr ebb::Io kIo[] = {ebb::Io::automatic, ebb::Io::uring, ebb::Io::threads};
constexpr ebb::Verify kVerify[] = {ebb::Verify::files, ebb::Verify::all};
constexpr ebb::Order kOrder[] = {ebb::Order::none, ebb::Order::reverse};

bool use_config() {
  const std::size_t enumerators = std::size(kDurability) + std::size(kDeviceArena) + std::size(kHostArena) +
                                  std::size(kPrefetch) + std::size(kEviction) + std::size(kIo) + std::size(kVerify) +
                                  std::size(kOrder);
  ebb::Result<std::uint64_t> bytes = ebb::parse_bytes("disk", "4GiB");
  ebb::Result<ebb::Seconds> seconds = ebb::parse_seconds("close_timeout", "10ms");
  ebb::Options options = all_options();
  ebb::Result<void> set = ebb::set_option(options, "disk", "4GiB");
  ebb::Result<ebb::Options> filled = ebb::with_environment(options);
  return enumerators == 20 && bytes && *bytes == 4ull << 30 && seconds && set && filled &&
         ebb::format_bytes(*bytes) == "4 GiB";
}
