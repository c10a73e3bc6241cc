"""Protocols are found by their files' text and by entry points; a vendor is one file, ours or anybody's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import plimsoll.harness.protocols._discovery as plugins
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.transport.client import ProtocolSpec
from plimsoll.harness.verbs import cli_doc
from plimsoll.slo.metrics.plugin import PluginError

SPEC = 'PROTOCOLS = (ProtocolSpec(\n    "{}", "", None),)\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An importable empty package named ``some_plugins``."""
    package = tmp_path / "some_plugins"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "some_plugins", raising=False)
    plugins.named.cache_clear()
    yield package
    for name in [name for name in sys.modules if name.startswith("some_plugins")]:
        del sys.modules[name]
    plugins.named.cache_clear()


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package ``acme_plimsoll`` with one file, announced by an entry point."""
    information = tmp_path / "acme_plimsoll-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plimsoll\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[plimsoll.protocols]\nacme = acme_plimsoll:PROTOCOLS\n")
    (tmp_path / "acme_plimsoll.py").write_text(
        "from plimsoll.harness.options import Options\n"
        "from plimsoll.harness.protocols.null import PROTOCOLS as NULL\n"
        "from plimsoll.harness.transport.client import ProtocolSpec\n\n\n"
        "class AcmeOptions(Options):\n    loud: bool = False\n\n\n"
        'PROTOCOLS = (ProtocolSpec("acme", "an outside vendor", NULL[0].build, AcmeOptions, needs_url=False),)\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    plugins.outside.cache_clear()
    yield tmp_path
    plugins.outside.cache_clear()
    sys.modules.pop("acme_plimsoll", None)


def test_a_new_file_is_found_without_any_registration_and_without_being_imported(folder: Path) -> None:
    (folder / "beta.py").write_text("raise RuntimeError('not asked for')\n" + SPEC.format("b"))
    (folder / "alpha.py").write_text(SPEC.format("a-1") + SPEC.format("a-2"))
    (folder / "_private.py").write_text("")
    assert plugins.named("some_plugins") == {
        "a-1": "some_plugins.alpha",
        "a-2": "some_plugins.alpha",
        "b": "some_plugins.beta",
    }


def test_a_file_without_a_protocol_and_a_name_given_twice_are_errors(folder: Path) -> None:
    (folder / "alpha.py").write_text("")
    with pytest.raises(HarnessFault, match=r"some_plugins.alpha: it makes no ProtocolSpec"):
        plugins.named("some_plugins")
    for name in ("alpha", "beta"):
        (folder / f"{name}.py").write_text(SPEC.format("same"))
    with pytest.raises(HarnessFault, match=r"beta: the protocol 'same' is already defined by some_plugins.alpha"):
        plugins.named("some_plugins")


def test_a_vendor_of_an_outside_package_is_one_file(vendor: Path) -> None:
    known = plugins.protocols()
    assert "acme" in known
    assert list(known) == sorted(known)
    assert known["acme"].summary == "an outside vendor"
    assert known["acme"].check({"loud": True}) == []
    (said,) = known["acme"].check({"lout": True})
    assert said == "target.options.lout: unknown option. Did you mean loud? Known ones: loud"
    assert plugins.protocol("acme") is known["acme"]
    assert not any("acme" in text for text in cli_doc.pages().values())  # our documents are of our own


def test_the_command_line_names_a_protocol_of_an_outside_package(vendor: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(vendor)!r}); from plimsoll.__main__ import main; main()"
    unknown = subprocess.run(
        [sys.executable, "-c", code, "run", "--protocol", "acmee"], capture_output=True, text=True, check=False
    )
    assert unknown.returncode == 2
    assert "'acmee' is unknown. Did you mean acme" in unknown.stderr


def test_an_entry_point_that_is_broken_or_claims_a_name_of_ours_is_named(
    vendor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (vendor / "acme_plimsoll.py").write_text("")
    with pytest.raises(PluginError, match=r"plug-in acme = acme_plimsoll:PROTOCOLS of group .*Mend or uninstall"):
        plugins.protocols()["acme"]
    assert "acme" not in list(plugins.protocols())
    plugins.outside.cache_clear()
    module = type(sys)("acme_plimsoll")
    monkeypatch.setitem(sys.modules, "acme_plimsoll", module)
    module.PROTOCOLS = plugins.protocol("null")  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match=r"'null' is already defined by plimsoll\.harness\.protocols\.null"):
        plugins.protocols()["null"]
    assert plugins.protocols()["http"].name == "http"
    plugins.outside.cache_clear()
    module.PROTOCOLS = (1,)  # type: ignore[attr-defined]
    with pytest.raises(PluginError, match="not a ProtocolSpec"):
        plugins.protocols()["acme"]


def test_every_file_of_ours_holds_the_protocols_that_its_text_says() -> None:
    known = plugins.protocols()
    assert {"http", "kserve-v2", "openai-chat", "openai-completions", "openai-embeddings", "null"} <= known.keys()
    said: dict[str, list[str]] = {}
    for name, module in plugins.named().items():
        said.setdefault(module, []).append(name)
    for module, names in said.items():
        held: tuple[ProtocolSpec, ...] = sys.modules.get(module, __import__(module, fromlist=["x"])).PROTOCOLS
        assert [spec.name for spec in held] == names
    assert all(name == spec.name for name, spec in known.items())


def test_to_ask_for_one_protocol_imports_its_file_only() -> None:
    code = (
        "import sys; from plimsoll.harness.protocols._discovery import named, protocol; protocol('null'); "
        "print([one for one in sorted({*named().values()}) if one in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "['plimsoll.harness.protocols.null']"
