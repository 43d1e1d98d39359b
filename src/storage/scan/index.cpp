// The file "index": a head sector, then names, segments with their gaps and records, and damages.
#include <algorithm>
#include <map>

#include "os/files.hpp"
#include "storage/format/sector.hpp"
#include "storage/scan/segment_scan.hpp"
#include "storage/scan/unreadable.hpp"

namespace ebb::storage {
namespace {

constexpr std::uint64_t kNameBytes = 4, kSegmentBytes = 48, kGapBytes = 16, kRecordBytes = 88, kDamageBytes = 16;

Error wrong(const std::string& what) { return {Errc::damaged, "the index " + what}; }

// Grows as it is written; the size is not computed first.
class Body {
 public:
  template <class T>
  void number(T value) {
    out_.resize(out_.size() + sizeof(T));
    BytesWriter(out_.data() + out_.size() - sizeof(T)).number(value);
  }
  void bytes(std::span<const std::byte> data) { out_.insert(out_.end(), data.begin(), data.end()); }
  void text(std::string_view data) {
    number(static_cast<std::uint32_t>(data.size()));
    bytes(std::as_bytes(std::span(data.data(), data.size())));
  }
  std::vector<std::byte>& data() { return out_; }

 private:
  std::vector<std::byte> out_;
};

void put(Body& to, const ScannedRecord& record, std::uint32_t name) {
  const RecordHead& head = record.head;
  to.number(name);
  to.number(head.place.offset);
  to.number(head.header_bytes);
  to.number(head.payload_bytes);
  to.number(head.record_bytes);
  to.number(head.sequence);
  to.number(head.version);
  to.number(head.written_ns);
  to.number(head.regions);
  to.number(head.metadata_bytes);
  to.number(head.block_bytes);
  to.bytes(head.body);
}

// Empty, or what is wrong with a record that follows one ending at `end`.
std::string misfit(const ScannedRecord& record, std::uint64_t end, const ScannedSegment& segment) {
  const RecordHead& head = record.head;
  if (const std::string text = misfit(head); !text.empty()) return text;
  if (head.place.offset < end) return "it begins before the one before it ends";
  if (head.place.offset + head.record_bytes > std::min(segment.bytes, segment.end)) {
    return "it ends past its segment's end";
  }
  if (head.sequence > segment.last_sequence) return "its sequence is higher than its segment's last";
  return {};
}

class IndexParser {
 public:
  IndexParser(std::span<const std::byte> body, const StoreHead& store) : in_(body) { out_.head = store; }

  Result<ScannedStore> run() {
    if (!names() || !segments() || !damages()) return wrong("is truncated, or has wrong lengths");
    if (!error_.empty()) return wrong(error_);
    if (!in_.ok() || !in_.rest().empty()) return wrong("is longer or shorter than its contents");
    out_.from_index = true;
    return std::move(out_);
  }

 private:
  // The count of items of at least `bytes` each that follow; 0 if there cannot be that many.
  std::optional<std::uint64_t> count(std::uint64_t bytes) {
    const auto number = in_.number<std::uint64_t>();
    if (!in_.ok() || number > in_.rest().size() / bytes) return {};
    return number;
  }

  bool names() {
    const auto many = count(kNameBytes);
    if (!many) return false;
    names_.reserve(*many);
    for (std::uint64_t i = 0; i < *many; ++i) {
      names_.push_back(in_.text(in_.number<std::uint32_t>()));
      if (names_.back().size() > kMaxName) fail("has a name that is longer than a name can be");
    }
    return in_.ok();
  }

  bool segments() {
    const auto many = count(kSegmentBytes);
    if (!many) return false;
    out_.segments.reserve(*many);
    std::uint64_t before = 0;
    for (std::uint64_t i = 0; i < *many; ++i) {
      if (!segment() || !in_.ok()) return false;
      const ScannedSegment& last = out_.segments.back();
      if (last.segment <= before) fail("does not have its segments in ascending order");
      before = last.segment;
      out_.next_sequence = std::max(out_.next_sequence, last.last_sequence + 1);
    }
    return true;
  }

  bool segment() {
    ScannedSegment& out = out_.segments.emplace_back();
    out.segment = in_.number<std::uint64_t>();
    out.bytes = in_.number<std::uint64_t>();
    out.end = in_.number<std::uint64_t>();
    out.dead = in_.number<std::uint64_t>();
    out.last_sequence = in_.number<std::uint64_t>();
    if (out.dead > out.end || out.end > kMaxOffset) fail("has a segment whose sizes do not fit each other");
    if (out.last_sequence > kMaxSequence) fail("has a segment whose last sequence is higher than one can be");
    const auto gaps = count(kGapBytes);
    if (!gaps) return false;
    out.gaps.reserve(*gaps);
    std::uint64_t end = 0;
    for (std::uint64_t i = 0; i < *gaps; ++i) {
      const auto offset = in_.number<std::uint64_t>();
      const auto length = in_.number<std::uint64_t>();
      out.gaps.push_back({offset, length});
      if (offset < end || offset > out.end || length > out.end - offset) fail("has a gap outside of its segment");
      end = offset + length;
    }
    const auto many = count(kRecordBytes);
    return many && records(out, *many);
  }

