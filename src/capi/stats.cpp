// The counters as JSON text and one by one. Both come from the same tables, so that a name is one name.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "capi/handles.hpp"

using namespace ebb::capi;

namespace {

template <class T>
struct Field {
  const char* name;
  double (*get)(const T&);
};

#define EBB_FIELD(type, field) {#field, [](const type& from) { return static_cast<double>(from.field); }}
constexpr Field<ebb::TierStats> kTier[] = {
    EBB_FIELD(ebb::TierStats, capacity), EBB_FIELD(ebb::TierStats, used),      EBB_FIELD(ebb::TierStats, largest_gap),
    EBB_FIELD(ebb::TierStats, replicas), EBB_FIELD(ebb::TierStats, evictions), EBB_FIELD(ebb::TierStats, hits),
};
constexpr Field<ebb::LinkStats> kLink[] = {
    EBB_FIELD(ebb::LinkStats, bytes),    EBB_FIELD(ebb::LinkStats, transfers),
    EBB_FIELD(ebb::LinkStats, busy_s),   EBB_FIELD(ebb::LinkStats, estimate_bytes_per_s),
    EBB_FIELD(ebb::LinkStats, failures),
};
constexpr Field<ebb::Stats> kStats[] = {
    EBB_FIELD(ebb::Stats, checkpoints),      EBB_FIELD(ebb::Stats, restores),
    EBB_FIELD(ebb::Stats, checkpoint_bytes), EBB_FIELD(ebb::Stats, restore_bytes),
    EBB_FIELD(ebb::Stats, misses),           EBB_FIELD(ebb::Stats, direct_writes),
    EBB_FIELD(ebb::Stats, direct_reads),     EBB_FIELD(ebb::Stats, dropped_flushes),
    EBB_FIELD(ebb::Stats, retries),          EBB_FIELD(ebb::Stats, failures),
};
#undef EBB_FIELD

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

template <class T, std::size_t N>
std::string members(const Field<T> (&fields)[N], const T& from) {
  std::string out;
  for (const auto& field : fields) out += ", " + json_text(field.name) + ": " + number(field.get(from));
  return out;
}

template <class T, std::size_t N>
std::string named(const Field<T> (&fields)[N], const T& from) {
  return "{\"name\": " + json_text(from.name) + members(fields, from) + "}";
}

std::string json_of(const ebb::Stats& stats) {
  return "{\"tiers\": " + listed('[', stats.tiers, ']', [](const auto& tier) { return named(kTier, tier); }) +
         ", \"links\": " + listed('[', stats.links, ']', [](const auto& link) { return named(kLink, link); }) +
         ", \"blocked_s\": " +
         listed('{', stats.blocked_s, '}',
                [](const auto& of) { return json_text(of.first) + ": " + number(of.second); }) +
         members(kStats, stats) + ", \"prefetch_distance\": " +
         listed('[', stats.prefetch_distance, ']', [](auto distance) { return std::to_string(distance); }) +
         ", \"found_on\": " + listed('[', stats.found_on, ']', [](auto tier) { return std::to_string(int{tier}); }) +
         ", \"settings\": " + json_text(stats.settings) + "}";
}

template <class T, std::size_t N>
std::optional<double> find(const Field<T> (&fields)[N], const T& from, std::string_view name) {
  for (const auto& field : fields)
    if (field.name == name) return field.get(from);
  return std::nullopt;
}

// "NAME.FIELD" among things that have names.
template <class T, std::size_t N>
std::optional<double> find(const Field<T> (&fields)[N], const std::vector<T>& among, std::string_view path) {
  for (const T& item : among)
    if (path.size() > item.name.size() && path.starts_with(item.name) && path[item.name.size()] == '.')
      return find(fields, item, path.substr(item.name.size() + 1));
  return std::nullopt;
}

std::optional<double> find(const ebb::Stats& stats, std::string_view name) {
  if (name.starts_with("tier.")) return find(kTier, stats.tiers, name.substr(5));
  if (name.starts_with("link.")) return find(kLink, stats.links, name.substr(5));
  if (name.starts_with("blocked_s.")) {
    const auto cause = stats.blocked_s.find(std::string(name.substr(10)));
    return cause == stats.blocked_s.end() ? std::nullopt : std::optional(cause->second);
  }
  return find(kStats, stats, name);
}

}  // namespace

extern "C" {

ebb_status ebb_stats_json(const ebb_store* store, char** text) {
  return guarded([&]() -> ebb_status {
    if (text) *text = nullptr;
    if (!valid(store) || !store->root) return refuse("counters are the store's: give the handle that was opened");
    if (!text) return refuse("the pointer for the text is NULL");
    const std::string json = json_of(store->root->stats());
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
    const auto found = find(store->root->stats(), name);
    if (!found)
      throw std::invalid_argument(std::string("no counter '") + name + "'; there are for example 'restores', " +
                                  "'blocked_s.room', 'tier.device.used', 'link.host>local.bytes'");
    *value = *found;
    return EBB_OK;
  });
}
}
