// A store's directory for the commands ls, verify, export and gc. Names and metadata are bytes: they may hold anything.
#include <algorithm>
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "attended.hpp"
#include "ebbtide/admin.hpp"
#include "errors.hpp"
#include "layout.hpp"
#include "objects.hpp"
#include "text.hpp"

namespace ebb::python {
namespace {

nb::bytes bytes_of(std::string_view text) { return nb::bytes(text.data(), text.size()); }
nb::bytes bytes_of(std::span<const std::byte> data) { return nb::bytes(data.data(), data.size()); }

nb::object text_of(const std::filesystem::path& path) {
  return nb::steal(PyUnicode_DecodeFSDefaultAndSize(path.c_str(), static_cast<Py_ssize_t>(path.native().size())));
}

// Sentences may quote names, which may be any bytes.
nb::object sentence_of(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

template <class T, class Turn>
nb::object maybe(const std::optional<T>& value, Turn turn) {
  return value ? nb::object(turn(*value)) : nb::none();
}

nb::dict to_dict(const admin::Damage& one) {
  nb::dict out;
  out["history"] = maybe(one.history, [](const std::string& name) { return bytes_of(name); });
  out["version"] = maybe(one.version, [](Version version) { return nb::int_(version); });
  out["file"] = text_of(one.file);
  out["offset"] = one.offset;
  out["what"] = sentence_of(one.what);
  return out;
}

nb::list to_list(const std::vector<admin::Damage>& damages) {
  nb::list out;
  for (const admin::Damage& one : damages) out.append(to_dict(one));
  return out;
}

nb::list names(const std::vector<std::string>& from) {
  nb::list out;
  for (const std::string& name : from) out.append(text_of(name));
  return out;
}

// --- a store's directory

struct InspectionObject {
  admin::Listing seen;
};

nb::dict summary(const InspectionObject& self) {
  const admin::Listing& seen = self.seen;
  nb::dict out;
  out["directory"] = text_of(seen.directory);
  out["shared"] = text_of(seen.shared);
  out["id"] = bytes_of(seen.id);
  out["format"] = seen.format;
  out["durability"] = nb::str(seen.durability == Durability::process ? "process" : "storage");
  out["owner"] = seen.owner;
  out["created_ns"] = seen.created.time_since_epoch().count();
  out["index"] = seen.index;
  nb::list segments;
  for (const admin::SegmentUse& use : seen.segments) {
    nb::dict one;
    one["file"] = text_of(use.file);
    one["bytes"] = use.bytes;
    one["allocated"] = use.allocated;
    one["checkpoints"] = use.checkpoints;
    one["live"] = use.live;
    one["superseded"] = use.superseded;
    one["dropped"] = use.dropped;
    one["gaps"] = use.gaps;
    one["damaged"] = use.damaged;
    one["unused"] = use.unused;
    segments.append(one);
  }
  out["segments"] = segments;
  out["damages"] = to_list(seen.damages);
  out["left_over"] = names(seen.left_over);
  out["others"] = names(seen.others);
  return out;
}

nb::list records(const InspectionObject& self) {
  nb::list out;
  for (const admin::Checkpoint& record : self.seen.checkpoints) {
    nb::dict one;
    one["history"] = bytes_of(record.history);
    one["version"] = record.version;
    one["bytes"] = record.bytes;
    one["regions"] = record.regions;
    one["written_ns"] = record.written.time_since_epoch().count();
    one["file"] = text_of(record.file);
    one["offset"] = record.offset;
    one["record_bytes"] = record.record_bytes;
    one["sequence"] = record.sequence;
    one["superseded"] = record.superseded;
    one["shared"] = record.shared;
    one["copy"] = record.copy;
    out.append(one);
  }
  return out;
}

nb::list verify(const InspectionObject& self, nb::object tell, unsigned threads) {
  std::vector<admin::Verdict> verdicts;
  Attended attended(std::move(tell));
  attended.run([&] { verdicts = admin::verify(self.seen, {.threads = threads, .progress = attended.progress()}); });
  static constexpr const char* kKinds[] = {"intact", "damaged", "unreadable", "gone", "unknown"};
  nb::list out;
  for (const admin::Verdict& verdict : verdicts) {
    nb::dict one = to_dict(verdict.damage);
    one["verdict"] = nb::str(kKinds[static_cast<int>(verdict.kind)]);
    out.append(one);
  }
  return out;
}

// --- one checkpoint

struct ReaderObject {
  admin::CheckpointReader reader;
  ReaderObject(const InspectionObject& from, std::size_t index)
      : reader(check([&] {
          nb::gil_scoped_release unlocked;
          return admin::read(from.seen, index);
        }())) {}
};

nb::list leaves_of(const CheckpointInfo& info) {
  nb::list out;
  const auto layout = decode(info.metadata);
  if (!layout || layout->leaves.size() != info.regions.size()) return out;
  for (std::size_t i = 0; i < layout->leaves.size(); ++i) {
    nb::dict one;
    one["dtype"] = bytes_of(layout->leaves[i].dtype);
    one["shape"] = nb::list(to_tuple(layout->leaves[i].shape));
    const RunOrder& order = layout->leaves[i].order;
    one["strides"] = order.strides.empty() ? nb::object(nb::none()) : nb::object(nb::list(to_tuple(order.strides)));
    one["key"] = nb::none();
    if (i < layout->keys.size()) {
      const auto* number = std::get_if<std::int64_t>(&layout->keys[i]);
      one["key"] =
          number ? nb::object(nb::int_(*number)) : nb::object(bytes_of(std::get<std::string>(layout->keys[i])));
    }
    out.append(one);
  }
  return out;
}

nb::dict description_of(const ReaderObject& self) {
  const CheckpointInfo& info = self.reader.info();
  nb::dict out;
  nb::list regions;
  for (const RegionInfo& region : info.regions) regions.append(nb::make_tuple(region.id, region.bytes, region.offset));
  out["regions"] = regions;
  out["bytes"] = info.bytes;
  out["metadata"] = bytes_of(info.metadata);
  out["arrays"] = leaves_of(info);
  out["snapshot"] = self.reader.is_snapshot();
  nb::list leans_on;
  for (const Version version : info.leans_on) leans_on.append(version);
  out["leans_on"] = leans_on;
  return out;
}

// --- garbage collection

nb::dict collect(const std::filesystem::path& directory, std::uint64_t keep_last, std::uint64_t keep_every,
                 const std::vector<std::string>& apart, const std::vector<std::string>& retired, bool damaged,
                 bool dry_run, nb::object tell) {
  Attended attended(std::move(tell));
  std::optional<Result<admin::Collected>> done;
  const admin::GcOptions options{.keep_last = keep_last,
                                 .keep_every = keep_every,
                                 .apart = apart,
                                 .retired = retired,
                                 .damaged = damaged,
                                 .dry_run = dry_run,
                                 .progress = attended.progress()};
  attended.run([&] { done = admin::gc(directory, options); });
  const admin::Collected got = check(std::move(*done));
  static constexpr const char* kWhy[] = {"superseded", "retention", "damaged", "unfinished"};
  nb::dict out;
  nb::list removals, segments;
  for (const admin::Removal& one : got.removals) {
    nb::dict removal = to_dict({one.file, one.offset, "", one.history, one.version});
    removal["bytes"] = one.bytes;
    removal["why"] = nb::str(kWhy[static_cast<int>(one.why)]);
    nb::del(removal["what"]);
    removals.append(removal);
  }
  for (const auto& path : got.segments) segments.append(text_of(path));
  nb::list repacked;
  for (const admin::Repacked& one : got.repacked) {
    nb::dict entry;
    entry["history"] = bytes_of(one.history);
    entry["version"] = one.version;
    entry["bytes_before"] = one.bytes_before;
    entry["bytes_after"] = one.bytes_after;
    entry["needed_by"] = one.needed_by;
    entry["failed"] = one.failed.empty() ? nb::object(nb::none()) : nb::object(nb::str(one.failed.c_str()));
    repacked.append(entry);
  }
  out["removed"] = removals;
  out["repacked"] = repacked;
  out["segments"] = segments;
  out["damages"] = to_list(got.damages);
  out["left_over"] = got.left_over_files;
  out["allocated_before"] = got.allocated_before;
  out["allocated_after"] = got.allocated_after;
  return out;
}

}  // namespace

void bind_inspect(nb::module_& module) {
  nb::class_<InspectionObject>(module, "Inspection",
                               "A store's directory, read without opening the store: headers, no payload.")
      .def_static(
          "of",
          [](const std::filesystem::path& directory, const std::optional<std::filesystem::path>& shared) {
            auto self = std::make_unique<InspectionObject>();
            std::optional<Result<admin::Listing>> seen;
            Attended(nb::none()).run([&] { seen = admin::ls(directory, shared.value_or(std::filesystem::path())); });
            self->seen = check(std::move(*seen));
            return self.release();
          },
          nb::arg("directory"), nb::arg("shared") = nb::none(), nb::rv_policy::take_ownership,
          nb::sig("def of(directory: str | os.PathLike[str], shared: str | os.PathLike[str] | None = None) -> "
                  "Inspection"),
          "Reads all headers and the index; writes nothing. ``shared``: of the shared directory too.")
      .def("summary", &summary, nb::sig("def summary(self) -> dict[str, typing.Any]"),
           "The store, its segments, damages and other files.")
      .def("records", &records, nb::sig("def records(self) -> list[dict[str, typing.Any]]"),
           "Its checkpoints, ascending by history and version; each superseded one after the valid one.")
      .def(
          "verify", &verify, nb::arg("tell") = nb::none(), nb::arg("threads") = 0,
          nb::sig("def verify(self, tell: collections.abc.Callable[[int], None] | None = None, threads: int = 0) "
                  "-> list[dict[str, typing.Any]]"),
          "Reads all of them; returns a verdict on each. ``tell`` gets the bytes read so far, some 20 times a second.");
  nb::class_<ReaderObject>(module, "RecordReader", "One checkpoint, read piece by piece, each checked.")
      .def(nb::init<const InspectionObject&, std::size_t>(), nb::arg("inspection"), nb::arg("index"))
      .def("describe", &description_of, nb::sig("def describe(self) -> dict[str, typing.Any]"),
           "Regions as (id, bytes, offset), metadata, the arrays that it describes, and what a snapshot leans on.")
      .def(
          "next",
          [](ReaderObject& self) {
            auto piece = [&] {
              nb::gil_scoped_release unlocked;
              return self.reader.next();
            }();
            return bytes_of(check(std::move(piece)));
          },
          "The payload's next bytes; none at the end.")
      .def(
          "trouble", [](const ReaderObject& self) { return to_dict(self.reader.trouble()); },
          nb::sig("def trouble(self) -> dict[str, typing.Any]"), "What next() raised, in parts.");
  module.def("collect", &collect, nb::arg("directory"), nb::arg("keep_last") = 0, nb::arg("keep_every") = 0,
             nb::arg("apart") = nb::list(), nb::arg("retired") = nb::list(), nb::arg("damaged") = false,
             nb::arg("dry_run") = false, nb::arg("tell") = nb::none(),
             nb::sig("def collect(directory: str | os.PathLike[str], keep_last: int = 0, keep_every: int = 0, "
                     "apart: collections.abc.Sequence[str] = [], retired: collections.abc.Sequence[str] = [], "
                     "damaged: bool = False, dry_run: bool = False, "
                     "tell: collections.abc.Callable[[int], None] | None = None) -> dict[str, typing.Any]"),
             "Frees the space of checkpoints that can never be restored; see ``ebbtide gc``.");
  module.def(
      "retained",
      [](const std::vector<Version>& versions, std::uint64_t keep_last, std::uint64_t keep_every) {
        return admin::retained(versions, keep_last, keep_every);
      },
      nb::arg("versions"), nb::arg("keep_last"), nb::arg("keep_every"),
      nb::sig("def retained(versions: collections.abc.Sequence[int], keep_last: int, keep_every: int) -> list[int]"),
      "Of a history's intact versions, ascending, those that are kept.");
}

}  // namespace ebb::python
