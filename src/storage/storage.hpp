#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "ebbtide/error.hpp"
#include "ebbtide/options.hpp"
#include "transfer/token.hpp"

namespace ebb::storage {

/// The caller's name for an object (a checkpoint's slot and generation). Never reused after drop().
using ObjectId = std::uint64_t;
using transfer::Done;
using transfer::Token;

struct StorageUse {
  std::uint64_t capacity = 0;
  std::uint64_t used = 0;  // by objects, each rounded up to 4096
  std::uint64_t objects = 0;
  std::uint64_t extents = 0;  // that the objects occupy
  std::uint64_t largest_gap = 0;
};

class PersistentStorage;

/// Holds the bytes of a tier below memory: objects that are written and read by range, in any order. A scratch file,
/// the segment files of a store and a place in a node's pool are such storages, with one contract suite.
///
/// Thread safety: every method may be called from any thread; stop() from one.
/// 1. A put() or get() that returned no error is followed by exactly one `done` (given at creation), on another thread;
///    one that returned an error by none.
/// 2. Memory belongs to the storage until then. It is 4096-aligned and has room up to the next multiple of 4096.
/// 3. A range that a get() names was put before, wholly, and that put was reported. `offset` is a multiple of 4096.
class Storage {
 public:
  virtual ~Storage() = default;
  /// What an object survives once it is complete here.
  virtual Durability level() const { return Durability::ephemeral; }
  /// Null: what is here ends with the process.
  virtual PersistentStorage* persistent() { return nullptr; }
  /// Writes bytes [offset, offset + bytes) of an object of `total` bytes; the first put of an object takes its space.
  /// Error no_space: there is none for it.
  virtual Result<void> put(Token token, ObjectId object, std::uint64_t total, std::uint64_t offset,
                           const std::byte* memory, std::size_t bytes) = 0;
  /// Reads bytes [offset, offset + bytes). Throws std::logic_error for an object never put.
  virtual Result<void> get(Token token, ObjectId object, std::uint64_t offset, std::byte* memory,
                           std::size_t bytes) = 0;
  /// Frees an object's space at once. Throws std::logic_error if it has transfers in flight. An object that was never
  /// put has nothing to drop.
  virtual void drop(ObjectId object) = 0;

  virtual StorageUse use() const = 0;
  /// One line for a person: engine, file system, direct or buffered, how the space is held.
  virtual std::string describe() const = 0;
  /// Reports all transfers in flight, then joins. Later puts and gets throw std::logic_error. May be called twice.
  virtual void stop() = 0;
};

}  // namespace ebb::storage
