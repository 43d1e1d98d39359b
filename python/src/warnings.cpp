#include "warnings.hpp"

#include <nanobind/nanobind.h>
#include <utility>

#include "errors.hpp"

namespace nb = nanobind;

namespace ebb::python {
namespace {

thread_local Warnings* innermost = nullptr;

}  // namespace

Warnings::Warnings() : outer_(std::exchange(innermost, this)) {}

Warnings::~Warnings() { innermost = outer_; }

void Warnings::note(std::string_view text) {
  if (innermost != nullptr) innermost->lines_.emplace_back(text);
}

void Warnings::raise(int level) {
  if (lines_.empty()) return;
  const nb::object category = nb::module_::import_("ebbtide.errors").attr("DamagedWarning");
  for (const std::string& line : std::exchange(lines_, {})) {
    if (PyErr_WarnFormat(category.ptr(), level, "%U", to_text(line).ptr()) != 0) throw nb::python_error();
  }
}

}  // namespace ebb::python
