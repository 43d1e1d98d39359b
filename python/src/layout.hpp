#pragma once
// How a checkpoint's arrays were given (alone, in a list, tuple or dict) and what each is: the checkpoint's metadata.
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "arrays.hpp"
#include "ebbtide/store.hpp"

namespace ebb::python {

enum class Structure : std::uint8_t { single, list, tuple, dict };

using Key = std::variant<std::int64_t, std::string>;  ///< of a dict

struct LeafType {
  Library library = Library::numpy;
  std::string dtype;
  std::vector<std::int64_t> shape;
  int gpu = -1;  ///< where the array lay; -1: in host memory
};

/// The arrays of one call. Region i of the checkpoint is leaf i.
struct Bundle {
  Structure structure = Structure::single;
  std::vector<Key> keys;  ///< of a dict, one a leaf
  std::vector<Leaf> leaves;
};

struct Layout {
  Structure structure = Structure::single;
  std::vector<Key> keys;
  std::vector<LeafType> leaves;
};

/// Describes `arrays`; `name` is what the caller calls it. Raises invalid_argument or unsupported by name, RuntimeError
/// when what describing them runs (their own methods, other threads) has changed the list or dict.
Bundle gather(nb::handle arrays, const char* name, Use use, const Reach& reach);

/// The bundle's layout as compact text of bytes: equal layouts (libraries apart) have equal `shape_part`s.
std::string encode(const Bundle& bundle);
std::string encode(const Layout& layout);
std::string_view shape_part(std::string_view metadata);
/// None when the metadata was not written by `encode`.
std::optional<Layout> decode(std::string_view metadata);

/// The layout of a checkpoint; one written from C++ or C reads as arrays of bytes, in a dict by region if several.
Layout layout_of(const CheckpointInfo& info);

/// New arrays as `layout` says.
Bundle allocate(const Layout& layout, const Reach& reach);
/// The bundle's arrays in their structure, as new Python objects around the same arrays.
nb::object assemble(const Bundle& bundle);
/// Whether some of the new arrays, now filled, are to become arrays of another library; `converted` makes them so.
bool converts(const Bundle& bundle);
/// `reach` names the stream on which they are filled, if it is not their library's current one.
nb::object converted(Bundle& bundle, const Reach& reach = {});

std::vector<Source> sources_of(const Bundle& bundle);
/// Where each region goes; raises size_mismatch naming both sides when `out` is not as the checkpoint.
std::vector<Target> targets_of(const Bundle& out, const CheckpointInfo& info, Version version);

}  // namespace ebb::python
