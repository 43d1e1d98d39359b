#include "storage/segments/object_reader.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "storage/format/hasher.hpp"
#include "storage/scan/record_reader.hpp"

namespace ebb::storage {

using os::kBlock;
using os::round_up;

namespace {

// The head holds only the length of the name, so a wrong index may confuse two records with names of one length.
constexpr const char* kOtherHistory = "another history's record is in its place";

}  // namespace

/// A get in flight: the transfer and, unless it is known already, the record's header; whichever ends last starts the
/// check. [offset, offset + bytes) of the payload was asked for; [first, first + read) is read.
struct RangeRead {
  Token token = 0;
  SharedObject object;
  SharedFile file;
  std::shared_ptr<const std::vector<Checksum>> sums;
  std::shared_ptr<const std::vector<std::byte>> held;  // the payload of a small object that is not on disk yet
  std::uint64_t offset = 0, first = 0;
  std::size_t bytes = 0, read = 0;
  std::byte* memory = nullptr;
  AlignedBytes beside;  // a buffer, if whole blocks do not fit the caller's memory
  bool hashed = false;
  std::atomic<int> parts{1};
  Result<void> how, known;  // of the transfer, and of the header

  std::byte* target() const { return beside.size() ? beside.data() : memory; }
};

RecordHead ObjectReader::head_of(const StoredObject& object) const {
  const TableLocked lock = table_.lock();
  return object.record_head();
}

// By the writing process: this one or, in a read-only store, another.
bool ObjectReader::is_dropped(const StoredObject& object) const {
  RecordHead head;
  {
    const TableLocked lock = table_.lock();
    if (object.dropped || !context_.options.readonly) return object.dropped;
    head = object.record_head();
  }
  return storage::is_dropped(context_.files, context_.directory.path(), head);
}

bool ObjectReader::was_dropped(ObjectId id) {
  const SharedObject object = table_.find(id);
  return object && is_dropped(*object);
}

// A missing record was dropped or, if this process writes and did not drop it, removed from outside.
Error ObjectReader::explain_missing(const StoredObject& object, const Error& error) const {
  if (error.code != Errc::unknown_version || is_dropped(object) || context_.options.readonly) return error;
  return {Errc::damaged, path_of(object).string() + " was removed or changed while this process had the store open (" +
                             error.message + ")"};
}

// Error damaged: the bytes are not its header; unknown_version: it may have been dropped. The message is only the
// reason.
Result<Header> ObjectReader::parse(const StoredObject& object, std::span<const std::byte> blocks) const {
  const RecordHead head = head_of(object);
  const std::size_t skipped = std::min<std::size_t>(head.place.offset % kBlock, blocks.size());
  const auto bytes = blocks.subspan(skipped, std::min<std::size_t>(blocks.size() - skipped, head.header_bytes));
  if (bytes.size() < head.header_bytes) return Error{Errc::unknown_version, "the file ends in its header"};
  const auto now = parse_head(bytes.first(kSector), head.place, UINT64_MAX);
  if (!now) return Error{Errc::damaged, now.error().message};
  if (*now != head) return Error{Errc::unknown_version, "another record is in its place"};
  auto header = parse_header(bytes, *now);
  if (header && header->description.history != object.history) return Error{Errc::damaged, kOtherHistory};
  return header;
}

// The blocks that the header is in.
ObjectReader::Range ObjectReader::header_blocks(const StoredObject& object) {
  const StoredHead& head = object.head;  // sizes and place are constant
  return {head.offset / kBlock * kBlock, round_up(head.offset % kBlock + head.header_bytes)};
}

Result<Header> ObjectReader::read_header(const StoredObject& object) {
  const std::filesystem::path path = path_of(object);
  auto file = context_.segment_files.open(object.segment->number);
  if (!file) return object.named(explain_missing(object, file.error()));
  const auto [offset, length] = header_blocks(object);
  const auto bytes = AlignedBytes::make(length);
  if (!bytes) return object.named({Errc::out_of_memory, "there is no memory to read its header into"});
  const auto got = read_whole(context_.files, (*file)->fd(), bytes->first(length), offset, (*file)->direct());
  if (!got) return object.named(file_error(path, "reading it at offset " + std::to_string(offset), got.error));
  auto header = parse(object, bytes->first(static_cast<std::size_t>(got.value)));
  if (header) return header;
  if (header.error().code == Errc::unknown_version && is_dropped(object)) {
    return object.was_dropped();
  }
  return object.named(
      {Errc::damaged, path.string() + ", offset " + std::to_string(offset) + ": " + header.error().message});
}

std::uint64_t ObjectReader::sequence(ObjectId id) {
  const TableLocked lock = table_.lock();
  const SharedObject object = table_.find(lock, id);
  return object && object->state == ObjectState::persistent ? object->head.sequence : 0;
}

Result<std::shared_ptr<const Description>> ObjectReader::load_description(ObjectId id) {
  const SharedObject object = table_.find(id);
  if (!object) return no_such_object();
  {
    const TableLocked lock = table_.lock();
    object->description_asked = true;
    // A description that a get has read is returned once: the caller keeps it, so the store need not.
    if (object->loaded && object->loaded->description) {
      const bool here = object->state != ObjectState::persistent;
      return here ? object->loaded->description : std::exchange(object->loaded->description, nullptr);
    }
  }
  auto header = read_header(*object);
  if (!header) return header.error();
  return std::make_shared<const Description>(std::move(header->description));
}

// `begin` receives the header and returns the sink.
Result<void> ObjectReader::read_all(ObjectId id, const std::function<Sink(const Header&)>& begin,
                                    const std::function<bool()>& ended) {
  const SharedObject object = table_.find(id);
  if (!object) return no_such_object();
  RecordReader reader(context_.files, context_.directory.path(), head_of(*object));
  if (auto opened = reader.open(); !opened) return explain_missing(*object, opened.error());
  if (reader.header().description.history != object->history) {
    return object->named({Errc::damaged, path_of(*object).string() + ", offset " + std::to_string(object->head.offset) +
                                             ": " + kOtherHistory});
  }
  const Sink sink = begin(reader.header());
  for (std::uint64_t at = 0;;) {
    if (ended && ended()) return Error{Errc::timed_out, "the reading was ended"};
    auto piece = reader.next();
    if (!piece) return explain_missing(*object, piece.error());
    if (piece->empty()) return {};
    sink(at, *piece);
    at += piece->size();
  }
}

Result<void> ObjectReader::verify(ObjectId id, const std::function<bool()>& ended) {
  return read_all(id, [](const Header&) { return [](std::uint64_t, std::span<const std::byte>) {}; }, ended);
}

Result<void> ObjectReader::read_payload(ObjectId id, const Sink& sink) {
  return read_all(id, [&](const Header&) { return sink; });
}

Result<std::vector<Checksum>> ObjectReader::region_checksums(ObjectId id) {
  std::vector<RegionInfo> regions;
  std::vector<Hasher> sums;
  const auto add = [&](std::uint64_t at, std::span<const std::byte> bytes) {
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const std::uint64_t from = std::max<std::uint64_t>(at, regions[i].offset);
      const std::uint64_t to = std::min<std::uint64_t>(at + bytes.size(), regions[i].offset + regions[i].bytes);
      if (from < to) sums[i].add(bytes.subspan(from - at, to - from));
    }
  };
  const auto read = read_all(id, [&](const Header& header) {
    regions = header.description.info.regions;
    sums = std::vector<Hasher>(regions.size());
    return add;
  });
  if (!read) return read.error();
  std::vector<Checksum> out;
  for (const Hasher& sum : sums) out.push_back(sum.result());
  return out;
}

