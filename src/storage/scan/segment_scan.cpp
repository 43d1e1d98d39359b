// Scans one segment from head to head, and what is between them.
#include "storage/scan/segment_scan.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "os/boot.hpp"
#include "storage/file_io.hpp"
#include "storage/format/hasher.hpp"
#include "storage/format/sector.hpp"
#include "storage/scan/unreadable.hpp"

namespace ebb::storage {

using os::File;
using os::Files;
using os::FileStatus;
using os::kBlock;
using Path = std::filesystem::path;

std::string segment_name(std::uint64_t segment) {
  char name[48];
  std::snprintf(name, sizeof name, "segment-%08llu.ebb", static_cast<unsigned long long>(segment));
  return name;
}

Path segment_path(const Path& directory, std::uint64_t segment) { return directory / segment_name(segment); }

std::optional<std::uint64_t> segment_number(const std::string& name) {
  constexpr std::size_t kBefore = 8, kAfter = 4;  // "segment-", ".ebb"
  if (name.size() < kBefore + 8 + kAfter) return {};
  std::uint64_t number = 0;
  std::from_chars(name.data() + kBefore, name.data() + name.size() - kAfter, number);
  return number != 0 && segment_name(number) == name ? std::optional(number) : std::nullopt;
}

namespace {

constexpr std::size_t kPiece =
    64 << 10;              // bytes read at once when searching for heads: larger ones would stay in the heap
constexpr int kTries = 3;  // before something counts as damaged, because it may be being written

class SegmentScan {
 public:
  SegmentScan(Files& files, const Path& directory, const Uuid& store, std::uint64_t segment,
              std::vector<Damage>& damages)
      : files_(files), path_(segment_path(directory, segment)), store_(store), damages_(damages), block_(kBlock) {
    out_.segment = segment;
  }

  Result<ScannedSegment> run(std::uint64_t from, bool settle) {
    const auto opened = files_.open(path_, os::Open::read, false);
    if (!opened && opened.error == ENOENT) return out_;
    if (!opened) return file_error(path_, "opening it", opened.error);
    file_ = File(files_, static_cast<int>(opened.value), path_.string(), false);
    settled_ = settle;
    if (settle) {
      if (const auto synced = files_.sync(file_.fd()); !synced) return file_error(path_, "syncing it", synced.error);
      // Data that the killed process failed to sync is in memory only and must not be trusted.
      const auto dropped = files_.drop_cached(file_.fd());
      const bool none_such = dropped.error == ENOSYS || dropped.error == EOPNOTSUPP || dropped.error == EINVAL;
      if (!dropped && !none_such) return file_error(path_, "letting go of what memory holds of it", dropped.error);
    }
    if (auto known = measure(); !known) return known.error();
    const bool from_start = from < kBlock;
    bool head_missing = false;
    if (from_start) {
      auto missing = check_segment_head();
      if (!missing) return missing.error();
      head_missing = *missing;
      from = kBlock;
    }
    const std::size_t known_damages = damages_.size();
    if (auto walked = walk(from); !walked) return walked.error();
    apply_drops(known_damages);
    for (std::size_t i = known_damages; i < damages_.size();
         ++i) {  // nothing is written over data that may still be saved
      if (damages_[i].offset >= out_.end) out_.end = os::round_up(out_.bytes);
    }
    out_.end = os::round_up(out_.end);  // of a block that a power loss tore the rest is lost
    if (head_missing && out_.end > kBlock) add_damage(0, "the segment's head is missing: there are zeros");
    return std::move(out_);
  }

 private:
  enum class Met { record, nothing_there, damaged, end };

  void add_damage(std::uint64_t offset, const std::string& what, bool unreadable = false) {
    damages_.push_back({path_, offset, what, unreadable});
  }

