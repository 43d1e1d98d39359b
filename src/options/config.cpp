// Options by name, and from the environment.
#include <algorithm>
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

constexpr std::array kDurability = {
    Choice<Durability>{"ephemeral", Durability::ephemeral}, Choice<Durability>{"process", Durability::process},
    Choice<Durability>{"node", Durability::node}, Choice<Durability>{"storage", Durability::storage},
    Choice<Durability>{"shared", Durability::shared}};
constexpr std::array kPrefetch = {Choice<Prefetch>{"auto", Prefetch::automatic},
                                  Choice<Prefetch>{"manual", Prefetch::manual}};
constexpr std::array kNodeOverflow = {Choice<NodeOverflow>{"page cache", NodeOverflow::page_cache},
                                      Choice<NodeOverflow>{"wait", NodeOverflow::wait}};
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

template <class Named>
std::string names_of(const Named& all, std::string_view quote = "\"") {
  std::string names;
  for (const auto& one : all) {
    names += (names.empty() ? "" : ", ") + std::string(quote) + std::string(one.name) + std::string(quote);
  }
  return names;
}

// The kinds of options: how text becomes a value, and what a caller who gives another type is told.
template <const auto& choices>
struct OneOf {
  static constexpr std::string_view kind = "name";
  static std::string expected() { return "one of " + names_of(choices); }
  static auto parse(std::string_view key, std::string_view text) -> Result<decltype(choices[0].value)> {
    const std::string wanted = base::lower(base::trimmed(text));
    for (const auto& choice : choices) {
      if (choice.name == wanted) return choice.value;
    }
    return base::wrong_value(key, text, expected());
  }
};

struct Flag {
  static constexpr std::string_view kind = "flag";
  static std::string expected() { return "True or False"; }
  static Result<bool> parse(std::string_view key, std::string_view text) { return OneOf<kBool>::parse(key, text); }
};

struct Size {
  static constexpr std::string_view kind = "number";
  static std::string expected() { return "bytes as an int, or text such as \"4GiB\""; }
  static Result<std::uint64_t> parse(std::string_view key, std::string_view text) { return parse_bytes(key, text); }
};

struct Rate {
  static constexpr std::string_view kind = "number";
  static std::string expected() { return "bytes per second as an int, or text such as \"200MB/s\""; }
  static Result<std::uint64_t> parse(std::string_view key, std::string_view text) {
    std::string_view bytes = base::trimmed(text);
    if (bytes.ends_with("/s")) bytes.remove_suffix(2);
    if (auto rate = parse_bytes(key, bytes)) return rate;
    return base::wrong_value(key, text, "a rate such as \"200MB/s\", or 0 for no limit");
  }
};

struct Count {
  static constexpr std::string_view kind = "number";
  static std::string expected() { return "a number of versions, or 0 for no limit"; }
  static Result<std::uint64_t> parse(std::string_view key, std::string_view text) {
    const std::string_view digits = base::trimmed(text);
    std::uint64_t count = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    const bool whole = failed == std::errc{} && end == digits.data() + digits.size() && count <= INT64_MAX;
    if (!whole) return base::wrong_value(key, text, "a number of versions below 2**63, or 0 for no limit");
    return count;
  }
};

struct Borrowed {
  static constexpr std::string_view kind = "number";
  static std::string expected() { return "\"auto\", or bytes as an int, or text such as \"8GiB\""; }
  static Result<std::uint64_t> parse(std::string_view key, std::string_view text) {
    if (base::lower(base::trimmed(text)) == "auto") return kBorrowAll;
    if (auto bytes = parse_bytes(key, text)) return bytes;
    return base::wrong_value(key, text, "\"auto\", or a size such as \"8GiB\"");
  }
};

struct Share {
  static constexpr std::string_view kind = "share";
  static std::string expected() { return "a number above 0, at most 1, as in lend_share=0.25"; }
  static Result<double> parse(std::string_view key, std::string_view text) {
    const std::string_view digits = base::trimmed(text);
    double share = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), share);
    const bool whole = failed == std::errc{} && end == digits.data() + digits.size();
    if (!whole || !(share > 0 && share <= 1)) return base::wrong_value(key, text, options::kShares);
    return share;
  }
};