  bool records(ScannedSegment& out, std::uint64_t many) {
    out.records.reserve(many);
    std::uint64_t end = os::kBlock;
    for (std::uint64_t i = 0; i < many; ++i) {
      ScannedRecord& record = out.records.emplace_back();
      RecordHead& head = record.head;
      const auto name = in_.number<std::uint32_t>();
      head.place.store = out_.head.store;
      head.place.segment = out.segment;
      head.place.offset = in_.number<std::uint64_t>();
      head.header_bytes = in_.number<std::uint64_t>();
      head.payload_bytes = in_.number<std::uint64_t>();
      head.record_bytes = in_.number<std::uint64_t>();
      head.sequence = in_.number<std::uint64_t>();
      head.version = in_.number<std::int64_t>();
      head.written_ns = in_.number<std::int64_t>();
      head.regions = in_.number<std::uint32_t>();
      head.metadata_bytes = in_.number<std::uint32_t>();
      head.block_bytes = in_.number<std::uint32_t>();
      head.body = in_.array<Checksum>();
      if (name >= names_.size()) {
        fail("has a record with a name that is not in it");
        return true;
      }
      record.history = names_[name];
      head.name_bytes = static_cast<std::uint32_t>(record.history.size());
      if (const std::string text = misfit(record, end, out); !text.empty()) {
        fail("has a record that cannot be: " + text);
        return true;
      }
      end = head.place.offset + head.record_bytes;
    }
    return in_.ok();
  }

  bool damages() {
    const auto many = count(kDamageBytes);
    if (!many) return false;
    for (std::uint64_t i = 0; i < *many && in_.ok(); ++i) {
      Damage& out = out_.damages.emplace_back();
      out.file = std::filesystem::path(std::string(in_.text(in_.number<std::uint32_t>()))).filename();
      out.offset = in_.number<std::uint64_t>();
      out.what = in_.text(in_.number<std::uint32_t>());
      out.unreadable = says_unreadable(out.what);
    }
    return in_.ok();
  }

  void fail(const std::string& what) {
    if (error_.empty()) error_ = what;
  }

  BytesReader in_;
  ScannedStore out_;
  std::vector<std::string_view> names_;
  std::string error_;  // the first one
};

}  // namespace

std::vector<std::byte> encode_index(const ScannedStore& store) {
  std::map<std::string_view, std::uint32_t> numbers;
  std::vector<std::string_view> names;
  for (const ScannedSegment& segment : store.segments) {
    for (const ScannedRecord& record : segment.records) {
      if (numbers.try_emplace(record.history, static_cast<std::uint32_t>(names.size())).second) {
        names.push_back(record.history);
      }
    }
  }
  std::uint64_t next_sequence = store.next_sequence;
  std::uint32_t format = 1;
  Body body;
  body.data().resize(kSector);
  body.number(std::uint64_t{names.size()});
  for (const std::string_view name : names) body.text(name);
  body.number(std::uint64_t{store.segments.size()});
  for (const ScannedSegment& segment : store.segments) {
    body.number(segment.segment);
    body.number(segment.bytes);
    body.number(segment.end);
    body.number(segment.dead);
    std::uint64_t last = segment.last_sequence;
    for (const ScannedRecord& record : segment.records) last = std::max(last, record.head.sequence);
    next_sequence = std::max(next_sequence, last + 1);
    body.number(last);
    body.number(std::uint64_t{segment.gaps.size()});
    for (const auto& gap : segment.gaps) {
      body.number(gap.offset);
      body.number(gap.length);
    }
    body.number(std::uint64_t{segment.records.size()});
    for (const ScannedRecord& record : segment.records) {
      put(body, record, numbers.at(record.history));
      format = std::max(format, record.head.format());
    }
  }
  body.number(std::uint64_t{store.damages.size()});
  for (const Damage& damage : store.damages) {
    body.text(damage.file.filename().string());
    body.number(damage.offset);
    body.text(damage.what);
  }

  std::vector<std::byte>& out = body.data();
  BytesWriter head = begin_sector(out.data(), kIndexMagic, format);
  head.number(std::uint32_t{0});
  head.bytes(store.head.store);
  head.number(std::uint64_t{out.size()});
  head.number(next_sequence);
  head.bytes(checksum_of(std::span(out).subspan(kSector)));
  seal_sector(out.data());
  return std::move(out);
}

Result<ScannedStore> parse_index(std::span<const std::byte> bytes, const StoreHead& store) {
  std::uint32_t format = 0;
  auto in = open_sector(bytes, kIndexMagic, "the index", &format);
  if (!in) return in.error();
  const auto unused = in->number<std::uint32_t>();
  const Uuid uuid = in->array<Uuid>();
  const auto length = in->number<std::uint64_t>();
  const auto next_sequence = in->number<std::uint64_t>();
  const Checksum sum = in->array<Checksum>();
  if (unused != 0 || !all_zero(in->rest())) return wrong("is not zero after its fields");
  if (uuid != store.store) return wrong("is of another store");
  if (length != bytes.size()) {
    return wrong("should have " + std::to_string(length) + " bytes and has " + std::to_string(bytes.size()));
  }
  const auto body = bytes.subspan(kSector);
  if (checksum_of(body) != sum) return wrong("does not match its checksum");
  auto out = IndexParser(body, store).run();
  if (out && next_sequence < out->next_sequence) return wrong("would reuse a sequence");
  if (next_sequence > kMaxSequence + 1) return wrong("has a next sequence above the limit");
  if (out) out->next_sequence = next_sequence;
  return out;
}

}  // namespace ebb::storage
