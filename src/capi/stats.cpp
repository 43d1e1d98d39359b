// The counters as JSON text and one by one.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "capi/handles.hpp"
#include "ebbtide/counters.hpp"

using namespace ebb::capi;

namespace {

std::string number(double value) {
  if (!std::isfinite(value)) return "null";  // JSON has no infinity
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

template <class Items, class Print>
std::string listed(char open, const Items& items, char close, Print print) {
  std::string out(1, open);
  for (const auto& item : items) {
    if (out.size() > 1) out += ", ";
    out += print(item);
  }
  return out + close;
}

template <class T>
std::string members(const T& from) {
  std::string out;
  ebb::visit_counters(from, [&](std::string_view name, auto value) {
    out += ", " + json_text(name) + ": ";
    if constexpr (std::is_same_v<T, ebb::ArenaStats> && std::is_same_v<decltype(value), bool>)
      out += value ? "true" : "false";
    else
      out += number(static_cast<double>(value));
  });
  return out;
}

template <class T>
std::string named(const T& from, const std::string& more = {}) {
  return "{\"name\": " + json_text(from.name) + members(from) + more + "}";
}

std::string json_of(const ebb::ArenaStats& arena) {
  return "{\"strategy\": " + json_text(arena.strategy) + members(arena) + ", \"trouble\": " + json_text(arena.trouble) +
         "}";
}

template <class T>
std::string object(const T& from) {
  return "{" + members(from).substr(2) + "}";
}

std::string json_of(const ebb::LeaseStats& stats) {
  const auto one = [](const ebb::LeaseInfo& lease) {
    return "{" + members(lease).substr(2) + ", \"state\": " + json_text(lease.state) + "}";
  };
  return "{" + members(stats).substr(2) + ", \"leases\": " + listed('[', stats.leases, ']', one) + "}";
}

// "node" is null when the store is in no node's pool, "leases" when it neither lends nor borrows.
std::string json_of(const ebb::Stats& stats, const ebb::SnapshotStats& snapshots) {
  return "{\"tiers\": " +
         listed('[', stats.tiers, ']',
                [](const auto& tier) { return named(tier, ", \"arena\": " + json_of(tier.arena)); }) +
         ", \"links\": " + listed('[', stats.links, ']', [](const auto& link) { return named(link); }) +
         ", \"blocked_s\": " +
         listed('{', stats.blocked_s, '}',
                [](const auto& of) { return json_text(of.first) + ": " + number(of.second); }) +
         members(stats) + ", \"prefetch_distance\": " +
         listed('[', stats.prefetch_distance, ']', [](auto distance) { return std::to_string(distance); }) +
         ", \"found_on\": " + listed('[', stats.found_on, ']', [](auto tier) { return std::to_string(int{tier}); }) +
         ", \"node\": " + (stats.node ? object(*stats.node) : "null") +
         ", \"leases\": " + (stats.leases ? json_of(*stats.leases) : "null") + ", \"snapshots\": " + object(snapshots) +
         ", \"settings\": " + json_text(stats.settings) + "}";
}

template <class T>
std::optional<double> counter(const T& from, std::string_view wanted) {
  std::optional<double> found;
  ebb::visit_counters(from, [&](std::string_view name, auto value) {
    if (name == wanted) found = static_cast<double>(value);
  });
  return found;
}

std::optional<double> find_in(const ebb::LinkStats& link, std::string_view name) { return counter(link, name); }
std::optional<double> find_in(const ebb::TierStats& tier, std::string_view name) {
  constexpr std::string_view arena = "arena.";
  return name.starts_with(arena) ? counter(tier.arena, name.substr(arena.size())) : counter(tier, name);
}

// "NAME.FIELD" among named things.
template <class T>
std::optional<double> find_among(const std::vector<T>& among, std::string_view path) {
  for (const T& item : among)
    if (path.size() > item.name.size() && path.starts_with(item.name) && path[item.name.size()] == '.')
      return find_in(item, path.substr(item.name.size() + 1));
  return std::nullopt;
}

std::optional<double> find(const ebb::Stats& stats, std::string_view name) {
  if (name.starts_with("tier.")) return find_among(stats.tiers, name.substr(5));
  if (name.starts_with("link.")) return find_among(stats.links, name.substr(5));
  if (name.starts_with("blocked_s.")) {
    const auto cause = stats.blocked_s.find(std::string(name.substr(10)));
    return cause == stats.blocked_s.end() ? std::nullopt : std::optional(cause->second);
  }
  return counter(stats, name);
}

}  // namespace

extern "C" {

ebb_status ebb_stats_json(const ebb_store* store, char** text) {
  return guarded([&]() -> ebb_status {
    if (text) *text = nullptr;
    if (!valid(store) || !store->root) return refuse("counters are the store's: give the handle that was opened");
    if (!text) return refuse("the pointer for the text is NULL");
    const std::string json = json_of(store->root->stats(), store->root->snapshot_stats());
    char* copy = static_cast<char*>(std::malloc(json.size() + 1));
    if (!copy) throw std::bad_alloc();
    std::memcpy(copy, json.c_str(), json.size() + 1);
    *text = copy;
    return EBB_OK;
  });
}

ebb_status ebb_text_free(char** text) {
  if (text) std::free(std::exchange(*text, nullptr));
  return EBB_OK;
}

ebb_status ebb_stat(const ebb_store* store, const char* name, double* value) {
  return guarded([&]() -> ebb_status {
    if (value) *value = 0;
    if (!valid(store) || !store->root) return refuse("counters are the store's: give the handle that was opened");
    if (!name || !value) return refuse("the name or the pointer for the value is NULL");
    constexpr std::string_view snapshots = "snapshots.";
    const std::string_view wanted = name;
    const auto found = wanted.starts_with(snapshots)
                           ? counter(store->root->snapshot_stats(), wanted.substr(snapshots.size()))
                           : find(store->root->stats(), wanted);
    if (!found)
      throw std::invalid_argument(std::string("no counter '") + name + "'; there are for example 'restores', " +
                                  "'blocked_s.room', 'tier.device.used', 'link.host>local.bytes'");
    *value = *found;
    return EBB_OK;
  });
}
}
