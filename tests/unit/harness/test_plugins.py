"""Discovery by folder scan and entry points."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import plimsoll.harness.protocols._discovery as plugins
from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.transport.client import ProtocolSpec


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An importable empty package named ``some_plugins``."""
    package = tmp_path / "some_plugins"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "some_plugins", raising=False)
    yield package
    for name in [name for name in sys.modules if name.startswith("some_plugins")]:
        del sys.modules[name]


def test_a_new_file_is_found_without_any_registration(folder: Path) -> None:
    (folder / "beta.py").write_text("THING = 2\n")
    (folder / "alpha.py").write_text("THING = 1\n")
    (folder / "_private.py").write_text("raise RuntimeError('never imported')\n")
    found = plugins.discover("some_plugins", "THING")
    assert found == [("some_plugins.alpha", 1), ("some_plugins.beta", 2)]


def test_a_file_that_exports_nothing_is_an_error(folder: Path) -> None:
    (folder / "alpha.py").write_text("")
    with pytest.raises(HarnessFault, match="exports no THING"):
        plugins.discover("some_plugins", "THING")


def test_entry_points_add_protocols_and_a_broken_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    null = plugins.protocols()["null"]
    outside = ProtocolSpec("outside", "", null.build, null.check, streaming=False)
    points = [EntryPoint("outside", "tests_outside:SPEC", "plimsoll.protocols")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == "plimsoll.protocols" else [])
    with pytest.raises(HarnessFault, match="entry point outside"):
        plugins.protocols()
    module = type(sys)("tests_outside")
    module.SPEC = outside  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tests_outside", module)
    assert plugins.protocols()["outside"] is outside
    module.SPEC = (null,)  # type: ignore[attr-defined]
    with pytest.raises(HarnessFault, match=r"already defined by plimsoll\.harness\.protocols\.null"):
        plugins.protocols()
    module.SPEC = (1,)  # type: ignore[attr-defined]
    with pytest.raises(HarnessFault, match="not a ProtocolSpec"):
        plugins.protocols()


def test_the_http_family_is_there() -> None:
    names = {"http", "kserve-v2", "openai-chat", "openai-completions", "openai-embeddings", "null"}
    assert names <= plugins.protocols().keys()
    assert all(name == spec.name for name, spec in plugins.protocols().items())
