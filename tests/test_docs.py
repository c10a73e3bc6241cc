"""The documentation, kept true: links, commands, examples, keys, columns, codes and names are compared with the
code.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import typer
from pydantic import BaseModel

from plimsoll.harness.exit_codes import OF_OUTCOME, ExitCode
from plimsoll.harness.protocols._discovery import protocols
from plimsoll.harness.protocols._speech.codecs import decodable, encodable
from plimsoll.harness.run.job import promised
from plimsoll.harness.transport.client import Target
from plimsoll.harness.verbs import cli_doc
from plimsoll.harness.verbs.cli_doc import shown
from plimsoll.reference_server.__main__ import main as reference_server
from plimsoll.reference_server.config import MODELS
from plimsoll.reference_server.engine.metrics import Metrics
from plimsoll.reference_server.misfortune.fault import KINDS as FAULTS
from plimsoll.reference_server.oracle.__main__ import main as oracle
from plimsoll.reference_server.seams.truth import TruthRow
from plimsoll.reports.blocks.section import ReportSection
from plimsoll.reports.format import Format, formats
from plimsoll.reports.parts import charts, parts
from plimsoll.reports.report import Report
from plimsoll.scenarios.plugins import kinds, sources
from plimsoll.scenarios.scenario import Scenario, StopSection, TargetSection
from plimsoll.scenarios.spec import library, parse
from plimsoll.scenarios.text.document import read_document
from plimsoll.slo.metrics.indicator import Indicator, catalogue
from plimsoll.slo.metrics.word_errors import NAMES
from plimsoll.slo.objectives import objective
from plimsoll.slo.records import records as rec
from plimsoll.slo.records import tables
from plimsoll.slo.records.trace_ids import TraceIds
from plimsoll.slo.validity import validity
from tests.command import verbs
from tests.e2e.plimsoll import FILES

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
INDEX = ROOT / "docs/README.md"
PROTOCOL_PAGES = ("protocols", "protocols-grpc", "protocols-speech")
SCENARIO_PAGES = ("scenarios", *PROTOCOL_PAGES, "reference-server")

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_OBJECTIVE = re.compile(r"(?:[a-z][a-z0-9.]*\([a-z_]+\)|[a-z_]+) (?:<=|>=|<|>) [0-9.]+\S*")
_FILE = re.compile(r"(?:harness|scenarios|slo|reports|reference_server|tests|docs)/[\w./-]*")


def page(name: str) -> str:
    """A page by its name, on whichever shelf it stands."""
    (path,) = (path for path in PAGES if path.name == f"{name}.md" and path.parent.name != "decisions")
    return path.read_text(encoding="utf-8")


def fences(text: str, *languages: str) -> list[str]:
    return [dedent(body) for _, language, body in _FENCE.findall(text) if language in languages]


def spans(text: str) -> list[str]:
    return _SPAN.findall(_FENCE.sub("", text))


def section(text: str, heading: str) -> str:
    """What stands between a heading and the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", _FENCE.sub("", text), re.MULTILINE | re.DOTALL)
    assert found, f"no section {heading!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, without heads and rulers."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    rulers = [i for i, cells in enumerate(lines) if set("".join(cells)) <= {"-"}]
    return [cells for i, cells in enumerate(lines) if i not in rulers and i + 1 not in rulers]


def named(text: str) -> list[str]:
    """The code span that begins each table row."""
    return [span[1] for cells in rows(text) if (span := _SPAN.search(cells[0]))]


# -- links, files, commands -----------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", _FENCE.sub("", path.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_relative_link_resolves(path: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", path.read_text(encoding="utf-8"))):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            other = path.parent / name if name else path
            assert other.exists(), target
            assert not anchor or anchor in anchors(other), target


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_source_file_that_is_named_exists(path: Path) -> None:
    for span in spans(path.read_text(encoding="utf-8")):
        if _FILE.fullmatch(span) and "NAME" not in span:
            assert (ROOT / span).exists(), span


