"""The architecture, enforced: who may import whom, who owns which library, and how big a file may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("plimsoll/documents", "scenarios", "slo", "reports", "harness", "reference_server")

#: package -> packages of ours that it may import.
ALLOWED = {
    "plimsoll/documents": {"documents"},
    "scenarios": {"scenarios", "documents"},
    "slo": {"slo", "documents"},
    "reports": {"reports", "slo"},
    "harness": {"harness", "scenarios", "slo", "reports", "documents"},
    "reference_server": {"reference_server"},
}

#: library -> the only files (or folders) that may import it.
OWNERS = {
    "hdrh": {"slo/statistics/distribution.py"},
    "scipy": {"slo/statistics/special.py", "slo/search/curve.py", "scenarios/media/sound.py"},
    "torch": {"reference_server/assembly.py", "reference_server/models", "reference_server/device"},
    "httptools": {"harness/wire/http1.py"},
    "uvloop": {"harness/generator/worker.py", "reference_server/__main__.py"},
    "yaml": {"plimsoll/documents/text.py", "harness", "slo/objectives/presets"},
    "typer": {"harness/verbs/cli.py", "harness/verbs/cli_doc.py", "harness/verbs"},
    "jinja2": {"reports/formats", "harness/protocols/_http/body_template.py"},
    "aiohttp": {
        "harness/live/server.py",
        "harness/series/rollout.py",
        "reference_server/http_server.py",
        "reference_server/dialects",
        "reference_server/fleet.py",
        "reference_server/transports",
    },
    "prometheus_client": {"reference_server/engine/metrics.py"},
    "pytest": {"harness/pytest_plugin"},
    "locust": {"harness/distributed/locust_.py"},
    "pandas": {"reports/frame.py"},
    "grpc": {
        "reference_server/grpc_server.py",
        "reference_server/dialects/kserve_grpc.py",
        "reference_server/dialects/speech_grpc.py",
        "reference_server/transports/grpc_calls.py",
    },
    "google.protobuf": {
        "harness/protocols/_grpc",
        "reference_server/protos",
        "reference_server/dialects/kserve_grpc.py",
        "reference_server/transports/grpc_calls.py",
    },
    "hpack": {"harness/wire/hpack_blocks.py"},
    "grpc_health": {"reference_server/grpc_server.py"},
    "grpc_reflection": {"reference_server/grpc_server.py"},
    "grpc_tools": {
        "harness/protocols/_grpc/descriptors.py",
        "harness/protocols/_grpc/generate.py",
        "reference_server/protos/generate.py",
    },
    "PIL": {"reference_server/models/resnet.py", "scenarios/media/pictures.py"},
    "av": {"harness/protocols/_speech/codecs.py"},
    "soundfile": {"scenarios/media/recordings.py"},
    "msgpack": {"harness/protocols/kyutai.py"},
    "whisper_normalizer": {"slo/metrics/word_errors.py"},
    "jiwer": set(),
    "h2": set(),
    "safetensors": {"reference_server/models"},
    "tokenizers": {"reference_server/models/llama_folder.py"},
    "transformers": set(),
    "openai": set(),
    "websockets": {"harness/transport/live/websocket_pool.py", "harness/transport/live/websocket_session.py"},
    "tritonclient": set(),
    "deepgram": set(),
    "socket": {
        "harness/scraping/sources.py",
        "harness/transport/stream.py",
        "harness/transport/endpoint.py",
        "harness/host/manifest.py",
        "reference_server/http_server.py",
        "reference_server/routing/router.py",
        "reference_server/grpc_server.py",
        "reference_server/transports",
        "reference_server/oracle",
    },
}

#: Modules of the reference server that only decide or compute: the same arguments give the same answer. No loop, no
#: thread, no clock.
PURE = (
    "dialects/deepgram_wire",
    "transports/fields",
    "dialects/realtime_wire",
    "engine/batch_queue",
    "engine/kv_blocks",
    "engine/scheduler",
    "routing/framing",
    "misfortune/fault",
    "models/presets",
    "seams/models",
    "seams/truth",
    "speech/audio",
    "speech/resample",
    "speech/tones",
    "speech/transcript",
    "values/tensors",
    "values/tokenizer",
)
IMPURE_LIBRARIES = {
    "asyncio",
    "threading",
    "concurrent",
    "time",
    "socket",
    "subprocess",
    "random",
    "logging",
    "torch",
    "aiohttp",
    "grpc",
}
#: Modules of the hot path: no parsing, no logging, no model validation.
HOT = (
    "clock",
    "transport/stream",
    "exchange",
    "generator/issuer",
    "transport/live/player",
    "transport/live/flights",
    "transport/http/http_pool",
    "transport/live/websocket_pool",
    "transport/live/websocket_session",
    "transport/rpc/rpc_pool",
    "transport/rpc/channel",
    "transport/rpc/rpc_stream",
    "wire/http1",
    "wire/http2",
    "wire/http2_frames",
    "wire/grpc_messages",
)
COLD_LIBRARIES = {"json", "orjson", "logging", "pydantic", "re", "rich", "yaml"}

#: Rooms in which the same arguments give the same answer: no loop, no thread, no clock, no socket. What arrived and
#: when is handed to them.
PURE_ROOMS = ("scenarios/media", "scenarios/sources", "harness/protocols/_speech", "harness/wire")
#: room -> rooms that it must not know, not even through others.
FAR = {
    "harness/wire": {"harness/transport", "harness/protocols", "harness/run"},
    "harness/transport": {"harness/protocols", "harness/generator", "harness/run", "harness/verbs"},
    "harness/protocols": {"harness/generator", "harness/run", "harness/series", "harness/verbs"},
    "harness/generator": {"harness/run", "harness/live", "harness/series", "harness/verbs"},
    "harness/run": {"harness/live", "harness/series", "harness/distributed", "harness/verbs"},
    "harness/series": {"harness/distributed", "harness/verbs"},
    "slo/records": {"slo/metrics", "slo/objectives", "slo/verdict"},
    "slo/statistics": {"slo/metrics", "slo/objectives", "slo/verdict"},
    "slo/validity": {"slo/verdict", "slo/comparison", "slo/search"},
    "reports/svg": {"reports/sections", "reports/documents", "reports/formats"},
    "reports/models": {"reports/documents", "reports/formats"},
    "reference_server/models": {"reference_server/engine", "reference_server/dialects", "reference_server/transports"},
    "reference_server/device": {"reference_server/engine", "reference_server/dialects", "reference_server/transports"},
    "reference_server/engine": {"reference_server/dialects", "reference_server/transports", "reference_server/service"},
    "reference_server/speech": {"reference_server/dialects", "reference_server/transports", "reference_server/engine"},
    "reference_server/transports": {"reference_server/dialects"},
    "reference_server/oracle": {"reference_server/engine", "reference_server/dialects", "reference_server/seams"},
}
#: transport -> who may import it: a protocol asks for a client, and listing protocols loads no transport.
TRANSPORTS = {
    "plimsoll.harness.transport.live.websocket_pool": {"harness/protocols/_clients.py"},
    "plimsoll.harness.transport.live.websocket_session": {"harness/transport/live/websocket_pool.py"},
    "plimsoll.harness.transport.rpc.rpc_pool": {
        "harness/protocols/_clients.py",
        "harness/transport/rpc/rpc_question.py",
    },
}
#: Folders in which every file is an extension of one kind, found by its place.
PLUG_INS = {"harness/protocols", "slo/indicators", "slo/server/engines"}
MAX_FILES_IN_A_ROOT, MAX_FILES_IN_A_ROOM = 12, 25

#: package -> lines and files of Python. A ratchet: these numbers only fall. A capability that raises one says what it
#: buys in docs/decisions.
BUDGETS = {
    "plimsoll/documents": (381, 2),
    "scenarios": (11616, 73),
    "slo": (27391, 167),
    "reports": (16785, 75),
    "harness": (50910, 203),
    "reference_server": (17993, 78),
}

JUNK_DRAWERS = {"utils", "util", "common", "core", "base", "helpers", "helper", "manager", "misc"}
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 60


def files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


@cache
def imports(path: Path) -> set[str]:
    """Dotted names of every module imported anywhere in a file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {str(node.module)} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def module_of(path: Path) -> str:
    """The dotted name by which ours is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "plimsoll" else ("plimsoll", *parts))


@cache
def modules() -> dict[str, Path]:
    return {module_of(path): path for path in files()}


@cache
def arrows() -> dict[str, set[str]]:
    """room -> rooms that its files import.

    Naming a folder imports its ``__init__``, which counts where it holds code.
    """
    known = modules()
    for name, path in modules().items():
        if path.name == "__init__.py" and len(ast.parse(path.read_text(encoding="utf-8")).body) > 1:
            known = known | {name.removesuffix(".__init__"): path}
    graph: dict[str, set[str]] = {path.parent.relative_to(ROOT).as_posix(): set() for path in files()}
    for path in files():
        room = path.parent.relative_to(ROOT).as_posix()
        graph[room] |= {known[name].parent.relative_to(ROOT).as_posix() for name in imports(path) & known.keys()} - {
            room
        }
    return graph


def has_no_circle(graph: Mapping[str, set[str]]) -> None:
    state: dict[str, int] = {}

    def visit(name: str, trail: tuple[str, ...]) -> None:
        if state.get(name) == 2:
            return
        assert state.get(name) != 1, "import circle: " + " -> ".join((*trail[trail.index(name) :], name))
        state[name] = 1
        for dependency in sorted(graph[name]):
            visit(dependency, (*trail, name))
        state[name] = 2

    for name in sorted(graph):
        visit(name, ())


def c_files() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted(path for path in (ROOT / package).rglob("*.[ch]"))


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_the_design_allows(package: str) -> None:
    for path in files():
        relative = path.relative_to(ROOT)
        if relative.as_posix().startswith(f"{package}/"):
            ours = {name.split(".")[1] for name in imports(path) if name.startswith("plimsoll.")}
            assert ours <= ALLOWED[package], f"{relative} imports {sorted(ours - ALLOWED[package])}"


def test_modules_form_a_dag() -> None:
    known = modules()
    has_no_circle(
        {name: {dep for dep in imports(path) if dep in known and dep != name} for name, path in known.items()}
    )


def test_rooms_form_a_dag() -> None:
    """A room is a folder. What is above knows what is below, and nothing below knows what is above: no two know each
    other.
    """
    has_no_circle(arrows())


@pytest.mark.parametrize("room", sorted(FAR))
def test_a_room_does_not_know_what_is_far_above_it(room: str) -> None:
    graph = arrows()
    inside = [one for one in graph if one == room or one.startswith(f"{room}/")]
    assert inside
    reached, todo = set(inside), list(inside)
    while todo:
        for below in graph[todo.pop()] - reached:
            reached.add(below)
            todo.append(below)
    above = {one for one in reached for far in FAR[room] if one == far or one.startswith(f"{far}/")}
    assert not above, f"{room} reaches {sorted(above)}"


def test_a_room_can_be_looked_over() -> None:
    """Few files at the root of a package, no room with more than one can look over, no name twice in a package."""
    rooms: dict[str, list[str]] = {}
    for path in files():
        rooms.setdefault(path.parent.relative_to(ROOT).as_posix(), []).append(path.name)
    for room, names in rooms.items():
        own = [name for name in names if name != "__init__.py"]
        most = MAX_FILES_IN_A_ROOM if "/" in room else MAX_FILES_IN_A_ROOT
        assert room in PLUG_INS or len(own) <= most, f"{room} has {len(own)} files"
    for package in PACKAGES:
        names = [path.name for path in files() if path.relative_to(ROOT).as_posix().startswith(f"{package}/")]
        twice = {name for name in names if names.count(name) > 1} - {"__init__.py", "__main__.py"}
        assert not twice, f"{package} has two files named {sorted(twice)}"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_whole_has_a_budget(package: str) -> None:
    paths = [path for path in files() if path.relative_to(ROOT).as_posix().startswith(f"{package}/")]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
    most_lines, most_files = BUDGETS[package]
    assert lines <= most_lines, f"{package} has {lines} lines of Python, its budget is {most_lines}"
    assert len(paths) <= most_files, f"{package} has {len(paths)} files, its budget is {most_files}"
    slack = f"{package} has {lines} lines in {len(paths)} files: lower its budget of {most_lines} and {most_files}"
    assert (lines, len(paths)) >= (most_lines * 0.98, most_files * 0.98), slack


@pytest.mark.parametrize("library", sorted(OWNERS))
def test_each_library_is_imported_only_where_it_belongs(library: str) -> None:
    for path in files():
        relative = path.relative_to(ROOT).as_posix()
        if any(name == library or name.startswith(library + ".") for name in imports(path)):
            allowed = any(relative == owner or relative.startswith(owner + "/") for owner in OWNERS[library])
            assert allowed, f"{relative} imports {library}; only {sorted(OWNERS[library])} may"


@pytest.mark.parametrize("module", HOT)
def test_the_hot_path_parses_and_logs_nothing(module: str) -> None:
    tops = {name.split(".")[0] for name in imports(ROOT / "harness" / f"{module}.py")}
    assert not tops & COLD_LIBRARIES


@pytest.mark.parametrize("module", PURE)
def test_what_decides_in_the_reference_server_knows_no_loop_no_thread_and_no_clock(module: str) -> None:
    tops = {name.split(".")[0] for name in imports(ROOT / "reference_server" / f"{module}.py")}
    assert not tops & IMPURE_LIBRARIES


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_what_reads_formats_and_sounds_knows_no_loop_no_thread_and_no_clock(room: str) -> None:
    paths = [path for path in files() if path.relative_to(ROOT).as_posix().startswith(f"{room}/")]
    assert paths
    for path in paths:
        tops = {name.split(".")[0] for name in imports(path)}
        assert not tops & IMPURE_LIBRARIES, f"{path.relative_to(ROOT)} imports {sorted(tops & IMPURE_LIBRARIES)}"


@pytest.mark.parametrize("transport", sorted(TRANSPORTS))
def test_a_transport_is_known_to_nobody_but_who_makes_its_client(transport: str) -> None:
    assert transport in modules()
    found = {path.relative_to(ROOT).as_posix() for path in files() if transport in imports(path)}
    assert found
    assert found <= TRANSPORTS[transport]


#: Who may open a file for writing: the writer, and what makes files of this repository.
WRITERS = {
    "harness/process/writing.py",
    "harness/verbs/cli_doc.py",
    "harness/protocols/_grpc/generate.py",
    "reference_server/protos/generate.py",
    "slo/metrics_doc.py",
}
_WRITE = {"write_text", "write_bytes", "touch", "mkstemp", "NamedTemporaryFile", "copyfile", "copy2", "tofile"}


def opens_for_writing(call: ast.Call) -> bool:
    """``path.open("w")``, ``open(path, "ab")``, ``os.open(...)``, ``path.write_text(...)`` and their like."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = getattr(call.func.value, "id", "") if isinstance(call.func, ast.Attribute) else ""
    if name in _WRITE or (owner, name) == ("shutil", "copy"):
        return True
    if name != "open" or owner == "av":  # a container in memory
        return False
    modes = [a.value for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Constant)]
    texts = [mode for mode in modes if isinstance(mode, str) and re.fullmatch(r"[rwaxbt+]{1,3}", mode)]
    return owner == "os" or any(set(mode) & set("wax+") for mode in texts)


