#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "os/files.hpp"

namespace ebb::platform::testing {

inline constexpr std::uint64_t kSectorBytes = 512;  // that a disk writes whole or not at all
using Page = std::array<std::byte, kBlock>;
using PageRef = std::shared_ptr<const Page>;  // never changed once it is shared
using Inode = std::uint64_t;
inline constexpr Inode kRoot = 1;

/// What a write put into one page: `from` to `to` of `page`. A whole page is shared with the file that it went into.
struct Piece {
  std::uint64_t number = 0;  // of the page in the file
  std::size_t from = 0, to = 0;
  PageRef page;
};
std::vector<Piece> pieces_of(const void* memory, std::size_t bytes, std::uint64_t offset);

/// One change of a file system, in a form that can be made again. Files and directories go by numbers that are never
/// used twice.
struct Change {
  enum class Kind : std::uint8_t {
    nothing,  // one that was left out
    note,     // what a test had to say at this moment
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
    failed_sync,     // what it was to cover is covered by no later one
    drop_cached,     // of what a failed sync was to cover nothing is left: `contents` are
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
  /// Leaves the length alone: what lies beyond it is cut off by the next set_length.
  void put(const Piece& piece);
  void zero(std::uint64_t offset, std::uint64_t bytes);
  /// Takes pages for what are holes.
  void allocate(std::uint64_t offset, std::uint64_t bytes);
  void read(void* memory, std::uint64_t offset, std::size_t bytes) const;
  std::uint64_t pages() const { return allocated_; }
  /// Pages that a range would take beyond those that are there.
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

/// Directories and files as they are at one moment. Each has one name at most.
class FileTree {
 public:
  struct Node {
    bool is_directory = false;
    Contents contents{};
    std::map<std::string, Inode> names{};  // of a directory
    Inode parent = 0;                      // 0: without a name
    std::string name{};
  };

  FileTree();
  Node* find(Inode inode);
  const Node* find(Inode inode) const;
  const std::map<Inode, Node>& nodes() const { return nodes_; }
  /// Makes the change, whatever was made before it: a node that is renamed or removed loses the name it has, and what
  /// stands where one comes to stand loses its own.
  void apply(const Change& change);
  void erase(Inode inode) { nodes_.erase(inode); }
  /// Drops what no name leads to.
  void sweep();
  std::uint64_t pages() const;
  Inode next() const { return nodes_.rbegin()->first + 1; }

 private:
  void unname(Inode inode);
  void name(Inode inode, Inode directory, const std::string& name);
  std::map<Inode, Node> nodes_;
};

inline bool changes_bytes(Change::Kind kind) { return kind >= Change::Kind::write && kind <= Change::Kind::punch; }

/// What the first sync of a file behind a change of its bytes made of that change.
enum class SyncFate : std::uint8_t {
  open,  // there was none
  safe,
  lost,  // it failed
  gone,  // it failed, and since then the file was read from the disk, where the change is not
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
  std::map<Inode, std::vector<Event>> events_;  // syncs, failed ones too, and what was read from the disk
};

/// All that happened to a file system since it was `before`.
struct Journal {
  FileTree before;
  std::vector<Change> changes;
};

}  // namespace ebb::platform::testing