def commands(text: str) -> Iterator[str]:
    """Command lines in shell and CI examples, continuation lines joined."""
    for body in fences(text, "sh", "yaml"):
        for line in body.replace("\\\n", " ").splitlines():
            if line.strip().startswith(("plimsoll ", "make ", "python -m plimsoll.reference_server ")):
                yield line.strip().partition(" > ")[0].removesuffix(" &")


def read_command(words: list[str]) -> None:
    """Read a ``plimsoll`` command line as the program would, without running it. Raises what it would raise."""
    command: Any = verbs()
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, f"no verb {words[0]!r}"
        command = command.commands[words[0]]
        words = words[1:]
    if not hasattr(command, "commands"):
        with command.make_context(command.name, words):
            pass


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_line_can_be_typed_as_it_stands(path: Path) -> None:
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in commands(path.read_text(encoding="utf-8")):
        words = shlex.split(line, comments=True)
        if words[0] == "make":
            assert set(words[1:]) <= set(targets), line
        elif words[0] == "plimsoll":
            read_command(words[1:])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_in_the_text_has_a_verb_and_flags_that_exist(path: Path) -> None:
    for span in spans(path.read_text(encoding="utf-8")):
        if span.startswith("plimsoll "):
            try:
                read_command(shlex.split(span)[1:])
            except typer.BadParameter as error:
                if type(error).__name__ != "MissingParameter":  # the text may leave an argument to the reader
                    raise


def test_the_first_pages_are_short_and_the_picture_is_small() -> None:
    assert len(readme().splitlines()) <= 115
    assert (ROOT / "ARCHITECTURE.md").stat().st_size <= 8000
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 40
    assert (ROOT / "docs/report.png").stat().st_size <= 200_000


