"""Large arrays on disk: the same values, little memory, and no harm where no disk takes them.

Each test runs in a process of its own, because numpy keeps its memory handler for good.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("plimsoll.harness.process._scratch")

_BEGIN = """
import resource, sys, tempfile, threading
from pathlib import Path
import numpy as np
from plimsoll.harness.process import _scratch, arrays
MB = 1 << 20
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
"""


def said(code: str, folder: Path) -> str:
    """What a process prints whose temporary folder is ``folder``."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PATH": "/usr/bin", "TMPDIR": str(folder), "PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_arrays_larger_than_the_memory_that_they_may_have_hold_what_was_written(tmp_path: Path) -> None:
    code = """
    assert arrays.on_disk(Path(".")) == Path(tempfile.gettempdir())
    begun = peak()
    n = 8_000_000
    rows = np.arange(n)  # 64 MB each, 12 of them
    columns = [rows * factor for factor in range(12)]
    for _ in range(3):
        for factor, column in enumerate(columns):
            assert int(column[n - 1]) == factor * (n - 1) and int(column.sum()) == factor * n * (n - 1) // 2
    on_disk, most, in_memory = _scratch.held()
    assert on_disk > 600 * MB and in_memory < 100 * MB
    print((peak() - begun) // MB)
    """
    assert int(said(code, tmp_path)) < 300  # of 832; a busy host lets go late
    assert not list(tmp_path.iterdir())


def test_memory_that_comes_back_is_zero_where_zeros_are_asked_for_and_resizes_keep_their_values(tmp_path: Path) -> None:
    code = """
    _scratch.install(tempfile.gettempdir(), MB, 0, MB)
    for size in (1, 2, 3):
        full = np.full(size * MB, 7, np.int64)
        del full
        assert not np.zeros(size * MB, np.int64).any()
    one = np.arange(MB)
    for n in (2 * MB, 3 * MB, MB // 2, 10, 4 * MB):
        kept = min(n, len(one))
        one.resize(n, refcheck=False)
        assert (one[:kept] == np.arange(kept)).all() and not one[kept:].any()
        one = np.arange(n)
    """
    said(code, tmp_path)


def test_what_is_freed_in_memory_is_used_again_or_makes_room_and_is_never_let_go_of(tmp_path: Path) -> None:
    code = """
    _scratch.install(tempfile.gettempdir(), MB, 50 * MB, MB)
    first = np.ones(2 * MB)
    at = first.ctypes.data
    del first
    again = np.full(2 * MB, 3.0)
    assert again.ctypes.data == at and _scratch.held() == (0, 0, 16 * MB)
    on_disk = [np.full(8 * MB, factor) for factor in range(4)]  # 64 MB each: no budget holds them
    assert _scratch.held() == (256 * MB, 256 * MB, 16 * MB)
    assert all((one == factor).all() for factor, one in enumerate(on_disk)) and (again == 3.0).all()
    del again
    large = np.ones(5 * MB)
    assert _scratch.held() == (256 * MB, 256 * MB, 40 * MB) and large.sum() == 5 * MB
    """
    said(code, tmp_path)


def test_random_work_gives_the_same_bits_with_and_without(tmp_path: Path) -> None:
    code = """
    def work(seed):
        rng = np.random.default_rng(seed)
        a = rng.integers(-5, 10**9, 700_000)
        b = a[rng.integers(0, len(a), 900_000)].astype(float)
        order = np.argsort(b, kind="stable")
        c = np.concatenate([b[order], np.sqrt(np.abs(b)), np.cumsum(b)])
        return [float(c.sum()), float(np.median(c)), int(np.searchsorted(np.sort(b), 5e8)), c[::997].tobytes()]
    plain = [work(seed) for seed in range(4)]
    _scratch.install(tempfile.gettempdir(), MB, 0, 2 * MB)
    assert [work(seed) for seed in range(4)] == plain
    found = {}
    def aside(seed):  # a thread has numpy's own memory, and may free what this one made
        found[seed] = work(seed)
    threads = [threading.Thread(target=aside, args=(seed,)) for seed in range(4)]
    [thread.start() for thread in threads]
    assert [work(seed) for seed in range(4)] == plain
    [thread.join() for thread in threads]
    assert [found[seed] for seed in range(4)] == plain
    """
    said(code, tmp_path)


def test_where_files_may_not_grow_arrays_stay_in_memory(tmp_path: Path) -> None:
    code = """
    import signal
    _scratch.install(tempfile.gettempdir(), MB, 0, MB)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * MB, 3 * MB))
    small, large = np.arange(MB // 8), np.arange(2 * MB)  # 1 MB and 16 MB
    assert int(large.sum()) == MB * (2 * MB - 1) and int(small[-1]) == MB // 8 - 1
    print(_scratch.held())
    """
    on_disk, _, in_memory = eval(said(code, tmp_path))
    assert on_disk <= 2 << 20
    assert in_memory >= 16 << 20


def test_a_folder_that_is_memory_or_is_not_there_is_passed_over(tmp_path: Path) -> None:
    code = f"""
    for folder in ("/dev/shm", "/nowhere"):
        try:
            _scratch.install(folder, MB, 0, MB)
        except OSError as error:
            print(error)
    tempfile.tempdir = "/nowhere"
    print(arrays.on_disk(Path("{tmp_path}")))
    """
    assert said(code, tmp_path).splitlines() == [
        "/dev/shm is in memory",
        "[Errno 2] No such file or directory: '/nowhere'",
        str(tmp_path),
    ]
