#pragma once
// An allocator for containers of nodes (std::map, std::set, their unordered kin): what a container gives back it takes
// again, so one whose size comes and goes takes no memory from the heap.
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ebb::planner {

namespace detail {

/// Unused nodes of one size. Thread safety: none.
class UnusedNodes {
 public:
  UnusedNodes() = default;
  UnusedNodes(const UnusedNodes&) = delete;
  ~UnusedNodes() {
    while (first_ != nullptr) ::operator delete(pop());
  }
  /// nullptr: none of that size.
  void* take(std::size_t bytes) noexcept { return bytes == bytes_ && first_ != nullptr ? pop() : nullptr; }
  bool give(void* node, std::size_t bytes) noexcept {
    if (bytes < sizeof(Node)) return false;
    if (bytes_ == 0) bytes_ = bytes;
    if (bytes != bytes_) return false;
    first_ = std::construct_at(static_cast<Node*>(node), first_);
    return true;
  }

 private:
  struct Node {
    Node* next;
  };
  void* pop() noexcept {
    Node* const node = first_;
    first_ = node->next;
    return node;
  }
  Node* first_ = nullptr;
  std::size_t bytes_ = 0;  // of each; 0: there was none yet
};

}  // namespace detail

template <class T>
class Recycled {
 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  Recycled() : unused_(std::make_shared<detail::UnusedNodes>()) {}
  template <class U>
  Recycled(const Recycled<U>& other) noexcept : unused_(other.unused_) {}
  Recycled select_on_container_copy_construction() const { return {}; }

  T* allocate(std::size_t n) {
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    if (n == 1)
      if (void* const node = unused_->take(sizeof(T))) return static_cast<T*>(node);
    return static_cast<T*>(::operator new(n * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t n) noexcept {
    if (n != 1 || !unused_->give(memory, sizeof(T))) ::operator delete(memory);
  }
  template <class U>
  bool operator==(const Recycled<U>& other) const noexcept {
    return unused_ == other.unused_;
  }

 private:
  template <class U>
  friend class Recycled;
  std::shared_ptr<detail::UnusedNodes> unused_;
};

template <class K, class V>
using RecycledMap = std::map<K, V, std::less<K>, Recycled<std::pair<const K, V>>>;
template <class K>
using RecycledSet = std::set<K, std::less<K>, Recycled<K>>;
template <class K>
using RecycledHashSet = std::unordered_set<K, std::hash<K>, std::equal_to<K>, Recycled<K>>;
template <class K, class V>
using RecycledHashMap = std::unordered_map<K, V, std::hash<K>, std::equal_to<K>, Recycled<std::pair<const K, V>>>;

}  // namespace ebb::planner