def test_the_tree_of_the_architecture_is_the_tree() -> None:
    """Each package with its rooms, none left out and none that is gone; and every file that a recipe names is there."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    drawn: dict[str, set[str]] = {}
    package = ""
    for line in text.split("```")[1].splitlines()[1:]:
        names = re.findall(r"(?<![\w/])([a-z_]+)/(?!\w)", line)
        package = package if line.startswith(" ") else names.pop(0)
        drawn.setdefault(package, set()).update(names)
    for name in ("scenarios", "harness", "slo", "reports", "reference_server", "plimsoll"):
        folders = {path.name for path in (ROOT / name).iterdir() if path.is_dir() and not path.is_symlink()}
        assert drawn[name] - {"engine"} == folders - {"__pycache__", "engine"}, name
    for path in re.findall(r"`((?:scenarios|harness|slo|reports|tests)/[a-z_/]+(?:\.py)?)`", text):
        assert (ROOT / path).exists(), path


def test_every_page_is_in_the_index() -> None:
    shelves = {path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".json") and path != INDEX}
    text = INDEX.read_text(encoding="utf-8")
    assert {(INDEX.parent / link.partition("#")[0]).resolve() for link in _LINK.findall(text)} >= shelves


def test_every_verb_is_documented() -> None:
    def walk(path: str, command: Any) -> Iterator[str]:
        children: Mapping[str, Any] = getattr(command, "commands", {})
        yield from (path,) if not children else (p for name in children for p in walk(f"{path} {name}", children[name]))

    root: Any = verbs()
    heads = re.findall(r"^## (.*)$", page("cli"), re.MULTILINE)
    assert sorted(walk("plimsoll", root)) == sorted(heads)
    assert {f"plimsoll {name}" for name in root.commands} == set(
        named(section(INDEX.read_text(encoding="utf-8"), "Verbs"))
    )


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


# -- scenarios, protocols, objectives -------------------------------------------------------------------------


def test_every_scenario_example_is_a_scenario_and_its_options_fit_the_protocol() -> None:
    known = protocols()
    for name in SCENARIO_PAGES:
        examples = fences(page(name), "yaml")
        assert examples
        for text in examples:
            scenario = laid_over(text, name)
            assert not objective.parse_all(promised(scenario))[1]
            for one in scenario.classes.values():
                assert known[one.target.protocol].check(one.target.options) == []


def laid_over(text: str, where: str) -> Scenario:
    """An example as a scenario; a fragment is laid over the smallest."""
    given = read_document(text, where)
    return parse(given if "mix" in given else {"kind": "server", **given}, where)


def examples() -> list[tuple[str, str]]:
    """(page#number, text) of every scenario example."""
    return [(f"{name}#{i}", text) for name in SCENARIO_PAGES for i, text in enumerate(fences(page(name), "yaml"))]


@pytest.mark.parametrize(("where", "text"), examples(), ids=[where for where, _ in examples()])
def test_the_first_request_of_every_scenario_example_can_be_written(where: str, text: str) -> None:
    """What an example's options and source make together: a template with a wrong name or a model that is missing shows
    here.
    """
    scenario = next(iter(laid_over(text, where).classes.values()))
    target = scenario.target
    source: Any = scenario.source
    if target.protocol == "grpc" or "form_files" in target.options:  # they need a server's schema, and a file
        return
    spec = protocols()[target.protocol]
    if getattr(source, "path", None) or getattr(source, "files", None):  # nor are there recordings here
        source = parse({"kind": "server", "source": {"kind": spec.source}}, where).source
    few = {"count": min(source.count or 8, 8)} if hasattr(source, "count") else {}
    payloads = sources()[source.kind].build(source.model_copy(update=few), 42)
    url = target.url or "http://127.0.0.1:9"
    payload = payloads.payload(0)

    async def written() -> Any:  # clients are built where a loop runs
        return spec.build(Target(url, target.protocol, target.model, options=target.options), None).encode(payload)

    assert asyncio.run(written()) is not None


def test_the_recipes_that_are_run_are_those_of_the_page() -> None:
    from tests.e2e.test_endpoints_http import RECIPES

    on_the_page = {text.strip() for text in fences(page("protocols"), "yaml")}
    assert {recipe.strip() for _, _, recipe in RECIPES.values()} <= on_the_page


KEYS: dict[tuple[str, str], tuple[type[BaseModel], set[str]]] = {
    ("scenarios", "Top level"): (Scenario, {"name", "params", "target", "source", "stop"}),
    ("scenarios", "Target"): (TargetSection, set()),
    ("scenarios", "Stop"): (StopSection, set()),
    **{("scenarios", kind.name): (kind.params, {"columns", "window"}) for kind in kinds().values()},
    **{("scenarios", source.name): (source.params, {"inputs", "columns"}) for source in sources().values()},
}


@pytest.mark.parametrize("where", KEYS, ids="-".join)
def test_every_key_is_listed_with_its_default(where: tuple[str, str]) -> None:
    model, in_words = KEYS[where]
    fields = {field.alias or name: (name, field) for name, field in model.model_fields.items()}
    if where[1] in sources():
        del fields["kind"]  # it is the heading
    table = {cells[0].strip("`"): cells for cells in rows(section(page(where[0]), where[1]))}
    assert list(table) == list(fields)
    for key, (name, field) in fields.items():
        if key not in in_words:
            assert table[key][2] == shown(name, field), key


def parts_of(name: str) -> dict[str, str]:
    """A page of protocols: the text of each second-level section, examples and subsections included, by its heading."""
    found = re.split(r"^## (.*)\n", page(name), flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))


def sections_of(protocol: str) -> list[tuple[str, str]]:
    """(page, heading) of the sections that are about a protocol. A section may be about two: ``a and b``."""
    return [(name, head) for name in PROTOCOL_PAGES for head in parts_of(name) if protocol in head.split(" and ")]


