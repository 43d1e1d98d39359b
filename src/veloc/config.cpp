#include "veloc/config.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ini.h>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace ebb::veloc {

namespace {

/// One key's value, and where it was given.
struct Given {
  std::string value, place;
};
using Entries = std::map<std::string, Given, std::less<>>;

struct Line {
  std::string section, key, value;
};

Error wrong(std::string_view key, const Given& given, std::string_view right) {
  return {Errc::invalid_argument,
          given.place + ": " + std::string(key) + " = " + given.value + " is not valid: give " + std::string(right)};
}
Error refused(std::string_view key, const Given& given, std::string_view instead) {
  return {Errc::unsupported,
          given.place + ": " + std::string(key) + " = " + given.value + " is not supported: " + std::string(instead)};
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// What the keys say, one after the other; the first error stays.
class Reader {
 public:
  explicit Reader(const Entries& entries) : entries_(entries) {}

  const Given* find(std::string_view key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
  }
  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<Error>& error() const { return error_; }

  bool flag(std::string_view key) {
    const Given* const given = find(key);
    if (!given) return false;
    const std::string text = lower(given->value);
    const auto is = [&](std::initializer_list<const char*> words) {
      return std::ranges::find(words, text) != words.end();
    };
    if (is({"true", "yes", "on", "1"})) return true;
    if (!is({"false", "no", "off", "0"})) fail(wrong(key, *given, "true or false"));
    return false;
  }
  std::optional<long> whole(std::string_view key, long least, std::string_view right) {
    const Given* const given = find(key);
    if (!given) return {};
    long number = 0;
    const char* const end = given->value.data() + given->value.size();
    const auto [at, failed] = std::from_chars(given->value.data(), end, number);
    if (failed == std::errc() && at == end && number >= least) return number;
    fail(wrong(key, *given, right));
    return {};
  }
  std::optional<std::uint64_t> gigabytes(std::string_view key) {
    constexpr double kLeast = 1.0 / 1024, kMost = 1 << 20;
    const Given* const given = find(key);
    if (!given) return {};
    double number = 0;
    const char* const end = given->value.data() + given->value.size();
    const auto [at, failed] = std::from_chars(given->value.data(), end, number);
    if (failed == std::errc() && at == end && number >= kLeast && number <= kMost)
      return static_cast<std::uint64_t>(std::llround(number * (1 << 30)));
    fail(wrong(key, *given, "a number of GiB from 0.001 on, such as 0.5"));
    return {};
  }
  std::optional<std::filesystem::path> directory(std::string_view key) {
    const Given* const given = find(key);
    if (!given) return {};
    std::error_code failed;
    std::filesystem::create_directory(given->value, failed);  // as VELOC does
    if (!std::filesystem::is_directory(given->value, failed))
      fail(wrong(key, *given, "a directory that exists, or a name in one"));
    return std::filesystem::absolute(given->value, failed);
  }
  void only_off(std::string_view key, std::string_view why) {
    if (flag(key)) fail(refused(key, *find(key), why));
  }

 private:
  const Entries& entries_;
  std::optional<Error> error_;
};

constexpr const char* kKeys[] = {"aggregated",
                                 "axl_type",
                                 "chksum",
                                 "daos_cont",
                                 "daos_pool",
                                 "disable_persistence",
                                 "ec_interval",
                                 "failure_domain",
                                 "gpu_cache_size",
                                 "host_cache_size",
                                 "log_prefix",
                                 "max_parallelism",
                                 "max_versions",
                                 "meta",
                                 "mode",
                                 "persistent",
                                 "persistent_interval",
                                 "premature_eviction",
                                 "scratch",
                                 "scratch_versions",
                                 "score_eviction",
                                 "threaded",
                                 "watchdog_interval"};

// FNV-1a, as 16 hexadecimal digits.
std::string digest_of(const std::filesystem::path& path) {
  std::uint64_t sum = 14695981039346656037U;
  for (const char c : path.string()) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211U;
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; sum >>= 4) text[i] = "0123456789abcdef"[sum & 15];
  return text;
}

int collect(void* to, const char* section, const char* key, const char* value) {
  static_cast<std::vector<Line>*>(to)->push_back({section, key, value});
  return 1;
}

Result<Entries> entries_of(const std::string& file, std::vector<std::string>& notes) {
  std::vector<Line> lines;
  const int line = ini_parse(file.c_str(), collect, &lines);
  if (line < 0) return Error{Errc::invalid_argument, file + " cannot be read: give VELOC's configuration file"};
  if (line > 0) {
    return Error{Errc::invalid_argument,
                 file + ": line " + std::to_string(line) + " is not valid: give key = value, of less than 200 bytes"};
  }
  Entries entries;
  for (auto& [section, key, value] : lines) {
    std::ranges::transform(key, key.begin(), [](unsigned char c) { return std::tolower(c); });
    if (!section.empty() || std::ranges::find(kKeys, std::string_view(key)) == std::end(kKeys)) {
      notes.push_back(file + ": " + (section.empty() ? "" : "[" + section + "] ") + key +
                      " is not a key that is known; it has no effect");
    } else if (!entries.emplace(key, Given{value, file}).second) {
      return Error{Errc::invalid_argument,
                   file + ": " + key + " = " + value + " is not valid: give it once, in a line"};
    }
  }
  for (const std::string key : kKeys) {
    std::string name = "VELOC_" + key;
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
    if (const char* const value = std::getenv(name.c_str())) entries[key] = {value, name};
  }
  return entries;
}

}  // namespace

