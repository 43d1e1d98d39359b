// Options by name, and from the environment.
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <unistd.h>

#include "base/text.hpp"
#include "ebbtide/options.hpp"
#include "ebbtide/snapshot.hpp"
#include "options/defaults.hpp"
#include "options/device_choice.hpp"
#include "options/environment.hpp"

namespace ebb {
namespace {

template <class T>
struct Choice {
  std::string_view name;
  T value;
};

template <class T, std::size_t n>
Result<void> choose(std::optional<T>& field, std::string_view key, std::string_view text,
                    const std::array<Choice<T>, n>& choices) {
  const std::string wanted = base::lower(base::trimmed(text));
  std::string right;
  for (const auto& choice : choices) {
    if (choice.name == wanted) return field = choice.value, Result<void>{};
    right += (right.empty() ? "\"" : ", \"") + std::string(choice.name) + "\"";
  }
  return base::wrong_value(key, text, "one of " + right);
}

template <class T>
Result<void> store(std::optional<T>& field, Result<T> parsed) {
  if (!parsed) return parsed.error();
  field = *parsed;
  return {};
}

// The system would cut the text at the NUL, and use another file.
Result<void> refuse_nul(std::string_view key, std::string_view text) {
  const auto at = text.find('\0');
  if (at == text.npos) return {};
  return Error{Errc::invalid_argument, std::string(key) + "=\"" + std::string(text.substr(0, at)) +
                                           "\\0...\" is not valid: it has a NUL byte, which no option may have"};
}

Result<void> store_path(std::optional<std::filesystem::path>& field, std::string_view key, std::string_view text) {
  if (base::trimmed(text).empty()) return base::wrong_value(key, text, "the path of a directory or file");
  field = std::filesystem::path(std::string(text));
  return {};
}

Result<std::uint64_t> parse_count(std::string_view key, std::string_view text) {
  const std::string_view digits = base::trimmed(text);
  std::uint64_t count = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  const bool whole = failed == std::errc{} && end == digits.data() + digits.size() && count <= INT64_MAX;
  if (!whole) return base::wrong_value(key, text, "a number of versions below 2**63, or 0 for no limit");
  return count;
}

Result<std::uint64_t> parse_borrowed(std::string_view key, std::string_view text) {
  if (base::lower(base::trimmed(text)) == "auto") return kBorrowAll;
  if (auto bytes = parse_bytes(key, text)) return bytes;
  return base::wrong_value(key, text, "\"auto\", or a size such as \"8GiB\"");
}

Result<double> parse_share(std::string_view key, std::string_view text) {
  const std::string_view digits = base::trimmed(text);
  double share = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), share);
  const bool whole = failed == std::errc{} && end == digits.data() + digits.size();
  if (!whole || !(share > 0 && share <= 1)) return base::wrong_value(key, text, options::kShares);
  return share;
}

Result<void> store_device(std::optional<std::string>& field, std::string_view key, std::string_view text) {
  const std::string wanted = base::lower(base::trimmed(text));
  if (!options::parse_device(wanted)) return base::wrong_value(key, text, options::kDevices);
  field = wanted;
  return {};
}

constexpr std::array kDurability = {
    Choice<Durability>{"ephemeral", Durability::ephemeral}, Choice<Durability>{"process", Durability::process},
    Choice<Durability>{"node", Durability::node}, Choice<Durability>{"storage", Durability::storage}};
constexpr std::array kPrefetch = {Choice<Prefetch>{"auto", Prefetch::automatic},
                                  Choice<Prefetch>{"manual", Prefetch::manual}};
constexpr std::array kEviction = {Choice<Eviction>{"score", Eviction::score},
                                  Choice<Eviction>{"score_paper", Eviction::score_paper},
                                  Choice<Eviction>{"lru", Eviction::lru}, Choice<Eviction>{"fifo", Eviction::fifo}};
constexpr std::array kIo = {Choice<Io>{"auto", Io::automatic}, Choice<Io>{"uring", Io::uring},
                            Choice<Io>{"threads", Io::threads}};