struct Time {
  static constexpr std::string_view kind = "seconds";
  static std::string expected() { return "seconds, not negative, or text such as \"30s\""; }
  static Result<Seconds> parse(std::string_view key, std::string_view text) { return parse_seconds(key, text); }
};

struct DeviceName {
  static constexpr std::string_view kind = "name";
  static std::string expected() { return "one of \"auto\", \"cpu\", \"cuda\", \"cuda:N\""; }
  static Result<std::string> parse(std::string_view key, std::string_view text) {
    std::string wanted = base::lower(base::trimmed(text));
    if (!options::parse_device(wanted)) return base::wrong_value(key, text, options::kDevices);
    return wanted;
  }
};

struct Path {
  static constexpr std::string_view kind = "path";
  static std::string expected() { return "text"; }
  static Result<std::filesystem::path> parse(std::string_view key, std::string_view text) {
    if (base::trimmed(text).empty()) return base::wrong_value(key, text, "the path of a directory or file");
    return std::filesystem::path(std::string(text));
  }
};

// A row of the tables below: a field of Options or of Tuning.
template <class Owner>
struct Row {
  std::string_view name, kind;
  std::string (*expected)();
  Result<void> (*set)(Owner& to, std::string_view shown, std::string_view text);
  void (*prefer)(Owner& to, const Owner& given);
};

template <class Field>
struct Member;
template <class Class, class T>
struct Member<std::optional<T> Class::*> {
  using Owner = Class;
};

template <auto field, class Kind>
constexpr auto row(std::string_view name) {
  using Owner = typename Member<decltype(field)>::Owner;
  return Row<Owner>{name, Kind::kind, Kind::expected,
                    [](Owner& to, std::string_view shown, std::string_view text) -> Result<void> {
                      auto value = Kind::parse(shown, text);
                      if (!value) return value.error();
                      to.*field = std::move(value).value();
                      return {};
                    },
                    [](Owner& to, const Owner& given) {
                      if (given.*field) to.*field = given.*field;
                    }};
}

constexpr std::array kTuning = {
    row<&Tuning::device_arena, OneOf<kDeviceArena>>("device_arena"),
    row<&Tuning::host_arena, OneOf<kHostArena>>("host_arena"),
    row<&Tuning::io, OneOf<kIo>>("io"),
    row<&Tuning::direct_io, Flag>("direct_io"),
    row<&Tuning::node_agent, Flag>("node_agent"),
    row<&Tuning::node_chunk, Size>("node_chunk"),
};

std::string expected_tuning() { return "a dict such as {\"io\": \"threads\", \"direct_io\": False}"; }

// Sets what "NAME=VALUE, NAME=VALUE" names.
Result<void> set_tuning(Options& options, std::string_view shown, std::string_view text) {
  Tuning tuning = options.tuning;
  for (std::string_view rest = text; !base::trimmed(rest).empty();) {
    const auto comma = std::min(rest.find(','), rest.size());
    const std::string_view pair = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const auto equals = pair.find('=');
    if (equals == pair.npos) {
      return base::wrong_value(shown, text, "NAME=VALUE, with commas between, as in \"io=threads, direct_io=false\"");
    }
    const std::string_view name = base::trimmed(pair.substr(0, equals)), value = base::trimmed(pair.substr(equals + 1));
    const std::string full = std::string(shown) + "." + std::string(name);
    const auto found = std::find_if(kTuning.begin(), kTuning.end(), [&](const auto& one) { return one.name == name; });
    if (found == kTuning.end()) {
      return Error{Errc::invalid_argument,
                   "unknown option " + full + "=\"" + std::string(value) + "\": there are " + names_of(kTuning, "")};
    }
    if (auto set = found->set(tuning, full, value); !set) return set;
  }
  options.tuning = std::move(tuning);
  return {};
}

void prefer_tuning(Options& to, const Options& given) {
  for (const auto& one : kTuning) one.prefer(to.tuning, given.tuning);
}

