// A store's files. FileHandle is the file itself; ebbtide.File makes a Python file object of it.
#include <nanobind/stl/optional.h>

#include "arguments.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "text.hpp"
#include "waiting.hpp"

namespace ebb::python {
namespace {

class FileHandle {
 public:
  FileHandle(std::shared_ptr<StoreState> state, ebb::File file) : state_(std::move(state)), file_(std::move(file)) {}
  FileHandle(const FileHandle&) = delete;
  ~FileHandle() { leak_if_foreign(*state_, file_); }

  ebb::File& file() { return state_->check(), file_; }
  template <class Call>
  auto run(Call call) {
    state_->check();
    Signals signals;
    return waiting(*state_, signals, [&] { return call(file_, signals.interrupt()); });
  }
  bool foreign() const { return state_->foreign(); }

 private:
  std::shared_ptr<StoreState> state_;
  ebb::File file_;
};

/// The bytes of an object with the buffer protocol.
class Bytes {
 public:
  Bytes(nb::handle object, bool writable) {
    if (PyObject_GetBuffer(object.ptr(), &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) != 0)
      nb::raise_python_error();
  }
  Bytes(const Bytes&) = delete;
  ~Bytes() { PyBuffer_Release(&view_); }
  std::span<std::byte> span() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

nb::object file_object(StoreObject& self, Result<ebb::File> opened) {
  auto handle = std::make_unique<FileHandle>(self.state, check(std::move(opened)));
  return nb::module_::import_("ebbtide._files").attr("File")(nb::cast(handle.release(), nb::rv_policy::take_ownership));
}

template <class Call>
auto unlocked(StoreObject& self, Call call) {
  self.state->admit();
  Unlocked without(self.state->inside());
  return call(self.state->store());
}

void bind_handle(nb::module_& module) {
  nb::class_<FileHandle>(module, "FileHandle", "An open file of a store, as :class:`ebbtide.File` uses it.")
      .def_prop_ro("name", [](FileHandle& self) { return self.file().name(); })
      .def_prop_ro("version", [](FileHandle& self) { return self.file().version(); })
      .def_prop_ro("writable", [](FileHandle& self) { return self.file().writable(); })
      .def_prop_ro("size", [](FileHandle& self) { return self.file().size(); })
      .def("tell", [](FileHandle& self) { return self.file().tell(); })
      .def(
          "read_into",
          [](FileHandle& self, nb::handle buffer) {
            const Bytes bytes(buffer, true);
            return self.run([&](ebb::File& file, const Interrupt& stop) { return file.read(bytes.span(), stop); });
          },
          nb::arg("buffer"), nb::sig("def read_into(self, buffer: typing.Any) -> int"))
      .def(
          "write",
          [](FileHandle& self, nb::handle buffer) {
            const Bytes bytes(buffer, false);
            self.run([&](ebb::File& file, const Interrupt& stop) { return file.write(bytes.span(), stop); });
            return bytes.span().size();
          },
          nb::arg("buffer"), nb::sig("def write(self, buffer: typing.Any) -> int"))
      .def(
          "seek", [](FileHandle& self, std::uint64_t position) { check(self.file().seek(position)); },
          nb::arg("position"))
      .def(
          "truncate",
          [](FileHandle& self, std::uint64_t bytes) {
            self.run([&](ebb::File& file, const Interrupt& stop) { return file.truncate(bytes, stop); });
          },
          nb::arg("bytes"))
      .def("close",
           [](FileHandle& self) { self.run([](ebb::File& file, const Interrupt& stop) { return file.close(stop); }); })
      .def("abandon",
           [](FileHandle& self) {
             if (!self.foreign()) self.file().abandon();
           })
      .def(
          "wait",
          [](FileHandle& self, const std::string& level, std::optional<double> timeout) {
            const auto limit = to_timeout(timeout);
            self.run([&](ebb::File& file, const Interrupt& stop) { return file.wait(level, limit, stop); });
          },
          nb::arg("level"), nb::arg("timeout") = nb::none());
}

}  // namespace

void bind_files(nb::module_& module, nb::class_<StoreObject, HistoryObject>& store) {
  bind_handle(module);
  store
      .def(
          "create_file",
          [](StoreObject& self, std::string name, nb::handle version, std::optional<double> timeout) {
            name = to_name("name", std::move(name));
            const Version number = to_version(version);
            const Seconds limit = to_timeout(timeout).value_or(Seconds(1e9));
            return file_object(self, unlocked(self, [&](ebb::Store& open) {
                                 return open.create_file(std::move(name), number, limit);
                               }));
          },
          nb::arg("name"), nb::arg("version"), nb::arg("timeout") = 10.0,
          nb::sig(
              "def create_file(self, name: str, version: int, timeout: float | None = 10.0) -> ebbtide._files.File"),
          R"(A new binary file, to be written (and read, and truncated) anywhere: see :class:`ebbtide.File`.

Closing it makes it visible under ``version``, whole; leaving ``with`` by an exception leaves nothing, as does a process
that dies. timeout: seconds that a write waits for memory of the cache that no transfer can free; None: as long as it takes.
With ``keep_last``, a file that is durable drops older ones of its name that enough durable ones make up for.
Raises :class:`ebbtide.VersionExists` (it is there, or being written), :class:`ebbtide.InvalidArgument`,
:class:`ebbtide.Unsupported` (a read-only store).

>>> with store.create_file("model", epoch) as file:
...     torch.save(model.state_dict(), file)
>>> file.wait("storage"))")
      .def(
          "open_file",
          [](StoreObject& self, std::string name, nb::handle version) {
            name = to_name("name", std::move(name));
            std::optional<Version> number;
            if (!version.is_none()) number = to_version(version);
            return file_object(
                self, unlocked(self, [&](ebb::Store& open) { return open.open_file(std::move(name), number); }));
          },
          nb::arg("name"), nb::arg("version") = nb::none(),
          nb::sig("def open_file(self, name: str, version: int | None = None) -> ebbtide._files.File"),
          R"(A file to be read; ``version`` None: the newest.

Raises :class:`ebbtide.UnknownVersion` (it is not there, or not whole), :class:`ebbtide.Damaged`.)")
      .def(
          "files",
          [](StoreObject& self, std::optional<std::string> name) {
            if (name) name = to_name("name", std::move(*name));
            const auto found = check(unlocked(self, [&](ebb::Store& open) { return open.files(std::move(name)); }));
            nb::list out;
            for (const FileInfo& each : found) {
              PyObject* const text =
                  PyUnicode_DecodeUTF8(each.name.data(), static_cast<Py_ssize_t>(each.name.size()), "surrogateescape");
              if (text == nullptr) nb::raise_python_error();
              out.append(nb::make_tuple(nb::steal(text), each.version, each.bytes));
            }
            return out;
          },
          nb::arg("name") = nb::none(),
          nb::sig("def files(self, name: str | None = None) -> list[tuple[str, int, int]]"),
          "The files that are there, whole, as (name, version, bytes), ascending; only those called ``name``, if "
          "given.")
      .def(
          "drop_file",
          [](StoreObject& self, std::string name, nb::handle version) {
            name = to_name("name", std::move(name));
            const Version number = to_version(version);
            check(unlocked(self, [&](ebb::Store& open) { return open.drop_file(std::move(name), number); }));
          },
          nb::arg("name"), nb::arg("version"), nb::sig("def drop_file(self, name: str, version: int) -> None"),
          "Forget a file and its bytes. Raises :class:`ebbtide.UnknownVersion`.");
}

}  // namespace ebb::python