  Result<void> measure() {
    FileStatus status;
    if (const auto known = files_.status(file_.fd(), status); !known)
      return file_error(path_, "measuring it", known.error);
    if (status.kind != FileStatus::Kind::file)
      return Error{Errc::not_permitted, path_.string() + ": it is not a plain file"};
    out_.bytes = status.bytes;
    return {};
  }

  // Fewer bytes at the end of the file. Empty: the disk cannot read them.
  Result<std::optional<std::span<const std::byte>>> read(std::span<std::byte> into, std::uint64_t offset) {
    using Read = std::optional<std::span<const std::byte>>;
    const auto got = read_whole(files_, file_.fd(), into, offset);
    if (!got && got.error == EIO) return Read();
    if (!got) {
      return file_error(path_, "reading " + std::to_string(into.size()) + " bytes at " + std::to_string(offset),
                        got.error);
    }
    return Read(into.first(static_cast<std::size_t>(got.value)));
  }

  // One damage for consecutive blocks.
  void add_unreadable(std::uint64_t block) {
    if (block + kBlock == unreadable_end_) return;  // told already
    if (block != unreadable_end_) add_damage(block, unreadable(), true);
    unreadable_end_ = block + kBlock;
  }

  // True: there is none, as in a segment that is just being created.
  Result<bool> check_segment_head() {
    auto bytes = read(block_, 0);
    if (!bytes) return bytes.error();
    out_.end = std::min<std::uint64_t>(out_.bytes, kBlock);
    if (!*bytes) {
      add_unreadable(0);
      return false;
    }
    if (all_zero(**bytes)) return true;
    auto head = parse_segment(**bytes);
    if (!head && head.error().code == Errc::unsupported) {
      return Error{Errc::unsupported, path_.string() + ": " + head.error().message};
    }
    if (!head) {
      add_damage(0, head.error().message);
    } else if (head->store != store_) {
      add_damage(0, "the segment is of another store");
    } else if (head->segment != out_.segment) {
      add_damage(0, "the segment's head says that it is segment " + std::to_string(head->segment));
    }
    return false;
  }

  Result<void> walk(std::uint64_t offset) {
    out_.end = std::max(out_.end, std::min(offset, out_.bytes));
    for (;;) {
      auto met = step(offset);
      if (!met) return met.error();
      if (*met == Met::end) return {};
      if (*met == Met::record) {
        offset = out_.end;
        continue;
      }
      const std::size_t known = damages_.size();
      auto next = find_head(offset + kSector);
      if (!next) return next.error();
      // Damage extends to the next head; before the damage there are only unfinished records.
      const std::uint64_t end = next->value_or(os::round_up(out_.bytes));
      const bool more = damages_.size() > known;
      const std::uint64_t bad = *met == Met::damaged ? offset : more ? std::max(offset, damages_[known].offset) : end;
      if (bad < end) out_.damaged.push_back({bad, end - bad, {}});
      // Records fill their blocks, so the rest of one is a gap even behind the last record.
      const std::uint64_t gap_end = *next || more ? bad : std::min(bad, os::round_up(offset));
      if (gap_end > offset) out_.gaps.push_back({offset, gap_end - offset});
      if (!*next) return {};  // after the last record there are only unfinished ones
      offset = **next;
    }
  }

  // Looks at the next place: a record must begin here, or nothing.
  Result<Met> step(std::uint64_t offset) {
    const std::uint64_t rest = kBlock - offset % kBlock;  // of the block: compact records share it
    for (int tries = 1;; ++tries) {
      auto got = read(std::span(block_).first(rest), offset);
      if (!got) return got.error();
      if (!*got) {
        if (tries < kTries) continue;
        add_unreadable(offset / kBlock * kBlock);
        return Met::damaged;
      }
      const std::span<const std::byte> bytes = **got;
      if (bytes.size() < rest) return cut_off(bytes, offset);
      auto head = parse_head(bytes, {store_, out_.segment, offset}, out_.bytes);
      if (!head && head.error().code == Errc::unsupported) {
        return Error{Errc::unsupported, path_.string() + ": " + head.error().message};
      }
      if (head) {
        auto taken = take(*head, bytes, tries == kTries);
        if (!taken) return taken.error();
        if (*taken) return Met::record;
      } else {
        if (all_zero(bytes.first(kSector))) return Met::nothing_there;
        if (tries == kTries) {
          add_damage(offset, head.error().message);
          return Met::damaged;
        }
      }
      if (auto known = measure(); !known) return known.error();  // the file may have grown in the meantime
    }
  }

