#pragma once
// The memory through which a process passes checkpoints that are not in the pool: larger ones than its share.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ebbtide/error.hpp"
#include "os/own_descriptors.hpp"
#include "os/shared_memory.hpp"

namespace ebb::node {

/// A few slots of shared memory, made when the first is taken. Thread safety: none of its own.
class Stage {
 public:
  static constexpr std::size_t kSlots = 4;

  /// Slots of this size. Error out_of_memory.
  Result<void> create(std::uint64_t slot_bytes);
  bool created() const { return memory_.size() > 0; }
  int fd() const { return file_.fd(); }
  std::uint64_t bytes() const { return memory_.size(); }
  std::uint64_t slot_bytes() const { return slot_; }
  std::byte* at(std::uint64_t offset) const { return memory_.data() + offset; }
  bool has_free() const { return !free_.empty(); }
  /// The offset of a slot.
  std::uint64_t take();
  void give_back(std::uint64_t offset) { free_.push_back(offset); }

 private:
  std::uint64_t slot_ = 0;
  platform::OwnDescriptor file_;
  platform::SharedMapping memory_;
  std::vector<std::uint64_t> free_;
};

}  // namespace ebb::node