Result<void> ObjectReader::get(Token token, ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes) {
  auto get = std::make_shared<RangeRead>();
  {
    const TableLocked lock = table_.lock();
    if (table_.is_stopped(lock)) throw std::logic_error("a get from a stopped storage");
    get->object = table_.find(lock, id);
    if (!get->object) throw std::logic_error("a get of an object never put");
    StoredObject& object = *get->object;
    const std::uint64_t total = object.head.payload_bytes;
    if (offset % kBlock || offset > total || bytes > total - offset) {
      throw std::logic_error("a range outside its object, or not aligned to 4096");
    }
    get->token = token;
    get->file = object.segment->file;
    if (object.writing) get->held = object.writing->held;
    if (bytes == 0 && !object.placed()) get->held = std::make_shared<const std::vector<std::byte>>();
    get->hashed = context_.options.checksums && object.head.block_bytes && bytes;
    get->offset = get->first = offset;
    get->bytes = get->read = bytes;
    get->memory = memory;
    table_.begin_transfer(lock, object);
  }
  const auto undo = [&] {
    const TableLocked lock = table_.lock();
    if (get->object->loaded)
      std::erase(get->object->loaded->awaiting_header, get);  // if its header is being read, that serves the others
    --get->object->in_flight;
    table_.end_transfer(lock);
  };
  try {
    Result<void> begun = start(get);
    if (!begun) undo();
    return begun;
  } catch (...) {  // out of memory, for example: it will never be reported
    undo();
    throw;
  }
}