  Met cut_off(std::span<const std::byte> bytes, std::uint64_t offset) {
    if (!all_zero(bytes)) {
      add_damage(offset, "the file ends within a block of 4096 bytes");
      out_.damaged.push_back({offset, kBlock - offset % kBlock, {}});
    }
    return Met::end;
  }

  // For an intact head. False: its body is damaged and should be read again.
  Result<bool> take(const RecordHead& head, std::span<const std::byte> first, bool last_try) {
    if (head.kind == RecordHead::Kind::written) {
      if (auto taken = take_written(head); !taken) return taken.error();
    } else if (head.kind == RecordHead::Kind::live) {
      long_.clear();
      bool known = true;
      auto all = first.first(std::min<std::size_t>(first.size(), head.header_bytes));
      if (head.header_bytes > first.size()) {  // all of it is within the file, as parse_head has checked
        long_.resize(head.header_bytes);
        auto rest = read(long_, head.place.offset);
        if (!rest) return rest.error();
        known = rest->has_value();
        if (known) all = **rest;
      }
      auto header = known ? parse_header(all, head) : Error{Errc::damaged, name_of(head) + unreadable()};
      if (!header && !last_try) return false;
      if (header) {
        out_.records.push_back({head, std::move(header->description.history)});
      } else {
        add_damage(head.place.offset, header.error().message + seems_named(head, all), !known);
        out_.damaged.push_back({head.place.offset, head.record_bytes, head});
      }
    } else {
      add_waste({head.place.offset, head.record_bytes, head});
      if (head.kind == RecordHead::Kind::drops)
        std::ranges::copy(parse_drops(first, head), std::back_inserter(out_.drops));
    }
    out_.last_sequence = std::max(out_.last_sequence, head.sequence);
    out_.end = head.place.offset + head.record_bytes;
    return true;
  }

  void add_waste(const ScannedSegment::Stretch& place) {
    out_.dead += place.length;
    out_.waste.push_back(place);
  }

  // What is in a list of drops is waste, whatever became of its own bytes, if it is known how far these go: by its
  // head, or to the block's end where a list says that there is nothing. `known`: damages of other segments.
  void apply_drops(std::size_t known) {
    if (out_.drops.empty()) return;
    std::ranges::stable_sort(out_.drops, {}, &Drop::offset);
    const auto twice = std::ranges::unique(out_.drops, {}, &Drop::offset);
    out_.drops.erase(twice.begin(), twice.end());
    const auto listed = [&](std::uint64_t offset) -> const Drop* {
      const auto at = std::ranges::lower_bound(out_.drops, offset, {}, &Drop::offset);
      return at != out_.drops.end() && at->offset == offset ? &*at : nullptr;
    };
    const auto nothing_until = [&](std::uint64_t offset, std::uint64_t end) {
      for (const Drop* drop; offset < end && (drop = listed(offset)) && drop->now == RecordHead::Kind::nothing;)
        offset = std::min(end, os::round_up(offset + 1));
      return offset;
    };
    std::erase_if(out_.records, [&](const ScannedRecord& record) {
      const Drop* const drop = listed(record.head.place.offset);
      if (drop == nullptr) return false;
      const bool was = drop->now == RecordHead::Kind::dropped;
      add_waste({drop->offset, record.head.record_bytes,
                 was ? tombstone(record.head, record.history) : nothing(drop->offset, record.head.record_bytes)});
      return true;
    });
    std::erase_if(out_.damaged, [&](const ScannedSegment::Stretch& place) {
      const std::uint64_t end = place.offset + place.length;
      const bool ours = place.head ? listed(place.offset) != nullptr : nothing_until(place.offset, end) == end;
      const auto within = [&](const Damage& damage) {
        return damage.offset >= place.offset && damage.offset - place.offset < place.length;
      };
      const auto own = damages_.begin() + static_cast<std::ptrdiff_t>(known);
      const auto unreadable = [&](const Damage& damage) { return damage.unreadable && within(damage); };
      if (!ours || std::any_of(own, damages_.end(), unreadable)) return false;
      damages_.erase(std::remove_if(own, damages_.end(), within), damages_.end());
      add_waste({place.offset, place.length, nothing(place.offset, place.length)});
      return true;
    });
    for (auto& [offset, length] : out_.gaps) {
      const std::uint64_t part = nothing_until(offset, offset + length) - offset;
      if (part > 0) add_waste({offset, part, nothing(offset, part)});
      offset += part, length -= part;
    }
    std::erase_if(out_.gaps, [](const ScannedSegment::Gap& gap) { return gap.length == 0; });
  }

