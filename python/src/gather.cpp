// The arrays of a call, as they were given.
#include <algorithm>

#include "errors.hpp"
#include "layout.hpp"

namespace ebb::python {
namespace {

bool is_container(nb::handle object) {
  return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()) || PyDict_Check(object.ptr());
}

Leaf gather_leaf(nb::handle object, const std::string& where, Use use, const Reach& reach) {
  if (is_container(object)) {
    raise(Errc::invalid_argument, where + " is a " + kind_of(object) +
                                      ": these arrays may be given alone or in one list, tuple or dict, not nested");
  }
  if (use == Use::source) return describe_source(object, where, reach);
  Leaf leaf = describe(object, where, use, reach);
  if (!leaf.writable && leaf.bytes != 0)
    raise(Errc::invalid_argument, where + " is read-only: expected a writable array");
  if (leaf.strided && leaf.strided->overlaps) {
    raise(Errc::invalid_argument, where +
                                      " overlaps itself: elements of it share memory, or lie between one another; "
                                      "expected an array whose elements have memory of their own (a copy of it)");
  }
  return leaf;
}

// The contents of a list, tuple or dict when the call began. Describing arrays may run the program's code, which may
// change the container.
class Items {
 public:
  explicit Items(nb::handle container) : container_(container) {
    each([&](nb::handle key, nb::handle value) {
      if (key.is_valid()) keys.push_back(nb::borrow(key));
      values.push_back(nb::borrow(value));
      return true;
    });
  }

  /// Whether the container still holds the same objects in the same order.
  bool are_still_there() const {
    std::size_t i = 0;
    const bool same = each([&](nb::handle key, nb::handle value) {
      const bool found = i < values.size() && values[i].is(value) && (!key.is_valid() || keys[i].is(key));
      ++i;
      return found;
    });
    return same && i == values.size();
  }

  std::vector<nb::object> keys;  ///< of a dict
  std::vector<nb::object> values;

 private:
  // `see` runs no Python code and is called with (no key, item) for a list; it returns whether to continue.
  template <class See>
  bool each(See see) const {
    PyObject* const object = container_.ptr();
    if (PyDict_Check(object)) {
      PyObject *key = nullptr, *value = nullptr;
      for (Py_ssize_t at = 0; PyDict_Next(object, &at, &key, &value) != 0;) {
        if (!see(key, value)) return false;
      }
      return true;
    }
    const bool list = PyList_Check(object) != 0;
    for (Py_ssize_t i = 0; i < (list ? PyList_Size(object) : PyTuple_Size(object)); ++i) {
      if (!see(nb::handle(), list ? PyList_GetItem(object, i) : PyTuple_GetItem(object, i))) return false;
    }
    return true;
  }

  nb::handle container_;
};

Key key_of(nb::handle key, const std::string& where) {
  if (std::int64_t number = 0; PyLong_CheckExact(key.ptr()) && nb::try_cast(key, number)) return number;
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_Check(key.ptr()) ? PyUnicode_AsUTF8AndSize(key.ptr(), &size) : nullptr;
  if (text != nullptr) return std::string(text, static_cast<std::size_t>(size));
  PyErr_Clear();
  raise(Errc::invalid_argument, where + ": expected str or int of 64 bits as a dict's keys" +
                                    (PyUnicode_Check(key.ptr()) ? ", of characters that UTF-8 can encode" : ""));
}

// Whether a container has more than arrays: then it is a tree.
bool has_more(const Items& items, const Reach& reach) {
  const auto plain_key = [](nb::handle key) {
    std::int64_t number = 0;
    if (PyUnicode_Check(key.ptr())) return true;
    const bool plain = PyLong_CheckExact(key.ptr()) && nb::try_cast(key, number);
    PyErr_Clear();
    return plain;
  };
  const auto more = [&](nb::handle item) {
    PyObject* const object = item.ptr();
    return is_container(item) || item.is_none() ||
           ((PyUnicode_Check(object) || PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object)) &&
            reach.kinds->of(item) == Kind::foreign);  // NumPy's scalars are arrays
  };
  return !std::ranges::all_of(items.keys, plain_key) || std::ranges::any_of(items.values, more);
}

nb::module_ trees() { return nb::module_::import_("ebbtide._trees"); }

Bundle gather_tree(nb::handle arrays, const char* name, const Reach& reach) {
  const nb::tuple taken(trees().attr("taken_apart")(arrays, name));
  Bundle bundle;
  bundle.structure = Structure::tree;
  bundle.tree = nb::cast<std::string>(taken[0]);
  std::size_t i = 0;
  for (const nb::handle array : nb::list(taken[1]))
    bundle.leaves.push_back(gather_leaf(array, nb::cast<std::string>(taken[2][i++]), Use::source, reach));
  return bundle;
}