@pytest.mark.parametrize("protocol", protocols())
def test_every_protocol_has_one_section_with_its_options_and_an_example(protocol: str) -> None:
    found = sections_of(protocol)
    assert len(found) == 1, found
    name, head = found[0]
    assert re.search(rf"protocol:? (?:{head.replace(' and ', '|')})\b", parts_of(name)[head]), "no example"
    table = rows(section(page(name), head))
    assert bool(table) == (protocols()[protocol].options is not None)
    assert all(cells[2] for cells in table), "an option is not explained"


MADE = cli_doc.pages()


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_what_is_generated_is_up_to_date(path: Path) -> None:
    """Tables of options too: names, order and defaults are the code's."""
    assert path.read_text(encoding="utf-8") == MADE[path]


def test_a_table_of_options_is_made_anew_around_what_the_page_says_of_each() -> None:
    old = "## tgi-generate\n\n| option | default | meaning |\n|---|---|---|\n| `gone` | `1` | x |\n| `stream` | `7` | or \\| not |\n\nMore.\n"  # noqa: E501
    made = cli_doc.option_tables(old)
    assert "| `stream` | `true` | or \\| not |\n" in made
    assert "gone" not in made
    assert [cells[0] for cells in rows(made)] == [
        f"`{name}`" for name in protocols()["tgi-generate"].options.model_fields
    ]  # type: ignore[union-attr]
    assert made.endswith("|\n\nMore.\n")


@pytest.mark.parametrize("protocol", protocols())
def test_a_protocol_that_takes_options_says_which(protocol: str) -> None:
    """An unknown option is refused with the names of the known ones: they are those of the model that the page
    shows.
    """
    spec = protocols()[protocol]
    told = spec.check({"no_such_option": 1})
    known = {name for text in told for name in re.findall(r"\w+", text.partition("Known ones:")[2])}
    assert told
    assert known == (set(spec.options.model_fields) if spec.options is not None else set())


def test_every_objective_in_the_text_is_one_and_the_refused_ones_are_refused() -> None:
    refused = named(section(page("objectives"), "Refused"))
    assert len(refused) >= 5
    for text in refused:
        with pytest.raises(objective.ObjectiveError):
            objective.parse(text)
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for block in fences(text, "slo"):
            assert objective.parse_all(block.splitlines())[1] == []
        for span in spans(text):
            if _OBJECTIVE.fullmatch(span) and span not in refused:
                objective.parse(span)
    for block in fences(page("objectives"), "yaml"):
        assert objective.parse_all(read_document(block, "objectives.md")["objectives"])[1] == []


def test_the_numbers_of_requests_needed_are_right() -> None:
    from plimsoll.slo.statistics.confidence import n_needed

    table = rows(section(page("objectives"), "Verdicts"))[-1]
    said = [int(cell.replace(",", "")) for cell in table[1:]]
    assert said == [n_needed(0, 0, limit) for limit in ("0.1", "0.05", "0.01", "0.001")]


# -- what a run leaves behind ---------------------------------------------------------------------------------


def test_the_exit_codes_are_those_of_the_program() -> None:
    listed = [int(cells[0]) for cells in rows(section(page("run-directory"), "Exit codes"))]
    assert listed == [int(code) for code in ExitCode]
    assert {cells[0]: int(cells[1]) for cells in rows(section(readme(), "Reading the verdict"))} == OF_OUTCOME
    verdicts = rows(section(page("objectives"), "Verdicts"))[: len(OF_OUTCOME)]
    assert {cells[0]: int(cells[2]) for cells in verdicts} == OF_OUTCOME


@pytest.mark.parametrize(
    ("heading", "model"),
    [
        ("report.json", Report),
        ("run", parts.Run),
        ("validity", parts.Validity),
        ("validity.generator_error", parts.GeneratorError),
        ("verdict", parts.Verdict),
        ("verdict.objectives", parts.ObjectiveResult),
        ("metrics", parts.Metric),
        ("throughput", parts.Throughput),
        ("counts", parts.Counts),
        ("charts", charts.Charts),
    ],
)
def test_every_key_of_the_report_is_listed(heading: str, model: type[BaseModel]) -> None:
    listed = named(section(page("run-directory"), heading))
    assert listed == [field.alias or name for name, field in model.model_fields.items()]


