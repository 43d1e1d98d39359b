#pragma once
// Reading parts of objects in the background, and the checks that no byte gets around.
#include <atomic>
#include <memory>
#include <vector>

#include "storage/segments/object_reader.hpp"

namespace ebb::storage {

/// A get under way: the transfer and, if nobody has seen it yet, the record's header; whichever ends last has both
/// checked. [offset, offset + bytes) of the payload are asked for; [first, first + read) are read.
struct RangeRead {
  Token token = 0;
  SharedObject object;
  SharedFile file;
  std::shared_ptr<const std::vector<Checksum>> sums;
  std::uint64_t offset = 0, first = 0;
  std::size_t bytes = 0, read = 0;
  std::byte* memory = nullptr;
  AlignedBytes beside;  // where what is read goes that does not fit the caller's memory
  bool hashed = false;
  std::atomic<int> parts{1};
  Result<void> how, known;  // of the transfer, and of the header

  std::byte* target() const { return beside.size() ? beside.data() : memory; }
};

/// Thread safety: get() may be called from any thread.
/// 1. A get is reported once, by a checksum worker, or by the engine's thread where nothing is to be checked.
/// 2. The `sums` of an object that was found are set once, under the table's lock, when the first get has read them.
class RangeReader {
 public:
  RangeReader(StoreContext& context, ObjectTable& table, ObjectReader& reader)
      : context_(context), table_(table), reader_(reader) {}

  /// As Storage.
  Result<void> get(Token token, ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes);

 private:
  using Get = std::shared_ptr<RangeRead>;
  Result<void> start(const Get& get);
  bool await_header(const Get& get);
  void read_header_beside(const SharedObject& object, const SharedFile& file);
  void take_header(const SharedObject& object, Result<Header> header);
  void check(const Get& get);
  Result<void> compare(const RangeRead& get);
  void finish(const Get& get, Result<void> how);

  StoreContext& context_;
  ObjectTable& table_;
  ObjectReader& reader_;
};

}  // namespace ebb::storage
