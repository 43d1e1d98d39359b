#include "layout.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "errors.hpp"

namespace ebb::python {
namespace {

constexpr char kMagic = '\xeb', kFlat = 1, kTree = 2, kOrders = 2;  // added, where an array is not in C order

// --- numbers and text as bytes, seven bits a byte

void put(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(value | 0x80));
  to.push_back(static_cast<char>(value));
}

void put(std::string& to, std::string_view text) {
  put(to, static_cast<std::uint64_t>(text.size()));
  to.append(text);
}

// Reads what `put` wrote; anything else sets `bad`, and from then on it returns empty values.
struct Reader {
  std::string_view left;
  bool bad = false;

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (left.empty()) break;
      const auto byte = static_cast<unsigned char>(left.front());
      left.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    bad = true;
    return 0;
  }
  std::string_view text() {
    const auto size = number();
    if (bad || size > left.size()) return bad = true, std::string_view();
    const auto result = left.substr(0, size);
    left.remove_prefix(size);
    return result;
  }
};

std::string_view shape_part(std::string_view metadata) {
  if (metadata.size() < 2 || metadata[0] != kMagic || metadata[1] < kFlat || metadata[1] > kTree + kOrders) return {};
  Reader reader{metadata.substr(2)};
  return reader.text();
}

// Apart from libraries.
bool same_layout(std::string_view a, std::string_view b) {
  return a.substr(0, 2) == b.substr(0, 2) && shape_part(a) == shape_part(b);
}

// The origin of an array in one byte: its library, and its GPU counted from 1.
char origin(Library library, int gpu) {
  return static_cast<char>(static_cast<unsigned>(library) | static_cast<unsigned>(std::min(gpu + 1, 63)) << 2);
}

void put_key(std::string& to, const Key& key) {
  if (const auto* number = std::get_if<std::int64_t>(&key)) {
    to.push_back('i');
    put(to, static_cast<std::uint64_t>(*number));
  } else {
    to.push_back('s');
    put(to, std::get<std::string>(key));
  }
}

template <class Given>
std::string encoded(const Given& given) {
  const bool tree = given.structure == Structure::tree;
  const bool orders = std::ranges::any_of(given.leaves, [](const auto& leaf) { return !leaf.order.strides.empty(); });
  std::string shapes;
  shapes.push_back(static_cast<char>(given.structure));
  put(shapes, static_cast<std::uint64_t>(given.leaves.size()));
  for (const auto& key : given.keys) put_key(shapes, key);
  if (tree) put(shapes, given.tree);
  for (const auto& leaf : given.leaves) {
    put(shapes, leaf.dtype);
    put(shapes, static_cast<std::uint64_t>(leaf.shape.size()));
    for (const auto dim : leaf.shape) put(shapes, static_cast<std::uint64_t>(dim));
    if (!orders) continue;
    put(shapes, static_cast<std::uint64_t>(leaf.order.strides.size()));
    for (const auto stride : leaf.order.strides) put(shapes, static_cast<std::uint64_t>(stride));
  }
  std::string text{kMagic, static_cast<char>((tree ? kTree : kFlat) + (orders ? kOrders : 0))};
  put(text, shapes);
  for (const auto& leaf : given.leaves) text.push_back(origin(leaf.library, leaf.gpu));
  return text;
}

// --- text for error messages

std::string key_text(const Key& key) {
  if (const auto* number = std::get_if<std::int64_t>(&key)) return std::to_string(*number);
  return "'" + std::get<std::string>(key) + "'";
}

template <class Given>
std::string text_of(const Given& given) {
  const auto& [structure, keys, leaves] = std::tie(given.structure, given.keys, given.leaves);
  if (structure == Structure::tree) return "a tree with " + std::to_string(leaves.size()) + " arrays";
  if (structure == Structure::single) return "one array " + to_text(leaves[0].dtype, leaves[0].shape);
  const char* const open[] = {"", "[", "(", "{"};
  const char* const close[] = {"", "]", ")", "}"};
  const auto kind = static_cast<std::size_t>(structure);
  std::string text = open[kind];
  constexpr std::size_t most = 8;  // a message, not a listing
  for (std::size_t i = 0; i < std::min(leaves.size(), most); ++i) {
    if (i != 0) text += ", ";
    if (structure == Structure::dict) text += key_text(keys[i]) + ": ";
    text += to_text(leaves[i].dtype, leaves[i].shape);
  }
  if (leaves.size() > most) text += ", ... " + std::to_string(leaves.size()) + " in all";
  return text + close[kind];
}

