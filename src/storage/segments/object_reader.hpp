#pragma once
// Reading whole objects and what is known of them, on the caller's thread.
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/scan/record_reader.hpp"
#include "storage/segments/object_table.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

/// Thread safety: every method may be called from any thread, and waits for the disk.
/// 1. No byte is handed out before its checksum held, and none of another record than the one that was asked for.
class ObjectReader {
 public:
  using Sink = KeptStorage::Sink;
  ObjectReader(StoreContext& context, ObjectTable& table) : context_(context), table_(table) {}

  /// As KeptStorage.
  Result<std::shared_ptr<const Description>> read(ObjectId id);
  Result<void> verify(ObjectId id, const std::function<bool()>& ended);
  Result<void> read_payload(ObjectId id, const Sink& sink);
  Result<std::vector<Checksum>> region_sums(ObjectId id);

  /// Whether it was dropped by the process that writes: this one, or another while this one only reads.
  bool is_gone(const KeptObject& object);
  /// A record that is not there was dropped or, where this process writes and has not dropped it, taken from outside.
  Error blame(const KeptObject& object, const Error& error);
  /// Reads and checks the header of an object.
  Result<Header> read_header(const KeptObject& object);
  /// Of bytes that were read elsewhere. Error damaged: they are not this object's header; unknown_version: it may have
  /// been dropped since. The message says only what is wrong.
  Result<Header> parse(const KeptObject& object, std::span<const std::byte> bytes);
  std::filesystem::path path_of(const KeptObject& object) const {
    return context_.segment_files.path(object.head.place.segment);
  }

 private:
  RecordHead head_of(const KeptObject& object) const;
  Result<RecordReader> open(const SharedObject& object);
  Result<void> hand_out(const KeptObject& object, RecordReader& reader, const Sink& sink,
                        const std::function<bool()>& ended = {});
  Error no_such_object() const { return {Errc::unknown_version, "there is no such object in " + context_.where}; }

  StoreContext& context_;
  ObjectTable& table_;
};

}  // namespace ebb::storage