def test_every_file_column_and_status_is_listed() -> None:
    text = page("run-directory")
    assert set(named(section(text, "Run directory"))) == FILES
    requests, chunks = tables.to_tables(rec.empty(), [], TraceIds.of("r", 0.0).column(rec.empty()))
    listed = named(section(text, "requests.parquet"))
    assert listed == [*requests.column_names, *(status.name for status in rec.Status)]
    assert named(section(text, "chunks.parquet")) == chunks.column_names


def test_every_check_of_the_generator_is_explained() -> None:
    due = np.arange(300) * 10_000_000
    records = rec.from_columns(
        300,
        due_ns=due,
        ready_ns=due,
        sent_ns=due,
        first_byte_ns=due + 1,
        done_ns=due + 2,
        pace=1,
        frame_ns=20_000_000,
        ragged={"frame_lag_ns": [[0]] * 300},
    )
    facts = validity.GeneratorFacts(open_loop=True, planned=300, planned_queries=300, process="constant", agents=2)
    names = set()
    for strict in (False, True):
        seen = validity.assess(records, facts, [objective.parse("p99(ttft) <= 200ms")], strict=strict)
        names |= {check.name for check in seen.checks}
    closed = validity.GeneratorFacts(open_loop=False, planned=300, slots=(1,), event_faults=("restart: failed",))
    names |= {check.name for check in validity.assess(records, closed, []).checks}
    assert set(named(section(page("validity"), "Validity"))) == names
    assert set(named(section(page("validity"), "Why these limits, and how each is tested"))) == names


def test_every_fact_of_the_generator_is_explained() -> None:
    listed = [cells[0] for cells in rows(section(page("run-directory"), "generator.json"))]
    told = [name for cell in listed for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(told) == sorted(field.name for field in dataclasses.fields(validity.GeneratorFacts))


# -- names that a folder scan finds ---------------------------------------------------------------------------


def test_everything_that_a_folder_scan_finds_is_named() -> None:
    assert set(named(section(page("scenarios"), "Library"))) == set(library())
    assert sorted(named(section(page("protocols"), "Protocols"))) == sorted(protocols())
    everywhere = ["max_connections", "stamps", "spin", "engine", "max_outstanding", "request_id"]
    everywhere += ["traceparent", "trace_url"]
    assert named(section(page("protocols"), "In common"))[-len(everywhere) :] == everywhere
    assert set(named(section(page("run-directory"), "Formats"))) == set(formats())
    assert {f"## {name}" for name in catalogue()} <= set(page("metrics").splitlines())
    grammar = spans(section(page("objectives"), "Grammar"))
    assert set(catalogue()) <= set(grammar)
    heads = set(page("scenarios").splitlines())
    assert {f"### {name}" for name in (*kinds(), *sources())} <= heads


@pytest.mark.parametrize("protocol", protocols())
def test_the_table_of_protocols_leads_to_the_right_section(protocol: str) -> None:
    row = next(
        cells for cells in rows(section(page("protocols"), "Protocols")) if cells[0].startswith(f"[`{protocol}`]")
    )
    (name, head) = sections_of(protocol)[0]
    anchor = re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-")
    assert _LINK.findall(row[0]) == [f"{'' if name == 'protocols' else name + '.md'}#{anchor}"]


def test_the_codecs_and_normalisers_are_those_of_the_program() -> None:
    text = page("protocols-speech")
    listed = {name for cells in rows(section(text, "Codecs")) for name in _SPAN.findall(cells[0])}
    assert listed == {*encodable(), *decodable()}
    of_audio = next(cells for cells in rows(section(text, "Live audio")) if cells[0] == "`normaliser`")
    assert _SPAN.findall(of_audio[2]) == list(NAMES)
    assert set(NAMES) <= set(named(section(page("metrics"), "Speech")))


def test_what_is_said_about_reading_a_speech_run_names_real_metrics() -> None:
    text = page("speech")
    settings = {"capture", "eager", "burst"}
    words = {span for span in spans(text) if re.fullmatch(r"[a-z_]+", span)}
    drawn = {word for body in fences(text, "text") for word in re.findall(r"[a-z]+_[a-z_]+", body)}
    assert words - settings <= set(catalogue())
    assert drawn <= set(catalogue())
    assert len(words | drawn) > 15


def test_the_oracle_is_described_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = page("reference-server")
    with pytest.raises(SystemExit):
        oracle(["--help"])
    flags = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    assert {name.split(" ")[0] for name in named(section(text, "Flags of the oracle"))} == flags
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "reference_server/oracle").glob("*.c"))
    keys = re.findall(r'\\"(\w+)\\": ', source[source.index("bool truth_json") : source.index("bool truth_binary")])
    assert named(section(text, "Truth of the oracle")) == keys


