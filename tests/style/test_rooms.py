"""The shape of the tree: the planner is pure, and a room imports only rooms below it."""

import graphlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCES = {".hpp", ".cpp", ".h", ".c", ".cu", ".cuh"}

# Which rooms each room may import, its own aside. Nobody imports a room above or beside it.
BELOW = {
    "base": set(),
    "os": {"base"},
    "device": {"base", "os"},
    "planner": set(),
    "cache": {"os", "device", "planner"},
    "transfer": {"base", "os", "device"},
    "storage": {"base", "os", "transfer", "planner"},
    "trace": {"os", "planner"},
    "options": {"base", "os", "device", "planner", "storage"},
    "share": {"base", "os", "device", "planner", "storage", "options"},
    "defer": {"base", "os"},
    "store": {"base", "os", "device", "planner", "cache", "transfer", "storage", "trace", "options", "share"},
    "files": {"os", "planner", "store"},
    "snapshots": {"base", "os", "device", "planner", "storage", "store"},
    "group": set(),  # the public headers
    "sim": {"planner"},
    "models": {"planner", "sim"},
    "capi": set(),  # the public headers are all that it wraps
    "veloc": set(),  # likewise
}

# Of all internal headers the bindings of ebbtide._models include these, and those of ebbtide._core none.
MODELS = {ROOT / "src/sim/sim.hpp", ROOT / "src/models/models.hpp"}

# Within a room of several folders likewise, from the ground up; the room's own name means the files beside them.
FOLDERS = {
    "storage": ["format", "storage", "scratch", "scan", "segments", "veloc", "admin"],
    "share": ["pool", "share", "leases", "agent", "member"],
}

# The planner has no clock, lock, thread, file or device: it may use values, containers and arithmetic. A list of what
# is allowed cannot forget a header that the next standard brings.
PURE_HEADERS = set(
    "algorithm array bit bitset cassert cinttypes climits cmath compare concepts cstddef cstdint cstring deque"
    " functional initializer_list iterator limits list map memory memory_resource numeric optional queue ranges set span stdexcept"
    " string string_view tuple type_traits unordered_map unordered_set utility variant vector".split()
)
IMPURE_WORDS = re.compile(
    r"std::(chrono|mutex|thread|jthread|atomic|filesystem|[io]?fstream|cout|cerr|random_device|getenv)\b"
    r"|\b(cuda[A-Z]\w*|fopen|printf|clock_gettime|gettimeofday|getenv|thread_local)\s*\(?"
)


