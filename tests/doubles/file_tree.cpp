#include "tests/doubles/file_tree.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

namespace ebb::doubles {
namespace {

const PageRef& zero_page() {
  static const PageRef page = std::make_shared<const Page>();
  return page;
}

// Calls `each(page, from, to)` for every page that a range touches.
template <class Each>
void for_pages(std::uint64_t offset, std::uint64_t bytes, Each each) {
  const std::uint64_t end = offset + bytes;
  while (offset < end) {
    const std::uint64_t page = offset / os::kBlock;
    const std::uint64_t next = std::min(end, (page + 1) * os::kBlock);
    each(page, static_cast<std::size_t>(offset - page * os::kBlock),
         static_cast<std::size_t>(next - page * os::kBlock));
    offset = next;
  }
}

}  // namespace

std::vector<Piece> pieces_of(const void* memory, std::size_t bytes, std::uint64_t offset) {
  std::vector<Piece> pieces;
  const auto* from = static_cast<const std::byte*>(memory);
  for_pages(offset, bytes, [&](std::uint64_t number, std::size_t begin, std::size_t end) {
    auto page = std::make_shared<Page>();
    std::memcpy(page->data() + begin, from, end - begin);
    from += end - begin;
    pieces.push_back({number, begin, end, std::move(page)});
  });
  return pieces;
}

// --- Contents ---

PageRef& Contents::at(std::uint64_t page) {
  if (page >= pages_.size()) pages_.resize(page + 1);
  return pages_[page];
}

void Contents::set(std::uint64_t page, PageRef to) {
  PageRef& place = at(page);
  allocated_ += (to ? 1 : 0);
  allocated_ -= (place ? 1 : 0);
  place = std::move(to);
}

void Contents::set_length(std::uint64_t bytes) {
  const std::uint64_t keep = os::round_up(bytes) / os::kBlock;
  for (std::uint64_t page = keep; page < pages_.size(); ++page) set(page, nullptr);
  if (pages_.size() > keep) pages_.resize(keep);
  if (bytes % os::kBlock) zero(bytes, os::kBlock - bytes % os::kBlock);
  length_ = bytes;
}

void Contents::put(const Piece& piece) {
  if (piece.from == 0 && piece.to == os::kBlock) return set(piece.number, piece.page);
  const PageRef& old = at(piece.number);
  auto changed = old ? std::make_shared<Page>(*old) : std::make_shared<Page>();
  std::memcpy(changed->data() + piece.from, piece.page->data() + piece.from, piece.to - piece.from);
  set(piece.number, std::move(changed));
}

void Contents::zero(std::uint64_t offset, std::uint64_t bytes) {
  bytes = std::min(bytes, std::max(offset, pages_.size() * os::kBlock) - offset);
  for_pages(offset, bytes, [&](std::uint64_t page, std::size_t from, std::size_t to) {
    if (!has(page)) return;
    if (from == 0 && to == os::kBlock) {
      set(page, nullptr);
    } else {
      put({page, from, to, zero_page()});
    }
  });
}

void Contents::allocate(std::uint64_t offset, std::uint64_t bytes) {
  for_pages(offset, bytes, [&](std::uint64_t page, std::size_t, std::size_t) {
    if (!has(page)) set(page, zero_page());
  });
}

void Contents::read(void* memory, std::uint64_t offset, std::size_t bytes) const {
  auto* to = static_cast<std::byte*>(memory);
  for_pages(offset, bytes, [&](std::uint64_t page, std::size_t begin, std::size_t end) {
    std::memcpy(to, (has(page) ? pages_[page] : zero_page())->data() + begin, end - begin);
    to += end - begin;
  });
}

bool Contents::written(std::uint64_t page) const { return has(page) && pages_[page] != zero_page(); }

std::uint64_t Contents::missing(std::uint64_t offset, std::uint64_t bytes) const {
  std::uint64_t count = 0;
  for_pages(offset, bytes, [&](std::uint64_t page, std::size_t, std::size_t) { count += has(page) ? 0 : 1; });
  return count;
}

// --- FileTree ---

FileTree::FileTree() { nodes_[kRoot] = {.is_directory = true}; }

FileTree::Node* FileTree::find(Inode inode) {
  const auto found = nodes_.find(inode);
  return found == nodes_.end() ? nullptr : &found->second;
}

const FileTree::Node* FileTree::find(Inode inode) const {
  const auto found = nodes_.find(inode);
  return found == nodes_.end() ? nullptr : &found->second;
}

void FileTree::unname(Inode inode) {
  Node* const node = find(inode);
  if (node == nullptr || node->parent == 0) return;
  if (Node* const parent = find(node->parent)) parent->names.erase(node->name);
  node->parent = 0;
  node->name.clear();
}

void FileTree::name(Inode inode, Inode directory, const std::string& name) {
  unname(inode);
  Node* const parent = find(directory);
  Node* const node = find(inode);
  if (parent == nullptr || node == nullptr) return;
  if (const auto there = parent->names.find(name); there != parent->names.end()) unname(there->second);
  parent->names[name] = inode;
  node->parent = directory;
  node->name = name;
}

FileTree::Place FileTree::resolve(const std::filesystem::path& path) const {
  constexpr std::size_t kLongestName = 255;
  Place place{0, kRoot, {}, kRoot};
  for (const auto& part : path.lexically_normal().relative_path()) {
    const std::string name = part.string();
    if (name.empty() || name == ".") continue;  // of a trailing slash
    if (name.size() > kLongestName) return {.error = ENAMETOOLONG};
    if (place.inode == 0) return {.error = ENOENT};
    const Node& directory = *find(place.inode);
    if (!directory.is_directory) return {.error = ENOTDIR};
    const auto found = directory.names.find(name);
    place = {0, place.inode, name, found == directory.names.end() ? 0 : found->second};
  }
  return place;
}

void FileTree::apply(const Change& change) {
  using Kind = Change::Kind;
  Node* const node = find(change.inode);
  if ((changes_bytes(change.kind) || change.kind == Kind::drop_cached) && node == nullptr)
    return;  // its creation was left out
  switch (change.kind) {
    case Kind::nothing:
    case Kind::note:
    case Kind::sync:
    case Kind::sync_directory:
    case Kind::failed_sync: return;
    case Kind::drop_cached: node->contents = *change.contents; return;
    case Kind::create:
    case Kind::make_directory:
      nodes_[change.inode].is_directory = change.kind == Kind::make_directory;
      return name(change.inode, change.directory, change.name);
    case Kind::rename: return name(change.inode, change.to_directory, change.to_name);
    case Kind::remove: return unname(change.inode);
    case Kind::write:
      for (const Piece& piece : *change.pieces) node->contents.put(piece);
      return node->contents.set_length(change.length_after);
    case Kind::truncate: return node->contents.set_length(change.length_after);
    case Kind::preallocate:
      node->contents.allocate(change.offset, change.bytes);
      return node->contents.set_length(change.length_after);
    case Kind::punch: return node->contents.zero(change.offset, change.bytes);
  }
}

// --- SyncFates ---

SyncFates::SyncFates(std::span<const Change> changes) {
  using Kind = Change::Kind;
  for (const Change& change : changes) {
    if (change.kind == Kind::sync || change.kind == Kind::failed_sync || change.kind == Kind::drop_cached) {
      events_[change.inode].push_back({change.number, change.kind});
    }
  }
}

SyncFate SyncFates::of(const Change& change) const {
  using Kind = Change::Kind;
  const auto found = events_.find(change.inode);
  if (found == events_.end() || !changes_bytes(change.kind)) return SyncFate::open;
  SyncFate fate = SyncFate::open;
  for (const auto& [number, kind] : found->second) {
    if (number <= change.number) continue;
    if (fate == SyncFate::open && kind == Kind::sync) return SyncFate::safe;
    if (fate == SyncFate::open && kind == Kind::failed_sync) fate = SyncFate::lost;
    if (fate == SyncFate::lost && kind == Kind::drop_cached) return SyncFate::gone;
  }
  return fate;
}

void FileTree::sweep() {
  std::set<Inode> reached{kRoot};
  std::vector<Inode> next{kRoot};
  while (!next.empty()) {
    const Inode inode = next.back();
    next.pop_back();
    for (const auto& [name, child] : nodes_.at(inode).names) {
      if (reached.insert(child).second) next.push_back(child);
    }
  }
  std::erase_if(nodes_, [&](const auto& entry) { return !reached.contains(entry.first); });
}

std::uint64_t FileTree::pages() const {
  std::uint64_t sum = 0;
  for (const auto& [inode, node] : nodes_) sum += node.contents.pages();
  return sum;
}

}  // namespace ebb::doubles