def test_files_are_written_in_one_place() -> None:
    """It knows how: whole or not at all, never through a link."""
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files()
        if path.relative_to(ROOT).as_posix() not in WRITERS
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and opens_for_writing(node)
    }
    assert {place.split(":")[0] for place in found} <= {
        "harness/process/outlet.py",  # /dev/null
        "plimsoll/documents/files.py",  # opens to read, without waiting
        "harness/generator/segments.py",  # opens a folder, to lock it
    }, found
    written = ['p.open("x")', 'open(p, mode="ab")', 'open("a", "w")', "p.write_text(t)", "os.open(p, f)"]
    read = ["p.open()", 'p.open("rb")', 'open(p, "r")', "pool.open(4)", 'p.open(encoding="utf-8")']
    for text, writes in [*((text, True) for text in written), *((text, False) for text in read)]:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert opens_for_writing(call) == writes, text


def test_no_file_is_a_junk_drawer() -> None:
    assert not [path for path in files() if path.stem in JUNK_DRAWERS or path.parent.name in JUNK_DRAWERS]


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        path
        for path in files()
        if path.read_text(encoding="utf-8").strip()
        and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent


def test_files_and_functions_fit_in_a_head() -> None:
    too_long = []
    for path in files():
        source = path.read_text(encoding="utf-8")
        if len(source.splitlines()) > MAX_FILE_LINES:
            too_long.append(f"{path.relative_to(ROOT)}: {len(source.splitlines())} lines")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES and not is_command(node):
                    too_long.append(f"{path.relative_to(ROOT)}:{node.name}: {lines} lines")
    assert not too_long


