"""Files are whole or not there, and no link that lies where we write is followed."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from plimsoll.harness.errors import HarnessFault
from plimsoll.harness.process import writing
from plimsoll.harness.run.judged import read_formats


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """``ulimit -f`` for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("name", ["report.html", "report.html.partial"])
def test_a_link_where_we_write_is_replaced_or_passed_by_and_its_target_is_untouched(name: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / name).symlink_to(victim)
    writing.whole(tmp_path / "report.html", b"ours")
    assert victim.read_text() == "mine"
    assert (tmp_path / "report.html").read_bytes() == b"ours"
    assert not (tmp_path / "report.html").is_symlink()


def test_a_dangling_link_is_not_made_a_file(tmp_path: Path) -> None:
    (tmp_path / "new.yaml").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "run.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        writing.new(tmp_path / "new.yaml", "x")
    with pytest.raises(HarnessFault, match="symbolic links"):
        writing.log(tmp_path / "run.log")
    assert read_formats([f"json={tmp_path / 'new.yaml'}"])[1] == []
    assert not (tmp_path / "elsewhere").exists()


def test_what_can_t_be_written_whole_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    writing.whole(path, b"old")
    with files_of_at_most(1000), pytest.raises(OSError, match=f"File too large: '{path}'"):
        writing.whole(path, b"x" * 5000)

    def breaks_off(file: IO[bytes]) -> None:
        file.write(b"half")
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        writing.whole(path, breaks_off)
    assert path.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [path]


def test_what_killed_writers_left_is_removed_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from plimsoll.harness.process import writing\n"
    code += "def half(file):\n file.write(b'x' * 9999); file.flush(); print(flush=True); time.sleep(99)\n"
    code += "writing.whole(Path(sys.argv[1]), half)"
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path / name)], stdout=subprocess.PIPE) for name in "ab"
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        writers[0].kill()
        writers[0].wait()
        (tmp_path / "my.partial").write_text("mine")
        assert len([*tmp_path.glob("a.*.partial")]) == 1
        writing.tidy(tmp_path)
        assert sorted(path.name[:2] for path in tmp_path.iterdir()) == ["b.", "my"]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_files_have_the_mode_that_the_user_s_umask_leaves(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        writing.whole(tmp_path / "a", b"")
        writing.new(tmp_path / "b", "")
        writing.log(tmp_path / "c").close()
    finally:
        os.umask(before)
    assert {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in "abc"} == {0o640}


def test_a_pipe_and_a_descriptor_are_written_as_they_are(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    heard: list[bytes] = []
    reader = threading.Thread(target=lambda: heard.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    assert writing.result(tmp_path / "pipe", b"said", "")
    reader.join(10)
    assert heard == [b"said"]
    reads, writes = os.pipe()
    writing.whole(Path(f"/dev/fd/{writes}"), b"said too")
    assert os.read(reads, 100) == b"said too"
    os.close(reads)
    os.close(writes)


def test_a_pipe_that_somebody_put_under_a_name_of_ours_is_replaced(tmp_path: Path) -> None:
    """To open it would wait for a reader for ever, and no signal would end that."""
    for name in ("requests.parquet", "report.html"):
        os.mkfifo(tmp_path / name)
    keep = [os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK) for name in ("requests.parquet", "report.html")]
    writing.whole(tmp_path / "requests.parquet", b"ours")
    assert writing.result(tmp_path / "report.html", b"ours", "", named=False)
    for number, name in zip(keep, ("requests.parquet", "report.html"), strict=True):
        assert (tmp_path / name).read_bytes() == b"ours"
        assert os.read(number, 10) == b""
        os.close(number)


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_a_log_is_no_pipe_and_no_link_of_somebody_elses(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "worker.log"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(tmp_path / "victim")
    with pytest.raises(HarnessFault):
        writing.log(path)
    assert not (tmp_path / "victim").exists()


def test_a_log_grows_and_its_end_is_told_on_one_line(tmp_path: Path) -> None:
    for text in (b"first\n", b"Traceback\n  last line\n"):
        with writing.log(tmp_path / "log") as log:
            log.write(text)
    assert writing.tail(tmp_path / "log") == "first Traceback last line"
    assert writing.tail(tmp_path / "log", 9) == "... last line"
    assert writing.tail(tmp_path / "none") == ""


def test_checking_a_place_leaves_nothing_there(tmp_path: Path) -> None:
    writing.check(tmp_path / "a.json")
    writing.check(Path("/dev/null"))
    assert not [*tmp_path.iterdir()]
    for path, said in ((tmp_path, "directory"), (tmp_path / "no" / "a.json", "No such file")):
        with pytest.raises(OSError, match=said):
            writing.check(path)


@pytest.mark.parametrize("name", ["x" * 255, "日" * 85, "é" * 127], ids=("latin", "han", "accents"))
def test_a_name_as_long_as_any_may_be_is_written(name: str, tmp_path: Path) -> None:
    writing.whole(tmp_path / name, b"y")
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"y"
