// Snapshots of arrays that the program goes on writing to.
#include <algorithm>

#include "arguments.hpp"
#include "calls.hpp"
#include "errors.hpp"
#include "objects.hpp"
#include "streams.hpp"
#include "text.hpp"
#include "waiting.hpp"

namespace ebb::python {
namespace {

std::uint64_t to_zone(nb::handle zone) {
  std::int64_t bytes = 0;
  if (PyLong_Check(zone.ptr()) && nb::try_cast(zone, bytes) && bytes > 0) return static_cast<std::uint64_t>(bytes);
  std::string text;
  if (PyUnicode_Check(zone.ptr()) && nb::try_cast(zone, text)) return check(parse_bytes("zone", text));
  raise(Errc::invalid_argument,
        "zone=" + repr_text(zone) + " is not valid: expected bytes, or a size such as \"64KiB\"");
}

// Error closed goes before that: a store that is closed protects nothing.
const Bundle& demand_protected(StoreState& state) {
  const Bundle* const held = state.protected_arrays();
  if (held) return *held;
  check(state.store().versions());
  raise(Errc::invalid_argument, "nothing is protected: call protect with the arrays first");
}

// An array is its object's: what a library has given other memory, or another order, is another array.
void require_unmoved(const Bundle& held, const Reach& reach) {
  for (std::size_t i = 0; i < held.leaves.size(); ++i) {
    if (const auto how = moved(held.leaves[i], reach)) {
      raise(Errc::lost, name_of(held, "arrays", i) + " " + *how +
                            " when it was protected: unprotect, and protect the arrays as they are now, to go on");
    }
  }
}

void protect(StoreObject& self, nb::handle arrays, nb::handle zone, const std::string& track, bool hints,
             bool duplicate) {
  self.state->admit();
  const ProtectOptions options{to_zone(zone), check(parse_track(track)), hints, duplicate};
  if (self.state->protected_arrays()) {
    raise(Errc::invalid_argument,
          "arrays are protected already: give all of them in one list or dict, or call unprotect first");
  }
  auto held = std::make_unique<Bundle>(gather(arrays, "arrays", Use::target, reach_of(*self.state, nb::none())));
  for (std::size_t i = 0; i < held->leaves.size(); ++i) {
    if (!held->leaves[i].indirect) continue;
    raise(Errc::invalid_argument,
          name_of(*held, "arrays", i) +
              " has gaps between its elements, or is a conjugated or negated view: a snapshot is "
              "taken of memory as it is; protect the whole array, or a copy of it");
  }
  std::vector<Target> memory;
  for (const Leaf& leaf : held->leaves)
    memory.push_back({static_cast<std::uint32_t>(memory.size()), leaf.data, leaf.bytes});
  check([&] {
    Unlocked unlocked(self.state->inside());
    return self.state->store().protect(memory, options);
  }());
  self.state->protect(std::move(held));
}

void unprotect(StoreObject& self) {
  self.state->admit();
  demand_protected(*self.state);
  Signals signals;
  const auto release = [&](const Result<void>* done) {
    if (done != nullptr && *done) self.state->protect(nullptr);
  };
  waiting(*self.state, signals, [&] { return self.state->store().unprotect_all(signals.interrupt()); }, release);
}

struct ByteRange {
  std::uint32_t region = 0;
  std::uint64_t offset = 0, bytes = 0;
};

// Of a protected array, or of a slice of one; none: it has no bytes.
std::optional<ByteRange> place_of(StoreState& state, const Leaf& leaf) {
  const Bundle& held = demand_protected(state);
  if (leaf.bytes == 0) return {};
  const auto first = reinterpret_cast<std::uintptr_t>(leaf.data);
  const std::uintptr_t end = first + (leaf.strided ? leaf.strided->bytes : leaf.bytes);
  if (const auto region = state.protected_before(first)) {
    const auto begin = reinterpret_cast<std::uintptr_t>(held.leaves[*region].data);
    if (end <= begin + held.leaves[*region].bytes) return ByteRange{*region, first - begin, end - first};
  }
  raise(Errc::invalid_argument, "array is no part of a protected array: give one of them, or a slice of it");
}

void touch(StoreObject& self, nb::handle array) {
  self.state->admit();
  const Leaf leaf = describe(array, "array", Use::target, reach_of(*self.state, nb::none()));
  const auto place = place_of(*self.state, leaf);
  if (!place) return;
  check([&] {
    Unlocked unlocked(self.state->inside());
    return self.state->store().touch(place->region, place->offset, place->bytes);
  }());
}

nb::object snapshot(StoreObject& self, nb::handle version, bool full, bool dedup, nb::handle stream, bool fenced) {
  self.state->admit();
  self.state->sweep();
  const Version number = to_version(version);
  const Bundle& held = demand_protected(*self.state);
  const Reach reach = reach_of(*self.state, stream);
  require_unmoved(held, reach);
  const auto on = stream_for(*self.state, held, reach, true, true);
  Signals signals;
  const SnapshotOptions options{encode(held), full, dedup, signals.interrupt(), on, fenced};
  auto taken = waiting(*self.state, signals, [&] { return self.state->store().snapshot(number, options); });
  return new_future(self.state, std::move(taken));
}

}  // namespace

void FutureObject::before_write(nb::handle array, nb::handle stream) {
  state_->check();
  const auto* const taken = std::get_if<Snapshot>(&pending_);
  if (!taken) raise(Errc::invalid_argument, "this is no snapshot: only what snapshot() returns has before_write");
  const Reach reach = reach_of(*state_, stream);
  Bundle one;
  one.leaves.push_back(describe(array, "array", Use::target, reach));
  const auto place = place_of(*state_, one.leaves[0]);
  if (!place || one.leaves[0].gpu < 0) return;
  const auto on = stream_for(*state_, one, reach);
  Signals signals;
  waiting(*state_, signals, [&] { return taken->before_write(place->region, on, signals.interrupt()); });
}

void bind_snapshot(nb::class_<StoreObject, HistoryObject>& store) {
  store
      .def(
          "protect", &protect, nb::arg("arrays").none(), nb::arg("zone") = "64KiB", nb::arg("track") = "auto",
          nb::kw_only(), nb::arg("hints") = true, nb::arg("duplicate") = true,
          nb::sig("def protect(self, arrays: ebbtide.types.Arrays, zone: int | str = '64KiB', track: str = 'auto', *, "
                  "hints: bool = True, duplicate: bool = True) -> None"),
          R"(From now on :meth:`snapshot` stores these arrays, in place, and only what was written since the one before.

The arrays stay the program's, and are kept alive until :meth:`unprotect`, or until the store is closed. The first snapshot
stores all of them.

arrays: in host memory or on the store's GPU, writable, in any order without gaps, no two sharing memory. All of them in one call.
zone: bytes that are stored whole if one of them was written: a power of two from 4 KiB to 16 MiB (1 MiB on a GPU).
track: how writes are found (ics19 sec. 4). ``"faults"``: the first write to a zone is seen as it happens, so a snapshot does
not stop the program. ``"scan"``: the kernel notes written pages. ``"digest"``: a snapshot reads all of it. ``"declared"``:
:meth:`touch` says what was written. ``"everything"``: nothing is tracked. ``"auto"``: faults while few zones are written
between snapshots, everything where most are. With all but ``"faults"``, nothing may be written to the arrays while
:meth:`snapshot` runs. Writes of a GPU's or of a device's to pinned memory are not seen by ``"faults"`` and ``"scan"``: use
``"digest"`` or ``"declared"`` for such arrays. On a GPU no page protection exists: there ``"auto"`` is ``"digest"``, at the
bandwidth of its memory, and arrays are cut at a point of a stream, so the program may write to them right after.
hints, duplicate: the paper's modes H and D (sec. 4.1.5 and 4.3.2), for comparison; the same for all memory of a store.
Without ``hints``, a zone may be written when all of its snapshot is copied; without ``duplicate``, a write to a zone that is
not copied yet waits for the zone's turn.

Raises :class:`ebbtide.InvalidArgument` (what is no array, a zone that is no power of two, arrays that are protected
already, arrays of another GPU), :class:`ebbtide.Unsupported` (a way of tracking that this machine does not allow: ``ebbtide
doctor`` says which it does; ``"faults"`` or ``"scan"`` of arrays on a GPU, or such that do not begin at a multiple of 16
bytes; a read-only store), :class:`ebbtide.OutOfMemory`, :class:`ebbtide.Closed`.

>>> store.protect({"p": pressure, "v": velocity})
>>> for step in range(1000):
...     advance(pressure, velocity)
...     if step % 10 == 0:
...         store.snapshot(step)
>>> store.restore(500, out={"p": pressure, "v": velocity}))")
      .def("unprotect", &unprotect,
           R"(Track the protected arrays no longer. It waits until the snapshots in flight have ended.

Raises :class:`ebbtide.InvalidArgument` (nothing is protected), :class:`ebbtide.Closed`.)")
      .def("touch", &touch, nb::arg("array").none(), nb::sig("def touch(self, array: ebbtide.types.Array) -> None"),
           R"(Say that a protected array, or a slice of one, was written: the next snapshot stores it.

Needed with ``track="declared"``, and after writes that page protection does not see (see :meth:`protect`).
Raises :class:`ebbtide.InvalidArgument` (no part of a protected array), :class:`ebbtide.Closed`.

>>> field[lo:hi] = update
>>> store.touch(field[lo:hi]))")
      .def(
          "snapshot", &snapshot, nb::arg("version").none(), nb::kw_only(), nb::arg("full") = false,
          nb::arg("dedup") = false, nb::arg("stream") = nb::none(), nb::arg("fenced") = false,
          nb::sig("def snapshot(self, version: int, *, full: bool = False, dedup: bool = False, "
                  "stream: ebbtide.types.Stream | None = None, fenced: bool = False) -> ebbtide._futures.Future"),
          R"(Take a cut of all protected arrays and return: ``version`` is what they are now, whatever is written afterwards.

It is stored in the background, as a version like any other: :meth:`restore` reads it, :meth:`wait`, :meth:`drop`,
:meth:`latest` and ``keep_last`` act on it. Until it is stored whole, the version does not exist. A write to a zone that is
not copied yet waits for its copy (with ``track="faults"``; ics19 sec. 4.3.2).

full: store everything, whatever was written.
dedup: store no zone that is stored already, by this snapshot or by one it leans on (not for arrays on a GPU).
stream: where arrays on the GPU are cut, as for ``checkpoint``: they are what they are when the stream gets there, and later
work on it may write to them. The host waits until the stream has read them.
fenced: before arrays on the GPU are written to, ``before_write`` of what this returns is called. Until then they are copied
beside the stream, as the device cache has room.
The future's levels are those of a checkpoint's, and ``"copied"``: it no longer depends on the arrays.

Raises :class:`ebbtide.VersionExists`, :class:`ebbtide.InvalidArgument` (nothing is protected), :class:`ebbtide.Lost`
(a protected array has other memory than when it was protected, or its memory is gone), :class:`ebbtide.OutOfMemory`,
:class:`ebbtide.Closed`; the future, also :class:`ebbtide.TimedOut` (a write waited too long for the buffer).

>>> cut = store.snapshot(7)
>>> advance(field)               # while it is copied
>>> cut.wait("storage"))");
}

}  // namespace ebb::python