Result<Config> read_config(const std::string& file) {
  Config config;
  const auto entries = entries_of(file, config.notes);
  if (!entries) return entries.error();
  Reader reader(*entries);
  Options& options = config.options;

  if (const Given* const mode = reader.find("mode")) {
    config.sync = mode->value == "sync";
    if (!config.sync && mode->value != "async") reader.fail(wrong("mode", *mode, "sync or async"));
  }
  const auto scratch = reader.directory("scratch");
  if (!scratch) reader.fail({Errc::invalid_argument, file + ": scratch is not given: name a directory on this node"});
  auto persistent = reader.directory("persistent");
  bool flushed = !reader.flag("disable_persistence");

  if (const auto interval = reader.whole("persistent_interval", std::numeric_limits<long>::min(),
                                         "a number of seconds, 0 (every version goes to persistent) or -1 (none)")) {
    flushed = flushed && *interval >= 0;
    if (persistent && flushed && *interval > 0) {
      config.interval = Seconds(static_cast<double>(*interval));
      options.shared_every = kOnRequest;
    }
  }
  if (const auto interval = reader.whole("ec_interval", std::numeric_limits<long>::min(), "-1");
      interval && *interval >= 0) {
    if (!persistent || !flushed)
      reader.fail(refused("ec_interval", *reader.find("ec_interval"),
                          "there is no erasure coding: name a persistent directory, or give -1"));
    config.notes.push_back("ec_interval: there is no erasure coding; what is in persistent outlives the nodes");
  }
  for (const char* const key : {"axl_type", "daos_pool", "daos_cont"})
    if (const Given* const given = reader.find(key))
      reader.fail(refused(key, *given, "leave it out; persistent is written as files"));
  reader.only_off("aggregated", "give false; each rank's checkpoint is a file of its own");
  const auto meta = reader.directory("meta");
  const bool sums = reader.flag("chksum");
  if (sums && !meta)
    reader.fail(refused("chksum", *reader.find("chksum"), "name a directory with meta, where the checksum files are"));
  // Accepted, and without effect: docs/veloc.md says so.
  static_cast<void>(reader.flag("threaded"));
  static_cast<void>(reader.flag("premature_eviction"));
  reader.whole("max_parallelism", 1, "a number from 1 on");
  reader.whole("watchdog_interval", 0, "a number of seconds, or 0");

  const auto newest = reader.whole("max_versions", 0, "a number of versions, or 0 for all");
  const auto newest_in_scratch = reader.whole("scratch_versions", 0, "a number of versions, or 0 for all");
  const auto count = [](std::optional<long> number) { return static_cast<std::uint64_t>(number.value_or(0)); };
  config.keeps_in_scratch = !persistent || !flushed;
  if (config.keeps_in_scratch) {
    options.keep_last = count(newest_in_scratch);
  } else {
    options.keep_last_shared = count(newest);
    options.keep_last = count(newest_in_scratch) > 0 ? count(newest_in_scratch) : count(newest);
  }

  const auto device = reader.gigabytes("gpu_cache_size"), host = reader.gigabytes("host_cache_size");
  config.caches = device || host;
  options.device_cache = device;
  options.host_cache = host;
  if (reader.find("score_eviction")) options.eviction = reader.flag("score_eviction") ? Eviction::score : Eviction::lru;
  options.prefetch = Prefetch::manual;
  if (reader.error()) return *reader.error();

  config.scratch = *scratch;
  // VELOC's files may be in scratch, and `.ebbtide` is theirs. Another run may have been on this node.
  const std::string of_run = flushed && persistent ? "-" + digest_of(*persistent) : "";
  options.directory = *scratch / (".ebbtide-cache" + of_run);
  config.node_directory = *scratch / (".ebbtide-node" + of_run);
  config.relay = *scratch / (".ebbtide-backend" + of_run);
  if (flushed) {
    options.shared = persistent ? *persistent : *scratch;
    options.veloc_meta = meta;
    options.veloc_chksum = sums;
  }
  config.level = flushed ? "shared" : "storage";
  options.durability = flushed ? Durability::shared : Durability::storage;
  return config;
}

Options pooled(const Config& config, std::uint64_t bytes) {
  Options options = config.options;
  options.directory = config.node_directory;
  options.host_cache = {};
  options.node_pool = bytes;
  return options;
}

}  // namespace ebb::veloc
