#include "storage/segments/object_reader.hpp"

#include <algorithm>

#include "storage/format/hasher.hpp"

namespace ebb::storage {

namespace {

// The head says how long the name is, the body which: an index may name two such records one for the other.
constexpr const char* kOtherHistory = "another history's record is in its place";

}  // namespace

RecordHead ObjectReader::head_of(const KeptObject& object) const {
  const Locked lock = table_.lock();
  return object.head;
}

bool ObjectReader::is_gone(const KeptObject& object) {
  RecordHead head;
  {
    const Locked lock = table_.lock();
    if (!context_.options.readonly) return object.dropped;
    head = object.head;
  }
  return storage::is_gone(context_.files, context_.directory.path(), head);
}

Error ObjectReader::blame(const KeptObject& object, const Error& error) {
  if (error.code != Errc::unknown_version || is_gone(object) || context_.options.readonly) return error;
  return {Errc::damaged, path_of(object).string() + " was removed or changed while this process had the store open (" +
                             error.message + ")"};
}

Result<Header> ObjectReader::parse(const KeptObject& object, std::span<const std::byte> bytes) {
  const RecordHead head = head_of(object);
  if (bytes.size() < head.header_bytes) return Error{Errc::unknown_version, "the file ends in its header"};
  const auto now = parse_head(bytes.first(kSector), head.place, UINT64_MAX);
  if (!now) return Error{Errc::damaged, now.error().message};
  if (*now != head) return Error{Errc::unknown_version, "another record is in its place"};
  auto header = parse_header(bytes, *now);
  if (header && header->description.history != object.history) return Error{Errc::damaged, kOtherHistory};
  return header;
}

Result<Header> ObjectReader::read_header(const KeptObject& object) {
  const std::filesystem::path path = path_of(object);
  const auto failed = [&](const Error& error) { return Error{error.code, object.name() + ": " + error.message}; };
  auto file = context_.segment_files.open(object.head.place.segment);
  if (!file) return failed(blame(object, file.error()));
  const std::size_t length = object.head.header_bytes;
  const std::uint64_t offset = object.head.place.offset;
  const auto bytes = AlignedBytes::make(length);
  if (!bytes) return failed({Errc::out_of_memory, "there is no memory to read its header into"});
  const auto got = read_blocks(context_.files, **file, bytes->first(length), offset);
  if (!got) return failed(file_error(path, "reading it at offset " + std::to_string(offset), got.error));
  auto header = parse(object, bytes->first(static_cast<std::size_t>(got.value)));
  if (header) return header;
  if (header.error().code == Errc::unknown_version && is_gone(object)) {
    return Error{Errc::unknown_version, object.name() + " was dropped"};
  }
  return failed({Errc::damaged, path.string() + ", offset " + std::to_string(offset) + ": " + header.error().message});
}

Result<std::shared_ptr<const Description>> ObjectReader::read(ObjectId id) {
  const SharedObject object = table_.find(id);
  if (!object) return no_such_object();
  {
    const Locked lock = table_.lock();
    object->described = true;
    // What a get has seen of it is handed out once: who asks keeps it, and the store need not.
    if (object->description && object->state == KeptObject::State::kept) return std::move(object->description);
    if (object->description) return std::shared_ptr<const Description>(object->description);
  }
  auto header = read_header(*object);
  if (!header) return header.error();
  return std::make_shared<const Description>(std::move(header->description));
}

Result<RecordReader> ObjectReader::open(const SharedObject& object) {
  if (!object) return no_such_object();
  const RecordHead head = head_of(*object);
  RecordReader reader(context_.files, context_.directory.path(), head);
  if (auto opened = reader.open(); !opened) return blame(*object, opened.error());
  if (reader.header().description.history != object->history) {
    return Error{Errc::damaged, object->name() + ": " + path_of(*object).string() + ", offset " +
                                    std::to_string(head.place.offset) + ": " + kOtherHistory};
  }
  return reader;
}

Result<void> ObjectReader::hand_out(const KeptObject& object, RecordReader& reader, const Sink& sink,
                                    const std::function<bool()>& ended) {
  for (std::uint64_t at = 0;;) {
    if (ended && ended()) return Error{Errc::timed_out, "the reading was ended"};
    const auto piece = reader.next();
    if (!piece) return blame(object, piece.error());
    if ((*piece).empty()) return {};
    sink(at, *piece);
    at += (*piece).size();
  }
}

Result<void> ObjectReader::verify(ObjectId id, const std::function<bool()>& ended) {
  const SharedObject object = table_.find(id);
  auto reader = open(object);
  if (!reader) return reader.error();
  return hand_out(*object, *reader, [](std::uint64_t, std::span<const std::byte>) {}, ended);
}

Result<void> ObjectReader::read_payload(ObjectId id, const Sink& sink) {
  const SharedObject object = table_.find(id);
  auto reader = open(object);
  if (!reader) return reader.error();
  return hand_out(*object, *reader, sink);
}

Result<std::vector<Checksum>> ObjectReader::region_sums(ObjectId id) {
  const SharedObject object = table_.find(id);
  auto reader = open(object);
  if (!reader) return reader.error();
  const std::vector<RegionInfo>& regions = reader->header().description.info.regions;
  std::vector<Hasher> sums(regions.size());
  const auto read = hand_out(*object, *reader, [&](std::uint64_t at, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const std::uint64_t from = std::max<std::uint64_t>(at, regions[i].offset);
      const std::uint64_t to = std::min<std::uint64_t>(at + bytes.size(), regions[i].offset + regions[i].bytes);
      if (from < to) sums[i].add(bytes.subspan(from - at, to - from));
    }
  });
  if (!read) return read.error();
  std::vector<Checksum> out;
  for (const Hasher& sum : sums) out.push_back(sum.result());
  return out;
}

}  // namespace ebb::storage