def test_the_library_table_gives_each_its_kind() -> None:
    from plimsoll.scenarios.spec import load

    for cells in rows(section(page("scenarios"), "Library")):
        assert cells[1] == load(cells[0].strip("`")).kind


def test_the_reference_server_is_described_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = page("reference-server")
    assert set(named(section(text, "Models"))) == set(MODELS)
    listed = {cells[0].strip("`"): cells[1] for cells in rows(section(text, "Faults"))[: len(FAULTS)]}
    for name, fault in FAULTS.items():
        keys = [f"`{key}`" if default is None else f"`{key}` ({default})" for key, default in fault.keys.items()]
        assert listed[name] == ", ".join(keys)
    assert named(section(text, "Truth")) == list(TruthRow("id", "scripted", 0).as_json())
    exposed = re.findall(r"^# TYPE (\S+)", Metrics().render(None, None).decode(), re.MULTILINE)
    families = {name for name in exposed if not name.endswith("_created")}
    assert families <= set(spans(section(text, "Metrics")))
    with pytest.raises(SystemExit):
        reference_server(["--help"])
    with pytest.raises(SystemExit):
        oracle(["--help"])
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    for span in spans(text):
        flag = span.split(" ")[0].partition("=")[0]
        assert not flag.startswith("--") or flag in known, span


def test_the_plug_ins_of_the_page_are_what_its_entry_points_say() -> None:
    text = (ROOT / "docs/guide/plugins.md").read_text(encoding="utf-8")
    toml, code = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("toml", "python"))
    assert toml
    assert code
    acme: dict[str, Any] = {"__name__": "acme"}
    exec(code[1], acme)
    kinds_of = {"indicators": Indicator, "protocols": tuple, "formats": Format, "sections": ReportSection}
    groups = tomllib.loads(toml[1])["project"]["entry-points"]
    assert {group.removeprefix("plimsoll.") for group in groups} == set(kinds_of)
    for group, points in groups.items():
        ((name, value),) = points.items()
        made = acme[value.removeprefix("acme:")]
        assert isinstance(made, kinds_of[group.removeprefix("plimsoll.")])
        assert name == (made[0] if isinstance(made, tuple) else made).name
    assert acme["PROTOCOLS"][0].build(Target("http://127.0.0.1:1", "acme"), None)


def test_a_source_distribution_holds_every_page_that_a_page_links_to() -> None:
    kept = (ROOT / "MANIFEST.in").read_text().splitlines()
    (docs,) = (line.split()[2:] for line in kept if line.startswith("recursive-include docs "))
    pages = [file for file in (ROOT / "docs").rglob("*.*") if file.parent.name != "__pycache__"]
    assert pages
    assert not [file for file in pages if not any(file.match(one) for one in docs)]
    assert {page.name for page in ROOT.glob("*.md")} <= {"README.md", *" ".join(kept).split()}