constexpr std::array kDeviceArena = {Choice<DeviceArena>{"mapped", DeviceArena::mapped},
                                     Choice<DeviceArena>{"direct", DeviceArena::direct}};
constexpr std::array kHostArena = {Choice<HostArena>{"incremental", HostArena::incremental},
                                   Choice<HostArena>{"direct", HostArena::direct}};
constexpr std::array kVerify = {Choice<Verify>{"files", Verify::files}, Choice<Verify>{"all", Verify::all}};
constexpr std::array kTrack = {
    Choice<Track>{"auto", Track::automatic},    Choice<Track>{"faults", Track::faults},
    Choice<Track>{"scan", Track::scan},         Choice<Track>{"digest", Track::digest},
    Choice<Track>{"declared", Track::declared}, Choice<Track>{"everything", Track::everything}};
constexpr std::array kBool = {Choice<bool>{"true", true}, Choice<bool>{"false", false}, Choice<bool>{"1", true},
                              Choice<bool>{"0", false},   Choice<bool>{"on", true},     Choice<bool>{"off", false},
                              Choice<bool>{"yes", true},  Choice<bool>{"no", false}};
constexpr std::string_view kKeys =
    "device, directory, device_cache, host_cache, memory, device_arena, host_arena, warm, disk, durability, readonly, "
    "keep_last, keep_every, node_pool, node_agent, node_chunk, lend, lend_share, borrow, verify, prefetch, eviction, "
    "io, "
    "direct_io, "
    "close_timeout, event_log";

// Sets the option called `key`, reporting errors about `shown` (an environment variable, perhaps).
Result<void> set(Options& options, std::string_view key, std::string_view shown, std::string_view text) {
  if (auto whole = refuse_nul(shown, text); !whole) return whole;
  if (key == "device") return store_device(options.device, shown, text);
  if (key == "directory") return store_path(options.directory, shown, text);
  if (key == "device_cache") return store(options.device_cache, parse_bytes(shown, text));
  if (key == "host_cache") return store(options.host_cache, parse_bytes(shown, text));
  if (key == "memory") return store(options.memory, parse_bytes(shown, text));
  if (key == "device_arena") return choose(options.device_arena, shown, text, kDeviceArena);
  if (key == "host_arena") return choose(options.host_arena, shown, text, kHostArena);
  if (key == "warm") return choose(options.warm, shown, text, kBool);
  if (key == "disk") return store(options.disk, parse_bytes(shown, text));
  if (key == "durability") return choose(options.durability, shown, text, kDurability);
  if (key == "readonly") return choose(options.readonly, shown, text, kBool);
  if (key == "keep_last") return store(options.keep_last, parse_count(shown, text));
  if (key == "keep_every") return store(options.keep_every, parse_count(shown, text));
  if (key == "node_pool") return store(options.node_pool, parse_bytes(shown, text));
  if (key == "node_agent") return choose(options.node_agent, shown, text, kBool);
  if (key == "node_chunk") return store(options.node_chunk, parse_bytes(shown, text));
  if (key == "lend") return store(options.lend, parse_bytes(shown, text));
  if (key == "lend_share") return store(options.lend_share, parse_share(shown, text));
  if (key == "borrow") return store(options.borrow, parse_borrowed(shown, text));
  if (key == "verify") return choose(options.verify, shown, text, kVerify);
  if (key == "prefetch") return choose(options.prefetch, shown, text, kPrefetch);
  if (key == "eviction") return choose(options.eviction, shown, text, kEviction);
  if (key == "io") return choose(options.io, shown, text, kIo);
  if (key == "direct_io") return choose(options.direct_io, shown, text, kBool);
  if (key == "close_timeout") return store(options.close_timeout, parse_seconds(shown, text));
  if (key == "event_log") return store_path(options.event_log, shown, text);
  return Error{Errc::invalid_argument, "unknown option " + std::string(shown) + "=\"" + std::string(text) +
                                           "\": the options are " + std::string(kKeys)};
}

