#include "reliability/cpp/stranger.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <xxhash.h>  // what the page calls a checksum is this library's

namespace ebb::trials {
namespace {

using View = std::span<const std::byte>;

constexpr std::uint64_t kFileBlock = 4096, kDiskSector = 512, kSealedBytes = 496, kBody = 144;
constexpr std::uint64_t kLongestHeader = 1ull << 30, kLongestName = 65'536, kLargestBlock = 64ull << 20;
constexpr std::uint64_t kFarthest = 1ull << 62, kHighest = 1ull << 62;
constexpr std::uint64_t kLive = 1, kDropped = 2, kNothing = 3, kList = 4, kMostListed = 44;

std::uint64_t number(View from, std::size_t at, std::size_t bytes) {
  std::uint64_t out = 0;
  for (std::size_t i = bytes; i-- > 0;) out = out << 8 | std::to_integer<std::uint64_t>(from[at + i]);
  return out;
}

bool zeros(View bytes) {
  return std::ranges::all_of(bytes, [](std::byte one) { return one == std::byte{0}; });
}

bool same(View a, View b) { return std::ranges::equal(a, b); }

bool says(View bytes, const char* letters) { return bytes.size() >= 8 && std::memcmp(bytes.data(), letters, 8) == 0; }

bool holds(View bytes, View sum) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return std::memcmp(canonical.digest, sum.data(), sizeof canonical.digest) == 0;
}

std::uint64_t up(std::uint64_t bytes, std::uint64_t to = kFileBlock) { return (bytes + to - 1) / to * to; }

enum class Sector { damaged, newer, good };

Sector look_at(View bytes, const char* letters, std::uint64_t newest = 1) {
  if (bytes.size() < kDiskSector || !says(bytes, letters)) return Sector::damaged;
  if (!holds(bytes.first(kSealedBytes), bytes.subspan(kSealedBytes, 16))) return Sector::damaged;
  const std::uint64_t format = number(bytes, 8, 4);
  return format > newest ? Sector::newer : format > 0 ? Sector::good : Sector::damaged;
}

struct Head {
  std::uint64_t kind = 0, header = 0, payload = 0, record = 0, sequence = 0;
  Version version = 0;
  std::uint64_t name = 0, regions = 0, metadata = 0, block = 0;
  std::array<std::byte, 16> whose{};              // checksum of the history's name, where it is dropped
  bool compact = false;                           // in sectors of a block that others share
  std::map<std::uint64_t, std::uint64_t> listed;  // by offset: what became of records, of a list of drops
  std::uint64_t blocks() const { return block == 0 ? 0 : payload / block + (payload % block != 0); }
};

// Of a sector that holds, at this place of a file of `length` bytes.
std::optional<Head> head_in(View sector, View store, std::uint64_t segment, std::uint64_t offset,
                            std::uint64_t length) {
  Head head;
  head.compact = number(sector, 8, 4) == 2;
  head.kind = number(sector, 12, 4);
  head.header = number(sector, 48, 8);
  head.payload = number(sector, 56, 8);
  head.record = number(sector, 64, 8);
  head.sequence = number(sector, 72, 8);
  head.version = static_cast<Version>(number(sector, 80, 8));
  head.name = number(sector, 88, 4);
  head.regions = number(sector, 92, 4);
  head.metadata = number(sector, 96, 4);
  head.block = number(sector, 100, 4);
  if (!same(sector.subspan(16, 16), store) || number(sector, 32, 8) != segment || number(sector, 40, 8) != offset)
    return {};
  const View whose = sector.subspan(128, 16);
  const bool list = head.compact && head.kind == kList;
  if (head.kind < kLive || (head.kind > kNothing && !list)) return {};
  if (list && (head.regions < 1 || head.regions > kMostListed)) return {};
  const std::uint64_t used = list ? kBody + 8 * head.regions : kBody;
  if (!(head.compact && head.kind == kLive) && !zeros(sector.subspan(used, kSealedBytes - used))) return {};
  for (std::uint64_t at = kBody; at < used; at += 8) {
    const std::uint64_t each = number(sector, at, 8), what = each % kDiskSector;
    if ((what != kDropped && what != kNothing) || each < kFileBlock || each - what >= offset) return {};
    head.listed.emplace(each - what, what);
  }
  if (head.kind != kDropped && !zeros(whose)) return {};
  std::ranges::copy(whose, head.whose.begin());
  const std::uint64_t unit = head.compact ? kDiskSector : kFileBlock;
  if (head.record == 0 || head.record % unit || offset % unit || head.record > kFarthest - offset) return {};
  if (head.compact && offset % kFileBlock + head.record > kFileBlock) return {};
  if (list) {
    const bool only = head.header == kDiskSector && zeros(sector.subspan(56, 8)) && zeros(sector.subspan(72, 20)) &&
                      zeros(sector.subspan(96, 32));
    return only ? std::optional(head) : std::nullopt;
  }
  if (head.kind == kNothing) {
    const bool fits = !head.compact || offset % kFileBlock || head.record % kFileBlock;
    const bool only = fits && zeros(sector.subspan(48, 16)) && zeros(sector.subspan(72, 56));
    return only ? std::optional(head) : std::nullopt;
  }
  if (head.payload > kFarthest || head.block % kFileBlock || head.block > kLargestBlock || head.name > kLongestName)
    return {};
  const std::uint64_t needed = kDiskSector + head.name + 20 * head.regions + 16 * head.blocks() + head.metadata;
  if (head.sequence > kHighest) return {};
  if (head.compact) {
    const std::uint64_t all = kDiskSector - kSealedBytes + kBody + head.name + 20 * head.regions + head.metadata;
    if (head.payload > kFileBlock || head.block || head.header != up(all + head.payload, kDiskSector)) return {};
    if (head.header >= kFileBlock || head.record < head.header) return {};
    return head.kind == kLive && (offset > length || head.record > length - offset) ? std::nullopt
                                                                                    : std::optional(head);
  }
  if (needed > kLongestHeader || head.header != up(needed) || head.record != head.header + up(head.payload)) return {};
  if (head.kind == kLive && (offset > length || head.record > length - offset)) return {};
  return head;
}

struct Region {
  std::uint64_t id, bytes, offset;
};

class Reader {
 public:
  Reader(os::Files& files, const std::filesystem::path& directory) : files_(files), directory_(directory) {}