// Metadata of another release or another library may name kinds that no array here can have.
nb::object array_for(const LeafType& leaf, const Reach& reach) {
  try {
    if (leaf.order.strides.empty()) return new_array(leaf.library, leaf.dtype, leaf.shape, leaf.gpu, reach);
    return new_array(leaf.library, leaf.dtype, {elements_of(leaf.shape, leaf.order)}, leaf.gpu, reach);
  } catch (nb::python_error& error) {
    for (PyObject* kind :
         {PyExc_ValueError, PyExc_TypeError, PyExc_AttributeError, PyExc_ImportError, PyExc_SyntaxError}) {
      if (!error.matches(kind)) continue;
      raise(Errc::unsupported, "an array " + to_text(leaf.dtype, leaf.shape) + " cannot be allocated here (" +
                                   str_text(error.value()) + "): give out=, an array of that shape and type");
    }
    throw;
  }
}

}  // namespace

std::string name_of(const Bundle& bundle, const char* name, std::size_t i) {
  if (bundle.structure == Structure::single) return name;
  return std::string(name) + "[" +
         (bundle.structure == Structure::dict ? key_text(bundle.keys[i]) : std::to_string(i)) + "]";
}

std::string encode(const Bundle& bundle) { return encoded(bundle); }
std::string encode(const Layout& layout) { return encoded(layout); }

std::optional<Layout> decode(std::string_view metadata) {
  Reader shapes{shape_part(metadata)};
  if (shapes.left.empty()) return std::nullopt;
  Layout layout;
  const auto structure = static_cast<unsigned char>(shapes.left.front());
  shapes.left.remove_prefix(1);
  if (structure > static_cast<unsigned char>(Structure::tree)) return std::nullopt;
  layout.structure = static_cast<Structure>(structure);
  const bool orders = metadata[1] > kTree;
  if ((layout.structure == Structure::tree) != (metadata[1] - (orders ? kOrders : 0) == kTree)) return std::nullopt;
  const auto count = shapes.number();
  if (count > metadata.size() || metadata.size() - 2 < shape_part(metadata).size() + count) return std::nullopt;
  if (layout.structure == Structure::single && count != 1) return std::nullopt;
  for (std::uint64_t i = 0; layout.structure == Structure::dict && i < count && !shapes.bad; ++i) {
    if (shapes.left.empty()) return std::nullopt;
    const char kind = shapes.left.front();
    shapes.left.remove_prefix(1);
    if (kind == 'i') {
      layout.keys.emplace_back(static_cast<std::int64_t>(shapes.number()));
    } else {
      layout.keys.emplace_back(std::string(shapes.text()));
    }
  }
  if (layout.structure == Structure::tree) layout.tree = shapes.text();
  const std::string_view libraries = metadata.substr(metadata.size() - count);
  for (std::uint64_t i = 0; i < count && !shapes.bad; ++i) {
    LeafType leaf;
    const auto from = static_cast<unsigned char>(libraries[i]);
    leaf.library = static_cast<Library>(from & 3);
    leaf.gpu = (from >> 2) - 1;
    leaf.dtype = shapes.text();
    const auto dims = shapes.number();
    for (std::uint64_t d = 0; d < dims && !shapes.bad; ++d)
      leaf.shape.push_back(static_cast<std::int64_t>(shapes.number()));
    std::vector<std::int64_t> strides;
    const auto steps = orders ? shapes.number() : 0;
    for (std::uint64_t d = 0; d < steps && !shapes.bad; ++d)
      strides.push_back(static_cast<std::int64_t>(shapes.number()));
    auto order = order_with(leaf.shape, strides);
    if (!order) return std::nullopt;
    leaf.order = std::move(*order);
    layout.leaves.push_back(std::move(leaf));
  }
  if (shapes.bad || !shapes.left.empty()) return std::nullopt;
  return layout;
}

Layout layout_of(const CheckpointInfo& info) {
  if (auto layout = decode(info.metadata); layout && layout->leaves.size() == info.regions.size())
    return std::move(*layout);
  Layout layout;
  for (const auto& region : info.regions) {
    layout.leaves.push_back({Library::numpy, "|u1", {static_cast<std::int64_t>(region.bytes)}, -1});
    layout.keys.emplace_back(static_cast<std::int64_t>(region.id));
  }
  layout.structure = info.regions.size() == 1 ? Structure::single : Structure::dict;
  if (layout.structure == Structure::single) layout.keys.clear();
  return layout;
}

Bundle allocate(const Layout& layout, const Reach& reach) {
  Bundle bundle;
  bundle.structure = layout.structure;
  bundle.keys = layout.keys;
  bundle.tree = layout.tree;
  bundle.leaves.reserve(layout.leaves.size());
  for (const auto& leaf : layout.leaves) {
    Leaf made = describe(array_for(leaf, reach), "new array", Use::target, reach);
    made.dtype = leaf.dtype;  // another library may write it differently
    if (!leaf.order.strides.empty()) {
      made.array = laid_out(made.array, leaf.shape, leaf.order);
      made.shape = leaf.shape;
      made.order = leaf.order;
    }
    if (leaf.library == Library::jax) made.becomes = Library::jax;
    bundle.leaves.push_back(std::move(made));
  }
  return bundle;
}