// What the caller gave takes precedence over the environment.
void prefer(Options& base, const Options& given) {
  const auto take = [](auto& to, const auto& from) {
    if (from) to = from;
  };
  take(base.device, given.device);
  take(base.directory, given.directory);
  take(base.device_cache, given.device_cache);
  take(base.host_cache, given.host_cache);
  take(base.memory, given.memory);
  take(base.device_arena, given.device_arena);
  take(base.host_arena, given.host_arena);
  take(base.warm, given.warm);
  take(base.disk, given.disk);
  take(base.durability, given.durability);
  take(base.readonly, given.readonly);
  take(base.keep_last, given.keep_last);
  take(base.keep_every, given.keep_every);
  take(base.node_pool, given.node_pool);
  take(base.node_agent, given.node_agent);
  take(base.node_chunk, given.node_chunk);
  take(base.lend, given.lend);
  take(base.lend_share, given.lend_share);
  take(base.borrow, given.borrow);
  take(base.verify, given.verify);
  take(base.prefetch, given.prefetch);
  take(base.eviction, given.eviction);
  take(base.io, given.io);
  take(base.direct_io, given.direct_io);
  take(base.close_timeout, given.close_timeout);
  take(base.event_log, given.event_log);
  take(base.log, given.log);
  take(base.log_with_severity, given.log_with_severity);
}

void log_to_stderr(std::string_view line) {
  std::fprintf(stderr, "ebbtide: %.*s\n", static_cast<int>(line.size()), line.data());
}

// Warnings are always delivered: something is damaged or was lost.
void warn_on_stderr(std::string_view line) {
  if (line.starts_with(kWarning)) log_to_stderr(line);
}

}  // namespace

Result<Track> parse_track(std::string_view text) {
  std::optional<Track> track;
  if (auto chosen = choose(track, "track", text, kTrack); !chosen) return chosen.error();
  return *track;
}

Result<void> set_option(Options& options, std::string_view key, std::string_view text) {
  return set(options, key, key, text);
}

Result<Options> with_environment(Options options) {
  return options::with_environment(std::move(options), options::process_environment());
}

namespace options {

Environment process_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals != text.npos) environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Result<Options> with_environment(Options options, const Environment& environment) {
  constexpr std::string_view prefix = "EBBTIDE_";
  for (const auto& [key, path] : {std::pair{"directory", &options.directory}, {"event_log", &options.event_log}}) {
    if (!*path) continue;
    if (auto whole = refuse_nul(key, (*path)->native()); !whole) return whole.error();
  }
  Options found;
  found.log = warn_on_stderr;
  for (auto it = environment.lower_bound(prefix); it != environment.end() && it->first.starts_with(prefix); ++it) {
    const auto& [name, text] = *it;
    if (name == "EBBTIDE_LOG") {
      const std::string level = base::lower(base::trimmed(text));
      if (level == "info") {
        found.log = log_to_stderr;
      } else if (level == "off") {
        found.log = [](std::string_view) {};
      } else if (!level.empty()) {
        return base::wrong_value(name, text, "one of \"info\", \"off\"");
      }
      continue;
    }
    if (name == "EBBTIDE_JOB") continue;         // which job the process belongs to: node/job.hpp
    if (name == "EBBTIDE_RANK") continue;        // the process's in its job: defaults.hpp
    if (name == "EBBTIDE_CUDA_PLAIN") continue;  // for memory checkers: device/cuda.hpp
    if (name == "EBBTIDE_DIR" && environment.contains("EBBTIDE_DIRECTORY")) continue;  // the full name takes precedence
    const std::string key =
        name == "EBBTIDE_DIR" ? "directory" : base::lower(std::string_view(name).substr(prefix.size()));
    if (auto done = set(found, key, name, text); !done) return done.error();
  }
  // `memory` sizes the host cache too: of the two, the caller's takes precedence.
  if (options.memory) found.host_cache.reset();
  if (options.host_cache) found.memory.reset();
  prefer(found, options);
  return found;
}

}  // namespace options
}  // namespace ebb
