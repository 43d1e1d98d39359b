#pragma once
// Reading objects, and checking every byte.
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "storage/segments/object_table.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

/// Thread safety: every method may be called from any thread; all except get() wait for the disk.
/// 1. No byte is returned before its checksum has matched, nor any byte of a record other than the one asked for.
/// 2. A get is reported once: by a checksum worker, or by the engine's thread if there is nothing to check.
/// 3. The `sums` of an object found on disk are set once, under the table's lock, when the first get has read them.
class ObjectReader {
 public:
  using Sink = PersistentStorage::Sink;
  ObjectReader(StoreContext& context, ObjectTable& table) : context_(context), table_(table) {}

  /// As in PersistentStorage.
  Result<void> get(Token token, ObjectId id, std::uint64_t offset, std::byte* memory, std::size_t bytes);
  Result<std::shared_ptr<const Description>> load_description(ObjectId id);
  Result<void> verify(ObjectId id, const std::function<bool()>& ended);
  Result<void> read_payload(ObjectId id, const Sink& sink);
  Result<std::vector<Checksum>> region_checksums(ObjectId id);
  std::uint64_t sequence(ObjectId id);
  bool was_dropped(ObjectId id);

 private:
  using Get = std::shared_ptr<RangeRead>;
  std::filesystem::path path_of(const StoredObject& object) const {
    return context_.segment_files.path(object.segment->number);
  }
  Error no_such_object() const { return {Errc::unknown_version, "there is no such object in " + context_.where}; }
  RecordHead head_of(const StoredObject& object) const;
  bool is_dropped(const StoredObject& object) const;
  Error explain_missing(const StoredObject& object, const Error& error) const;

  struct Range {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
  };
  static Range header_blocks(const StoredObject& object);
  Result<Header> read_header(const StoredObject& object);
  Result<Header> parse(const StoredObject& object, std::span<const std::byte> blocks) const;
  Result<void> read_all(ObjectId id, const std::function<Sink(const Header&)>& begin,
                        const std::function<bool()>& ended = {});

  Result<void> start(const Get& get);
  void read_compact(const Get& get);
  bool await_header(const Get& get);
  void read_header_beside(const SharedObject& object, const SharedFile& file);
  void set_header(const SharedObject& object, Result<Header> header);
  void check(const Get& get);
  Result<void> check_payload(const RangeRead& get) const;
  void finish(const Get& get, Result<void> how);

  StoreContext& context_;
  ObjectTable& table_;
};

}  // namespace ebb::storage