  Stranger run() && {
    const auto store = read("store");
    if (!store || store->size() != kFileBlock) return refuse("there is no file 'store' of one block");
    store_ = *store;
    const Sector sector = look_at(store_, "EBBSTORE");
    if (sector == Sector::newer) return refuse("'store' is of a newer format");
    const std::uint64_t level = sector == Sector::good ? number(store_, 12, 4) : 0;
    if (level < 1 || level > 2 || !zeros(View(store_).subspan(48, kSealedBytes - 48)) ||
        !zeros(View(store_).subspan(kDiskSector))) {
      return refuse("'store' is damaged");
    }
    out_.synced = level == 2;
    std::vector<std::string> names;
    static_cast<void>(files_.list(directory_, names));
    for (const std::string& name : names) {
      const bool own = name == "lock" || name == "index" || name == "index.old" || name == "store.new" ||
                       name == "index.new" || segment_of(name) != 0;
      if (own && !read(name)) return refuse("'" + name + "' is no plain file");
    }
    out_.index = std::ranges::count(names, "index") > 0;
    if (out_.index && look_at(*read("index"), "EBBINDEX", 2) == Sector::newer)
      return refuse("'index' is of a newer format");
    for (const std::string& name : names) {
      const std::uint64_t segment = segment_of(name);
      if (segment != 0) read_segment(name, *read(name), segment);
    }
    for (auto& [name, writings] : out_.writings) {
      const View history = std::as_bytes(std::span(name.first));
      for (const Head& drop : drops_) {
        if (drop.version == name.second && holds(history, drop.whose))
          writings.push_back({drop.sequence, true, false, {}});
      }
    }
    return std::move(out_);
  }

 private:
  Stranger refuse(const std::string& why) {
    out_.refused = why;
    return std::move(out_);
  }

  // None of what is no plain file.
  std::optional<Bytes> read(const std::string& name) {
    os::FileStatus status;
    if (!files_.status(directory_ / name, status) || status.kind != os::FileStatus::Kind::file) return {};
    const auto opened = files_.open(directory_ / name, os::Open::read, false);
    if (!opened) return {};
    Bytes out(status.bytes);
    const auto got = files_.read(static_cast<int>(opened.value), out.data(), out.size(), 0);
    static_cast<void>(files_.close(static_cast<int>(opened.value)));
    if (!got) return {};
    out.resize(static_cast<std::size_t>(got.value));
    return out;
  }

  // 0: it is none.
  static std::uint64_t segment_of(const std::string& name) {
    std::string_view digits = name;
    if (!digits.starts_with("segment-") || !digits.ends_with(".ebb")) return 0;
    digits = digits.substr(8, digits.size() - 12);
    const bool padded = digits.starts_with('0');
    if (digits.size() < 8 || (padded && digits.size() > 8) || digits.size() > 20) return 0;
    std::uint64_t out = 0;
    for (const char digit : digits) {
      if (digit < '0' || digit > '9') return 0;
      const auto value = static_cast<std::uint64_t>(digit - '0');
      if (out > (~std::uint64_t{0} - value) / 10) return 0;
      out = out * 10 + value;
    }
    return out;
  }

