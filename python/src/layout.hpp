#pragma once
// How a checkpoint's arrays were given (alone, in a list, tuple or dict, in a tree) and what each is; stored as the
// checkpoint's metadata (docs/format.md).
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "ebbtide/store.hpp"

namespace ebb::python {

enum class Structure : std::uint8_t { single, list, tuple, dict, tree };

using Key = std::variant<std::int64_t, std::string>;  ///< of a dict

struct LeafType {
  Library library = Library::numpy;
  std::string dtype;
  std::vector<std::int64_t> shape;
  int gpu = -1;  ///< the array's GPU; -1: host memory
  RunOrder order = {};
};

/// The arrays of one call. Region i of the checkpoint is leaf i.
struct Bundle {
  Structure structure = Structure::single;
  std::vector<Key> keys;  ///< of a dict, one a leaf
  std::string tree;       ///< of a tree, all that is no array (ebbtide/_trees.py)
  std::vector<Leaf> leaves;
  std::vector<std::string> where;  ///< of the arrays of a tree that are read into
};

struct Layout {
  Structure structure = Structure::single;
  std::vector<Key> keys;
  std::string tree;
  std::vector<LeafType> leaves;
};

/// Describes `arrays`; `name` is the argument's name. Raises invalid_argument or unsupported naming the array,
/// RuntimeError when code that describing runs (the arrays' own methods, other threads) has changed the list or dict.
Bundle gather(nb::handle arrays, const char* name, Use use, const Reach& reach);
/// The same for the arrays of `out` where the tree `layout` has some; refuses another structure with size_mismatch.
Bundle gather_into(const Layout& layout, nb::handle out, Version version, const Reach& reach);

/// "arrays['p']", "arrays[2]": leaf `i` of the argument `name`, which is no tree.
std::string name_of(const Bundle& bundle, const char* name, std::size_t i);

/// The bundle's layout as compact bytes.
std::string encode(const Bundle& bundle);
std::string encode(const Layout& layout);
/// None if the metadata was not written by `encode`.
std::optional<Layout> decode(std::string_view metadata);

/// The layout of a checkpoint. One written from C++ or C reads as byte arrays, in a dict by region if there are
/// several.
Layout layout_of(const CheckpointInfo& info);

/// New arrays for `layout`.
Bundle allocate(const Layout& layout, const Reach& reach);
/// The bundle's arrays in their structure, as new Python objects around the same arrays.
nb::object assemble(const Bundle& bundle);
/// Whether some of the new, filled arrays must become arrays of another library; `converted` does it.
bool converts(const Bundle& bundle);
/// `reach` names the stream on which they are filled, if it is not their library's current one.
nb::object converted(Bundle& bundle, const Reach& reach = {});

std::vector<Source> sources_of(const Bundle& bundle);
/// Where each region goes; raises size_mismatch, with both layouts, when `out` does not fit the checkpoint. An array in
/// another order than the one that was written is read by way of packed memory.
std::vector<Target> targets_of(Bundle& out, const CheckpointInfo& info, Version version, const Reach& reach);
/// Copies what was read by way of packed memory to the targets; `load`: what these have, there; `wait`: until that is
/// done on a GPU.
void fill(const Bundle& out, const Reach& reach, bool load = false, bool wait = false);
/// Whether some are read by way of packed memory.
bool is_packed(const Bundle& out);

}  // namespace ebb::python
