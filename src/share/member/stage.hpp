#pragma once
// The memory through which a process passes checkpoints that are not in the pool: larger ones than its share.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ebbtide/error.hpp"
#include "os/own_descriptors.hpp"
#include "os/shared_memory.hpp"

namespace ebb::share {

/// A few slots of shared memory, which has pages only where a slot was taken since the last clear(). Thread safety:
/// none of its own.
class Stage {
 public:
  static constexpr std::size_t kSlots = 4;

  /// The file, without memory. Error out_of_memory.
  Result<void> create(std::uint64_t slot_bytes);
  bool created() const { return file_.has_value(); }
  /// Of the file; sealed, so that it keeps its size.
  int fd() const { return descriptor_.fd(); }
  std::uint64_t bytes() const { return memory_.size(); }
  std::byte* at(std::uint64_t offset) const { return memory_.data() + offset; }
  bool has_free() const { return !free_.empty(); }
  /// The offset of a slot whose first `bytes` have memory. Error out_of_memory: no slot was taken.
  Result<std::uint64_t> take(std::uint64_t bytes);
  void give_back(std::uint64_t offset) { free_.push_back(offset); }
  /// With all slots free: their memory goes back to the system.
  void clear();

 private:
  os::OwnDescriptor descriptor_;
  std::optional<os::DescriptorSharedFile> file_;  // over a copy of it
  os::SharedMapping memory_;
  std::vector<std::uint64_t> free_;
};

}  // namespace ebb::share
