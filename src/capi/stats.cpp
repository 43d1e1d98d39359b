// The counters as JSON text and one by one, both from the same tables, so that a counter has one name.
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
constexpr Field<ebb::ArenaStats> kArena[] = {
    EBB_FIELD(ebb::ArenaStats, ready),  EBB_FIELD(ebb::ArenaStats, limit),  EBB_FIELD(ebb::ArenaStats, touched),
    EBB_FIELD(ebb::ArenaStats, pinned), EBB_FIELD(ebb::ArenaStats, mapped), EBB_FIELD(ebb::ArenaStats, piece),
    EBB_FIELD(ebb::ArenaStats, pieces),
};
constexpr Field<ebb::ArenaStats> kArenaFlag[] = {
    // true and false in JSON, 1 and 0 as a number
    EBB_FIELD(ebb::ArenaStats, huge_pages),
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
    EBB_FIELD(ebb::Stats, relayed),          EBB_FIELD(ebb::Stats, retries),
    EBB_FIELD(ebb::Stats, failures),
};
constexpr Field<ebb::NodeStats> kNode[] = {EBB_FIELD(ebb::NodeStats, bytes_handed_over),
                                           EBB_FIELD(ebb::NodeStats, bytes_written),
                                           EBB_FIELD(ebb::NodeStats, checkpoints_handed_over),
                                           EBB_FIELD(ebb::NodeStats, checkpoints_written),
                                           EBB_FIELD(ebb::NodeStats, agents),
                                           EBB_FIELD(ebb::NodeStats, agent_program),
                                           EBB_FIELD(ebb::NodeStats, bytes_borrowed),
                                           EBB_FIELD(ebb::NodeStats, last_blocked_s),
                                           EBB_FIELD(ebb::NodeStats, last_durable_s),
                                           EBB_FIELD(ebb::NodeStats, last_drain_s)};
constexpr Field<ebb::LeaseStats> kLeases[] = {
    EBB_FIELD(ebb::LeaseStats, offered), EBB_FIELD(ebb::LeaseStats, share),    EBB_FIELD(ebb::LeaseStats, lent),
    EBB_FIELD(ebb::LeaseStats, overdue), EBB_FIELD(ebb::LeaseStats, borrowed),
};
constexpr Field<ebb::LeaseInfo> kLease[] = {
    EBB_FIELD(ebb::LeaseInfo, lender),
    EBB_FIELD(ebb::LeaseInfo, borrower),
    EBB_FIELD(ebb::LeaseInfo, bytes),
};
constexpr Field<ebb::SnapshotStats> kSnapshots[] = {
    EBB_FIELD(ebb::SnapshotStats, zones),     EBB_FIELD(ebb::SnapshotStats, dirty),
    EBB_FIELD(ebb::SnapshotStats, snapshots), EBB_FIELD(ebb::SnapshotStats, failures),
    EBB_FIELD(ebb::SnapshotStats, faults),    EBB_FIELD(ebb::SnapshotStats, duplicates),
    EBB_FIELD(ebb::SnapshotStats, blocked_s), EBB_FIELD(ebb::SnapshotStats, bytes_gathered),
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
std::string named(const Field<T> (&fields)[N], const T& from, const std::string& more = {}) {
  return "{\"name\": " + json_text(from.name) + members(fields, from) + more + "}";
}

std::string json_of(const ebb::ArenaStats& arena) {
  std::string out = "{\"strategy\": " + json_text(arena.strategy) + members(kArena, arena);
  for (const auto& flag : kArenaFlag)
    out += ", " + json_text(flag.name) + (flag.get(arena) != 0 ? ": true" : ": false");
  return out + ", \"trouble\": " + json_text(arena.trouble) + "}";
}

template <class T, std::size_t N>
std::string object(const Field<T> (&fields)[N], const T& from) {
  return "{" + members(fields, from).substr(2) + "}";
}

std::string json_of(const ebb::LeaseStats& stats) {
  const auto one = [](const ebb::LeaseInfo& lease) {
    return "{" + members(kLease, lease).substr(2) + ", \"state\": " + json_text(lease.state) + "}";
  };
  return "{" + members(kLeases, stats).substr(2) + ", \"leases\": " + listed('[', stats.leases, ']', one) + "}";
}

// "node" is null when the store is in no node's pool, "leases" when it neither lends nor borrows.
std::string json_of(const ebb::Stats& stats, const ebb::SnapshotStats& snapshots) {
  return "{\"tiers\": " +
         listed('[', stats.tiers, ']',
                [](const auto& tier) { return named(kTier, tier, ", \"arena\": " + json_of(tier.arena)); }) +
         ", \"links\": " + listed('[', stats.links, ']', [](const auto& link) { return named(kLink, link); }) +
         ", \"blocked_s\": " +
         listed('{', stats.blocked_s, '}',
                [](const auto& of) { return json_text(of.first) + ": " + number(of.second); }) +
         members(kStats, stats) + ", \"prefetch_distance\": " +
         listed('[', stats.prefetch_distance, ']', [](auto distance) { return std::to_string(distance); }) +
         ", \"found_on\": " + listed('[', stats.found_on, ']', [](auto tier) { return std::to_string(int{tier}); }) +
         ", \"node\": " + (stats.node ? object(kNode, *stats.node) : "null") +
         ", \"leases\": " + (stats.leases ? json_of(*stats.leases) : "null") +
         ", \"snapshots\": " + object(kSnapshots, snapshots) + ", \"settings\": " + json_text(stats.settings) + "}";
}

template <class T, std::size_t N>
std::optional<double> find(const Field<T> (&fields)[N], const T& from, std::string_view name) {
  for (const auto& field : fields)
    if (field.name == name) return field.get(from);
  return std::nullopt;
}

std::optional<double> find_in(const ebb::LinkStats& link, std::string_view name) { return find(kLink, link, name); }
std::optional<double> find_in(const ebb::TierStats& tier, std::string_view name) {
  constexpr std::string_view arena = "arena.";
  if (!name.starts_with(arena)) return find(kTier, tier, name);
  name.remove_prefix(arena.size());
  const auto number = find(kArena, tier.arena, name);
  return number ? number : find(kArenaFlag, tier.arena, name);
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
  return find(kStats, stats, name);
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
                           ? find(kSnapshots, store->root->snapshot_stats(), wanted.substr(snapshots.size()))
                           : find(store->root->stats(), wanted);
    if (!found)
      throw std::invalid_argument(std::string("no counter '") + name + "'; there are for example 'restores', " +
                                  "'blocked_s.room', 'tier.device.used', 'link.host>local.bytes'");
    *value = *found;
    return EBB_OK;
  });
}
}