Result<void> ObjectReader::start(const Get& get) {
  const StoredHead& head = get->object->head;  // sizes and place are constant
  if (get->held) {
    context_.workers.post([this, get] {
      std::copy_n(get->held->data() + get->offset, get->bytes, get->memory);
      finish(get, {});
    });
    return {};
  }
  if (!get->file) {
    auto file = context_.segment_files.open(get->object->segment->number);
    if (!file) return get->object->named(explain_missing(*get->object, file.error()));
    get->file = std::move(*file);
  }
  if (head.compact()) {
    read_compact(get);
    return {};
  }
  if (get->hashed) {
    const std::uint64_t block = head.block_bytes;
    get->first = get->offset / block * block;
    get->read = std::min(round_up(get->offset + get->bytes, block), head.payload_bytes) - get->first;
    if (get->read != get->bytes) {
      auto beside = AlignedBytes::make(get->read);
      if (!beside) return get->object->named({Errc::out_of_memory, "there is no memory to read it into"});
      get->beside = std::move(*beside);
    }
  }
  if (get->bytes && await_header(get)) {
    read_header_beside(get->object, get->file);  // before the payload, so that it arrives first
  }
  const transfer::Piece piece{get->object->payload_offset() + get->first, get->target(), get->read};
  context_.transfers.submit(transfer::Direction::read, get->file, {&piece, 1}, [this, get](Result<void> how) {
    get->how = std::move(how);
    if (context_.bytes_read && get->how && get->hashed) context_.bytes_read(get->token);
    if (--get->parts > 0) return;
    if (get->how && get->known && !get->hashed) return finish(get, {});
    context_.workers.post([this, get] { check(get); });
  });
  return {};
}

// The payload of a compact record is in its header.
void ObjectReader::read_compact(const Get& get) {
  const auto [offset, length] = header_blocks(*get->object);
  get->beside = AlignedBytes(length);
  const transfer::Piece piece{offset, get->beside.data(), length};
  context_.transfers.submit(transfer::Direction::read, get->file, {&piece, 1}, [this, get](Result<void> how) {
    get->how = std::move(how);
    if (context_.bytes_read && get->how && context_.options.checksums) context_.bytes_read(get->token);
    context_.workers.post([this, get] {
      if (!get->how) return check(get);
      auto header = parse(*get->object, get->beside.first(get->beside.size()));
      if (!header) header = read_header(*get->object);  // again, for the reason
      if (header) std::copy_n(header->payload.data() + get->offset, get->bytes, get->memory);
      finish(get, header ? Result<void>() : header.error());
    });
  });
}