  RecordHead nothing(std::uint64_t offset, std::uint64_t length) const {
    return {.kind = RecordHead::Kind::nothing, .place = {store_, out_.segment, offset}, .record_bytes = length};
  }

  // Until a writer has settled it, it may become a live record: a gap. Nothing is damaged here, unless the disk does
  // not say what it has: it never was reported durable.
  Result<void> take_written(const RecordHead& head) {
    const auto [at, length] = std::pair(head.place.offset, head.record_bytes);
    if (!settled_) {
      out_.gaps.push_back({at, length});
      return {};
    }
    if (!boot_) boot_ = os::boot_id(files_);
    if (*boot_ == Uuid{}) {
      return Error{Errc::io_error, path_.string() + ": the record at " + std::to_string(at) +
                                       " was not synced, and whether the system that wrote it still runs is not "
                                       "known: /proc/sys/kernel/random/boot_id cannot be read"};
    }
    bool known = true;
    auto name = head.history == *boot_ ? read_written(head, known) : std::optional<std::string>();
    if (!name) return name.error();
    if (!known) {
      add_damage(at, name_of(head) + unreadable(), true);
      out_.damaged.push_back({at, length, live_head(head)});
    } else if (*name) {
      out_.records.push_back({live_head(head), std::move(**name), true});
    } else {
      add_waste({at, length, nothing(at, length), true});
    }
    return {};
  }

  // The history's name, if the disk has all of the record. `known`: whether it could be read.
  Result<std::optional<std::string>> read_written(const RecordHead& head, bool& known) {
    using Name = std::optional<std::string>;
    std::vector<std::byte> bytes(head.header_bytes);
    auto got = read(bytes, head.place.offset);
    if (!got) return got.error();
    known = got->has_value();
    auto header = known ? parse_header(**got, live_head(head)) : Error{Errc::damaged, {}};
    if (!header) return Name();
    std::span<const Checksum> sums(header->blocks);
    bytes.resize(std::max<std::size_t>(kPiece / std::max(head.block_bytes, 1u), 1) * head.block_bytes);
    for (std::uint64_t at = head.place.offset + head.header_bytes; !sums.empty(); at += bytes.size()) {
      const std::uint64_t left = head.payload_bytes - (at - head.place.offset - head.header_bytes);
      const std::uint64_t length = std::min<std::uint64_t>(bytes.size(), left);
      auto part = read(std::span(bytes).first(length), at);
      if (!part) return part.error();
      known = part->has_value();
      const auto blocks = sums.first(block_count(length, head.block_bytes));
      if (!known || (**part).size() != length || first_mismatch(**part, head.block_bytes, blocks)) return Name();
      sums = sums.subspan(blocks.size());
    }
    return Name(std::move(header->description.history));
  }

