
#include <array>

#include "errors.hpp"
#include "objects.hpp"
#include "warnings.hpp"

namespace ebb::python {
namespace {

// Log lines go to a Python callable as (severity, text); it is called with the GIL, and its exceptions end there. A
// warning is also raised as a Python warning, by the call in which it came up.
std::function<void(Severity, std::string_view)> logger(nb::object log) {
  const std::shared_ptr<nb::object> shared(new nb::object(std::move(log)), [](nb::object* object) {
    if (!Py_IsInitialized()) return;
    nb::gil_scoped_acquire gil;
    delete object;
  });
  return [shared](Severity severity, std::string_view text) {
    const bool warning = severity == Severity::warning;
    if (warning) Warnings::note(text);
    nb::gil_scoped_acquire gil;
    try {
      (*shared)(warning ? "warning" : "info", to_text(text));
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("ebbtide's log");
    }
  };
}

// Paths that are not valid UTF-8 keep their bytes.
std::string option_text(nb::handle key, nb::handle text) {
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
  if (bytes.is_valid())
    return std::string(PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr())));
  if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw nb::python_error();
  PyErr_Clear();
  raise(Errc::invalid_argument,
        str_text(key) + "=" + repr_text(text) + " is not valid: expected text that UTF-8 can encode");
}

StoreObject* open(nb::dict options, nb::object log) {
  Options chosen;
  for (auto [key, text] : options) check(set_option(chosen, nb::cast<std::string>(key), option_text(key, text)));
  if (!log.is_none()) chosen.log_with_severity = logger(std::move(log));
  chosen = check(with_environment(std::move(chosen)));
  constexpr std::array<std::string_view, 5> names = {"ephemeral", "process", "storage", "node", "shared"};
  const Durability usual = chosen.shared ? Durability::shared : Durability::ephemeral;
  const auto level = static_cast<std::size_t>(chosen.durability.value_or(usual));
  const std::string_view durability = chosen.readonly.value_or(false) ? "readonly" : names.at(level);
  Warnings warnings;
  auto store = [&] {
    nb::gil_scoped_release unlocked;
    return Store::open(chosen);
  }();
  auto state = std::make_shared<StoreState>(check(std::move(store)), durability);
  warnings.raise(2);                   // reported at the caller of `ebbtide.open`
  ebb::History self = state->store();  // the store's own history, as a view
  return new StoreObject{{std::move(state), std::move(self)}};
}

}  // namespace

void bind_open(nb::module_& module, nb::class_<StoreObject, HistoryObject>& store) {
  module.def(
      "option_table",
      [] {
        nb::list table;
        for (const OptionInfo& one : option_table())
          table.append(
              nb::make_tuple(one.name.c_str(), nb::str(one.kind.data(), one.kind.size()), one.expected.c_str()));
        return table;
      },
      nb::sig("def option_table() -> list[tuple[str, str, str]]"),
      "Name, kind and what is expected, of each option and of each of ``tuning``.");
  store.def_static(
      "open_with", &open, nb::arg("options"), nb::arg("log") = nb::none(), nb::rv_policy::take_ownership,
      nb::sig("def open_with(options: dict[str, str], "
              "log: collections.abc.Callable[[str, str], None] | None = None) -> Store"),
      "Open with options as text; ``log`` gets severity (``info``, ``warning``) and text. See :func:`ebbtide.open`.");
}

}  // namespace ebb::python
