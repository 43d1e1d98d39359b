#include "storage/segments/range_reader.hpp"

#include <algorithm>
#include <stdexcept>

namespace ebb::storage {

using platform::kBlock;
using platform::round_up;

Result<void> RangeReader::get(Token token, ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes) {
  auto get = std::make_shared<RangeRead>();
  {
    const Locked lock = table_.lock();
    if (table_.refuses(lock)) throw std::logic_error("a get from a stopped storage");
    get->object = table_.find(lock, id);
    if (!get->object) throw std::logic_error("a get of an object never put");
    KeptObject& object = *get->object;
    const std::uint64_t total = object.head.payload_bytes;
    if (offset % kBlock || offset > total || bytes > total - offset) {
      throw std::logic_error("a range outside its object, or not aligned to 4096");
    }
    get->token = token;
    get->file = object.segment->file;
    get->hashed = context_.options.checksums && object.head.block_bytes && bytes;
    get->offset = get->first = offset;
    get->bytes = get->read = bytes;
    get->memory = memory;
    table_.begin_transfer(lock, object);
  }
  const auto give_up = [&] {
    const Locked lock = table_.lock();
    std::erase(get->object->awaiting, get);  // a header that is being read comes for the others, or for none
    --get->object->under_way;
    table_.end_transfer(lock);
  };
  try {
    Result<void> begun = start(get);
    if (!begun) give_up();
    return begun;
  } catch (...) {  // no memory, say: nobody will ever tell of it
    give_up();
    throw;
  }
}

Result<void> RangeReader::start(const Get& get) {
  const RecordHead& head = get->object->head;  // its sizes and place are constant
  const auto refused = [&](const Error& why) { return Error{why.code, get->object->name() + ": " + why.message}; };
  if (!get->file) {
    auto file = context_.segment_files.open(head.place.segment);
    if (!file) return refused(reader_.blame(*get->object, file.error()));
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
  if (get->bytes && await_header(get)) {
    read_header_beside(get->object, get->file);  // ahead of the payload: it comes first
  }
  const transfer::Piece piece{get->object->payload_place() + get->first, get->target(), get->read};
  context_.transfers.submit(transfer::Direction::read, get->file, {&piece, 1}, [this, get](Result<void> how) {
    get->how = std::move(how);
    if (context_.carried && get->how && get->hashed) context_.carried(get->token);
    if (--get->parts > 0) return;
    if (get->how && get->known && !get->hashed) return finish(get, {});
    context_.workers.post([this, get] { check(get); });
  });
  return {};
}

// Whether nobody has seen the header or is reading it: of all ranges of an object that are read at once, one does.
// (Also where the index speaks of no checksums: that is what the record itself says, or the index is wrong.)
bool RangeReader::await_header(const Get& get) {
  const Locked lock = table_.lock();
  KeptObject& object = *get->object;
  get->sums = object.sums;
  if (get->sums) return false;
  get->parts = 2;
  object.awaiting.push_back(get);
  return object.awaiting.size() == 1;
}

// Through the engine: a worker that waited for the disk would keep all that is to be checked meanwhile.
void RangeReader::read_header_beside(const SharedObject& object, const SharedFile& file) {
  const std::size_t length = object->head.header_bytes;  // constant, as its place
  try {
    const auto bytes = std::make_shared<AlignedBytes>(length);
    const transfer::Piece piece{object->head.place.offset, bytes->data(), length};
    context_.transfers.submit(transfer::Direction::read, file, {&piece, 1}, [=, this](const Result<void>& how) {
      context_.workers.post([=, this, came = static_cast<bool>(how)] {
        if (came) {
          if (auto header = reader_.parse(*object, bytes->first(length))) return take_header(object, std::move(header));
        }
        take_header(object, reader_.read_header(*object));  // which says what is wrong
      });
    });
  } catch (const std::bad_alloc&) {
    take_header(object, Error{Errc::out_of_memory, object->name() + ": there is no memory to read its header into"});
  }
}

void RangeReader::take_header(const SharedObject& object, Result<Header> header) {
  std::vector<Get> awaiting;
  {
    const Locked lock = table_.lock();
    if (header && !object->sums) {
      object->sums = std::make_shared<std::vector<Checksum>>(std::move((*header).blocks));
      if (!object->described) {
        object->description = std::make_shared<const Description>(std::move((*header).description));
      }
    }
    awaiting.swap(object->awaiting);
    for (const Get& get : awaiting) get->sums = object->sums;
  }
  for (const Get& get : awaiting) {
    if (!header) get->known = header.error();
    if (--get->parts == 0) check(get);
  }
}

void RangeReader::check(const Get& get) {
  if (!get->known) return finish(get, get->known);
  if (get->how) return finish(get, get->hashed ? compare(*get) : Result<void>());
  if (reader_.is_gone(*get->object)) {
    return finish(get, Error{Errc::unknown_version, get->object->name() + " was dropped"});
  }
  finish(get, Error{get->how.error().code, get->object->name() + ": " + get->how.error().message});
}

// With its checksums, what was read.
Result<void> RangeReader::compare(const RangeRead& get) {
  const RecordHead& head = get.object->head;
  const std::size_t first = get.first / head.block_bytes;
  const auto expected = std::span(*get.sums).subspan(first, block_count(get.read, head.block_bytes));
  const auto wrong = first_mismatch({get.target(), get.read}, head.block_bytes, expected);
  if (get.beside.size()) std::copy_n(get.beside.data() + (get.offset - get.first), get.bytes, get.memory);
  if (!wrong) return {};
  if (reader_.is_gone(*get.object)) return Error{Errc::unknown_version, get.object->name() + " was dropped"};
  const std::uint64_t block = (first + *wrong) * std::uint64_t{head.block_bytes};
  return Error{Errc::damaged,
               get.object->name() + ": " + reader_.path_of(*get.object).string() + ", offset " +
                   std::to_string(get.object->payload_place() + block) + ": " +
                   std::to_string(std::min<std::uint64_t>(head.block_bytes, head.payload_bytes - block)) +
                   " bytes of it do not match their checksum"};
}

void RangeReader::finish(const Get& get, Result<void> how) {
  {
    const Locked lock = table_.lock();
    --get->object->under_way;
  }
  context_.done(get->token, std::move(how));
  const Locked lock = table_.lock();
  table_.end_transfer(lock);
}

}  // namespace ebb::storage
