// Reading, and the checks that no byte gets around.
#include <algorithm>
#include <stdexcept>

#include "storage/file_io.hpp"
#include "storage/format/hasher.hpp"
#include "storage/segments/kept_store.hpp"

namespace ebb::storage {

using platform::kBlock;
using platform::round_up;

namespace {

// The head says how long the name is, the body which: an index may name two such records one for the other.
constexpr const char* kOtherHistory = "another history's record is in its place";

}  // namespace

/// A get under way: the transfer and, if nobody has seen it yet, the record's header; whichever ends last has both
/// checked. [offset, offset + bytes) of the payload are asked for; [first, first + read) are read.
struct KeptGet {
  Token token = 0;
  std::shared_ptr<KeptObject> object;
  SharedFile file;
  std::shared_ptr<const std::vector<Checksum>> sums;
  std::uint64_t offset = 0, first = 0;
  std::size_t bytes = 0, read = 0;
  std::byte* memory = nullptr;
  AlignedBytes beside;  // where what is read goes that does not fit the caller's memory
  bool hashed = false;
  std::atomic<int> parts{1};
  Result<void> how, known;  // of the transfer, and of the header
};

KeptStore::Object KeptStore::find(ObjectId id) const {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(id);
  return found == objects_.end() ? nullptr : found->second;
}

Result<void> KeptStore::get(Token token, ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes) {
  auto get = std::make_shared<Get>();
  {
    std::lock_guard lock(mutex_);
    if (closed_locked()) throw std::logic_error("a get from a stopped storage");
    const auto found = objects_.find(id);
    if (found == objects_.end()) throw std::logic_error("a get of an object never put");
    KeptObject& object = *found->second;
    const std::uint64_t total = object.head.payload_bytes;
    if (offset % kBlock || offset > total || bytes > total - offset) {
      throw std::logic_error("a range outside its object, or not aligned to 4096");
    }
    get->token = token;
    get->object = found->second;
    get->file = object.segment->file;
    get->hashed = options_.checksums && object.head.block_bytes && bytes;
    get->offset = get->first = offset;
    get->bytes = get->read = bytes;
    get->memory = memory;
    ++object.under_way;
    ++under_way_;
  }
  const auto give_up = [&] {
    std::lock_guard lock(mutex_);
    std::erase(get->object->awaiting, get);  // a header that is being read comes for the others, or for none
    --get->object->under_way;
    end_locked();
  };
  try {
    Result<void> begun = begin_get(get);
    if (!begun) give_up();
    return begun;
  } catch (...) {  // no memory, say: nobody will ever tell of it
    give_up();
    throw;
  }
}

Result<void> KeptStore::begin_get(const std::shared_ptr<Get>& get) {
  const RecordHead& head = get->object->head;  // its sizes and place are constant
  const auto refused = [&](const Error& why) { return Error{why.code, name_of(*get->object) + ": " + why.message}; };
  if (!get->file) {
    auto file = segments_files_.open(head.place.segment);
    if (!file) return refused(blame(*get->object, file.error()));
    get->file = std::move(*file);
  }
  if (get->hashed) {
    const std::uint64_t block = head.block_bytes;
    get->first = get->offset / block * block;
    get->read = std::min(round_up(get->offset + get->bytes, block), head.payload_bytes) - get->first;
    if (get->read != get->bytes) {
      auto beside = AlignedBytes::make(get->read);
      if (!beside) return refused({Errc::out_of_memory, "there is no memory to read it into"});
      get->beside = std::move(*beside);
    }
  }
  if (get->bytes && await_header(get))
    read_header_beside(get->object, get->file);  // ahead of the payload: it comes first
  std::byte* const target = get->beside.size() ? get->beside.data() : get->memory;
  const transfer::Piece piece{head.place.offset + head.header_bytes + get->first, target, get->read};
  transfers_.submit(transfer::Direction::read, get->file, {&piece, 1}, [this, get](Result<void> how) {
    get->how = std::move(how);
    if (carried_ && get->how && get->hashed) carried_(get->token);
    if (--get->parts > 0) return;
    if (get->how && get->known && !get->hashed) return finish(get, {});
    workers_.post([this, get] { check(get); });
  });
  return {};
}

// Whether nobody has seen the header or is reading it: of all ranges of an object that are read at once, one does.
// (Also where the index speaks of no checksums: that is what the record itself says, or the index is wrong.)
bool KeptStore::await_header(const std::shared_ptr<Get>& get) {
  std::lock_guard lock(mutex_);
  KeptObject& object = *get->object;
  get->sums = object.sums;
  if (get->sums) return false;
  get->parts = 2;
  object.awaiting.push_back(get);
  return object.awaiting.size() == 1;
}

// Through the engine: a worker that waited for the disk would keep all that is to be checked meanwhile.
void KeptStore::read_header_beside(const Object& object, const SharedFile& file) {
  const std::size_t length = object->head.header_bytes;  // constant, as its place
  const auto take = [this, object, length](const std::shared_ptr<AlignedBytes>& bytes, bool came) {
    auto header = came ? parse_again(*object, bytes->first(length)) : std::nullopt;
    if (header) return take_header(object, std::move(*header));
    auto read = read_header(object);  // which says what is wrong
    if (read)
      take_header(object, **read);
    else
      take_header(object, read.error());
  };
  try {
    const auto bytes = std::make_shared<AlignedBytes>(length);
    const transfer::Piece piece{object->head.place.offset, bytes->data(), length};
    transfers_.submit(transfer::Direction::read, file, {&piece, 1}, [this, bytes, take](const Result<void>& how) {
      workers_.post([bytes, take, came = static_cast<bool>(how)] { take(bytes, came); });
    });
  } catch (const std::bad_alloc&) {
    take_header(object, Error{Errc::out_of_memory, name_of(*object) + ": there is no memory to read its header into"});
  }
}

void KeptStore::take_header(const Object& object, Result<Header> header) {
  std::vector<std::shared_ptr<Get>> awaiting;
  {
    std::lock_guard lock(mutex_);
    if (header && !object->sums) {
      object->sums = std::make_shared<std::vector<Checksum>>(std::move((*header).blocks));
      if (!object->described)
        object->description = std::make_shared<const Description>(std::move((*header).description));
    }
    awaiting.swap(object->awaiting);
    for (const auto& get : awaiting) get->sums = object->sums;
  }
  for (const auto& get : awaiting) {
    if (!header) get->known = header.error();
    if (--get->parts == 0) check(get);
  }
}

void KeptStore::check(const std::shared_ptr<Get>& get) {
  if (!get->known) return finish(get, get->known);
  const RecordHead& head = get->object->head;
  const auto dropped = [&] { return Error{Errc::unknown_version, name_of(*get->object) + " was dropped"}; };
  if (!get->how) {
    if (is_gone(*get->object)) return finish(get, dropped());
    return finish(get, Error{get->how.error().code, name_of(*get->object) + ": " + get->how.error().message});
  }
  if (!get->hashed) return finish(get, {});
  const std::byte* const memory = get->beside.size() ? get->beside.data() : get->memory;
  const std::size_t first = get->first / head.block_bytes;
  const auto expected = std::span(*get->sums).subspan(first, block_count(get->read, head.block_bytes));
  const auto wrong = first_mismatch({memory, get->read}, head.block_bytes, expected);
  if (get->beside.size()) std::copy_n(memory + (get->offset - get->first), get->bytes, get->memory);
  if (!wrong) return finish(get, {});
  if (is_gone(*get->object)) return finish(get, dropped());
  const std::uint64_t block = (first + *wrong) * std::uint64_t{head.block_bytes};
  finish(get, Error{Errc::damaged,
                    name_of(*get->object) + ": " + path_of(*get->object).string() + ", offset " +
                        std::to_string(head.place.offset + head.header_bytes + block) + ": " +
                        std::to_string(std::min<std::uint64_t>(head.block_bytes, head.payload_bytes - block)) +
                        " bytes of it do not match their checksum"});
}

void KeptStore::finish(const std::shared_ptr<Get>& get, Result<void> how) {
  {
    std::lock_guard lock(mutex_);
    --get->object->under_way;
  }
  done_(get->token, std::move(how));
  std::lock_guard lock(mutex_);
  end_locked();
}

// Dropped by the process that writes: this one, or another while this one only reads.
bool KeptStore::is_gone(const KeptObject& object) {
  RecordHead head;
  {
    std::lock_guard lock(mutex_);
    if (!options_.readonly) return object.dropped;
    head = object.head;
  }
  return storage::is_gone(files_, directory_.path(), head);
}

// A record that is not there was dropped, or, where this process writes and has not dropped it, taken from outside.
Error KeptStore::blame(const KeptObject& object, const Error& error) {
  if (error.code != Errc::unknown_version || is_gone(object) || options_.readonly) return error;
  return {Errc::damaged, path_of(object).string() + " was removed or changed while this process had the store open (" +
                             error.message + ")"};
}

bool KeptStore::gone(ObjectId id) {
  const Object object = find(id);
  return object && is_gone(*object);
}

// Nothing: it is not as it should be.
std::optional<Header> KeptStore::parse_again(const KeptObject& object, std::span<const std::byte> bytes) {
  RecordHead head;
  {
    std::lock_guard lock(mutex_);
    head = object.head;
  }
  const auto now = parse_head(bytes.first(kSector), head.place, UINT64_MAX);
  if (!now || *now != head) return {};
  auto header = parse_header(bytes, *now);
  if (!header || header->description.history != object.history) return {};
  return std::move(*header);
}

Result<std::shared_ptr<const Header>> KeptStore::read_header(const Object& object) {
  const std::filesystem::path path = path_of(*object);
  const std::string name = name_of(*object);
  RecordHead head;
  {
    std::lock_guard lock(mutex_);
    head = object->head;
  }
  auto file = segments_files_.open(head.place.segment);
  if (!file) {
    const Error error = blame(*object, file.error());
    return Error{error.code, name + ": " + error.message};
  }
  const auto bytes = AlignedBytes::make(head.header_bytes);
  if (!bytes) return Error{Errc::out_of_memory, name + ": there is no memory to read its header into"};
  const auto got = read_blocks(files_, **file, bytes->first(head.header_bytes), head.place.offset);
  if (!got) {
    const Error error = file_error(path, "reading it at offset " + std::to_string(head.place.offset), got.error);
    return Error{error.code, name + ": " + error.message};
  }
  const auto damaged = [&](const std::string& what) {
    return Error{Errc::damaged,
                 name + ": " + path.string() + ", offset " + std::to_string(head.place.offset) + ": " + what};
  };
  if (static_cast<std::uint64_t>(got.value) < head.header_bytes) {
    return is_gone(*object) ? Error{Errc::unknown_version, name + " was dropped"}
                            : damaged("the file ends in its header");
  }
  auto now = parse_head(bytes->first(kSector), head.place, UINT64_MAX);
  if (!now) return damaged(now.error().message);
  if (*now != head) {
    return is_gone(*object) ? Error{Errc::unknown_version, name + " was dropped"}
                            : damaged("another record is in its place");
  }
  auto header = parse_header(bytes->first(head.header_bytes), *now);
  if (!header) return damaged(header.error().message);
  if (header->description.history != object->history) return damaged(kOtherHistory);
  return std::make_shared<const Header>(std::move(*header));
}

Result<std::shared_ptr<const Description>> KeptStore::read(ObjectId id) {
  const Object object = find(id);
  if (!object) return Error{Errc::unknown_version, "there is no such object in " + where_};
  {
    std::lock_guard lock(mutex_);
    object->described = true;
    // What a get has seen of it is handed out once: who asks keeps it, and the store need not.
    if (object->description && object->state == KeptObject::State::kept) return std::move(object->description);
    if (object->description) return std::shared_ptr<const Description>(object->description);
  }
  auto header = read_header(object);
  if (!header) return header.error();
  return std::shared_ptr<const Description>(*header, &(*header)->description);
}

Result<RecordReader> KeptStore::reader_of(const Object& object) {
  if (!object) return Error{Errc::unknown_version, "there is no such object in " + where_};
  RecordHead head;
  {
    std::lock_guard lock(mutex_);
    head = object->head;
  }
  RecordReader reader(files_, directory_.path(), head);
  if (auto opened = reader.open(); !opened) return blame(*object, opened.error());
  if (reader.header().description.history != object->history) {
    return Error{Errc::damaged, name_of(*object) + ": " + path_of(*object).string() + ", offset " +
                                    std::to_string(head.place.offset) + ": " + kOtherHistory};
  }
  return reader;
}

Result<void> KeptStore::hand_out(const KeptObject& object, RecordReader& reader, const Sink& sink,
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

Result<void> KeptStore::verify(ObjectId id, const std::function<bool()>& ended) {
  const Object object = find(id);
  auto reader = reader_of(object);
  if (!reader) return reader.error();
  return hand_out(*object, *reader, [](std::uint64_t, std::span<const std::byte>) {}, ended);
}

Result<void> KeptStore::read_payload(ObjectId id, const Sink& sink) {
  const Object object = find(id);
  auto reader = reader_of(object);
  if (!reader) return reader.error();
  return hand_out(*object, *reader, sink);
}

Result<std::vector<Checksum>> KeptStore::region_sums(ObjectId id) {
  const Object object = find(id);
  auto reader = reader_of(object);
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

std::vector<Found> KeptStore::refresh() {
  if (!options_.readonly) return {};
  std::lock_guard turn(refresh_mutex_);
  if (!mark_.changed()) return {};
  ++looks_;
  std::vector<std::string> names;
  if (!files_.list(directory_.path(), names)) {
    mark_.forget();
    return {};
  }
  std::vector<std::uint64_t> numbers;
  for (const std::string& name : names) {
    if (const auto number = segment_number(name)) numbers.push_back(*number);
  }
  std::sort(numbers.begin(), numbers.end());
  std::vector<Found> all;
  for (const std::uint64_t number : numbers) {
    const auto seen = seen_.find(number);
    std::vector<Damage> damages;  // perhaps only what is being written: looked at again
    auto segment = scan_segment(files_, directory_.path(), directory_.head().store, number,
                                seen == seen_.end() ? 0 : seen->second, damages);
    if (!segment) {  // next time
      mark_.forget();
      continue;
    }
    std::lock_guard lock(mutex_);
    const std::vector<Found> some = adopt_locked(*segment, damages);
    all.insert(all.end(), some.begin(), some.end());
    newest_.meet(*segment);
  }
  return take_newest(std::move(all), newest_);
}

}  // namespace ebb::storage
