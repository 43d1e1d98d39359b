#pragma once
// The whole store; what is written to its own history are snapshots of memory that goes on changing.
#include "os/files.hpp"
#include "reliability/cpp/subject_store.hpp"

namespace ebb::trials {

/// Memory that lasts as long as the store.
class TriedMemory {
 public:
  TriedMemory();
  TriedMemory(const TriedMemory&) = delete;
  ~TriedMemory();
  /// Contents go to a few of its pages, elsewhere each time, and a sum of all of it to the first one: so what an
  /// increment does not store is judged as well.
  void put(const Bytes& contents);
  /// What was put last; none: some byte is not as it was then.
  static std::optional<Bytes> taken(std::span<const std::byte> memory);
  std::span<std::byte> all() const { return memory_; }

 private:
  std::span<std::byte> memory_;
  std::size_t puts_ = 0;
};

class SnapshotSubject final : private TriedMemory, public StoreSubject {
 public:
  using StoreSubject::StoreSubject;
  Result<void> write(const Made& made, const Bytes& contents) override;
  Result<Bytes> read(const std::string& history, Version version) override;

 private:
  Result<void> protect();
  bool protected_ = false;
};

}  // namespace ebb::trials