  void read_segment(const std::string& name, View data, std::uint64_t segment) {
    std::string& refused = out_.index ? out_.refused_unindexed : out_.refused;
    const View id = View(store_).subspan(16, 16);
    if (look_at(data, "EBBSEGMT") == Sector::newer) refused = "'" + name + "' is of a newer format";
    bool expected = true;  // a record begins here, or nothing does
    std::vector<std::pair<std::uint64_t, Head>> records;
    std::map<std::uint64_t, std::uint64_t> listed;
    const std::uint64_t whole = data.size() / kFileBlock * kFileBlock;
    for (std::uint64_t at = kFileBlock, next = at; at < whole; at += kDiskSector) {
      const View sector = data.subspan(at, kDiskSector);
      const Sector here = look_at(sector, "EBBRECRD", 2);
      const auto record = here == Sector::good ? head_in(sector, id, segment, at, data.size()) : std::nullopt;
      if (record && out_.index) take(data, at, *record, out_.anywhere);
      if (at != next) continue;
      if (expected && here == Sector::newer) refused = "a record in '" + name + "' is of a newer format";
      if (record && record->kind == kDropped) drops_.push_back(*record);
      if (record) records.emplace_back(at, *record);
      if (record) listed.insert(record->listed.begin(), record->listed.end());
      expected = record.has_value();
      next = record ? at + record->record : at + kDiskSector;
    }
    for (const auto& [at, record] : records) {
      const auto drop = listed.find(at);
      if (drop == listed.end())
        take(data, at, record, out_.writings);
      else if (drop->second == kDropped)
        take(data, at, record, out_.writings, true);
    }
  }

  static void take(View data, std::uint64_t offset, const Head& head, decltype(Stranger::writings)& into,
                   bool dropped = false) {
    if (head.kind != kLive) return;
    const View others = data.subspan(offset + kDiskSector, head.header - kDiskSector);
    Bytes joined;  // of a compact one: what its first sector has of the body, and the others
    if (head.compact) {
      const View first = data.subspan(offset + kBody, kSealedBytes - kBody);
      joined.assign(first.begin(), first.end());
      joined.insert(joined.end(), others.begin(), others.end());
    }
    const View body = head.compact ? View(joined) : others;
    std::vector<Region> regions;
    if (!holds(body, data.subspan(offset + 112, 16)) || !regions_in(body, head, regions)) return;
    const View name = body.first(head.name);
    Stranger::Writing out{head.sequence, false, true, {}};
    const View payload = head.compact ? body.subspan(head.name + 20 * head.regions + head.metadata, head.payload)
                                      : data.subspan(offset + head.header, head.payload);
    const View sums = body.subspan(head.name + 20 * head.regions, 16 * head.blocks());
    for (std::uint64_t i = 0; i < head.blocks() && out.intact; ++i) {
      const std::uint64_t at = i * head.block;
      out.intact = holds(payload.subspan(at, std::min(head.block, head.payload - at)), sums.subspan(16 * i, 16));
    }
    for (const Region& region : regions) {
      const View part = payload.subspan(region.offset, region.bytes);
      out.bytes.insert(out.bytes.end(), part.begin(), part.end());
    }
    const std::string history(reinterpret_cast<const char*>(name.data()), name.size());
    if (dropped) out = {head.sequence, true, false, {}};
    into[{history, head.version}].push_back(std::move(out));
  }

  static bool regions_in(View body, const Head& head, std::vector<Region>& out) {
    const std::uint64_t fields = head.name + 20 * head.regions + 16 * head.blocks() + head.metadata;
    if (!zeros(body.subspan(fields + (head.compact ? head.payload : 0)))) return false;
    std::set<std::uint64_t> ids;
    std::uint64_t end = 0;
    for (std::uint64_t i = 0; i < head.regions; ++i) {
      const std::size_t at = head.name + 20 * i;
      const Region region{number(body, at, 4), number(body, at + 4, 8), number(body, at + 12, 8)};
      if (region.offset < end || region.offset > head.payload || region.bytes > head.payload - region.offset)
        return false;
      if (!ids.insert(region.id).second) return false;
      end = region.offset + region.bytes;
      out.push_back(region);
    }
    return true;
  }

  os::Files& files_;
  const std::filesystem::path directory_;
  Bytes store_;
  std::vector<Head> drops_;
  Stranger out_;
};

}  // namespace

std::vector<const Stranger::Writing*> Stranger::newest(const Name& name) const {
  std::vector<const Writing*> out;
  const auto found = writings.find(name);
  if (found == writings.end()) return out;
  const std::uint64_t highest = std::ranges::max(found->second, {}, &Writing::sequence).sequence;
  for (const Writing& one : found->second) {
    if (one.sequence == highest) out.push_back(&one);
  }
  return out;
}

Stranger read_as_stranger(os::Files& files, const std::filesystem::path& directory) {
  return Reader(files, directory).run();
}

}  // namespace ebb::trials