  static std::string name_of(const RecordHead& head) { return "version " + std::to_string(head.version) + ": "; }

  // For display: the name itself may be damaged.
  static std::string seems_named(const RecordHead& head, std::span<const std::byte> header) {
    if (head.name_bytes > 200) return {};
    const std::string name = name_in(header, head);
    const bool readable = std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
    return readable && name.size() == head.name_bytes ? "; its history seems to be '" + name + "'" : "";
  }

  // The next intact head, at any sector. What only resembles one is added as damage.
  Result<std::optional<std::uint64_t>> find_head(std::uint64_t from) {
    std::vector<std::byte> piece(
        std::min<std::uint64_t>(kPiece, out_.bytes > from ? os::round_up(out_.bytes - from) : 0));
    for (std::uint64_t at = next_written(from); at < out_.bytes; at = next_written(at + piece.size())) {
      auto bytes = read(piece, at);
      if (!bytes) return bytes.error();
      if (*bytes) {
        if (const auto found = search(**bytes, at)) return found;
        continue;
      }
      for (std::uint64_t one = at; one < std::min(at + piece.size(), out_.bytes); one = os::round_up(one + 1)) {
        auto block = read(std::span(block_).first(kBlock - one % kBlock), one);
        if (!block) return block.error();
        if (!*block) {
          add_unreadable(one / kBlock * kBlock);
        } else if (const auto found = search(**block, one)) {
          return found;
        }
      }
    }
    return std::optional<std::uint64_t>();
  }

  // Unwritten space holds no head, and a segment that is being written has a lot of it.
  std::uint64_t next_written(std::uint64_t from) {
    if (from >= out_.bytes) return from;
    const auto next = files_.next_data(file_.fd(), from);
    if (!next) return next.error == ENXIO ? out_.bytes : from;
    return std::max(from, static_cast<std::uint64_t>(next.value) / kBlock * kBlock);
  }

  std::optional<std::uint64_t> search(std::span<const std::byte> bytes, std::uint64_t at) {
    for (std::size_t i = 0; i + kSector <= bytes.size(); i += kSector) {
      const auto sector = bytes.subspan(i, kSector);
      const RecordPlace place{store_, out_.segment, at + i};
      const int signs = signs_of_head(sector, place);
      if (signs < 3) continue;
      const auto head = parse_head(sector, place, out_.bytes);
      if (head) return at + i;
      // An intact head of another place is a copy inside a payload.
      std::uint32_t format = 0;
      if (signs == 4 || !open_sector(sector, kRecordMagic, "", &format)) add_damage(at + i, head.error().message);
    }
    return {};
  }

  // How many of four signs say that this is a head of this place: one decayed byte leaves three, and payload rarely has
  // two.
  static int signs_of_head(std::span<const std::byte> sector, const RecordPlace& place) {
    BytesReader in(sector.subspan(16));
    const bool store = in.array<Uuid>() == place.store;
    const bool segment = in.number<std::uint64_t>() == place.segment;
    const bool offset = in.number<std::uint64_t>() == place.offset;
    return int{has_magic(sector, kRecordMagic)} + store + segment + offset;
  }

  Files& files_;
  const Path path_;
  const Uuid store_;
  std::vector<Damage>& damages_;
  File file_;
  ScannedSegment out_;
  std::vector<std::byte> block_, long_;
  bool settled_ = false;
  std::optional<Uuid> boot_;                          // of the running system, once it was asked for
  std::uint64_t unreadable_end_ = ~std::uint64_t{0};  // end of the last unreadable block
};

}  // namespace

Result<ScannedSegment> scan_segment(Files& files, const Path& directory, const Uuid& store, std::uint64_t segment,
                                    std::uint64_t from, std::vector<Damage>& damages, bool settle) {
  return SegmentScan(files, directory, store, segment, damages).run(from, settle);
}

}  // namespace ebb::storage
