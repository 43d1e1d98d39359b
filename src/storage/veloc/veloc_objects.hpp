#pragma once
// Which checkpoints the storage of a rank has, which of them has which file, and how much room they take.
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "storage/persistent_storage.hpp"
#include "storage/veloc/veloc_folders.hpp"
#include "storage/veloc/veloc_object.hpp"

namespace ebb::storage {

/// A file that no object had when it was looked at.
struct VelocSeen {
  SharedVelocObject object;
  Checksum body{};      // as Found::body
  bool marked = false;  // by a mark that fits it
};

/// Thread safety: every method from any thread. mutex_ guards all of it and what the objects consist of, and is held
/// for no I/O; a method that takes a Lock wants it held.
class VelocObjects {
 public:
  using Lock = std::unique_lock<std::mutex>;

  VelocObjects(std::filesystem::path directory, int rank, std::uint64_t capacity);
  Lock lock() const { return Lock(mutex_); }

  SharedVelocObject find(ObjectId id) const;
  SharedVelocObject must_find(ObjectId id) const;
  /// The files of objects, by their names; of those that wait for one, by their names in the own folder.
  struct File {
    VelocFileState state;
    Version version = 0;
  };
  std::map<std::string, File> files() const;
  /// `there`: files of objects that are still as they were; those of all others are missed from now on. `looked`: the
  /// times of the folders before they were looked at.
  std::vector<Found> add_found(std::vector<VelocSeen> seen, const std::set<std::string>& there,
                               VelocFolders::Times looked);
  bool looked_at(VelocFolders::Times times) const;
  /// The folders are to be looked at again.
  void look_again();
  std::uint64_t changes() const;

  void begin(const SharedVelocObject& object);
  /// Error no_space.
  Result<void> begin_put(VelocObject& object);
  void begin_get(VelocObject& object, std::uint64_t offset, std::size_t bytes);
  void end_transfer(VelocObject& object);

  std::uint64_t sequence(ObjectId id) const;
  std::uint64_t next_sequence() const;
  /// The description's sequence or, if that has none, the next.
  void give_sequence(VelocObject& object);
  void skip_sequences(std::uint64_t below);

  void name(VelocObject& object, std::filesystem::path path);
  /// It waits for its name, whole, where it is now.
  void await_name(VelocObject& object, std::filesystem::path path);
  /// Whether another edition has the object's final name, or an aggregated file is of that version.
  bool is_taken(const VelocObject& object) const;
  /// The oldest edition that waits for the name; null: none.
  SharedVelocObject next_of(const VelocName& name) const;
  /// One that waits of each name that is free.
  std::vector<SharedVelocObject> to_name() const;
  /// Whether the object was the last that named its file; then none is.
  bool unname(const Lock&, const VelocObject& object);
  /// Null: there is none.
  SharedVelocObject take(const Lock&, ObjectId id);

  StorageUse use() const;
  bool stopped(const Lock&) const { return stopped_; }
  bool stop();  // false: it was before
  /// Of objects without a name, after stop().
  std::vector<std::filesystem::path> unnamed() const;

 private:
  Result<void> take_room(const Lock&, VelocObject& object);
  bool is_taken(const Lock&, const VelocObject& object) const;
  SharedVelocObject next_of(const Lock&, const std::string& file) const;
  void stop_waiting(const Lock&, const VelocObject& object);

  const std::filesystem::path directory_;
  const int rank_;
  const std::uint64_t capacity_;
  mutable std::mutex mutex_;
  std::map<ObjectId, SharedVelocObject> objects_;
  std::map<std::string, ObjectId> named_;                       // by file name: the object that named it last
  std::map<std::string, std::map<Version, ObjectId>> waiting_;  // by file name: editions that wait for it
  std::set<std::uint64_t> sequences_;                           // of files without a mark
  std::uint64_t used_ = 0, counted_ = 0, changes_ = 0, next_sequence_ = 1;
  ObjectId last_found_ = 0;
  VelocFolders::Times looked_;  // when they were looked at last; zeros: they are to be looked at again
  bool stopped_ = false;
};

}  // namespace ebb::storage