def test_c_files_say_what_they_are_for_and_fit_in_a_head() -> None:
    paths = [*c_files()]
    assert paths
    silent = [path.name for path in paths if not re.match(r"/\* [A-Z]", path.read_text(encoding="utf-8"))]
    assert not silent
    lengths = {path.relative_to(ROOT): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert not {path: n for path, n in lengths.items() if n > MAX_FILE_LINES}
    assert not [path for path in paths if path.stem in JUNK_DRAWERS]


def test_c_code_of_one_package_includes_nothing_of_another() -> None:
    """The oracle and the engine share a wire, never code: neither may take a header from outside its folder."""
    for path in c_files():
        for name in re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            assert "/" not in name, f"{path.relative_to(ROOT)} includes {name}"
            assert (path.parent / name).is_file(), f"{path.relative_to(ROOT)} includes {name}"


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A command-line verb's length is its list of flags, not its logic."""
    return any("command" in ast.dump(decorator) for decorator in node.decorator_list) or "typer" in ast.dump(node.args)


def test_import_slo_is_light() -> None:
    """A notebook or a gate that only reads records loads numpy and nothing heavier."""
    code = (
        "import sys, plimsoll.slo.records.records, plimsoll.slo.metrics.indicator, "
        "plimsoll.slo.objectives.objective, plimsoll.slo.verdict.verdict; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & "
        "{'pandas','pyarrow','scipy','pydantic','torch','rich'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"
