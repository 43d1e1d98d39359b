#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "os/files.hpp"

namespace ebb::doubles {

inline constexpr std::uint64_t kSectorBytes = 512;  // written by a disk completely or not at all
using Page = std::array<std::byte, os::kBlock>;
using PageRef = std::shared_ptr<const Page>;  // never changed once it is shared
using Inode = std::uint64_t;
inline constexpr Inode kRoot = 1;

/// The part of a write in one page: `from` to `to` of `page`. A whole page is shared with the file that it went into.
struct Piece {
  std::uint64_t number = 0;  // of the page in the file
  std::size_t from = 0, to = 0;
  PageRef page;
};
std::vector<Piece> pieces_of(const void* memory, std::size_t bytes, std::uint64_t offset);

/// One change of a file system, in a form that can be replayed. Files and directories have numbers that are never
/// reused.
struct Change {
  enum class Kind : std::uint8_t {
    nothing,  // one that was removed
    note,     // a note of the test
    create,   // `inode`, named or (`directory` 0) not
    make_directory,
    rename,  // to `to_directory`, `to_name`
    remove,
    write,
    truncate,  // to `bytes`
    preallocate,
    punch,
    sync,
    sync_directory,  // `inode`
    failed_sync,     // no later sync writes its bytes
    drop_cached,     // drops the bytes of failed syncs; `contents` remain
  } kind = Kind::nothing;
  std::uint64_t number = 0;  // in the journal, from 1
  Inode inode = 0;
  Inode directory = 0;
  std::string name{};
  Inode to_directory = 0;
  std::string to_name{};
  std::uint64_t offset = 0, bytes = 0;
  std::uint64_t length_before = 0, length_after = 0;  // of the file
  std::shared_ptr<const std::vector<Piece>> pieces{};
  std::string text{};  // of a note; else the path, for messages
  std::shared_ptr<const class Contents> contents{};
};

/// The bytes of a file. A copy shares its pages with the original.
class Contents {
 public:
  std::uint64_t length() const { return length_; }
  /// Cuts, or lengthens by a hole.
  void set_length(std::uint64_t bytes);
  /// Does not change the length: the next set_length cuts off bytes beyond it.
  void put(const Piece& piece);
  void zero(std::uint64_t offset, std::uint64_t bytes);
  /// Allocates pages for holes.
  void allocate(std::uint64_t offset, std::uint64_t bytes);
  void read(void* memory, std::uint64_t offset, std::size_t bytes) const;
  std::uint64_t pages() const { return allocated_; }
  /// Pages of a range that are not allocated yet.
  std::uint64_t missing(std::uint64_t offset, std::uint64_t bytes) const;
  bool has(std::uint64_t page) const { return page < pages_.size() && pages_[page]; }
  /// Not a hole, nor only allocated.
  bool written(std::uint64_t page) const;

 private:
  PageRef& at(std::uint64_t page);
  void set(std::uint64_t page, PageRef to);
  std::vector<PageRef> pages_;  // null: a hole
  std::uint64_t length_ = 0;
  std::uint64_t allocated_ = 0;
};

/// The directories and files at one moment. Each has one name at most.
class FileTree {
 public:
  struct Node {
    bool is_directory = false;
    Contents contents{};
    std::map<std::string, Inode> names{};  // of a directory
    Inode parent = 0;                      // 0: without a name
    std::string name{};
  };
  /// The target of a path: an errno, or the directory, the name in it, and the inode there (0: none).
  struct Place {
    int error = 0;
    Inode directory = 0;
    std::string name{};
    Inode inode = 0;
  };

  FileTree();
  Place resolve(const std::filesystem::path& path) const;
  Node* find(Inode inode);
  const Node* find(Inode inode) const;
  const std::map<Inode, Node>& nodes() const { return nodes_; }
  /// Makes the change, whatever the previous changes: a node that is renamed or removed loses its name, and so does a
  /// node that it replaces.
  void apply(const Change& change);
  void erase(Inode inode) { nodes_.erase(inode); }
  /// Drops all nodes that no name leads to.
  void sweep();
  std::uint64_t pages() const;
  Inode next() const { return nodes_.rbegin()->first + 1; }

 private:
  void unname(Inode inode);
  void name(Inode inode, Inode directory, const std::string& name);
  std::map<Inode, Node> nodes_;
};

inline bool changes_bytes(Change::Kind kind) { return kind >= Change::Kind::write && kind <= Change::Kind::punch; }

/// The effect on a change of a file's bytes of the first sync after it.
enum class SyncFate : std::uint8_t {
  open,  // there was none
  safe,
  lost,  // it failed
  gone,  // it failed, and since then the file was read from the disk, without the change
};
class SyncFates {
 public:
  explicit SyncFates(std::span<const Change> changes);
  SyncFate of(const Change& change) const;

 private:
  struct Event {
    std::uint64_t number = 0;
    Change::Kind kind = Change::Kind::nothing;
  };
  std::map<Inode, std::vector<Event>> events_;  // syncs, failed ones too, and reads from the disk
};

/// All changes of a file system since `before`.
struct Journal {
  FileTree before;
  std::vector<Change> changes;
};

}  // namespace ebb::doubles