def includes(path: pathlib.Path) -> list[tuple[str, str]]:
    """(opening character, name) of every include of a file."""
    return re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def code(path: pathlib.Path) -> str:
    """A file's text without comments and string literals."""
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(\\.|[^"\\\n])*"', "", path.read_text(), flags=re.DOTALL)


def files_of(room: str) -> list[pathlib.Path]:
    return sorted(path for path in (ROOT / "src" / room).rglob("*") if path.suffix in SOURCES)


def test_every_room_is_known():
    assert {path.name for path in (ROOT / "src").iterdir() if path.is_dir()} == set(BELOW)


@pytest.mark.parametrize("room", BELOW)
def test_room_imports_only_rooms_below(room):
    wrong = []
    for path in files_of(room):
        for kind, name in includes(path):
            target = name.split("/")[0] if "/" in name else ""
            if kind == '"' and "/" not in name:
                wrong.append(f"{path.relative_to(ROOT)}: '{name}' is not rooted at src/ or include/")
            elif target in BELOW and target != room and target not in BELOW[room]:
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
            elif kind == '"' and target == "tests":
                wrong.append(f"{path.relative_to(ROOT)}: {name} is a test's")
    assert not wrong


# A block that only names what another room declares.
FORWARD = re.compile(
    r"^(?P<indent> *)namespace [\w:]+ \{\n(?: *(?:class|struct|enum class) \w+(?: : [\w:]+)?;\n)+(?P=indent)\}.*\n",
    re.M,
)
OPENED = re.compile(r"^namespace (ebb(?:::\w+)*) \{", re.M)


def test_a_namespace_is_named_after_its_room():
    public = {
        name for path in (ROOT / "include").rglob("*.hpp") for name in OPENED.findall(FORWARD.sub("", path.read_text()))
    }
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for room in BELOW
        for path in files_of(room)
        for name in OPENED.findall(FORWARD.sub("", path.read_text()))
        if name not in public and name.split("::")[:2] != ["ebb", room]
    ]
    assert not wrong


@pytest.mark.parametrize("room", FOLDERS)
def test_a_folder_of_a_room_imports_only_those_before_it(room):
    order, wrong = FOLDERS[room], []
    for path in files_of(room):
        for _, name in includes(path):
            target = pathlib.PurePath(name).parent
            if target.parts[:1] == (room,) and order.index(target.name) > order.index(path.parent.name):
                wrong.append(f"{path.relative_to(ROOT)}: {name}")
    assert not wrong


def test_public_headers_import_no_room():
    wrong = [
        f"{path.name}: {name}"
        for path in sorted((ROOT / "include").rglob("*.h*"))
        for kind, name in includes(path)
        if kind == '"' and not name.startswith(("ebbtide/", "veloc/"))
    ]
    assert not wrong


def resolve(path: pathlib.Path, name: str) -> pathlib.Path | None:
    """The file of ours that an include names; None: it is the system's, or a library's."""
    for folder in (ROOT / "src", ROOT / "include", path.parent):
        if (folder / name).is_file():
            return folder / name
    return None


def ours() -> dict[pathlib.Path, list[pathlib.Path]]:
    """What each source and header includes."""
    files = [
        path
        for folder in ("src", "include", "python/src")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in SOURCES
    ]
    return {
        path: [to for kind, name in includes(path) if kind == '"' and (to := resolve(path, name))] for path in files
    }


def all_included(path: pathlib.Path, graph: dict[pathlib.Path, list[pathlib.Path]]) -> set[pathlib.Path]:
    seen: set[pathlib.Path] = set()
    to_do = [path]
    while to_do:
        for one in graph[to_do.pop()]:
            if one not in seen:
                seen.add(one)
                to_do.append(one)
    return seen


def test_no_header_includes_itself_by_way_of_others():
    graph = ours()
    assert [str(path.relative_to(ROOT)) for path in graph if path in all_included(path, graph)] == []


def test_units_form_no_large_knot():
    """A unit is a header with its source. Units of a knot can only be understood together: five at most."""
    units = {path: path.with_suffix("") for path in ours() if path.is_relative_to(ROOT / "src")}
    graph: dict[pathlib.Path, set[pathlib.Path]] = {unit: set() for unit in units.values()}
    for path, included in ours().items():
        if path in units:
            graph[units[path]] |= {units[one] for one in included if one in units} - {units[path]}
    reached = {unit: all_included(unit, {one: list(to) for one, to in graph.items()}) for unit in graph}
    knots = {frozenset(one for one in reached[unit] if unit in reached[one]) for unit in graph}
    assert [sorted(str(one.relative_to(ROOT / "src")) for one in knot) for knot in knots if len(knot) > 5] == []


def test_how_a_snapshot_is_stored_is_known_to_its_room():
    """The store knows the names of snapshots, and asks their room for the rest through one header."""
    stored = re.compile(r"storage/format/(?!snapshot_names)(snapshot|stored_snapshot|zone)")
    knowing = {
        path.relative_to(ROOT / "src").as_posix()
        for room in ("store", "files")
        for path in files_of(room)
        for _, name in includes(path)
        if stored.match(name)
    }
    assert knowing == {"store/snapshot_access.hpp"}


def test_rooms_form_no_circle():
    list(graphlib.TopologicalSorter(BELOW).static_order())  # of what is allowed; raises CycleError
    rooms: dict[str, set[str]] = {room: set() for room in BELOW}  # of what is so
    for room in BELOW:
        for path in files_of(room):
            rooms[room] |= {name.split("/")[0] for kind, name in includes(path) if kind == '"'} & set(BELOW) - {room}
    list(graphlib.TopologicalSorter(rooms).static_order())


def test_bindings_use_public_headers_and_the_models():
    graph = ours()
    folder = ROOT / "python/src"
    bindings = [path for path in graph if path.is_relative_to(folder)]
    assert {path.parent for path in bindings} == {folder, folder / "models"}
    wrong = [
        f"{path.name}: {one.relative_to(ROOT)}"
        for path in bindings
        for one in graph[path]
        if one.parent not in (ROOT / "include/ebbtide", folder, path.parent)
        and not (path.parent == folder / "models" and one in MODELS)
    ]
    assert not wrong
    rooms = {
        one.relative_to(ROOT / "src").parts[0]
        for path in bindings
        if path.parent == folder / "models"
        for one in all_included(path, graph)
        if one.is_relative_to(ROOT / "src")
    }
    assert rooms == {"planner", "sim", "models"}


def test_planner_has_no_clock_lock_thread_file_or_device():
    files = files_of("planner")
    assert files
    wrong = []
    for path in files:
        wrong += [f"{path.name}: <{name}>" for kind, name in includes(path) if kind == "<" and name not in PURE_HEADERS]
        wrong += [
            f"{path.name}: {name}" for kind, name in includes(path) if kind == '"' and not name.startswith("planner/")
        ]
        wrong += [f"{path.name}: {match[0]}" for match in IMPURE_WORDS.finditer(code(path))]
    assert not wrong


def test_no_thread_is_detached_and_nothing_ends_the_process():
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for room in BELOW
        for path in files_of(room)
        for match in re.finditer(r"\.detach\(\)|\b(?:std::)?(?:_?exit|quick_exit|abort)\s*\(", code(path))
    ]
    assert not wrong
