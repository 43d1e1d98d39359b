#include "reliability/cpp/forgeries.hpp"

#include <algorithm>
#include <array>

#include "storage/format/sector.hpp"

namespace ebb::trials {
namespace {

using os::kBlock;
using storage::kSector;

constexpr std::array<std::uint64_t, 26> kNumbers{
    0,          1,          2,          3,          4,          255,        511,   512,        513,
    4095,       4096,       4097,       8192,       65535,      65536,      65537, 1u << 30,   (1u << 30) + 1,
    0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, 1ull << 62, 1ull << 63, ~0ull, ~0ull << 12};

/// A file of the store, read and written whole.
class Text {
 public:
  Text(MemoryFiles& files, const std::string& name) : files_(files), path_("/store/" + name) {
    os::FileStatus status;
    static_cast<void>(files.status(path_, status));
    bytes.resize(status.bytes);
    const auto fd = static_cast<int>(files.open(path_, os::Open::read, false).value);
    static_cast<void>(files.read(fd, bytes.data(), bytes.size(), 0));
    static_cast<void>(files.close(fd));
  }
  void put() const {
    const auto opened = files_.open_write(path_);
    const auto fd = static_cast<int>(opened.value);
    static_cast<void>(files_.write(fd, bytes.data(), bytes.size(), 0));
    static_cast<void>(files_.close(fd));
  }
  std::span<std::byte> at(std::uint64_t offset, std::uint64_t many) { return std::span(bytes).subspan(offset, many); }
  void number(std::uint64_t offset, std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size && offset + i < bytes.size(); ++i)
      bytes[offset + i] = static_cast<std::byte>(value >> (8 * i));
  }
  Bytes bytes;