nb::object assemble(const Bundle& bundle) {
  switch (bundle.structure) {
    case Structure::single: return bundle.leaves[0].array;
    case Structure::dict: {
      nb::dict result;
      for (std::size_t i = 0; i < bundle.leaves.size(); ++i) {
        nb::object key = std::visit([](const auto& k) { return nb::cast(k); }, bundle.keys[i]);
        result[key] = bundle.leaves[i].array;
      }
      return result;
    }
    default: {
      nb::list result;
      for (const auto& leaf : bundle.leaves) result.append(leaf.array);
      if (bundle.structure == Structure::tree)
        return nb::module_::import_("ebbtide._trees").attr("built")(bundle.tree, result);
      return bundle.structure == Structure::list ? nb::object(result) : nb::object(nb::tuple(result));
    }
  }
}

bool converts(const Bundle& bundle) {
  return std::any_of(bundle.leaves.begin(), bundle.leaves.end(),
                     [](const Leaf& leaf) { return leaf.becomes == Library::jax; });
}

nb::object converted(Bundle& bundle, const Reach& reach) {
  nb::object convert = nb::module_::import_("ebbtide._arrays").attr("to_jax");
  for (Leaf& leaf : bundle.leaves) {
    if (leaf.becomes == Library::jax) leaf.array = convert(leaf.array, leaf.gpu, reach.stream, reach.gpu);
  }
  return assemble(bundle);
}

std::vector<Source> sources_of(const Bundle& bundle) {
  std::vector<Source> sources;
  sources.reserve(bundle.leaves.size());
  for (const auto& leaf : bundle.leaves) {
    sources.push_back({static_cast<std::uint32_t>(sources.size()), leaf.data, leaf.bytes});
  }
  return sources;
}

void fill(const Bundle& out, const Reach& reach, bool load, bool wait) {
  for (const Leaf& leaf : out.leaves) fill(leaf, reach, load, wait);
}

bool is_packed(const Bundle& out) {
  return std::ranges::any_of(out.leaves, [](const Leaf& leaf) { return leaf.packed.is_valid(); });
}

std::vector<Target> targets_of(Bundle& out, const CheckpointInfo& info, Version version, const Reach& reach) {
  const auto count = out.leaves.size();
  std::vector<std::size_t> leaf_of(count);  // region i goes to leaf leaf_of[i]
  for (std::size_t i = 0; i < count; ++i) leaf_of[i] = i;
  const auto id_of = [&](std::size_t i) { return info.regions[i].id; };
  const std::string given = encode(out);
  const bool indirect = std::ranges::any_of(out.leaves, [](const Leaf& leaf) { return leaf.indirect; });
  if (indirect || !same_layout(given, info.metadata)) {
    const Layout written = layout_of(info);
    const auto sequence = [](Structure s) { return s == Structure::list || s == Structure::tuple; };
    bool same = written.leaves.size() == count &&
                (written.structure == out.structure || (sequence(written.structure) && sequence(out.structure)));
    for (std::size_t i = 0; same && i < count; ++i) {
      if (out.structure == Structure::dict) {  // the order of a dict's keys has no meaning
        const auto found = std::find(out.keys.begin(), out.keys.end(), written.keys[i]);
        same = found != out.keys.end();
        if (!same) break;
        leaf_of[i] = static_cast<std::size_t>(found - out.keys.begin());
      }
      const auto& leaf = out.leaves[leaf_of[i]];
      same = leaf.dtype == written.leaves[i].dtype && leaf.shape == written.leaves[i].shape;
      if (!same && i < out.where.size()) {
        raise(Errc::size_mismatch, out.where[i] + " is " + to_text(leaf.dtype, leaf.shape) + "; version " +
                                       std::to_string(version) + " has " +
                                       to_text(written.leaves[i].dtype, written.leaves[i].shape) + " there");
      }
    }
    if (!same) {
      raise(Errc::size_mismatch,
            "out is " + text_of(out) + "; version " + std::to_string(version) + " holds " + text_of(written));
    }
    for (std::size_t i = 0; i < count; ++i) {
      Leaf& leaf = out.leaves[leaf_of[i]];
      const RunOrder& order = written.leaves[i].order;
      if (leaf.bytes != 0 && (leaf.indirect || !same_order(leaf.shape, leaf.order, order)))
        read_by_way(leaf, order, i < out.where.size() ? out.where[i] : name_of(out, "out", leaf_of[i]), reach);
    }
  }
  std::vector<Target> targets;
  targets.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto& leaf = out.leaves[leaf_of[i]];
    targets.push_back({i < info.regions.size() ? id_of(i) : static_cast<std::uint32_t>(i), leaf.data, leaf.bytes});
  }
  return targets;
}

}  // namespace ebb::python
