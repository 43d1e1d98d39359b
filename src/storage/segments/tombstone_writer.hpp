#pragma once
// Heads that say that a record does not count, in place of those that said it did.
#include <span>
#include <vector>

#include "storage/segments/object_table.hpp"
#include "storage/segments/store_context.hpp"

namespace ebb::storage {

inline constexpr std::size_t kSlab = 4 << 20;  // bytes of headers, or of drops, in one transfer

/// Thread safety: used by one thread at a time, the one that commits: the opening one, the committer, the closing one.
/// 1. Only the first 4096 bytes of a record are written, and not where another record is.
class TombstoneWriter {
 public:
  TombstoneWriter(StoreContext& context, ObjectTable& table) : context_(context), table_(table) {}

  /// All of them, or an error; not synced. A record that was durable is dropped, any other is nothing from now on.
  Result<void> write(const SharedFile& file, const std::vector<SharedObject>& objects);
  /// Of what is about to be reported lost, for this process may be killed before it closes. If it fails: once more when
  /// the store closes. Their bytes stay until then, for the caller may ask for them. The error is that of the sync.
  Result<void> withdraw(const KeptSegment& segment, const SharedFile& file, const std::vector<SharedObject>& objects);
  /// Breaks a segment: all in it that is not durable never will be, and its callers are told.
  void fail(const SharedSegment& segment, const Error& error);

 private:
  static Result<void> check_place(const KeptObject& object, std::span<const std::byte> block);

  StoreContext& context_;
  ObjectTable& table_;
};

}  // namespace ebb::storage
