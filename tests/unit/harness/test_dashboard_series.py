"""One live page for many runs: the same address for each, free again after each, and none where none was asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from plimsoll.harness.live.live_view import LiveView, watcher
from plimsoll.harness.live.place import Place
from plimsoll.harness.run.job import Prepared, prepare
from plimsoll.harness.run.promises import Asked
from plimsoll.harness.series.one_run import LivePage
from plimsoll.reports.formats.openmetrics import live as render


def prepared(folder: Path) -> Prepared:
    return prepare(None, {"url": "http://127.0.0.1:9", "rate": 5.0, "kind": "server"}, Asked(), (), folder)


def test_metrics_have_the_runs_id_before_the_run_begins(tmp_path: Path) -> None:
    made = prepared(tmp_path / "r")
    view = watcher(Place("127.0.0.1", 0), made)
    text = render(view._shown.report()).decode()
    view.stop()
    assert f'run_id="{made.job.run_id}"' in text
    assert 'run_id=""' not in text


def test_without_a_place_nobody_looks_on(tmp_path: Path) -> None:
    assert LivePage(None).begin(prepared(tmp_path / "r")) == ()


def test_every_run_has_its_page_at_the_address_that_the_first_one_found(tmp_path: Path) -> None:
    page, urls = LivePage(Place("127.0.0.1", 0)), []
    for number in range(2):
        (view,) = page.begin(prepared(tmp_path / str(number)))
        assert isinstance(view, LiveView)
        asyncio.run(view.open())
        urls.append(view.url)
        with urlopen(f"{view.url}healthz", timeout=5) as answer:
            assert answer.status == 200
        page.end()
        assert not view.serving
    assert urls[0] == urls[1]
    with pytest.raises(URLError):
        urlopen(urls[0], timeout=5)


def test_a_run_that_never_opened_its_page_leaves_the_next_one_free(tmp_path: Path) -> None:
    page = LivePage(Place("127.0.0.1", 0))
    page.begin(prepared(tmp_path / "r"))
    page.end()
    (view,) = page.begin(prepared(tmp_path / "s"))
    assert isinstance(view, LiveView)
    asyncio.run(view.open())
    page.end()