// The memory from an array's lowest element to the end of its highest.
std::pair<std::uintptr_t, std::uintptr_t> bounds_of(const Leaf& leaf) {
  const auto first = reinterpret_cast<std::uintptr_t>(leaf.data);
  return {first, first + (leaf.strided ? leaf.strided->bytes : leaf.bytes)};
}

// Of two arrays whose bounds overlap.
bool share_elements(const Leaf& a, const Leaf& b) {
  if (!a.strided && !b.strided) return true;
  const auto view = [](const Leaf& leaf) -> nb::object {
    const auto bounds = bounds_of(leaf);
    if (!leaf.strided) return helper().attr("memory")(bounds.first, 1, nb::make_tuple(leaf.bytes), nb::none(), false);
    return helper().attr("memory")(reinterpret_cast<std::uintptr_t>(leaf.strided->first), leaf.strided->item,
                                   to_tuple(leaf.shape), to_tuple(leaf.strided->steps), false);
  };
  return nb::cast<bool>(helper().attr("share_memory")(view(a), view(b)));
}

// A target must not overlap another.
void require_apart(const std::vector<Leaf>& leaves, const std::vector<std::string>& where) {
  std::vector<std::size_t> by_address, before;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i].bytes != 0) by_address.push_back(i);
  }
  std::ranges::sort(by_address, std::ranges::less(), [&](std::size_t i) { return bounds_of(leaves[i]); });
  for (const std::size_t one : by_address) {
    std::erase_if(before, [&](std::size_t i) { return bounds_of(leaves[i]).second <= bounds_of(leaves[one]).first; });
    for (const std::size_t other : before) {
      if (!share_elements(leaves[one], leaves[other])) continue;
      raise(Errc::invalid_argument, where[std::min(one, other)] + " and " + where[std::max(one, other)] +
                                        " share memory: expected separate arrays");
    }
    before.push_back(one);
  }
}

}  // namespace

Bundle gather(nb::handle arrays, const char* name, Use use, const Reach& reach) {
  Bundle bundle;
  if (!is_container(arrays)) {
    bundle.leaves.push_back(gather_leaf(arrays, name, use, reach));
    return bundle;
  }
  const Items items(arrays);
  if (use == Use::source && has_more(items, reach)) return gather_tree(arrays, name, reach);
  const std::size_t count = items.values.size();
  std::vector<std::string> where(count);
  bundle.structure = PyDict_Check(arrays.ptr())   ? Structure::dict
                     : PyList_Check(arrays.ptr()) ? Structure::list
                                                  : Structure::tuple;
  for (std::size_t i = 0; i < count; ++i) {
    const bool keyed = bundle.structure == Structure::dict;
    where[i] = std::string(name) + "[" + (keyed ? repr_text(items.keys[i]) : std::to_string(i)) + "]";
    if (keyed) bundle.keys.push_back(key_of(items.keys[i], where[i]));
  }
  // Arrays whose description may run the program's code come first: that code cannot then move what is described later.
  bundle.leaves.resize(count);
  for (const bool foreign : {true, false}) {
    for (std::size_t i = 0; i < count; ++i) {
      if ((reach.kinds->of(items.values[i]) == Kind::foreign) == foreign)
        bundle.leaves[i] = gather_leaf(items.values[i], where[i], use, reach);
    }
  }
  if (!items.are_still_there()) {
    const std::string message = std::string(name) + " was changed while its arrays were taken, and nothing is " +
                                (use == Use::source ? "written" : "read into it") +
                                ": do not change the list or dict before the call returns";
    PyErr_SetString(PyExc_RuntimeError, message.c_str());
    throw nb::python_error();
  }
  if (use == Use::target) require_apart(bundle.leaves, where);
  return bundle;
}

Bundle gather_into(const Layout& layout, nb::handle out, Version version, const Reach& reach) {
  if (layout.structure != Structure::tree) return gather(out, "out", Use::target, reach);
  const nb::tuple found(trees().attr("places")(layout.tree, out, version));
  Bundle bundle;
  bundle.structure = Structure::tree;
  bundle.tree = layout.tree;
  for (const nb::handle place : nb::list(found[1])) bundle.where.push_back(nb::cast<std::string>(place));
  for (const nb::handle array : nb::list(found[0]))
    bundle.leaves.push_back(gather_leaf(array, bundle.where[bundle.leaves.size()], Use::target, reach));
  require_apart(bundle.leaves, bundle.where);
  return bundle;
}

}  // namespace ebb::python