 private:
  MemoryFiles& files_;
  const std::filesystem::path path_;
};

std::uint64_t draw_number(Random& random) { return random() % 4 ? kNumbers[random() % kNumbers.size()] : random(); }

const storage::ScannedRecord& draw_record(const Image& image, Random& random, std::string& file) {
  std::vector<const storage::ScannedSegment*> some;
  for (const auto& segment : image.scanned.segments) {
    if (!segment.records.empty()) some.push_back(&segment);
  }
  const storage::ScannedSegment& segment = *some[random() % some.size()];
  file = storage::segment_name(segment.segment);
  return segment.records[random() % segment.records.size()];
}

// Fields of a record's header, each any number, under right checksums.
void forge_fields(const Image& image, MemoryFiles& files, Random& random) {
  std::string file;
  const storage::RecordHead& head = draw_record(image, random, file).head;
  Text text(files, file);
  const std::uint64_t at = head.place.offset;
  for (std::uint64_t n = 1 + random() % 3; n-- > 0;) {
    const std::uint64_t place = random() % 2 ? 12 + 4 * (random() % 29) : kSector + random() % 120;
    text.number(at + place, draw_number(random), random() % 2 ? 4 : 8);
  }
  if (random() % 8 == 0) text.number(at + 88, draw_number(random), 4);
  const auto others = text.at(at + kSector, head.header_bytes - kSector);
  Bytes body(others.begin(), others.end());
  if (head.compact()) {
    const auto first = text.at(at + storage::kCompactBody, storage::kSealed - storage::kCompactBody);
    body.insert(body.begin(), first.begin(), first.end());
  }
  storage::BytesWriter(text.bytes.data() + at + 112).bytes(storage::checksum_of(body));
  storage::seal_sector(text.bytes.data() + at);
  text.put();
}

// A whole record that could have been written, where another one is: overlaps, sizes, sequences, the same name twice.
void forge_record(const Image& image, MemoryFiles& files, Random& random) {
  std::string file;
  const storage::RecordHead old = draw_record(image, random, file).head;
  Text text(files, file);
  storage::RecordHead head;
  head.place = old.place;
  head.sequence = draw_number(random);
  head.block_bytes = random() % 3 ? 8192 : random() % 2 ? 0 : 4096;
  storage::Description description{random() % 2 ? "adjoint" : std::string(random() % 9000, static_cast<char>(random())),
                                   static_cast<Version>(random() % 2 ? random() % 8 : draw_number(random)),
                                   {}};
  const std::uint64_t room = text.bytes.size() - old.place.offset;
  std::uint64_t payload = std::min<std::uint64_t>(random() % 2 ? draw_number(random) : random() % room, room);
  if (random() % 4 == 0) payload = old.payload_bytes;
  if (random() % 4 == 0) payload = std::min<std::uint64_t>(random() % 3000, room);
  description.info.bytes = payload;
  for (std::uint64_t n = random() % 5, from = 0; n-- > 0 && from <= payload;) {
    const std::uint64_t bytes = random() % (payload - from + 1);
    description.info.regions.push_back({static_cast<std::uint32_t>(n), bytes, from});
    from += (bytes + 255) / 256 * 256;
  }
  description.info.metadata = std::string(random() % 3 ? 0 : random() % 70'000, '\xfe');
  if (!storage::check(description, head.block_bytes)) return;
  Bytes header;
  if (const std::uint64_t small = storage::compact_bytes(description); small != 0 && random() % 4 != 0) {
    head.record_bytes = random() % 2 ? small : kSector * (random() % 10);
    header = storage::encode_compact(head, description, Bytes(payload, std::byte{0x11}));
  } else {
    const std::vector<storage::Checksum> sums(storage::block_count(payload, head.block_bytes));
    header = storage::encode(head, description, sums);
  }
  if (header.size() > room) text.bytes.resize(old.place.offset + header.size());
  std::ranges::copy(header, text.bytes.begin() + static_cast<std::ptrdiff_t>(old.place.offset));
  text.put();
}

void forge_index(const Image& image, MemoryFiles& files, Random& random) {
  if (!image.closed) return forge_fields(image, files, random);
  Text text(files, storage::kIndexFile);
  if (random() % 4 == 0) text.bytes.resize(kSector + random() % (text.bytes.size() - kSector));
  for (std::uint64_t n = 1 + random() % 3; n-- > 0;)
    text.number(kSector + random() % (text.bytes.size() - kSector + 1),
                random() % 2 ? random() % 10 : draw_number(random), 8);
  storage::BytesWriter(text.bytes.data() + 32).number(std::uint64_t{text.bytes.size()});
  if (random() % 8 == 0) text.number(40, draw_number(random), 8);
  storage::BytesWriter(text.bytes.data() + 48).bytes(storage::checksum_of(std::span(text.bytes).subspan(kSector)));
  storage::seal_sector(text.bytes.data());
  text.put();
}

// One whose name is as long, where there is one: all that an index says of them may be alike.
storage::ScannedRecord* like(const storage::ScannedRecord& one, const std::vector<storage::ScannedRecord*>& all,
                             Random& random) {
  for (int tries = 8; tries > 0; --tries) {
    storage::ScannedRecord* const other = all[random() % all.size()];
    if (other->history != one.history && other->history.size() == one.history.size()) return other;
  }
  return all[random() % all.size()];
}

// An index that is whole, of this store, and says of one record what is true of another.
void forge_lies(const Image& image, MemoryFiles& files, Random& random) {
  if (!image.closed) return forge_record(image, files, random);
  storage::ScannedStore store = image.scanned;
  std::vector<storage::ScannedRecord*> all;
  for (storage::ScannedSegment& segment : store.segments) {
    for (storage::ScannedRecord& record : segment.records) all.push_back(&record);
  }
  for (std::uint64_t n = 1 + random() % 3; n-- > 0;) {
    storage::ScannedRecord &one = *all[random() % all.size()], &other = *like(one, all, random);
    const std::uint64_t lot = random() % 8;
    if (lot < 3) std::swap(one.history, other.history);
    if (lot == 2 || lot == 3) std::swap(one.head.version, other.head.version);
    if (lot == 4) std::swap(one.head.sequence, other.head.sequence);
    if (lot == 5) std::swap(one.head.body, other.head.body);
    if (lot == 6) one.head.block_bytes = random() % 2 ? 0 : 4096;
    if (lot == 7) {
      const storage::RecordPlace here = one.head.place, there = other.head.place;
      std::swap(one.head, other.head);
      one.head.place = here;
      other.head.place = there;
    }
    for (storage::ScannedRecord* const record : {&one, &other})
      record->head.name_bytes = static_cast<std::uint32_t>(record->history.size());
  }
  Text text(files, storage::kIndexFile);
  text.bytes = storage::encode_index(store);
  text.put();
}

// Heads of the store and of segments.
void forge_head(const Image& image, MemoryFiles& files, Random& random) {
  const std::string name =
      random() % 2 ? storage::kStoreFile : storage::segment_name(image.scanned.segments.front().segment);
  Text text(files, name);
  for (std::uint64_t n = 1 + random() % 3; n-- > 0;)
    text.number(8 + 4 * (random() % 24), draw_number(random), random() % 2 ? 4 : 8);
  if (random() % 4 == 0) text.number(kSector + random() % 3000, random(), 8);
  storage::seal_sector(text.bytes.data());
  text.put();
}

// Names in the directory that are, nearly are, or ought not to be a store's.
void forge_names(const Image& image, MemoryFiles& files, Random& random) {
  static const std::array<std::string, 12> kNames{"segment-18446744073709551615.ebb",
                                                  "segment-18446744073709551616.ebb",
                                                  "segment-00000000.ebb",
                                                  "segment-1.ebb",
                                                  "segment-000000001.ebb",
                                                  "segment--0000001.ebb",
                                                  "segment-9223372036854775808.ebb",
                                                  "index.new",
                                                  "store.new",
                                                  "segment-99999999999999999999999999.ebb",
                                                  "segment-00000001.ebb.ebb",
                                                  "notes.txt"};
  const std::filesystem::path path = std::filesystem::path("/store") / kNames[random() % kNames.size()];
  if (random() % 4 == 0) {
    static_cast<void>(files.make_directory(path));
    return;
  }
  std::string file;
  static_cast<void>(draw_record(image, random, file));
  Text text(files, file);
  if (random() % 2) text.bytes.resize(random() % (text.bytes.size() + 1));
  const auto fd = static_cast<int>(files.open_write(path).value);
  static_cast<void>(files.write(fd, text.bytes.data(), text.bytes.size(), 0));
  static_cast<void>(files.close(fd));
}

// Whole files that are something else.
void forge_file(const Image& image, MemoryFiles& files, Random& random) {
  const std::string& name = image.files[random() % image.files.size()].first;
  Text text(files, name);
  const std::uint64_t lot = random() % 4;
  if (lot == 0) text.bytes.clear();
  if (lot == 1) std::ranges::generate(text.bytes, [&] { return static_cast<std::byte>(random()); });
  if (lot == 2) text.bytes.insert(text.bytes.end(), random() % 70'000, static_cast<std::byte>(random()));
  if (lot == 3 && text.bytes.size() > kBlock)
    std::rotate(text.bytes.begin(), text.bytes.begin() + kBlock, text.bytes.end());
  text.put();
}

constexpr std::array<Forgery, 7> kForgeries{{{"fields of a record", forge_fields},
                                             {"whole records", forge_record},
                                             {"index", forge_index},
                                             {"an index that lies", forge_lies},
                                             {"heads of store and segments", forge_head},
                                             {"names of files", forge_names},
                                             {"whole files", forge_file}}};

}  // namespace

std::span<const Forgery> forgeries() { return kForgeries; }

}  // namespace ebb::trials