// Whether this get has to read the header: of all ranges of an object that are read at once, one does. (Also if the
// index says that there are no checksums: the record agrees, or the index is wrong.)
bool ObjectReader::await_header(const Get& get) {
  const TableLocked lock = table_.lock();
  StoredObject& object = *get->object;
  get->sums = object.sums();
  if (get->sums) return false;
  get->parts = 2;
  object.load().awaiting_header.push_back(get);
  return object.loaded->awaiting_header.size() == 1;
}

// Through the engine: a worker that waits for the disk would hold up all other checks.
void ObjectReader::read_header_beside(const SharedObject& object, const SharedFile& file) {
  const auto [offset, length] = header_blocks(*object);
  try {
    const auto bytes = std::make_shared<AlignedBytes>(length);
    const transfer::Piece piece{offset, bytes->data(), length};
    context_.transfers.submit(transfer::Direction::read, file, {&piece, 1}, [=, this](const Result<void>& how) {
      context_.workers.post([=, this, came = static_cast<bool>(how)] {
        if (came) {
          if (auto header = parse(*object, bytes->first(bytes->size()))) return set_header(object, std::move(header));
        }
        set_header(object, read_header(*object));  // again, for the reason
      });
    });
  } catch (const std::bad_alloc&) {
    set_header(object, object->named({Errc::out_of_memory, "there is no memory to read its header into"}));
  }
}

void ObjectReader::set_header(const SharedObject& object, Result<Header> header) {
  std::vector<Get> awaiting;
  {
    const TableLocked lock = table_.lock();
    StoredObject::Loaded& loaded = object->load();
    if (header && !loaded.sums) {
      loaded.sums = std::make_shared<std::vector<Checksum>>(std::move((*header).blocks));
      if (!object->description_asked) {
        loaded.description = std::make_shared<const Description>(std::move((*header).description));
      }
    }
    awaiting.swap(loaded.awaiting_header);
    for (const Get& get : awaiting) get->sums = loaded.sums;
  }
  for (const Get& get : awaiting) {
    if (!header) get->known = header.error();
    if (--get->parts == 0) check(get);
  }
}

void ObjectReader::check(const Get& get) {
  if (!get->known) return finish(get, get->known);
  if (get->how) return finish(get, get->hashed ? check_payload(*get) : Result<void>());
  if (is_dropped(*get->object)) {
    return finish(get, get->object->was_dropped());
  }
  finish(get, get->object->named(get->how.error()));
}

// Compares what was read with its checksums.
Result<void> ObjectReader::check_payload(const RangeRead& get) const {
  const StoredHead& head = get.object->head;
  const std::size_t first = get.first / head.block_bytes;
  const auto expected = std::span(*get.sums).subspan(first, block_count(get.read, head.block_bytes));
  const auto wrong = first_mismatch({get.target(), get.read}, head.block_bytes, expected);
  if (get.beside.size()) std::copy_n(get.beside.data() + (get.offset - get.first), get.bytes, get.memory);
  if (!wrong) return {};
  if (is_dropped(*get.object)) return get.object->was_dropped();
  const std::uint64_t block = (first + *wrong) * std::uint64_t{head.block_bytes};
  return Error{Errc::damaged,
               get.object->name() + ": " + path_of(*get.object).string() + ", offset " +
                   std::to_string(get.object->payload_offset() + block) + ": " +
                   std::to_string(std::min<std::uint64_t>(head.block_bytes, head.payload_bytes - block)) +
                   " bytes of it do not match their checksum"};
}

void ObjectReader::finish(const Get& get, Result<void> how) {
  {
    const TableLocked lock = table_.lock();
    --get->object->in_flight;
  }
  context_.done(get->token, std::move(how));
  const TableLocked lock = table_.lock();
  table_.end_transfer(lock);
}

}  // namespace ebb::storage