// All options. The text of C, of Python and of the environment is read by this table alone.
constexpr std::array kOptions = {
    row<&Options::device, DeviceName>("device"),
    row<&Options::directory, Path>("directory"),
    row<&Options::device_cache, Size>("device_cache"),
    row<&Options::adopted, Size>("adopted"),
    row<&Options::host_cache, Size>("host_cache"),
    row<&Options::memory, Size>("memory"),
    row<&Options::warm, Flag>("warm"),
    row<&Options::disk, Size>("disk"),
    row<&Options::durability, OneOf<kDurability>>("durability"),
    row<&Options::readonly, Flag>("readonly"),
    row<&Options::keep_last, Count>("keep_last"),
    row<&Options::keep_every, Count>("keep_every"),
    row<&Options::agreed, Flag>("agreed"),
    row<&Options::shared, Path>("shared"),
    row<&Options::keep_last_shared, Count>("keep_last_shared"),
    row<&Options::shared_every, Count>("shared_every"),
    row<&Options::limit_shared, Rate>("limit_shared"),
    row<&Options::veloc_rank, Count>("veloc_rank"),
    row<&Options::veloc_meta, Path>("veloc_meta"),
    row<&Options::veloc_chksum, Flag>("veloc_chksum"),
    row<&Options::node_pool, Size>("node_pool"),
    row<&Options::node_overflow, OneOf<kNodeOverflow>>("node_overflow"),
    row<&Options::lend, Size>("lend"),
    row<&Options::lend_share, Share>("lend_share"),
    row<&Options::borrow, Borrowed>("borrow"),
    row<&Options::verify, OneOf<kVerify>>("verify"),
    row<&Options::prefetch, OneOf<kPrefetch>>("prefetch"),
    row<&Options::eviction, OneOf<kEviction>>("eviction"),
    row<&Options::close_timeout, Time>("close_timeout"),
    row<&Options::event_log, Path>("event_log"),
    Row<Options>{"tuning", "tuning", expected_tuning, set_tuning, prefer_tuning},
};

// The system would cut the text at the NUL, and use another file.
Result<void> refuse_nul(std::string_view key, std::string_view text) {
  const auto at = text.find('\0');
  if (at == text.npos) return {};
  return Error{Errc::invalid_argument, std::string(key) + "=\"" + std::string(text.substr(0, at)) +
                                           "\\0...\" is not valid: it has a NUL byte, which no option may have"};
}

// Sets the option called `key`, reporting errors about `shown` (an environment variable, perhaps).
Result<void> set(Options& options, std::string_view key, std::string_view shown, std::string_view text) {
  if (auto whole = refuse_nul(shown, text); !whole) return whole;
  for (const auto& one : kOptions) {
    if (one.name == key) return one.set(options, shown, text);
  }
  return Error{Errc::invalid_argument, "unknown option " + std::string(shown) + "=\"" + std::string(text) +
                                           "\": the options are " + names_of(kOptions, "")};
}

// What the caller gave takes precedence over the environment.
void prefer(Options& base, const Options& given) {
  for (const auto& one : kOptions) one.prefer(base, given);
  if (given.log) base.log = given.log;
  if (given.log_with_severity) base.log_with_severity = given.log_with_severity;
}

void log_to_stderr(std::string_view line) {
  std::fprintf(stderr, "ebbtide: %.*s\n", static_cast<int>(line.size()), line.data());
}

// Warnings are always delivered: something is damaged or was lost.
void warn_on_stderr(std::string_view line) {
  if (line.starts_with(kWarning)) log_to_stderr(line);
}

}  // namespace

Result<Track> parse_track(std::string_view text) { return OneOf<kTrack>::parse("track", text); }

Result<void> set_option(Options& options, std::string_view key, std::string_view text) {
  return set(options, key, key, text);
}

std::vector<OptionInfo> option_table() {
  std::vector<OptionInfo> table;
  for (const auto& one : kOptions) table.push_back({std::string(one.name), one.kind, one.expected()});
  for (const auto& one : kTuning) table.push_back({"tuning." + std::string(one.name), one.kind, one.expected()});
  return table;
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
  for (const auto& [key, path] :
       {std::pair{"directory", &options.directory}, {"shared", &options.shared}, {"event_log", &options.event_log}}) {
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
